#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A lease: when its last holder closes it, however it died, the sandbox is destroyed. Reading it in passing is no lease.
. "$(dirname "$0")/lib.sh"

start_daemon
hold() { # SANDBOX: sets HOLDER
	"$PYTHON" -IS -c 'import os, sys, signal; f = os.open(sys.argv[1], os.O_WRONLY); open(sys.argv[2], "w").write("held"); signal.pause()' \
		"$RUN/$1/lease" "$DIR/held.$1" &
	HOLDER=$!
	wait_for "the lease to be held" test -s "$DIR/held.$1"
	rm "$DIR/held.$1"
}
is_gone() { [ ! -e "$RUN/$1" ]; }

for signal in KILL TERM SEGV; do
	new_sandbox a
	hold a
	kill -$signal $HOLDER
	wait $HOLDER 2>/dev/null || :
	wait_for "the sandbox to go with its holder (SIG$signal)" is_gone a
done

# With a machine, a command and a second holder.
ready_sandbox b
hold b
first=$HOLDER
exec {lease}>"$RUN/b/lease"
kill -KILL $first
wait $first 2>/dev/null || :
put b 'echo up; sleep 600'
wait_output b up
assert_file "$RUN/b/status" running
engine=$(engine_pid b)
exec {lease}>&-
wait_for "the sandbox to go with the last holder" is_gone b
wait_for "its engine to go" gone "$engine"

# Held by a child that inherited it.
new_sandbox c
(
	exec 9>"$RUN/c/lease"
	exec tail -f /dev/null
) &
child=$!
holds() { [ -e "/proc/$child/fd/9" ] && [ "$(cat "/proc/$child/comm")" = tail ]; }
wait_for "the child to hold it" holds
assert_file "$RUN/c/status" configured
kill -KILL $child
wait_for "the sandbox to go" is_gone c

# What only looks does not destroy.
new_sandbox d
cat "$RUN/d/lease"
grep -r x "$RUN/d" >/dev/null || :
stat "$RUN/d/lease" >/dev/null
[ -r "$RUN/d/lease" ]
test -s "$RUN/d/lease" || :
assert_file "$RUN/d/status" configured

# The daemon dies with a lease held: whoever holds it has lost it, so the sandbox goes, or it stays until it is held anew. It must not hang.
hold d
kill_daemon
kill -KILL $HOLDER
wait $HOLDER 2>/dev/null || :
start_daemon
bounded ls "$RUN" >/dev/null
[ ! -e "$RUN/d" ] || rmdir "$RUN/d"
assert_match "$(grep '"destroyed"' "$MNT/events.jsonl" | head -n 1)" 'lease'
