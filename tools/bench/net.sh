#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The network of a sandbox: throughput each way and small requests through the filter, against a twin (the same engine, kernel and root image, its
# tap the same) whose tap is the port of a bridge, with a server behind it: no filter, no relay. Then what a list adds to a fork. See README.md.
#
#   tools/bench/net.sh BUILD_DIR
. "$(dirname "$0")/lib.sh"
bench_begin net "$@"
command -v ip nft nsenter unshare perl >/dev/null || fail "needs iproute2, nftables, util-linux, perl"
ROUNDS=${BENCH_ROUNDS:-10}
BYTES=$((64 * 1024 * 1024))
SERVER=93.184.216.34
PORT=9100

# -- two namespaces: the daemons' and the server's ----------------------------------------------------------------------

hold_ns() { # sets HELD
	unshare --net -- sleep infinity </dev/null >/dev/null 2>&1 &
	HELD=$!
	PIDS+=("$HELD")
	until_true "a network namespace" is_other_ns "$HELD"
}

is_other_ns() { # PID
	[ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ]
}

in_ns() { # PID COMMAND…
	nsenter --net="/proc/$1/ns/net" -- "${@:2}"
}

hold_ns && HOST=$HELD
hold_ns && WORLD=$HELD
in_ns "$HOST" ip link set lo up
in_ns "$HOST" ip link add up0 type veth peer name up1 netns "$WORLD"
in_ns "$HOST" ip addr add 192.0.2.1/30 dev up0
in_ns "$HOST" ip link set up0 up
in_ns "$WORLD" ip link set lo up
in_ns "$WORLD" ip addr add 192.0.2.2/30 dev up1
in_ns "$WORLD" ip addr add $SERVER/32 dev lo
in_ns "$WORLD" ip link set up1 up
in_ns "$HOST" ip route add default via 192.0.2.2
nsenter --net="/proc/$WORLD/ns/net" -- perl "$HERE/net_peer.pl" serve $PORT "$DIR/serves" </dev/null >"$DIR/server.log" 2>&1 &
PIDS+=($!)
until_true "the server" test -e "$DIR/serves"
IN_NET=(nsenter --net="/proc/$HOST/ns/net" --)

# The twin: what the filter is made of goes out of its namespace, and the tap becomes the port of a bridge. The server's side of that has the
# address of the gateway that the guest knows.
unfilter() { # SANDBOX
	local engine

	engine=$(engine_of "$1")
	in_ns "$engine" nft flush ruleset
	in_ns "$engine" ip rule del priority 100
	in_ns "$engine" ip addr flush dev net0
	in_ns "$engine" ip link set net0 address 52:54:00:c0:00:02 # the gateway's address is the server's now
	in_ns "$engine" ip link add br0 type bridge forward_delay 0 mcast_snooping 0
	in_ns "$engine" ip link add plain0 type veth peer name plain1 netns "$WORLD"
	in_ns "$engine" ip link set net0 master br0
	in_ns "$engine" ip link set plain0 master br0
	in_ns "$engine" ip link set plain0 up
	in_ns "$engine" ip link set br0 up
	in_ns "$WORLD" ip link set plain1 address 52:54:00:c0:00:00
	in_ns "$WORLD" ip addr add 10.77.0.1/24 dev plain1
	in_ns "$WORLD" ip link set plain1 up
}

# -- data -------------------------------------------------------------------------------------------------------------------

