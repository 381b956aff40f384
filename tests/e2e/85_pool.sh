#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Machines that wait: with a warm one, with a generic one, with none and without a pool the result is the same; each sandbox is somebody
# else; a machine that dies while it waits harms nobody; a killed daemon leaves nothing of them behind. A snapshot that was forked has one, too:
# nothing runs in it while it waits.
# limit: 600
. "$(dirname "$0")/lib.sh"

is_full() { # GENERIC WARM [OF-A-SNAPSHOT]
	local health key have=

	health=$(cat "$MNT/health.json")
	for key in ready warm_ready fork_ready; do
		have+="$(json_of "$health" pool.$key) "
	done
	echo "$have"
	[ "$have" = "$1 $2 ${3:-0} " ]
}

starts() { # KIND FOUND: the counter
	awk -v want="crucible_pool_starts_total{kind=\"$1\",found=\"$2\"}" '$1 == want { print $2 }' "$MNT/metrics"
}

# What tells one guest from another.
ask_who='cat /etc/machine-id; hostname; read -r m </run/crucible/fork; echo "$m"; cat /proc/sys/kernel/random/uuid; echo it works'
assert_who() { # SANDBOX: REC is its answer
	local line

	assert_rec exit_code 0 exec 1
	mapfile -t line < <(rec stdout)
	assert_eq "${line[0]}" "$(tr -d - <"$RUN/$1/uuid")" "machine-id of $1"
	assert_eq "${line[1]}" "$1" "host name"
	assert_ne "${line[2]}" '' "the mark of a fork"
	assert_eq "${line[4]}" 'it works'
	printf '%s\n' "${line[@]:0:4}" >>"$DIR/who"
}

