#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A lost engine, box or guest: the record says so, and it is never an exit code of 0. Twenty times. The next command gets a new machine.
# limit: 600
. "$(dirname "$0")/lib.sh"

EXPECTED_ERRORS='event=(lost|engine|box)'
start_daemon
new_sandbox a limits/memory_mib=96
A=$RUN/a

lost() { # WHAT
	await a
	assert_rec exit_code -1 signal '""' timed_out false error '=~lost|ended|died|killed' stdout '"up\n"'
	# What is written while the machine goes down may be lost with it, and says so (docs/OPEN.md); here the next one is wanted.
	wait_for "the end of the machine: $1" has_status a failed
	assert_ne "$(cat "$A/error")" "" "error after $1"
}

for i in {1..20}; do
	put a 'echo up; sleep 600'
	wait_output a up
	kill -KILL "$(engine_pid a)"
	lost "engine $i"
done
run a 'echo a new machine'
assert_rec stdout '"a new machine\n"' exit_code 0 error '""'
echo 'kept' >"$A/fs/root/kept" # written through, read back after a crash of the engine: at the least it does not hang
run a sync
for i in 1 2 3; do
	put a 'echo up; sleep 600'
	wait_output a up
	kill -KILL "$(box_pid a)"
	lost "box $i"
done
run a 'cat /root/kept'
assert_rec stdout '"kept\n"'

# With a queue: none of those is said to have run. With readers on several files.
put a 'echo up; sleep 600'
for i in 1 2 3; do
	put a "echo never $i"
done
mkdir "$A/exec/slot"
echo 'echo up; sleep 600' >"$A/exec/slot/cmd"
wait_output a up exec/slot/stdout
n=$(readlink "$A/exec/latest" | tr -dc 0-9)
readers=()
for f in exec/slot/wait "exec/$n/wait" wait; do
	cat "$A/$f" >"$DIR/out.${f//\//-}" &
	readers+=($!)
done
wait_for "readers to block" all_parked "${readers[@]}"
kill -KILL "$(engine_pid a)"
for r in "${readers[@]}"; do
	wait "$r" || fail "a reader of a lost command's wait failed"
done
for f in "$DIR"/out.*; do
	assert_json "$(cat "$f")" exit_code -1 error '=~.'
done
for ((i = n - 2; i <= n; i++)); do
	assert_json "$(cat "$A/exec/$i/result.json")" exit_code -1 stdout '""' error '=~.'
done

# While its output streams, and while it boots.
run a true
put a 'yes'
wait_output a y
kill -KILL "$(engine_pid a)"
await a
assert_rec exit_code -1 error '=~lost|ended|died|killed' stdout_bytes '>0'
run a 'echo clean'
assert_rec stdout '"clean\n"' stdout_bytes 6
# Stopped first, then looked at: one that was up already proves nothing, and another one is made.
has_engine() { [ -n "$(engine_pid boots)" ]; }
for try in 1 2 3 4 5; do
	new_sandbox boots limits/vcpus=2 # of a shape that nothing is prepared for
	put boots 'echo never'
	wait_for "its engine" has_engine
	engine=$(engine_pid boots)
	kill -STOP "$engine"
	! has_status boots starting || break
	kill -KILL "$engine"
	rmdir "$RUN/boots"
done
assert_file "$RUN/boots/status" starting
kill -KILL "$engine"
await boots
assert_rec exit_code -1 error '=~.'
run boots 'echo at the second try'
assert_rec exit_code 0

# The guest itself goes down under the command: it panics, or powers off.
for how in c o b; do
	put boots "echo up; sleep 0.5; echo $how >/proc/sysrq-trigger; sleep 600"
	await boots
	assert_rec exit_code -1 error '=~.'
	wait_status boots failed
done
run boots 'kill -9 1; sleep 0.2; echo "PID 1 does not mind"'
assert_rec exit_code 0
