#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The examples do what their READMEs say, and leave nothing.
# limit: 600
. "$(dirname "$0")/lib.sh"

start_daemon
export CRUCIBLE_MOUNT=$MNT
example() { # SCRIPT [ARGUMENT…]: OUT
	OUT=$(bounded "$TOP/examples/$1" "${@:2}" 2>"$DIR/err" </dev/null) || fail "$1: exit code $?: $(tail -n 5 "$DIR/err")"
	assert_eq "$(ls -A "$RUN" "$SNAPS")" "$RUN:

$SNAPS:" "what $1 leaves"
}

example three-patches/run.sh tiny
assert_match "$OUT" '^a-obvious +fails +[1-9]'
assert_match "$OUT" '^b-half +fails +[1-9]'
assert_match "$OUT" '^c-whole +passes +0 '
assert_match "$OUT" '^kept: c-whole'
[ ! -f "$TESTSTORE/profiles/python/root.img" ] || {
	example three-patches/run.sh python
	assert_match "$OUT" '^kept: c-whole'
	example live-python/run.sh
	assert_match "$OUT" '^left: .*\[1, 2, 3, 10\]'
	assert_match "$OUT" '^right: .*\[1, 2, 3, 20\]'
	assert_match "$OUT" '^parent: .*\[1, 2, 3\]'
}