# What processes have run so far. Under load it says more than the clock does.
cpu_ns() { # PID…
	local p

	for p in "$@"; do
		cat "/proc/$p"/task/*/schedstat
	done | awk '{ n += $1 } END { printf "%.0f", n }'
}

sample() { # CELL SUBJECT SANDBOX ARGUMENTS of net_peer.pl
	local record ns

	echo "perl /root/net_peer.pl ${*:4}" >"$RUN/$3/cmd"
	record=$(timeout 120 cat "$RUN/$3/wait") || record='{"error":"it does not end"}'
	if [[ $record != *'"exit_code":0,'* ]]; then
		line failed "$1" "$2" "$(jq -r '.error + .stderr' <<<"$record" | head -n 1)"
		return
	fi
	for ns in $(jq -r .stdout <<<"$record"); do
		line sample "$1" "$2" "$ns"
	done
}

in_turn() { # CELL WHAT N
	local i a b c d

	for ((i = 0; i < ROUNDS; i++)); do
		a=$(cpu_ns "$OURS" "$NETD") b=$(cpu_ns "$TWIN")
		sample "$1" crucible ours "$2" $SERVER $PORT "$3"
		sample "$1" bridge twin "$2" $SERVER $PORT "$3"
		c=$(cpu_ns "$OURS" "$NETD") d=$(cpu_ns "$TWIN")
		[ "$3" != "$BYTES" ] || line sample "$1.cpu" crucible $((c - a))
		[ "$3" != "$BYTES" ] || line sample "$1.cpu" bridge $((d - b))
	done
}

netd_of() { # NAMESPACE_PID
	local p

	for p in $(pgrep -x crucible-netd); do
		[ "$(readlink "/proc/$p/ns/net")" != "$(readlink "/proc/$1/ns/net")" ] || echo "$p"
	done
}

start_daemon --set prepare=0 --set pool_size=0 --set net_upstream=192.0.2.2
for s in ours twin; do
	mkdir "$RUN/$s"
	echo "$SERVER" >"$RUN/$s/net/allow"
	echo true >"$RUN/$s/cmd"
	[[ $(timeout 120 cat "$RUN/$s/wait") == *'"exit_code":0,'* ]] || fail "$s does not answer"
	cp "$HERE/net_peer.pl" "$RUN/$s/fs/root/net_peer.pl"
done
facts_engine ours
unfilter twin
OURS=$(engine_of ours) TWIN=$(engine_of twin) NETD=$(netd_of "$HOST")

say "data and requests, $ROUNDS rounds"
line cell net.down ns "$((BYTES >> 20)) MiB from a server into the guest, over one connection; bridge: the same guest, its tap the port of a bridge"
line cell net.down.cpu ns "what the engine, and ours' crucible-netd, ran for it, the command's start included"
line cell net.up ns "the same out of the guest, to the server's answer"
line cell net.up.cpu ns "as above"
line cell net.request ns "connect, a line, its answer, close"
line cell net.turn ns "a line and its answer over a connection that is open"
line cell net.denied ns "a name that is not allowed, as the guest sees it: NXDOMAIN"
sample warm-up crucible ours get $SERVER $PORT $BYTES
sample warm-up bridge twin get $SERVER $PORT $BYTES
sed -i '/^sample warm-up /d' "$LINES"
in_turn net.down get $BYTES
in_turn net.up put $BYTES
in_turn net.request request 30
in_turn net.turn turn 100
sample net.denied crucible ours denied denied.test 50
for c in net.down net.up net.down.cpu net.up.cpu; do
	line at-most $c crucible bridge 1.111 # 0.9 of its throughput
done
line at-most net.request crucible bridge 2
destroy ours
destroy twin

# -- a fork ------------------------------------------------------------------------------------------------------------------

# Snapshots with a list and without, of machines that are otherwise the same.
two_snapshots() { # MOUNT SNAPSHOT…
	local MNT=$1 RUN=$1/run s

	for s in "${@:2}"; do
		mkdir "$RUN/$s"
		echo 256 >"$RUN/$s/limits/memory_mib"
		[ "$s" = bare ] || echo "$SERVER" >"$RUN/$s/net/allow"
		echo true >"$RUN/$s/cmd"
		[[ $(timeout 120 cat "$RUN/$s/wait") == *'"exit_code":0,'* ]] || fail "$s does not answer"
		take "$s" "$s"
		destroy "$s"
		until_true "the snapshot to be stored" is_stored "$s"
		warm_pool "$s"
	done
}

# What the list has added, pair by pair.
added() { # CELL
	awk -v cell="$1" '$1 == "sample" && $2 == cell { v[$3, ++n[$3]] = $4 }
		END { for (i = 1; i <= n["listed"]; i++) if (i <= n["bare"]) printf "sample %s.added crucible %d\n", cell, v["listed", i] - v["bare", i] }' \
		"$LINES" >"$DIR/added"
	cat "$DIR/added" >>"$LINES"
}

compare() { # CELL MOUNT_LISTED MOUNT_BARE WORDS
	local m

	for m in reply result; do
		line cell "$1.$m" ns "a fork, $m, of a snapshot with a list and of one without; $4"
		line cell "$1.$m.added" ns "the one less the other, pair by pair"
	done
	turns --rounds "${BENCH_PAIRS:-20}" --text true --pool full "$1" "listed=fork:$2:listed" "bare=fork:$3:bare"
	for m in reply result; do
		added "$1.$m"
		line limit "$1.$m.added" crucible 10000000
	done
}

pool_is_full() {
	jq -e '.pool | .ready >= .size' "$MNT/health.json"
}

say "forks of machines that wait, with a list and without"
another_daemon warm-listed
start_daemon --set prepare=0 --set pool_size=1
LISTED=$MNT
two_snapshots "$LISTED" listed
another_daemon warm-bare
start_daemon --set prepare=0 --set pool_size=1
two_snapshots "$MNT" bare
compare net.warm "$LISTED" "$MNT" "with a machine of the snapshot that waits"
another_daemon pooled
start_daemon --set prepare=0 --set pool_size=2 --set warm_size=0
two_snapshots "$MNT" listed bare
compare net.pooled "$MNT" "$MNT" "with one of the pool (warm_size=0)"

# -- a connection that a fork inherits ------------------------------------------------------------------------------------------

notes() { # WORD: their times
	sed -n "s/^$1 //p" "$DIR/serves.notes" 2>/dev/null
}

has_notes() { # WORD N
	[ "$(notes "$1" | wc -l)" -ge "$2" ]
}

say "a connection that a fork inherits, until its program has seen the reset"
line cell net.reset.birth ns "from the open of \`fork\` until the server hears from the fork's program, over a connection of its own, that the inherited one was reset"
line cell net.reset.reply ns "the same from the fork's first reply"
mkdir "$RUN/talks"
echo 256 >"$RUN/talks/limits/memory_mib"
echo 600 >"$RUN/talks/limits/exec_timeout_s"
echo "$SERVER" >"$RUN/talks/net/allow"
echo true >"$RUN/talks/cmd"
[[ $(timeout 120 cat "$RUN/talks/wait") == *'"exit_code":0,'* ]] || fail "talks does not answer"
cp "$HERE/net_peer.pl" "$RUN/talks/fs/root/net_peer.pl"
echo "perl /root/net_peer.pl hold $SERVER $PORT" >"$RUN/talks/cmd"
until_true "the connection" has_notes held 1
take talks talks
until_true "the snapshot to be stored" is_stored talks
for ((i = 1; i <= ${BENCH_PAIRS:-20}; i++)); do
	until_true "a machine of the pool" pool_is_full
	born=${EPOCHREALTIME/./}
	echo "talk-$i" >"$MNT/snapshots/talks/fork"
	replied=${EPOCHREALTIME/./}
	until_true "the program of fork $i" has_notes seen "$i"
	seen=$(notes seen | sed -n "${i}p")
	line sample net.reset.birth crucible $((seen - born * 1000))
	line sample net.reset.reply crucible $((seen - replied * 1000))
	destroy "talk-$i"
done
line limit net.reset.reply crucible 100000000

bench_end
