#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The daemon is killed and started again on the same mount point: what ran goes on, and its record arrives. Nothing stray is left.
. "$(dirname "$0")/lib.sh"

start_daemon
ready_sandbox a
new_sandbox idle
A=$RUN/a
put a 'echo begun; sleep 600; echo done; exit 5'
wait_output a begun
run_in_slot() { # NAME TEXT
	mkdir "$A/exec/$1"
	echo "$2" >"$A/exec/$1/cmd"
}
run_in_slot live 'while read -r x; do echo "got $x"; done'
echo one >"$A/exec/live/stdin"
wait_output a 'got one' exec/live/stdout
put a 'echo queued'
uuid=$(json_of "$(cat "$A/info.json")" uuid)
engine=$(engine_pid a)
box=$(box_pid a)
cat "$A/wait" >"$DIR/wait.out" 2>"$DIR/wait.err" &
reader=$!
wait_for "a reader to block" is_parked $reader

kill_daemon
wait $reader && fail "a blocked read of a dead daemon succeeded: $(cat "$DIR/wait.out")"
assert_match "$(cat "$DIR/wait.err")" 'not connected|abort' "what the reader was told"
assert_errno ENOTCONN listdir "$RUN"
kill -0 "$engine" || fail "the engine died with the daemon"
kill -0 "$box" || fail "the box died with the daemon"

start_daemon
assert_json "$(cat "$A/info.json")" uuid "\"$uuid\""
wait_status a running
assert_eq "$(engine_pid a)" "$engine" "the engine after the restart"
assert_file "$A/stdout" ''
assert_file "$A/exec/2/stdout" begun
echo two >"$A/exec/live/stdin"
wait_output a 'got two' exec/live/stdout
echo eof >"$A/exec/live/ctl"
await a exec/live
assert_rec stdout '"got one\ngot two\n"' exit_code 0
echo kill >"$A/ctl" # the one that ran all the while
assert_json "$(bounded cat "$A/exec/2/wait")" stdout '"begun\n"' signal '"SIGKILL"'
await a
assert_rec stdout '"queued\n"' exit_code 0
assert_file "$RUN/idle/status" configured

# `sleep 5; echo done` and a daemon that is killed meanwhile: the record arrives. And one that ends while no daemon is there.
put a 'echo up; sleep 5; echo done'
wait_output a up
kill_daemon
start_daemon
await a
assert_rec stdout '"up\ndone\n"' exit_code 0
put a 'echo up; sleep 1; echo done alone; exit 9'
wait_output a up
n=$(readlink "$A/exec/latest" | tr -dc 0-9)
kill_daemon
ended() { [ -s "$STORE/sandboxes/$uuid/box/exec/$n/result.json" ]; }
wait_for "the command to end without a daemon" ended
start_daemon
await a
assert_rec stdout '"up\ndone alone\n"' exit_code 9 exec "$n"
assert_file "$A/stdout" $'up\ndone alone'
run a 'echo next'
assert_rec stdout '"next\n"' exec $((n + 1))

# A start that the kill interrupted, a removal that it interrupted, a command accepted at the very end.
new_sandbox late
put late 'echo late'
assert_file "$RUN/late/cmd" 'echo late' # accepted: the kernel tells of a close behind the closer's back
kill_daemon
start_daemon
await late
assert_rec exec 1 # whether it ran or is told lost: it has ended, and only with a real exit code when it ran
case $(rec exit_code) in
0) assert_rec stdout '"late\n"' error '""' ;;
-1) assert_rec error '=~.' ;;
*) fail "exit code $(rec exit_code)" ;;
esac
for _ in 1 2 3; do
	mkdir "$RUN/gone"
	rmdir "$RUN/gone"
	kill_daemon
	start_daemon
	assert_absent "$RUN/gone"
done
no_trash() { [ -z "$(find "$STORE/sandboxes" -mindepth 1 -maxdepth 1 ! -name '????????-????-????-????-????????????')" ]; }
wait_for "what was being removed to be removed" no_trash

# Both die: the box goes with the machine, and the next daemon says that it was lost.
put a 'echo up; sleep 600'
wait_output a up
engine=$(engine_pid a)
box=$(box_pid a)
kill_daemon
kill -KILL "$engine" "$box"
wait_for "the engine to go" gone "$engine"
start_daemon
await a
assert_rec exit_code -1 error '=~lost' stdout '"up\n"'
run a 'echo a new machine'
assert_rec stdout '"a new machine\n"'

# No daemon comes back: nothing here waits that long, but what the next one does not know it ends.
machine=$(machine_of a)
kill_daemon
machines | grep -qx "$machine" || fail "the machine of a has no cgroup"
mv "$STORE/sandboxes/$uuid" "$DIR/away"
start_daemon
assert_absent "$A"
stray_gone() { ! machines | grep -qx "$machine"; }
wait_for "a machine that no sandbox stands for to be ended" stray_gone
rm -rf "$DIR/away"
