#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Somebody has taken over the engine of a fork, and has its uid, its descriptors and its namespaces: no template changes (escaped.py has the ways).
# Neither the other fork, nor the parent, nor the next fork notices; only the memory of that one machine is what its own engine makes of it.
# limit: 400
. "$(dirname "$0")/lib.sh"

"$PYTHON" -IS -c 'import fcntl, os; os.pidfd_open, os.waitstatus_to_exitcode, fcntl.F_GET_SEALS' 2>/dev/null || skip "python3 is older than 3.9"

start_daemon
token=$(head -c 15 /dev/urandom | od -An -tx1 | tr -d ' \n')x # with its end of line 32 bytes: a page holds whole ones
ready_sandbox a limits/memory_mib=128
fill_memory a 16
run a "yes $token | head -c 4m >/dev/shm/token && sha256sum </dev/shm/token"
assert_rec exit_code 0
tokens=$(rec stdout)
tokens_in() { # SANDBOX
	run "$1" 'sha256sum </dev/shm/token'
	rec stdout
}
take a s
fork_of s b c # b is taken over, c is next to it

# Another's, with a template of its own.
ready_sandbox x limits/memory_mib=128
run x 'echo of another >/dev/shm/other'
take x t
fork_of t y

for s in b y; do
	[ -n "$(engine_pid $s)" ] || fail "$s has no engine"
done
pager=$(service_pid crucible-pager) || fail "no pager"
bounded "$PYTHON" -IS "$E2E/escaped.py" ways "$(engine_pid b)" "$(box_pid b)" "$pager" "$(engine_pid y)" "$(box_pid y)" "$token" >"$DIR/tries" 2>&1 ||
	fail "an escaped engine: $(grep -A 2 -e WRONG -e Traceback "$DIR/tries" | head -n 40) $(tail -n 3 "$DIR/tries")"
cat "$DIR/tries"

# Everybody else's memory is what it was, the next fork's as well.
fork_of s d
for s in a c d; do
	assert_memory $s "$SUM"
	assert_eq "$(tokens_in $s)" "$tokens" "the tokens in the memory of $s"
done
for s in x y; do
	run $s 'cat /dev/shm/other'
	assert_rec stdout '"of another\n"'
done
# What its engine wrote into the machine's own memory arrived there: it was no blow into the air.
assert_memory b "$SUM"
if grep -q -e 'copies a page into its own memory' -e 'own memory by /proc: OK' "$DIR/tries"; then
	assert_ne "$(tokens_in b)" "$tokens" "the tokens in the memory of the machine whose engine was taken over"
fi
wait_stored s t
for s in s t; do
	outcome "$SNAPS/$s/verify"
	assert_rec status '"ok"' damaged 0 pages '>0'
done

# The one thing that it can: a hole that it reads past its userfaultfd becomes a page of zeros in the template. Most of it are holes when it comes
# from the store. No other template is touched, no page that was there, nothing that is stored; and it goes with the engine.
rmdir "$RUN/a" "$RUN/b" "$RUN/c" "$RUN/d"
stop_daemon
start_daemon --set warm_size=0
fork_of s e
bounded "$PYTHON" -IS "$E2E/escaped.py" holes "$(engine_pid e)" "$(box_pid e)" >"$DIR/holes" 2>&1 || fail "read holes: $(cat "$DIR/holes")"
cat "$DIR/holes"
assert_match "$(cat "$DIR/holes")" '^[0-9]{4,} pages of zeros were put'
fork_of t z
run z 'cat /dev/shm/other'
assert_rec stdout '"of another\n"'
rmdir "$RUN/e"
fork_of s f
assert_memory f "$SUM"
assert_eq "$(tokens_in f)" "$tokens" "the tokens in the memory of a fork from the store"
for s in s t; do
	outcome "$SNAPS/$s/verify"
	assert_rec status '"ok"' damaged 0 pages '>0'
done
