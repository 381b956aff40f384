#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A damaged pack: what needs it says so (EBADMSG, in words, status damaged), the others are fine, and when the bytes are right again so is it.
# limit: 400
. "$(dirname "$0")/lib.sh"

EXPECTED_ERRORS='EBADMSG|damaged|Bad message'
start_daemon
ready_sandbox good limits/memory_mib=128
fill_memory good 8
good_sum=$SUM
take good g
wait_stored g
find "$STORE/snapstore/packs" -name '*.pack' | sort >"$DIR/before"
ready_sandbox bad limits/memory_mib=128
fill_memory bad 24
bad_sum=$SUM
take bad b
wait_stored b
rmdir "$RUN/good" "$RUN/bad"
find "$STORE/snapstore/packs" -name '*.pack' | sort | comm -13 "$DIR/before" - >"$DIR/new"
[ -s "$DIR/new" ] || fail "the second snapshot made no pack"
stop_daemon # what is in memory goes with it

# One byte in each of the second one's packs.
flip() {
	"$PYTHON" -IS - "$DIR/new" <<'END'
import os, sys
for path in open(sys.argv[1]).read().split():
    size = os.path.getsize(path)
    with open(path, "r+b") as f:
        f.seek(size // 2)
        byte = f.read(1)[0]
        f.seek(size // 2)
        f.write(bytes([byte ^ 0x40]))
END
}
flip
start_daemon
outcome "$SNAPS/b/verify"
assert_rec status '"damaged"' damaged '>0' pages '>0' first '=~.'
assert_file "$SNAPS/b/status" damaged
assert_ne "$(error_of "$SNAPS/b")" "" "words of the damaged one"
assert_errno EBADMSG write "$SNAPS/b/fork" 'x\n'
assert_match "$(error_of "$SNAPS/b")" 'damage|digest|verif' "words of a fork that is refused"
assert_absent "$RUN/x"
outcome "$SNAPS/g/verify"
assert_rec status '"ok"' damaged 0
assert_file "$SNAPS/g/status" ready
fork_of g y
assert_memory y "$good_sum"
outcome "$MNT/store/verify"
assert_rec status '"damaged"' damaged '>0'

# Right again.
flip
outcome "$SNAPS/b/verify"
assert_rec status '"ok"' damaged 0
assert_file "$SNAPS/b/status" ready
fork_of b x
assert_memory x "$bad_sum"
rmdir "$RUN/x" "$RUN/y"

# Cut short under running forks: what needs it fails in words, nobody else, and the daemon lives.
fork_of g z
stop_daemon
start_daemon
fork_of b x
fork_of g w
while read -r f; do
	truncate -s $(($(stat -c %s "$f") / 3)) "$f"
done <"$DIR/new"
put x '{"script":"sha256sum </dev/shm/pattern","timeout_s":60}'
await x
if [ "$(rec exit_code)" = 0 ]; then # all of it was there before
	assert_rec stdout "\"${bad_sum//$'\n'/}\\n\""
else
	assert_rec exit_code -1 error '=~.'
	assert_file "$RUN/x/status" failed
	assert_ne "$(error_of "$RUN/x")" "" "words of a fork that lost its memory"
fi
assert_memory w "$good_sum"
run z 'echo booted from its disk'
assert_rec exit_code 0
bounded rmdir "$RUN/x"
assert_json "$(cat "$MNT/health.json")" ready true
