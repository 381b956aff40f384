#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# run/<id>/net: what may be written there, what a write refuses and in which words, ports that are taken. No guest.
. "$(dirname "$0")/lib.sh"
need python3

free_port() {
	python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
listens() { # PORT
	python3 -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2)' "$1" 2>"$DIR/said"
}

start_daemon --set 'net_private=10.9.0.0/16' --set 'net_upstream=192.0.2.53#5353'
new_sandbox a
A=$RUN/a
N=$A/net

# -- net/allow: a list as env, and +name, -name --------------------------------------------------------------------

assert_file "$N/allow" ""
assert_file "$N/ports" ""
assert_file "$N/log.jsonl" ""
printf 'Example.COM.\n\n# a remark\n *.b.test:443 \n@pypi\n' >"$N/allow"
assert_file "$N/allow" "$(printf 'example.com\n*.b.test:443\n@pypi')"
echo +c.test >"$N/allow"
echo -@pypi >"$N/allow"
assert_file "$N/allow" "$(printf 'example.com\n*.b.test:443\nc.test')"
printf '%s\n' -c.test +d.test >"$N/allow"
assert_file "$N/allow" "$(printf 'example.com\n*.b.test:443\nd.test')" "several lines in order"
echo e.test >>"$N/allow"
assert_file "$N/allow" "$(printf 'example.com\n*.b.test:443\nd.test\ne.test')" ">> adds"
echo example.com >>"$N/allow"
assert_eq "$(wc -l <"$N/allow")" 4 "lines, one of them written twice"
sed -i 's/^d\.test$/10.9.1.0\/24:80/' "$N/allow"
assert_file "$N/allow" "$(printf 'example.com\n*.b.test:443\n10.9.1.0/24:80\ne.test')" "sed -i"
printf 'one.test\n' >"$N/list.new"
mv "$N/list.new" "$N/allow"
assert_file "$N/allow" one.test "a file moved over it"
: >"$N/allow"
assert_file "$N/allow" one.test "truncation does nothing"
assert_eq "$(stat -c %a "$N/allow" "$N/ports" "$N/log.jsonl" "$N" | xargs)" '600 600 400 700' modes

for bad in '*' '*.com' 'a.*.test' '1.2.3' '0x7f.1' 'a.test:0' 'a.test:65536' '10.0.0.0/8' '127.0.0.1' '192.0.2.0/24' \
	'192.168.1.1/24' '@none' 'a b' 'http://a.test/' '::1' '-absent.test' '+'; do
	assert_errno EINVAL write "$N/allow" "$bad\n"
	assert_match "$(cat "$A/error")" 'sandbox a: net/allow: .*' "error after \"$bad\""
	assert_eq "$(wc -l <"$A/error")" 1 "lines of error"
done
assert_errno EINVAL write "$N/allow" 'two.test\n*\nthree.test\n'
assert_errno EINVAL write "$N/allow" 'a\x00b\n'
assert_file "$N/allow" one.test "the list before stays in force"
seq -f 'n%.0f.test' 300 >"$DIR/many"
assert_errno E2BIG write "$N/allow" "$(cat "$DIR/many")\n"
assert_file "$N/allow" one.test
assert_errno EPERM write "$N/log.jsonl" 'x\n'
assert_json "$(cat "$A/info.json")" net_allow '["one.test"]' isolation.network '"none"' ports '[]' addresses '[]'
assert_match "$(cat "$A/log.jsonl")" '"event":"network".*"file":"net/allow"'

# -- net/ports: bound at the write ---------------------------------------------------------------------------------

P=$(free_port)
echo "$P:80" >"$N/ports"
assert_file "$N/ports" "127.0.0.1:$P:80/tcp"
listens "$P" || fail "nobody listens at the port: $(cat "$DIR/said")"
new_sandbox b
assert_errno EADDRINUSE write "$RUN/b/net/ports" "$P:80\n"
assert_match "$(cat "$RUN/b/error")" "port $P of this host is taken by sandbox a" "whose it is"
for bad in 80 "$P:0" 0:80 "$P:65536" "$P:80/udp" "localhost:$P:80" x; do
	assert_errno EINVAL write "$N/ports" "$bad\n"
	assert_match "$(cat "$A/error")" 'sandbox a: net/ports: .*'
done
assert_errno EEXIST write "$N/ports" "$P:80\n$P:81\n"
assert_errno EINVAL write "$N/ports" "+$P:81\n"
assert_match "$(cat "$A/error")" '>> adds' "the way out"
assert_errno EADDRINUSE write "$N/ports" "0.0.0.0:$P:80\n"
assert_match "$(cat "$A/error")" 'empty it first' "the way out of what stands in its own way"
assert_errno EADDRNOTAVAIL write "$N/ports" "192.0.2.9:$P:80\n"
if [ "$(cat /proc/sys/net/ipv4/ip_unprivileged_port_start)" -gt 81 ]; then
	assert_errno EACCES write "$N/ports" '81:80\n'
	assert_match "$(cat "$A/error")" 'below 1024' "the way out"
	! bounded "$CRUCIBLE" run --mount "$MNT" -p 81:80 -- true </dev/null 2>"$DIR/said" || fail "port 81 was published"
	assert_match "$(cat "$DIR/said")" '^crucible: .*below 1024' "the command says so, too"
fi
assert_file "$N/ports" "127.0.0.1:$P:80/tcp" "what was there stays"
Q=$(free_port)
echo "$Q:81" >>"$N/ports"
assert_eq "$(wc -l <"$N/ports")" 2
echo '#' >"$N/ports"
assert_file "$N/ports" ""
listens "$P" && fail "a port that was given back is listened on"
echo "$P:80" >"$RUN/b/net/ports"
rmdir "$RUN/b"
echo "$P:80" >"$N/ports"

# -- another daemon: lists and ports are there ---------------------------------------------------------------------

kill_daemon
start_daemon --set 'net_allow_max=*.b.test, one.test, example.com:443'
assert_file "$N/allow" one.test
assert_file "$N/ports" "127.0.0.1:$P:80/tcp"
listens "$P" || fail "nobody listens at the port after a restart: $(cat "$DIR/said")"
assert_errno EDQUOT write "$N/allow" 'one.test\nexample.com\n'
assert_match "$(cat "$A/error")" 'example\.com.*|.*net_allow_max.*' "which rule"
echo +example.com:443 >"$N/allow"
assert_json "$(cat "$MNT/policy.json")" net_allow_max '["*.b.test", "one.test", "example.com:443"]'
stop_daemon
start_daemon --set net_allow_max=
assert_errno EPERM write "$N/allow" 'two.test\n'
assert_errno EPERM write "$N/ports" "$Q:80\n"
assert_errno EPERM write "$A/ctl" 'start\n'
assert_match "$(cat "$A/error")" 'net_allow_max is empty'
stop_daemon
listens "$P" && fail "somebody listens at the port without a daemon"
for bad in 'net_upstream=example.com' 'net_upstream=192.0.2.1#0' net_private=10.0.0.1/8 'net_allow_max=*'; do
	refuse_daemon 'net_' --set "$bad"
done
exit 0
