#!/bin/sh
# enter.sh TREE COMMAND...: runs COMMAND as root of TREE. Expects a mount namespace of its own (run.sh), so nothing is to be undone.
# What the command gets of the host is the network and nothing else: its own /proc, a few device nodes, an empty /run.
set -eu
tree=$1
shift
mkdir -p "$tree/proc" "$tree/dev" "$tree/run"
mount -t proc -o nosuid,nodev,noexec proc "$tree/proc"
mount -t tmpfs -o nosuid,mode=0755,size=1m dev "$tree/dev"
mount -t tmpfs -o nosuid,nodev,mode=0755 run "$tree/run"
mknod -m 0666 "$tree/dev/null" c 1 3
mknod -m 0666 "$tree/dev/zero" c 1 5
mknod -m 0666 "$tree/dev/full" c 1 7
mknod -m 0666 "$tree/dev/random" c 1 8
mknod -m 0666 "$tree/dev/urandom" c 1 9
mknod -m 0666 "$tree/dev/tty" c 5 0
ln -s /proc/self/fd "$tree/dev/fd"
ln -s fd/0 "$tree/dev/stdin"
ln -s fd/1 "$tree/dev/stdout"
ln -s fd/2 "$tree/dev/stderr"
mkdir "$tree/dev/shm" "$tree/dev/pts"
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
	DEBIAN_FRONTEND=noninteractive TERM=dumb chroot "$tree" "$@"
