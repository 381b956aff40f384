#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A sandbox that was allowed nothing: loopback only. Its root may load the network card's driver and give itself addresses, and reaches
# nothing: the card's other end is a tap that is down, in a namespace without a route.
. "$(dirname "$0")/lib.sh"
need cpio
[ -e /dev/net/tun ] || skip "no /dev/net/tun"

start_daemon
ready_sandbox a
run a 'ls /sys/class/net; cat /proc/net/route | wc -l; ping -c 1 -w 1 8.8.8.8 2>&1; echo end'
assert_rec stdout '=~^lo\n[01]\n.*[Nn]etwork.*unreachable.*\nend'

mkdir "$DIR/initramfs"
(cd "$DIR/initramfs" && cpio --quiet -idm 'lib/modules/*' <"$STORE/boot/current/initramfs")
for m in failover net_failover virtio_net; do
	# Some kernels have a part of it built in.
	[ ! -e "$DIR/initramfs/lib/modules/$m.ko" ] || cp "$DIR/initramfs/lib/modules/$m.ko" "$RUN/a/fs/root/$m.ko"
done
run a 'cd /root; for m in failover net_failover virtio_net; do [ ! -e $m.ko ] || insmod $m.ko || exit 1; done; ls /sys/class/net'
assert_rec exit_code 0 stdout '=~eth0'
run a 'ip link set eth0 up; ip addr add 10.77.0.2/24 dev eth0; ip route add default via 10.77.0.1; ip route'
assert_rec stdout '=~default via 10.77.0.1'
run a 'for t in 10.77.0.1 8.8.8.8 127.0.0.2; do ping -c 1 -w 3 $t >/dev/null 2>&1 && echo reached $t; done
	nslookup example.com 10.77.0.1 >/dev/null 2>&1 && echo resolved
	for t in 10.77.0.1:15001 10.77.0.1:53 1.1.1.1:443 169.254.169.254:80; do
		nc -w 3 ${t%:*} ${t#*:} </dev/null >/dev/null 2>&1 && echo connected $t; done; cat /proc/net/arp'
assert_rec stdout '=~^reached 127.0.0.2\nIP address[^\n]*\n(10.77.0.1 +0x1 +0x0 [^\n]*\n)?$'

# The host's side: nothing came through, though it was sent, and nothing was set up for it.
engine=$(engine_pid a)
assert_match "$(grep net0 "/proc/$engine/net/dev")" 'net0: +0 +0 +0 +[1-9]' 'what the tap has received: bytes, packets, errors; what it threw away'
assert_no_match "$(cat "/proc/$engine/net/route" "/proc/$engine/net/arp")" net0
