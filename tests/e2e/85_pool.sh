#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Machines that wait: with a warm one, with a generic one, with none and without a pool the result is the same; each sandbox is somebody
# else; a machine that dies while it waits harms nobody; a killed daemon leaves nothing of them behind.
# limit: 600
. "$(dirname "$0")/lib.sh"

is_full() { # GENERIC WARM
	local pool

	pool=$(json_of "$(cat "$MNT/health.json")" pool)
	echo "$pool"
	[[ $pool == *'"ready":'*" $1,"* || $pool == *"\"ready\":$1,"* || $pool == *"\"ready\": $1,"* ]] &&
		[[ $pool == *"\"warm_ready\":$2}"* || $pool == *"\"warm_ready\": $2}"* ]]
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

# -- the daemon is killed while they wait
wait_for "the pool to be full again" is_full 2 1
mapfile -t waiting < <(pool_engines)
disks() { find "$STORE/disks/stacks" -type f ! -name '.*' | wc -l; } # but for spare ones
have=$(count "$RUN")
kill_daemon
start_daemon
for p in "${waiting[@]}"; do
	wait_for "engine $p of the killed daemon to end" gone "$p"
done
wait_for "the pool to be full again" is_full 2 1
run a 'cat /root/mark'
assert_rec stdout '"here\n"'
nothing_left() { # the sandboxes' directories and disks, those of the machines that wait now, the prepared snapshot
	echo "$(count "$STORE/sandboxes") directories, $(disks) disks"
	[ "$(count "$STORE/sandboxes")" -eq $((have + 3)) ] && [ "$(disks)" -eq $((have + 1 + 1)) ]
}
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
