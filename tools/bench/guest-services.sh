#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# In place of an init system: the network, what is measured, nothing else. sshd is told to leave out what only makes it slower.
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
ssh-keygen -q -t ed25519 -N '' -f /bench/hostkey
exec /usr/sbin/sshd -D -e -h /bench/hostkey -o AuthorizedKeysFile=/bench/authorized_keys -o StrictModes=no -o UsePAM=no -o UseDNS=no \
	-o PrintMotd=no -o PermitRootLogin=prohibit-password
