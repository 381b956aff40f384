#!/bin/bash
# A guest whose root makes frames of its own, floods, and holds all that it can get: nothing of it reaches the world, and another sandbox's
# connections and names go on working meanwhile.
# limit: 600
. "$(dirname "$0")/lib.sh"
. "$E2E/lib_net.sh"
need_profile python
net_world
start_daemon
for s in a b; do
	mkdir "$RUN/$s"
	echo profile:python >"$RUN/$s/from"
	printf '%s\n' v4.test v6.test third.test >"$RUN/$s/net/allow"
	run $s true
	assert_rec exit_code 0 isolation.network '"filtered"'
done
bounded cp "$E2E/net_attack.py" "$RUN/a/fs/root/"

# What the world's side of the wire gets, but for the neighbours' own talk.
cat >"$DIR/sniff.py" <<'PY'
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind(("up0", 0))
open(sys.argv[1] + ".up", "w").close()
with open(sys.argv[1], "w", buffering=1) as f:
    while True:
        d, a = s.recvfrom(65535)
        kind = d[12:14].hex()
        if a[2] != 4 or kind == "0806" or (kind == "86dd" and d[20] == 58):
            continue
        if kind == "0800":
            f.write(f"4 {socket.inet_ntoa(d[26:30])} {socket.inet_ntoa(d[30:34])} {d[23]} {int.from_bytes(d[36:38], 'big')}\n")
        elif kind == "86dd":
            f.write(f"6 {socket.inet_ntop(10, d[22:38])} {socket.inet_ntop(10, d[38:54])} {d[20]} {int.from_bytes(d[56:58], 'big')}\n")
        else:
            f.write(f"? {kind}\n")
PY
nsenter --net="/proc/$NET_HOST_PID/ns/net" -- "$PYTHON" -IS "$DIR/sniff.py" "$WORLD/wire.log" </dev/null >"$WORLD/sniff.log" 2>&1 &
SNIFFER=$!
sniff_end() { kill "$SNIFFER" 2>/dev/null || :; }
AT_EXIT=(sniff_end "${AT_EXIT[@]}")
wait_for "a sniffer" test -e "$WORLD/wire.log.up"

other_works() {
	run b 'python3 -c "
import urllib.request as u
for n in (\"v4\", \"third\"):
    print(u.urlopen(f\"http://{n}.test/hello\", timeout=40).read())
"'
	assert_rec exit_code 0 stdout '=~hello from 93.184.216.36'
}
attack() { # NAME
	run a "python3 /root/net_attack.py $1"
	assert_rec exit_code 0
	echo "-- $1: $(rec stdout)"
}

attack frames
attack own
other_works
assert_eq "$(grep -vcE '^4 192.0.2.1 (192.0.2.2 17 53|93.184.216.3[46] 6 80)$' "$WORLD/wire.log" || :)" 0 \
	"packets that are not what an allowed name leads to: $(grep -vE '^4 192.0.2.1 (192.0.2.2 17 53|93.184.216.3[46] 6 80)$' "$WORLD/wire.log" | sort | uniq -c | head -n 5)"

for flood in syn hold hello names pipeline odd short log; do
	put a "python3 /root/net_attack.py $flood"
	wait_for "the flood $flood" grep -q begins "$RUN/a/stdout"
	other_works
	await a
	assert_rec exit_code 0
	echo "-- $flood: $(rec stdout)"
	# What it may it can do again, when its questions and connections of before are forgotten.
	run a 'for i in $(seq 60); do python3 -c "import urllib.request as u; print(u.urlopen(\"http://v4.test/hello\", timeout=40).read())" && exit 0; done; exit 1'
	assert_rec exit_code 0
done
[ "$(stat -c %s "$RUN/a/net/log.jsonl")" -le $((2 * 1024 * 1024)) ] || fail "net/log.jsonl grows"
assert_eq "$(dns_count 'denied|secret')" 0 "denied names that left"
