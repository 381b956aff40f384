#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The harness itself: each way to fail is seen to fail, each kind of left-over is seen, named and taken away. No daemon.
. "$(dirname "$0")/lib.sh"

# -- run.sh ----------------------------------------------------------------------------------------------------

dummy() { # NAME, body on standard input
	{
		echo '#!/bin/bash'
		cat
	} >"$DIR/$1.sh"
	chmod +x "$DIR/$1.sh"
}

runner() { # ARGUMENT…: sets OUT and RC
	RC=0
	OUT=$(env -u CRUCIBLE_TEST_DIR -u CRUCIBLE_MUST_RUN TMPDIR="$DIR" "$TOP/tests/run.sh" -o "$DIR/logs" "$@" 2>&1) || RC=$?
}

dummy good <<<'echo fine'
dummy bad <<<'echo "words of the failure" >&2; exit 3'
dummy skipped <<<'echo "skip: no such tool" >&2; exit 77'
dummy slow <<<$'# limit: 1\nexec tail -f /dev/null'
dummy args <<<'[ "$*" = "x y /tmp" ] && [ "$PWD" = "$CRUCIBLE_TEST_DIR" ]'
runner "$DIR/good.sh"
assert_eq "$RC" 0
assert_match "$OUT" '^ok good \([0-9.]+ s\)$'
assert_match "$OUT" '^1 passed, 0 failed, 0 skipped$'
runner "$DIR/args.sh::x y::/tmp"
assert_eq "$RC" 0 "arguments, directory"

runner -l lab "$DIR/good.sh" "$DIR/bad.sh" "$DIR/skipped.sh" "$DIR/slow.sh"
assert_eq "$RC" 1
assert_match "$OUT" '^ok lab-good '
assert_match "$OUT" '^FAIL lab-bad \(exit code 3\)'
assert_match "$OUT" '^    \| words of the failure$'
assert_match "$OUT" '^skip lab-skipped \(no such tool\)'
assert_match "$OUT" '^FAIL lab-slow \(time limit of 1 s\)'
assert_eq "$(tail -n 1 <<<"$OUT")" "1 passed, 2 failed, 1 skipped"
assert_match "$(cat "$DIR/logs/lab-bad.log")" 'words of the failure'
bash -n "$DIR/logs/lab-bad.repro.sh"
assert_absent "$DIR/logs/lab-good.log"
OUT=$(env -u CRUCIBLE_TEST_DIR "$DIR/logs/lab-bad.repro.sh" 2>&1) && fail "the repro script does not fail"
assert_match "$OUT" '^FAIL bad '
assert_match "$OUT" "kept: $DIR/crucible-test"
rm -r "$DIR"/crucible-test.*

RC=0
OUT=$(env -u CRUCIBLE_TEST_DIR TMPDIR="$DIR" CRUCIBLE_MUST_RUN=1 "$TOP/tests/run.sh" -o "$DIR/logs" "$DIR/skipped.sh" 2>&1) || RC=$?
assert_eq "$RC" 1 "CRUCIBLE_MUST_RUN"
assert_match "$OUT" '^FAIL skipped \(must run, but: no such tool\)'

runner -j 3 "$DIR/good.sh" "$DIR/args.sh::x y::/tmp" "$DIR/skipped.sh" "$DIR/bad.sh"
assert_eq "$(tail -n 1 <<<"$OUT")" "2 passed, 1 failed, 1 skipped" "three at once"
runner "$DIR/none.sh"
assert_eq "$RC" 2 "a program that does not exist"

# What is left behind.
cat >"$DIR/left" <<'END'
process      setsid tail -f /dev/null &
mount        mkdir m; mount -t tmpfs x m
socket       "$PYTHON" -c 'import socket; socket.socket(socket.AF_UNIX).bind("s")'
file         mkdir -p /run/crucible; echo >/run/crucible/left-$CRUCIBLE_TEST_CGROUP
process.of   setpriv --reuid=$CRUCIBLE_TEST_UID_BASE --clear-groups setsid tail -f /dev/null & echo $! >"$HOME_CGROUP/cgroup.procs"
cgroup       mkdir "$HOME_CGROUP/crucible-$CRUCIBLE_TEST_CGROUP"
END
HOME_CGROUP=${CRUCIBLE_TEST_CGROUP_DIR%/*}
export HOME_CGROUP PYTHON
while read -r what how; do
	case $what in process.of | cgroup) [ -n "$HOME_CGROUP" ] || continue ;; esac
	dummy left <<<"$how"
	runner "$DIR/left.sh"
	rm -f /run/crucible/left-*
	rmdir /run/crucible 2>/dev/null || :
	assert_eq "$RC" 1 "a left $what"
	assert_match "$OUT" "^FAIL left \(left behind: $what" "a left $what"
done <"$DIR/left"
no_strays() {
	! grep -q "$DIR/crucible-test" /proc/self/mountinfo && [ -z "$(find "$DIR" -maxdepth 1 -name 'crucible-test.*')" ]
}
wait_for "what was left to be taken away" no_strays

# -- lib.sh ------------------------------------------------------------------------------------------------------

must_fail() { # COMMAND…
	(
		trap - EXIT
		"$@"
	) >"$DIR/said" 2>&1 && fail "does not fail: $*"
	return 0
}

must_fail assert_eq a b
must_fail assert_ne a a
must_fail assert_match abc '^b'
must_fail assert_no_match abc b
must_fail assert_exists "$DIR/none"
must_fail assert_absent "$DIR/good.sh"
must_fail assert_same "$DIR/good.sh" "$DIR/bad.sh"
must_fail assert_file "$DIR/none" x
must_fail assert_fails true
must_fail assert_errno OK unlink "$DIR/none"
must_fail assert_errno ENOENT open "$DIR/good.sh"
must_fail assert_json '{"a":1}' a 2
must_fail assert_json '{"a":1}' a '"1"'
must_fail assert_json '{"a":true}' a 1
must_fail assert_json '{"a":1}' b 1
must_fail assert_json '{"a":1}' a absent
must_fail assert_json '{"a":1}' a '!1'
must_fail assert_json '{"a":1}' a '>1'
must_fail assert_json '{"a":"x"}' a '=~y'
must_fail assert_json '{"a":[1]}' a '@len 2'
must_fail assert_json '{' a 1
BOUND=1 must_fail wait_for "what never comes" false
BOUND=1 must_fail assert_fails tail -f /dev/null
assert_errno ENOENT unlink "$DIR/none"
assert_errno OK open "$DIR/good.sh"
assert_json '{"a":[1,{"b":"xyz"}],"c":null}' a.0 1 a.1.b '=~^xy' a.0 '<2' c null d absent a '@len 2' a '!2'

# A daemon's log with a report in it.
echo 'level=err prog=crucibled event=x' >"$DAEMON_LOG"
must_fail scan_log
EXPECTED_ERRORS='event=x' scan_log
echo '==1==ERROR: AddressSanitizer: heap-use-after-free' >"$DAEMON_LOG"
must_fail scan_log
rm "$DAEMON_LOG"
