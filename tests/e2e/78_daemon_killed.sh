#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The daemon is killed: snapshots are there again, forks go on with what runs in them, and nothing stray is left.
# limit: 400
. "$(dirname "$0")/lib.sh"

start_daemon
ready_sandbox a limits/memory_mib=128
fill_memory a 24
sum=$SUM
take a s
fork_of s b
put b '{"script":"n=0; while :; do n=$((n+1)); echo $n; sleep 0.2; done","timeout_s":1000}'
wait_output b '^3$'
wait_stored s
info=$(json_of "$(cat "$SNAPS/s/info.json")" uuid)
engine=$(engine_pid b)
pager=$(service_pid crucible-pager) || fail "no pager"

# -- the daemon alone
kill_daemon
start_daemon
assert_file "$SNAPS/s/status" ready
assert_eq "$(json_of "$(cat "$SNAPS/s/info.json")" uuid)" "$info"
assert_eq "$(readlink "$SNAPS/s/forks/b")" ../../../run/b
assert_eq "$(readlink "$RUN/a/snapshots/s")" ../../../snapshots/s
wait_status b running
assert_eq "$(engine_pid b)" "$engine" "the engine of a fork after the restart"
assert_eq "$(service_pid crucible-pager)" "$pager" "the pager after the restart"
n=$(tail -n 1 "$RUN/b/stdout")
wait_output b "^$((n + 3))\$"
fork_of s c
assert_memory c "$sum"
take b s2 # of a fork that was taken over
fork_of s2 d
assert_memory d "$sum"

# -- while it stores: it goes on with that
fill_memory a 24
take a s3
kill_daemon
start_daemon
wait_stored s3
fork_of s3 e
assert_memory e "$SUM"

# -- in the middle of a snapshot and of a batch: they are there, or they are not; the sandbox goes on
for i in 1 2 3; do
	(echo "m$i" >"$RUN/a/snapshot") 2>/dev/null &
	writer=$!
	kill_daemon
	wait $writer || :
	start_daemon
	wait_for "a to answer" has_status a ready
	run a "echo alive $i"
	assert_rec stdout "\"alive $i\\n\"" exit_code 0
	if [ -d "$SNAPS/m$i" ]; then
		wait_stored "m$i"
		outcome "$SNAPS/m$i/verify"
		assert_rec status '"ok"'
		rmdir "$SNAPS/m$i"
	fi
	(echo 3 >"$SNAPS/s/fork") 2>/dev/null &
	writer=$!
	kill_daemon
	wait $writer || :
	start_daemon
	for f in "$RUN"/s-*; do
		[ -d "$f" ] || continue
		run "${f##*/}" 'echo made'
		assert_rec stdout '"made\n"'
		rmdir "$f"
	done
done

# -- all of it dies, as in a power failure: what was `ready` is there
wait_stored s s2 s3
kill_daemon
mapfile -t pids < <(uid_pids)
kill -KILL "${pids[@]}" 2>/dev/null || :
wait_for "all to be gone" no_uid_pids
start_daemon
for s in s s2 s3; do
	assert_file "$SNAPS/$s/status" ready
	outcome "$SNAPS/$s/verify"
	assert_rec status '"ok"'
done
fork_of s3 g
assert_memory g "$SUM"
