#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Many sandboxes with a list and a published port, a few at a time, each of which does what is allowed, tries what is not, is called by its port,
# and goes. Nothing of them is left, on the host or in the daemon and netd. Then ten forks of a networked snapshot at once, all of which reach the server.
#
# CRUCIBLE_NET_MANY=N: so many (60; 200 are to be run before a release: with ten others on two CPUs they take four minutes).
# limit: 900
. "$(dirname "$0")/lib.sh"
. "$E2E/lib_net.sh"
need nft ss curl
N=${CRUCIBLE_NET_MANY:-60}
AT_ONCE=4
PORT=20000
FORKS=10

net_world
start_daemon

# -- what there is -----------------------------------------------------------------------------------------------------

is_full() { # FORK_READY: all machines that are to wait do, which are part of what is counted
	local pool

	pool=$(jq -r '.pool | "\(.ready) \(.warm_ready) \(.fork_ready)"' "$MNT/health.json")
	echo "$pool"
	[ "$pool" = "2 1 $1" ]
}

fds() { # PID KIND
	find "/proc/$1/fd" -mindepth 1 -lname "$2*" 2>/dev/null | wc -l
}

footprint() {
	local p

	echo "links of the host: $(in_host ip -o link | wc -l)"
	echo "addresses, routes and rules of the host: $(in_host ip -o addr | wc -l) $(in_host ip route show table all | wc -l) $(in_host ip rule | wc -l)"
	echo "nftables of the host: $(in_host nft list ruleset | wc -l)"
	echo "network namespaces: $(for p in $(uid_pids); do readlink "/proc/$p/ns/net" || :; done | sort -u | wc -l)"
	echo "listeners of the host: $(in_host ss -Hlntu | wc -l)"
	for p in "$NETD" "$DAEMON_PID"; do
		echo "$(cat "/proc/$p/comm"): $(fds "$p" socket:) sockets, $(fds "$p" '') descriptors"
	done
	echo "cgroups: $(find /sys/fs/cgroup -type d -path "*/crucible-$CGROUP/*" | wc -l)"
	echo "processes: $(uid_pids | wc -l)"
	echo "sandboxes: $(count "$STORE/sandboxes"), $(count "$RUN")"
}

# Machines that end and come while it is counted: twice the same, or it is asked again.
as_before() { # FORK_READY
	is_full "$1" >/dev/null || return 1
	footprint >"$DIR/now"
	diff "$DIR/before" "$DIR/now"
}

settled() { # FORK_READY
	is_full "$1" >/dev/null || return 1
	footprint >"$DIR/before"
	sleep 0.3
	as_before "$1"
}

# -- one of many -------------------------------------------------------------------------------------------------------

one() { # NAME PORT
	local got

	mkdir "$RUN/$1"
	echo allowed.test >"$RUN/$1/net/allow"
	echo "$2:8080" >"$RUN/$1/net/ports"
	run "$1" "echo this is $1 >/root/name; httpd -p 8080 -h /root
		wget -q -O - http://allowed.test/hello || exit 3; ! wget -q -T 5 -O - http://denied.test/hello 2>/dev/null || exit 4"
	assert_rec exit_code 0 stdout '=~^hello from [0-9a-f.:]+ 80\n$' isolation.network '"filtered"'
	got=$(in_host curl -s --max-time 60 "http://127.0.0.1:$2/name")
	assert_eq "$got" "this is $1" "what the port of $1 answers"
	rmdir "$RUN/$1"
}

some() { # FIRST: this one and every AT_ONCE-th behind it
	local i

	for ((i = $1; i <= N; i += AT_ONCE)); do
		one "n$i" $((PORT + i))
	done
}

# The profile is prepared by its first sandbox, and what a first one makes for all is there.
one first $PORT
NETD=$(service_pid crucible-netd)
wait_for "everything to be quiet" settled 0
cat "$DIR/before"

begun=$SECONDS
pids=()
for ((i = 1; i <= AT_ONCE; i++)); do
	some $i &
	pids+=($!)
done
for p in "${pids[@]}"; do
	wait "$p" || fail "one of $N failed, see above"
done
echo "$N sandboxes in $((SECONDS - begun)) s"
assert_eq "$(dns_count denied.test)" 0 "questions for denied.test that reached the upstream"
assert_eq "$(http_count 'GET /hello')" $((N + 1)) "requests that reached a server: one of each"
wait_for "all to be as before" as_before 0
assert_eq "$(service_pid crucible-netd)" "$NETD" "netd: the same process"

# -- ten forks at once -------------------------------------------------------------------------------------------------

mkdir "$RUN/parent"
echo allowed.test >"$RUN/parent/net/allow"
run parent 'wget -q -O - http://allowed.test/hello'
assert_rec exit_code 0
take parent s
wait_stored s
rmdir "$RUN/parent"
begun=$SECONDS
fork_of s $FORKS
for ((i = 1; i <= FORKS; i++)); do
	[ -d "$RUN/s-$i" ] || fail "there is no fork s-$i: $(ls "$RUN")"
	assert_file "$RUN/s-$i/net/allow" allowed.test
	put "s-$i" 'wget -q -O - http://allowed.test/hello || exit 3; ! wget -q -T 5 -O - http://denied.test/hello 2>/dev/null || exit 4'
done
for ((i = 1; i <= FORKS; i++)); do
	await "s-$i"
	assert_rec exit_code 0 stdout '=~^hello from '
done
echo "$FORKS forks in $((SECONDS - begun)) s"
assert_eq "$(http_count 'GET /hello')" $((N + 2 + FORKS)) "requests that reached a server"
assert_eq "$(dns_count denied.test)" 0 "questions for denied.test that reached the upstream"
rmdir "$RUN"/s-*
rmdir "$SNAPS/s"
wait_for "all to be as before" as_before 0
