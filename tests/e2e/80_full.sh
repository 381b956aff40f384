#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The store's disk fills up: a snapshot is refused or not stored, in words, with ENOSPC; nothing is lost, the sandbox goes on, the next one is right.
# limit: 400
. "$(dirname "$0")/lib.sh"

EXPECTED_ERRORS='No space left|ENOSPC|not-saved|record-not-written|not-stored'
mkdir -p "$STORE"
mount -t tmpfs -o size=320m,mode=755 store "$STORE"
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
fill() { dd if=/dev/zero of="$STORE/filler" bs=64k status=none 2>/dev/null || :; }
free() { : >"$STORE/filler"; }

# -- below the floor nothing is begun
start_daemon --set disk_floor_mib=8 --set prepare=0 # nothing goes on behind
ready_sandbox a limits/memory_mib=128
fill_memory a 32
before=$(count "$SNAPS")
fill
assert_errno ENOSPC write "$RUN/a/snapshot" 's\n'
assert_match "$(error_of "$RUN/a")" 'No space|full|disk_floor' "the words"
assert_absent "$SNAPS/s"
assert_eq "$(count "$SNAPS")" "$before"
free
run a 'echo goes on'
assert_rec stdout '"goes on\n"'
take a s
wait_stored s
fork_of s b
assert_memory b "$SUM"
fill
assert_errno ENOSPC write "$SNAPS/s/fork" '2\n'
assert_absent "$RUN/s-1"
free
stop_daemon

# -- it becomes full while a snapshot is being stored
start_daemon --set disk_floor_mib=0 --set prepare=0 # nothing goes on behind
run a 'echo booted'
fill_memory a 40
sum=$SUM
dd if=/dev/zero of="$STORE/filler" bs=1M count="$(($(df -m --output=avail "$STORE" | tail -n 1) - 12))" status=none || :
rc=0
(echo t >"$RUN/a/snapshot") 2>"$DIR/said" || rc=$?
run a 'echo goes on'
assert_rec stdout '"goes on\n"'
if [ $rc -ne 0 ]; then
	assert_match "$(cat "$DIR/said")" 'No space left'
	assert_absent "$SNAPS/t"
else
	# It can be forked out of memory, whatever the disk says.
	says_so() { [ "$(cat "$SNAPS/t/status")" = ready ] || grep -qiE 'space|full' "$SNAPS/t/error"; }
	wait_for "the store to say that it is full" says_so
	assert_ne "$(cat "$SNAPS/t/status")" ready "status of what did not fit"
fi
outcome "$SNAPS/s/verify" # what was there is whole
assert_rec status '"ok"'
free
if [ -d "$SNAPS/t" ]; then
	wait_stored t # by itself, when there is space
else
	take a t
	wait_stored t
fi
fork_of t c
assert_memory c "$sum"
outcome "$MNT/store/gc" # what was half written goes
assert_rec status '"ok"'
outcome "$MNT/store/verify"
assert_rec status '"ok"' damaged 0

# -- and while a fork writes: its machine waits or its command fails, the others go on
put c '{"script":"dd if=/dev/urandom of=/root/fat bs=1M count=60; sync; echo over","timeout_s":100}'
fill
assert_file "$RUN/a/status" ready
bounded ls -lR "$RUN" "$SNAPS" >/dev/null
stands() { [ "$(cat "$RUN/c/status")" = paused ] || [ "$(cat "$RUN/c/exec/latest/status")" = "done" ]; }
wait_for "the one that writes to stand still" stands
free
# An idle guest writes now and then, too: it may have met the full disk like the one that was made to.
for m in a b c; do
	[ "$(cat "$RUN/$m/status")" != paused ] || echo resume >"$RUN/$m/ctl"
done
run a 'echo beside'
assert_rec stdout '"beside\n"'
await c
rmdir "$RUN/c"
run b 'echo alive'
assert_rec stdout '"alive\n"'
