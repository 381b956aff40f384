#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Clones are others: no random value twice in eight forks of a loop that draws them, machine-id, host name and clock of their own.
# limit: 900
. "$(dirname "$0")/lib.sh"

start_daemon
# Three hundred values a loop and fork, so that eight forks do not spin for long. A value counts as drawn after the fork when the
# marker that the agent leaves was there before and after the draw.
draw='mark() { m=-; [ ! -e /run/crucible/fork ] || read -r m </run/crucible/fork || :; }
k=0
while [ ! -e /dev/shm/stop ] && [ $k -lt 300 ]; do
	mark; a=$m; read -r u </proc/sys/kernel/random/uuid; mark
	[ "$a" = - ] || [ "$a" != "$m" ] || { k=$((k+1)); echo "$u"; }
done >/dev/shm/draws.$I'

for vcpus in 1 2 4; do
	a=a$vcpus s=s$vcpus
	ready_sandbox "$a" limits/vcpus=$vcpus limits/memory_mib=128
	run "$a" 'dmesg -c >/dev/null; cat /etc/machine-id; hostname' # what the boot said is not the fork's
	for ((i = 0; i < vcpus; i++)); do
		mkdir "$RUN/$a/exec/draw$i"
		"$PYTHON" -IS -c 'import json,sys; print(json.dumps({"script": sys.argv[1], "env": {"I": sys.argv[2]}, "timeout_s": 2000}))' \
			"$draw" $i >"$RUN/$a/exec/draw$i/cmd"
		wait_for "the drawing to begin" test -e "$RUN/$a/fs/dev/shm/draws.$i"
	done
	take "$a" "$s"
	run "$a" "touch /dev/shm/stop"
	fork_of "$s" 8
	forks=()
	for n in {1..8}; do
		forks+=("$s-$n")
	done
	drew() { # SANDBOX
		[ "$(cat "$RUN/$1/fs/dev/shm/draws."* | wc -l)" -ge 200 ]
	}
	gather() { # SANDBOX: a list that a busy host cut short is none
		cat "$RUN/$1/fs/dev/shm/draws."* >"$DIR/one"
	}
	: >"$DIR/draws"
	for f in "${forks[@]}"; do
		wait_for "$f to draw" drew "$f"
		run "$f" 'touch /dev/shm/stop; cat /proc/sys/kernel/random/boot_id >/dev/null; head -c 16 /dev/urandom | od -An -tx1; cat /etc/machine-id; hostname; date +%s'
		mapfile -t line < <(rec stdout)
		echo "${line[0]}" >>"$DIR/first.$vcpus"
		echo "${line[1]}" >>"$DIR/machine.$vcpus"
		echo "${line[2]}" >>"$DIR/host.$vcpus"
		wait_for "what $f drew" gather "$f"
		cat "$DIR/one" >>"$DIR/draws"
	done
	total=$(wc -l <"$DIR/draws")
	[ "$total" -ge 1600 ] || fail "only $total values were drawn with $vcpus processors"
	assert_eq "$(sort "$DIR/draws" | uniq -d | wc -l)" 0 "values drawn twice with $vcpus processors, of $total"
	for what in first machine host; do
		assert_eq "$(sort -u "$DIR/$what.$vcpus" | wc -l)" 8 "different values of $what with $vcpus processors"
	done
	assert_eq "$(grep -vcE '^[0-9a-f]{32}$' "$DIR/machine.$vcpus" || :)" 0 "machine-ids that are none"
	for f in "${forks[@]}"; do
		rmdir "$RUN/$f"
	done
	rmdir "$RUN/$a"
done

# The clock is the host's, though time has passed since the snapshot; never ahead; and the kernel has nothing to say about it.
SINCE=$SECONDS
some_time_passed() { [ $((SECONDS - SINCE)) -ge 5 ]; }
wait_for "some time to pass" some_time_passed
fork_of s1 late
t0=$(date +%s)
run late 'date +%s'
t1=$(date +%s)
guest=$(rec stdout)
[ "$guest" -ge $((t0 - 1)) ] || fail "the clock of a fork is $((t0 - guest)) s late"
[ "$guest" -le "$t1" ] || fail "the clock of a fork is $((guest - t1)) s ahead"
run late 'dmesg | grep -iE "BUG:|stall|soft lockup|clocksource.*unstable|Call Trace" || echo clean'
assert_rec stdout '"clean\n"'
run late 'cat /run/crucible/fork'
assert_json "$(rec stdout)" fork "\"$(cat "$RUN/late/uuid")\"" parent '=~s1'

# Entropy does not block, and uuids of what starts after the fork differ, too.
run late 'timeout 5 head -c 65536 /dev/random | wc -c'
assert_rec stdout '"65536\n"'
