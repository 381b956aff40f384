#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The store's disk fills up: errors in words and with an errno, no hang, no half record taken for a whole one; and it goes on when there is space.
. "$(dirname "$0")/lib.sh"

EXPECTED_ERRORS='No space left|record-not-written|not-saved'
mkdir -p "$STORE"
mount -t tmpfs -o size=160m,mode=755 store "$STORE"
trap 'on_exit_full' EXIT
on_exit_full() {
	local rc=$?

	rm -f "$STORE/filler"
	(exit "$rc") || describe
	[ -z "$DAEMON_PID" ] || stop_daemon
	umount -l "$STORE"
	exit "$rc"
}
make_store "$STORE" tiny
start_daemon --set disk_floor_mib=0
ready_sandbox a
A=$RUN/a
new_sandbox idle
fill() { dd if=/dev/zero of="$STORE/filler" bs=64k status=none 2>/dev/null || :; }
free() { : >"$STORE/filler"; }

# The mount lives, reading goes on, what must be written says ENOSPC.
fill
assert_file "$A/status" ready
bounded ls -lR "$RUN" >/dev/null
assert_match "$(errno_of mkdir "$RUN/new")" '^ENOSPC$' "mkdir on a full disk"
assert_absent "$RUN/new"
assert_match "$(errno_of write "$RUN/idle/limits/vcpus" '2\n')" '^ENOSPC$' "a limit on a full disk"
assert_file "$RUN/idle/limits/vcpus" 1
assert_match "$(cat "$RUN/idle/error")" 'idle.*(No space|full|ENOSPC)'
rc=0
(echo 'echo on a full disk' >"$A/cmd") 2>"$DIR/said" || rc=$?
free
if [ $rc -ne 0 ]; then
	assert_match "$(cat "$DIR/said")" 'No space left'
else
	await a
	[ "$(rec exit_code)" = 0 ] || assert_rec exit_code -1 error '=~.'
fi
run a 'echo space again'
assert_rec exit_code 0 stdout '"space again\n"'

# It fills while a command prints: the command ends, what is missing is told, nothing hangs.
put a 'echo begun; read x </dev/null; n=0; while [ ! -e /root/go ] && [ $n -lt 600 ]; do n=$((n+1)); sleep 0.1; done; head -c 3000000 /dev/zero; echo end'
wait_output a begun
fill
bounded bash -c ': >"$0"' "$A/fs/root/go" 2>/dev/null || :
freed=
for _ in {1..200}; do
	[ "$(cat "$A/exec/latest/status")" != "done" ] || break
	sleep "$TICK"
done
free
freed=1
await a
if [ "$(rec exit_code)" = 0 ] && [ "$(rec stdout_truncated)" = false ]; then
	assert_eq "$(stat -c %s "$A/stdout")" "$(rec stdout_bytes)" "bytes of an output that is said to be whole"
fi
assert_eq "$freed" 1
run a 'echo well; cat /etc/hostname >/root/x; sync'
assert_rec exit_code 0 stdout '"well\n"'
new_sandbox new
run new 'echo made'
assert_rec stdout '"made\n"'

# A daemon that is killed on a full disk comes up again.
fill
kill_daemon
free
start_daemon --set disk_floor_mib=0
assert_file "$RUN/idle/limits/vcpus" 1
run a 'echo after all'
assert_rec exit_code 0 stdout '"after all\n"'

# On a floor nothing new is made: health says so.
stop_daemon
fill
start_daemon --set disk_floor_mib=10
assert_json "$(cat "$MNT/health.json")" ready false degraded.0 '=~disk_floor_mib'
assert_errno ENOSPC mkdir "$RUN/x"
free
assert_json "$(cat "$MNT/health.json")" ready true
