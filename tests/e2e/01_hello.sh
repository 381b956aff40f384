#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The first five minutes: make a sandbox, run a command in it, read what it did, throw it away. With nothing but files.
. "$(dirname "$0")/lib.sh"

start_daemon # on "$MNT"; a fresh sandbox boots the smallest profile

mkdir "$RUN/a"
assert_file "$RUN/a/status" configured # not started yet: that costs nothing

echo 'echo hello; echo oops >&2; exit 3' >"$RUN/a/cmd"
REC=$(bounded cat "$RUN/a/wait") # blocks until the command has ended, then reads as its record

assert_rec exit_code 3 stdout '"hello\n"' stderr '"oops\n"'
assert_rec exec 1 sandbox '"a"' signal '""' timed_out false oom_killed false cancelled false error '""'
assert_rec stdout_bytes 6 stderr_bytes 5 stdout_truncated false stderr_truncated false
assert_rec argv.0 '"/bin/sh"' started_at '=~^20[0-9-]+T[0-9:.]+Z$' duration_ms '>-1' queued_ms '>-1'
assert_rec isolation.engine '"qemu"' isolation.network '"none"' usage.peak_memory_bytes '>0'

assert_file "$RUN/a/stdout" hello # the raw bytes
assert_file "$RUN/a/stderr" oops
assert_file "$RUN/a/result.json" "$REC"
assert_file "$RUN/a/exec/1/result.json" "$REC"
assert_file "$RUN/a/exec/latest/stdout" hello
assert_file "$RUN/a/status" ready

echo 'echo again' >"$RUN/a/cmd" # the machine is still there: its files, too
assert_json "$(bounded cat "$RUN/a/wait")" exec 2 stdout '"again\n"' exit_code 0
assert_file "$RUN/a/exec/1/stdout" hello

echo '{"argv":["cat"],"stdin":"by request\n","timeout_s":20}' >"$RUN/a/cmd" # the same as JSON
assert_json "$(bounded cat "$RUN/a/wait")" exec 3 stdout '"by request\n"' argv '["cat"]'

echo 'written in the guest' >"$RUN/a/fs/root/note"
echo 'cat /root/note' >"$RUN/a/cmd"
assert_json "$(bounded cat "$RUN/a/wait")" stdout '"written in the guest\n"'

rmdir "$RUN/a" # not empty, as a mkdir made it: as in configfs
assert_absent "$RUN/a"
assert_file "$RUN/../version" "$("$LIBEXEC/crucibled" --version | cut -d' ' -f2)"
