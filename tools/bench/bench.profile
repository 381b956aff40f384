# What the benchmarks compare in: the base guest with the two ways into a machine that people use today.
description: Debian 12 with an SSH server and QEMU's guest agent, for the benchmarks
from: base
size_mib: 1280
packages: openssh-server qemu-guest-agent

# What makes ssh slow at a login only; the benchmark logs in once.
file: /etc/ssh/sshd_config.d/bench.conf <<EOF
PermitRootLogin prohibit-password
UsePAM no
UseDNS no
PrintMotd no
X11Forwarding no
MaxSessions 64
EOF
# Started by guest-init.sh in place of an init system: the network, the three services that are measured, nothing else.
file: /sbin/bench-init 0755 <<EOF
#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mkdir -p /run/sshd
hostname bench
/bench/busybox ifconfig lo 127.0.0.1 up
/bench/busybox ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
/usr/sbin/qemu-ga -m virtio-serial -p /dev/vport0p1 </dev/null >/dev/null 2>&1 &
cat /dev/zero >/dev/vport0p2 &
exec /usr/sbin/sshd -D -e -o AuthorizedKeysFile=/bench/authorized_keys -o StrictModes=no
EOF
