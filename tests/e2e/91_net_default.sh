#!/bin/bash
# Without a list a sandbox has loopback and nothing else; a root of the guest who loads the driver and sets addresses reaches nothing. And the
# engine's own user, in the sandbox's network namespace, reaches nothing either, with a list or without.
. "$(dirname "$0")/lib.sh"
. "$E2E/lib_net.sh"
need cpio
net_world
start_daemon
new_sandbox a

run a 'ip link | grep -c "^[0-9]"; ls /sys/class/net'
assert_rec exit_code 0 stdout '"1\nlo\n"'
assert_rec isolation.network '"none"'
assert_file "$RUN/a/net/allow" ''

# The twin: what is tried below can be reached from where the daemon lives.
assert_match "$(in_host curl -s http://93.184.216.34/hello)" '^hello from 93'
assert_match "$(in_host curl -s http://169.254.169.254/hello)" '^hello from 169'

# The driver, from the initramfs that every guest began with.
mkdir -p "$DIR/modules"
(cd "$DIR/modules" && cpio -idm --quiet 'lib/modules/*' <"$STORE/boot/current/initramfs")
for m in failover net_failover virtio_net; do
	[ ! -f "$DIR/modules/lib/modules/$m.ko" ] || bounded cp "$DIR/modules/lib/modules/$m.ko" "$RUN/a/fs/root/"
done
run a 'cd /root; for m in failover net_failover virtio_net; do [ ! -e $m.ko ] || insmod $m.ko || exit 1; done
	ip link set eth0 up; ip addr add 10.77.0.2/24 dev eth0; ip route add default via 10.77.0.1; ip route add 93.184.216.34 dev eth0; ls /sys/class/net'
assert_rec exit_code 0 stdout '"eth0\nlo\n"'
for to in 10.77.0.1 93.184.216.34 169.254.169.254 192.0.2.1 192.0.2.2 10.0.0.1; do
	run a "timeout 3 wget -q -O - http://$to/hello; timeout 3 ping -c 1 -W 2 $to"
	assert_rec exit_code '!0' stdout '=~^(PING [^\n]*\n)?(\n---.*100% packet loss.*)?$'
done
# The host's side: nothing came through, though it was sent, and nothing was set up for it.
engine=$(engine_pid a)
assert_match "$(grep net0 "/proc/$engine/net/dev")" 'net0: +0 +0 +0 +[1-9]' 'what the tap has received: bytes, packets, errors; what it threw away'
assert_no_match "$(cat "/proc/$engine/net/route" "/proc/$engine/net/arp")" net0
assert_eq "$(http_count 'GET')" 2 "requests that reached a server: the two of the twin"
assert_eq "$(dns_count .)" 0 "questions that reached the upstream"

# -- somebody who took the engine over ---------------------------------------------------------------------------------

# Every address is tried by TCP and UDP, as the engine's user in the engine's namespace.
cat >"$DIR/escaped.py" <<'PY'
import errno, os, socket, sys
uid = int(sys.argv[1])
os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
reached = []
for addr in sys.argv[2:]:
    family = socket.AF_INET6 if ":" in addr else socket.AF_INET
    for port in (53, 80, 443, 15001):
        s = socket.socket(family, socket.SOCK_STREAM)
        s.settimeout(0.3)
        try:
            s.connect((addr, port))
            s.sendall(b"GET /hello HTTP/1.0\r\n\r\n")
            if s.recv(1):
                reached.append(f"tcp {addr} {port}")
        except OSError:
            pass
        u = socket.socket(family, socket.SOCK_DGRAM)
        u.settimeout(0.1)
        try:
            u.sendto(bytes.fromhex("000701000001000000000000") + b"\7allowed\4test\0\0\1\0\1", (addr, port))
            if u.recv(1):
                reached.append(f"udp {addr} {port}")
        except OSError:
            pass
print("\n".join(reached))
PY
escaped() { # SANDBOX: what it reaches
	local pid

	pid=$(engine_pid "$1")
	nsenter --net="/proc/$pid/ns/net" -- "$PYTHON" -IS "$DIR/escaped.py" "$(stat -c %u "/proc/$pid")" 93.184.216.34 93.184.216.35 \
		169.254.169.254 192.0.2.1 192.0.2.2 10.0.0.1 10.77.0.1 127.0.0.1 ::1 fd77::1 2606:2800:220::34 8.8.8.8
}
# The twin: the same program with the same user reaches them from the daemon's namespace.
assert_match "$(nsenter --net="/proc/$NET_HOST_PID/ns/net" -- "$PYTHON" -IS "$DIR/escaped.py" "$UID_BASE" 93.184.216.34 192.0.2.2)" 'udp 192.0.2.2 53'
seen=$(http_count GET)
assert_eq "$(escaped a)" '' "what an engine's user reaches without a list"
new_sandbox b # the first one's root has routes of its own now
echo allowed.test >"$RUN/b/net/allow"
run b 'wget -q -O - http://allowed.test/hello'
assert_rec stdout '=~^hello from '
assert_eq "$(http_count GET)" $((seen + 1)) "requests that reached a server: the guest's own"
asked=$(dns_count .)
assert_eq "$(escaped b)" '' "what an engine's user reaches with a list"
assert_eq "$(dns_count .) $(http_count GET)" "$asked $((seen + 1))" "what reached the world meanwhile"