# Engines that are no sandbox's.
pool_engines() {
	local p s theirs=' '

	for s in "$RUN"/*/; do
		theirs+="$(engine_pid "$(basename "$s")") "
	done
	for p in $(uid_pids); do
		[[ $(cat "/proc/$p/comm" 2>/dev/null) != qemu* || $theirs == *" $p "* ]] || echo "$p"
	done
}

start_daemon
assert_json "$(cat "$MNT/health.json")" pool.size 2 pool.warm_size 1
ready_sandbox a
run a 'echo here >/root/mark'
wait_for "the pool to be full" is_full 2 1

# -- a warm one, generic ones, and none left: at once
hits=$(starts warm yes)
for s in b c d e; do
	mkdir "$RUN/$s"
	put "$s" "$ask_who"
done
for s in b c d e; do
	await "$s"
	assert_who "$s"
done
assert_eq "$(starts warm yes)" $((hits + 1)) "starts that found a warm machine"
[ "$(starts generic no)" -ge 1 ] || fail "the pool was to be drained"

# A limit of its own is not the warm machine's; it works all the same, and says so.
wait_for "the pool to be full again" is_full 2 1
hits=$(starts warm yes)
new_sandbox limited limits/cpu_percent=80
run limited 'echo yes'
assert_rec stdout '"yes\n"'
assert_eq "$(starts warm yes)" "$hits" "warm machines given to one with limits"
new_sandbox little limits/memory_mib=300
run little 'echo yes; cat /sys/fs/cgroup/*/memory.max /sys/fs/cgroup/memory.max 2>/dev/null | head -n 1'
assert_rec exit_code 0
rmdir "$RUN/limited" "$RUN/little"

# -- engines die while they wait: somebody who comes at that moment, and one who comes later
wait_for "the pool to be full again" is_full 2 1
mapfile -t waiting < <(pool_engines)
assert_eq "${#waiting[@]}" 3 "engines that wait"
kill -KILL "${waiting[@]}"
mkdir "$RUN/quick"
run quick "$ask_who"
assert_who quick
wait_for "the pool to be full again" is_full 2 1
for p in "${waiting[@]}"; do
	assert_no_match " $(pool_engines | tr '\n' ' ') " " $p " "engines that wait"
done
mkdir "$RUN/later"
run later "$ask_who"
assert_who later
run a 'cat /root/mark'
assert_rec stdout '"here\n"'

# -- one of a snapshot, from its first fork on. The loop tells whose machine it runs in with each of its numbers and random values.
new_sandbox source
run source 'echo begun'
mkdir "$RUN/source/exec/loop"
put source/exec/loop 'n=0
while [ ! -e /dev/shm/stop ] && [ $n -lt 20000 ]; do
	n=$((n+1)); read -r id </etc/machine-id; read -r u </proc/sys/kernel/random/uuid; read -r id2 </etc/machine-id
	echo "$n $id $u $id2"
done >/dev/shm/counted'
# The loop writes as fast as fs/ can be read, so nobody waits for the file's end here.
counts() { [ "$(head -n "$(($2 + 1))" "$RUN/$1/fs/dev/shm/counted" | wc -l)" -gt "$2" ]; }
parents() { awk -v id="$source_id" '$2 != id { exit } { n++ } END { print n + 0 }' "$RUN/$1/fs/dev/shm/counted"; }
wait_for "the loop to count" counts source 20
take source s
run source 'touch /dev/shm/stop'
source_id=$(tr -d - <"$RUN/source/uuid")
wait_for "the pool to be full again" is_full 2 1
[ "$(starts fork no)" = 0 ] || fail "somebody forked it"
hits=$(starts fork yes)
for s in f1 f2 f3; do
	fork_of s $s
	wait_for "the loop to go on in $s" counts $s "$(($(parents $s) + 20))"
	run $s 'touch /dev/shm/stop; cat /dev/shm/counted'
	rec stdout >"$DIR/counted.$s"
	run $s "$ask_who"
	assert_eq "$(rec stdout | sed -n 1p)" "$(tr -d - <"$RUN/$s/uuid")" "machine-id of $s"
	assert_eq "$(rec stdout | sed -n 2p)" "$s" "host name of $s"
	rec stdout | sed -n 1,4p >>"$DIR/who"
	# Each number once, under two identities and no third; what the parent drew is the same in all, what they drew is nobody else's.
	awk -v mine="$(tr -d - <"$RUN/$s/uuid")" -v parent="$source_id" -v all="$DIR/drawn" -v common="$DIR/common.$s" '
		$1 != NR { print "number " $1 " in line " NR; exit 1 }
		$2 == parent && mine_began || $2 != parent && $2 != mine { print "identity " $2 " in line " NR; exit 1 }
		$2 == mine { mine_began = 1; print $3 >all ".'"$s"'" }
		$4 == parent { print >common }' "$DIR/counted.$s" >"$DIR/wrong" || fail "$s: $(cat "$DIR/wrong")"
	cmp "$DIR/common.f1" "$DIR/common.$s" || fail "$s: what was done before the snapshot is not the same as in f1"
	wait_for "the machine of the next fork" is_full 2 1 1
done
assert_eq "$(starts fork yes)" $((hits + 2)) "forks that found a warm machine"
assert_eq "$(starts fork no)" 1 "forks that found none"
assert_eq "$(cat "$DIR"/drawn.* | sort | uniq -d | wc -l)" 0 "values drawn by two forks"
mapfile -t waiting < <(pool_engines)
assert_eq "${#waiting[@]}" 4 "engines that wait"
kill -KILL "${waiting[@]}"
fork_of s f4
run f4 'cat /etc/machine-id'
assert_rec stdout "\"$(tr -d - <"$RUN/f4/uuid")\n\""
wait_for "the machine of the next fork" is_full 2 1 1
rmdir "$SNAPS/s"
wait_for "the machine of a snapshot that was removed to go" is_full 2 1 0
rmdir "$RUN"/f[1-4] "$RUN/source"
disks() { find "$STORE/disks/stacks" -type f ! -name '.*' | wc -l; }
have=$(count "$RUN")
nothing_left() { # the sandboxes' directories and disks, those of the machines that wait now, the prepared snapshot
	echo "$(count "$STORE/sandboxes") directories, $(disks) disks"
	[ "$(count "$STORE/sandboxes")" -eq $((have + 3)) ] && [ "$(disks)" -eq $((have + 1 + 1)) ]
}
wait_for "what they had to go" nothing_left

# -- the daemon is killed while they wait
wait_for "the pool to be full again" is_full 2 1
mapfile -t waiting < <(pool_engines)
kill_daemon
start_daemon
for p in "${waiting[@]}"; do
	wait_for "engine $p of the killed daemon to end" gone "$p"
done
wait_for "the pool to be full again" is_full 2 1
run a 'cat /root/mark'
assert_rec stdout '"here\n"'
wait_for "what the killed daemon had made to go" nothing_left
stop_daemon
assert_eq "$(count "$STORE/sandboxes")" "$have" "directories after an orderly end"

# -- without
start_daemon --set pool_size=0 --set warm_size=0
mkdir "$RUN/none"
run none "$ask_who"
assert_who none
assert_json "$(cat "$MNT/health.json")" pool.ready 0 pool.warm_ready 0
assert_eq "$(pool_engines)" '' "engines that wait"
stop_daemon
start_daemon --set pool_size=0
wait_for "a warm machine" is_full 0 1
hits=$(starts warm yes)
mkdir "$RUN/warm"
run warm "$ask_who"
assert_who warm
assert_eq "$(starts warm yes)" $((hits + 1)) "starts that found a warm machine"
assert_eq "$(sort "$DIR/who" | uniq -d)" '' "what two sandboxes have in common"
