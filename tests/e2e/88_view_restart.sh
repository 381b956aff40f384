#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The daemon is killed: views, what was made through them and their ends are there again; one whose time passed meanwhile is over.
. "$(dirname "$0")/lib.sh"
. "$E2E/lib_view.sh"

start_daemon
mount_view stays '{"operations":["create","exec","read","snapshot","fork","delete"],"max_sandboxes":3}' --ttl 1h
mount_view ends '{}' --ttl 1h
mount_view fresh '{}'
mkdir "$VIEWS/new"
S=$AT/stays
in_view stays ready_sandbox a
in_view stays take a snap
in_view ends ready_sandbox e
new_sandbox a # of the whole tree
in_view stays put a 'echo up; sleep 600'
in_view stays wait_output a up
uuid=$(cat "$VIEWS/stays/uuid")
of_a=$(jq -r .uuid <"$S/run/a/info.json")
of_e=$(jq -r .machine <"$STORE/sandboxes/$(jq -r .uuid <"$AT/ends/run/e/info.json")/sandbox.json")
engine=$(in_view stays engine_pid a)
policy=$(cat "$VIEWS/stays/policy")
echo 1 >"$VIEWS/ends/ttl"
over=$(($(date +%s) + 2))
kill_daemon
assert_errno ENOTCONN listdir "$S/run"
is_past() { [ "$(date +%s)" -ge "$over" ]; }
wait_for "the ttl of a view to pass" is_past

start_daemon
assert_eq "$(names "$VIEWS")" "ends fresh new stays "
assert_file "$VIEWS/new/status" new
assert_file "$VIEWS/stays/status" active
assert_file "$VIEWS/stays/uuid" "$uuid"
assert_eq "$(cat "$VIEWS/stays/policy")" "$policy"
assert_match "$(cat "$VIEWS/stays/ttl")" '^3[0-9]{3}$'
assert_file "$VIEWS/fresh/ttl" none
assert_file "$VIEWS/ends/status" expired
no_machine() { ! machines | grep -qF "$1"; }
wait_for "the machine of the view that is over to stop" no_machine "$of_e"

# The old mount is dead; the new one is told of by name.
assert_errno ENOTCONN listdir "$S/run"
rc=0
said=$("$CRUCIBLE" --mount "$MNT" mount --name stays "$S" 2>&1) || rc=$?
assert_eq "$rc" 1
assert_match "$said" 'umount --keep'
mount_again stays
assert_eq "$(names "$S/run")" 'a '
assert_eq "$(jq -r .uuid <"$S/run/a/info.json")" "$of_a"
in_view stays wait_status a running
assert_eq "$(in_view stays engine_pid a)" "$engine" "the engine after the restart"
echo kill >"$S/run/a/ctl"
in_view stays await a
assert_rec signal '"SIGKILL"'
assert_eq "$(names "$S/snapshots")" 'snap '
in_view stays fork_of snap f
mkdir "$S/run/b"
assert_errno EDQUOT mkdir "$S/run/c" # two, and the fork: what was made before counts
assert_file "$RUN/a/status" configured
assert_eq "$(names "$RUN")" 'a '
assert_eq "$(names "$SNAPS")" ''
assert_match "$(cat "$S/events.jsonl")" '"sandbox":"a"'
assert_exists "$S/logs/$of_a.jsonl"

# A mount of the daemon that is gone undoes the view of the new one: it is the same.
assert_errno ENOTCONN listdir "$AT/fresh"
"$CRUCIBLE" --mount "$MNT" umount "$AT/fresh"
assert_absent "$VIEWS/fresh"
# More time, and what it was is there.
echo none >"$VIEWS/ends/ttl"
mount_again ends
assert_file "$VIEWS/ends/status" active
in_view ends wait_status e stopped
in_view ends run e 'echo again'
assert_rec stdout '"again\n"'

# A daemon that is stopped in good order leaves them, too.
stop_daemon
start_daemon
assert_eq "$(names "$VIEWS")" "ends new stays "
mount_again stays
assert_eq "$(names "$S/run")" 'a b f '
rmdir "$VIEWS/ends" "$VIEWS/new" "$VIEWS/stays"
is_empty() { [ -z "$(find "$STORE/sandboxes" -mindepth 1 -maxdepth 1 -not -name "$(jq -r .uuid <"$RUN/a/info.json")")" ]; }
wait_for "what was made through the views to go" is_empty
no_view_files() { [ -z "$(names "$STORE/views")" ]; }
wait_for "what was kept of the views to go" no_view_files
rmdir "$RUN/a"
