#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A fork of a fork, ten generations: each ancestor has its own and nothing else, a clock that ticks ticks on, ten are as good as two.
# limit: 600
. "$(dirname "$0")/lib.sh"

start_daemon
ready_sandbox g0 limits/memory_mib=96
echo '{"script":"n=0; while :; do n=$((n+1)); echo $n >/dev/shm/new; mv /dev/shm/new /dev/shm/tick; sleep 0.1; done","timeout_s":3000}' >"$RUN/g0/cmd"
ticks() { # SANDBOX
	cat "$RUN/$1/fs/dev/shm/tick"
}
ticked_beyond() { # SANDBOX N
	[ "$(ticks "$1")" -gt "$2" ]
}
wait_for "the first tick" ticked_beyond g0 0

in_slot() { # SANDBOX TEXT: beside the ticker
	mkdir "$RUN/$1/exec/slot" 2>/dev/null || :
	printf '%s' "$2" >"$RUN/$1/exec/slot/cmd"
	await "$1" exec/slot
	assert_rec exit_code 0
}
generations=10
for ((i = 0; i < generations; i++)); do
	in_slot g$i "echo $i >/root/of-$i; echo $i >/dev/shm/of-$i; sync"
	was=$(ticks g$i)
	take g$i s$i
	fork_of s$i g$((i + 1))
	now=$(ticks g$((i + 1)))
	[ "$now" -ge "$was" ] || fail "generation $((i + 1)): the ticker went back from $was to $now"
	wait_for "generation $((i + 1)) to tick" ticked_beyond g$((i + 1)) $((now + 2))
	in_slot g$i "echo late >/root/late-$i; echo late >/dev/shm/late-$i" # after the snapshot: nobody below may see it
	assert_file "$SNAPS/s$i/parent" "$([ $i = 0 ] && echo profile:tiny || echo s$((i - 1)))"
done

# Generation i has of-0 … of-(i-1) of its ancestors and its own, and no `late` but its own.
check() { # I
	local i=$1 j want=

	for ((j = 0; j <= i && j < generations; j++)); do
		want+="of-$j"$'\n'
	done
	[ "$i" -ge "$generations" ] || want="late-$i"$'\n'$want
	for d in root dev/shm; do
		assert_eq "$(bounded find "$RUN/g$i/fs/$d" -maxdepth 1 \( -name 'of-*' -o -name 'late-*' \) -printf '%f\n' | sort)" \
			"$(sort <<<"${want%$'\n'}")" "/$d of generation $i"
	done
}
for ((i = 0; i <= generations; i++)); do
	check $i
done

# The middle ones go, and the last is right: from the store, too.
wait_stored s$((generations - 1))
for ((i = 1; i < generations - 1; i++)); do
	rmdir "$RUN/g$i" "$SNAPS/s$i"
done
check $generations
stop_daemon
start_daemon
fork_of s$((generations - 1)) last
for ((i = 0; i < generations; i++)); do
	assert_file "$RUN/last/fs/root/of-$i" $i
	assert_file "$RUN/last/fs/dev/shm/of-$i" $i
done
