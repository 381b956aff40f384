#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The way of a snapshot, thin: a sandbox is frozen and goes on, a fork goes on from there, each has its own files and memory from then on.
# limit: 300
. "$(dirname "$0")/lib.sh"

start_daemon
ready_sandbox a limits/memory_mib=128
A=$RUN/a S=$SNAPS/s B=$RUN/b
echo 'written before' >"$A/fs/root/note"
run a 'echo in memory >/dev/shm/memory; mkdir /root/dir; echo gone >/root/gone; sync'
assert_file "$A/snapshot" ''
assert_eq "$(ls -A "$A/snapshots" "$SNAPS")" "$A/snapshots:

$SNAPS:" "before the first snapshot"

# -- taken
take a s
assert_file "$A/snapshot" s
assert_eq "$(readlink "$A/snapshots/s")" ../../../snapshots/s
assert_match "$(cat "$S/status")" '^(storing|ready)$'
assert_file "$S/parent" profile:tiny
assert_file "$S/error" ''
uuid=$(json_of "$(cat "$A/info.json")" uuid)
assert_json "$(cat "$S/info.json")" id '"s"' source '"a"' source_uuid "\"$uuid\"" parent '"profile:tiny"' owner 0 vcpus 1 \
	engine '=~qemu' accel '=~^(tcg|kvm)$' memory_mib '>95' pause_ms '>-1' inherited '[]' forks 0 uuid '=~^[0-9a-f-]{36}$' created '=~Z$'

# -- forked
fork_of s b
assert_file "$S/fork" b
assert_eq "$(readlink "$S/forks/b")" ../../../run/b
assert_file "$B/status" ready
assert_file "$B/from" snapshot:s
assert_eq "$(ls -A "$B/exec")" "" "the exec history of a fork"
assert_errno ENOENT read "$B/result.json"
run b 'cat /root/note /dev/shm/memory'
assert_rec stdout '"written before\nin memory\n"' exec 1 sandbox '"b"' exit_code 0
assert_file "$B/fs/root/note" 'written before'
assert_ne "$(json_of "$(cat "$B/info.json")" uuid)" "$uuid" "the fork's uuid"
assert_json "$(cat "$B/info.json")" from '"snapshot:s"' parent '=~s$'
assert_match "$(head -n 1 "$B/log.jsonl")" '"s"' "the log of a fork begins with its origin"
assert_json "$(cat "$S/info.json")" forks 1

# -- both go on, apart
run a 'echo parent; rm /root/gone; echo A >/root/note; echo A >/dev/shm/memory'
assert_rec stdout '"parent\n"' exec 3
run b 'echo B >/root/note; cat /root/gone /dev/shm/memory'
assert_rec stdout '"gone\nin memory\n"'
assert_file "$A/fs/root/note" A
assert_file "$B/fs/root/note" B
fork_of s c # the snapshot is what it was
run c 'cat /root/note /dev/shm/memory /root/gone'
assert_rec stdout '"written before\nin memory\ngone\n"'

# -- stored, checked, compared
wait_stored s
assert_json "$(cat "$S/info.json")" sizes.memory_bytes '>100000000' sizes.unique_bytes '>0' sizes.pages_changed '>-1' status '"ready"'
outcome "$S/verify"
assert_rec status '"ok"' damaged 0 pages '>0'
assert_absent "$S/diff.json"
assert_file "$S/diff" none
if [ "$(errno_of write "$S/diff" 'start\n')" = ENOENT ]; then # booted cold: there is no snapshot of the profile to compare with
	assert_match "$(error_of "$S")" 'compare'
	assert_absent "$S/diff.json"
else
	compare s
fi
[ ! -e "$S/diff.json" ] || assert_json "$(cat "$S/diff.json")" parent '"profile:tiny"' truncated false
for path in /root/note /root/dir /root/gone; do
	[ ! -e "$S/diff.json" ] || assert_match "$(cat "$S/diff.json")" "\"$path\"" "diff.json"
done

# -- a second one of the same sandbox stands on the first
take a s2
assert_file "$SNAPS/s2/parent" s
wait_stored s2
assert_json "$(cat "$SNAPS/s2/info.json")" parent '"s"' parent_uuid "\"$(json_of "$(cat "$S/info.json")" uuid)\"" sizes.pages_shared '>0'
compare s2
assert_json "$(cat "$SNAPS/s2/diff.json")" parent '"s"' deleted.0 '"/root/gone"' added '[]'
assert_match "$(json_of "$(cat "$SNAPS/s2/diff.json")" changed)" '"/root/note"' "what is changed"

# -- born of a snapshot by its attribute
new_sandbox d from=snapshot:s2
assert_file "$RUN/d/status" configured
run d 'cat /root/note'
assert_rec stdout '"A\n"'

# -- removed: what grew out of them lives
rmdir "$S" "$SNAPS/s2"
assert_absent "$S" "$A/snapshots/s"
for x in a b c d; do
	run $x 'echo alive'
	assert_rec stdout '"alive\n"'
done
rmdir "$A" "$B" "$RUN/c" "$RUN/d"
