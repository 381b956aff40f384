#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
#
# /init of the machine that ssh and QEMU's guest agent are measured in: crucible's own kernel, drivers and root image, but this in place of
# the agent. It loads the drivers, mounts the root disk and gives way to guest-services.sh.
export PATH=/bin
mount -t devtmpfs devtmpfs /dev
mount -t proc proc /proc
while read -r m; do
	[ -z "$m" ] || insmod "/lib/modules/$m"
done <<EOF
$(cat /modules.order /modules.net)
EOF
until [ -b /dev/vda ]; do sleep 0.05; done
mount -t ext4 /dev/vda /root || exec sh
mkdir -p /root/bench
mount -t tmpfs tmpfs /root/bench
cp /bin/busybox /services /authorized_keys /root/bench/
chmod 0644 /root/bench/authorized_keys
mount -o move /dev /root/dev
umount /proc
exec switch_root /root /bench/services
