#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A snapshot while a command streams: the parent's record is whole, to the byte; the fork shows the command as inherited, never as finished.
# limit: 400
. "$(dirname "$0")/lib.sh"

start_daemon
ready_sandbox a limits/memory_mib=128
A=$RUN/a
lines=4000
script="i=0; while [ \$i -lt $lines ]; do i=\$((i+1)); echo \"line \$i of many\"; [ \$((i % 200)) != 0 ] || sleep 0.1; done; echo end; exit 7"
for ((i = 1; i <= lines; i++)); do
	echo "line $i of many"
done >"$DIR/whole"
echo end >>"$DIR/whole"
printf '{"script":"%s","timeout_s":300}' "${script//\"/\\\"}" >"$A/cmd"
n=$(readlink "$A/exec/latest" | tr -dc 0-9)
wait_output a 'line 300 '
put a 'echo queued' # stays with the parent

take a s
fork_of s b
B=$RUN/b
bounded cat "$A/exec/$n/wait" >"$DIR/rec"
assert_json "$(cat "$DIR/rec")" exit_code 7 stdout_bytes "$(stat -c %s "$DIR/whole")" stdout_truncated false error '""' signal '""'
assert_same "$A/exec/$n/stdout" "$DIR/whole"
await a
assert_rec stdout '"queued\n"' exit_code 0

# -- the fork
assert_json "$(cat "$B/info.json")" inherited.0.n "$n"
assert_json "$(cat "$SNAPS/s/info.json")" inherited.0.n "$n"
assert_eq "$(ls -A "$B/exec")" "" "commands of the fork"
assert_errno ENOENT read "$B/wait"
wait_for "the inherited command to end" grep -qx end "$B/inherited/$n.out"
# What it printed since is the end of the whole: nothing lost, nothing twice.
size=$(stat -c %s "$B/inherited/$n.out")
tail -c "$size" "$DIR/whole" | cmp - "$B/inherited/$n.out" || fail "inherited/$n.out is no tail of what the command prints"
[ "$size" -lt "$(stat -c %s "$DIR/whole")" ] || fail "the fork has all of it, so nothing was taken while it streamed"
run b 'echo own'
assert_rec stdout '"own\n"' exec 1 exit_code 0
assert_eq "$(ls "$B/inherited")" "$n.out"

# -- kill-inherited, and `wait` that does not wait for it
put a '{"script":"while :; do echo x; sleep 0.2; done","timeout_s":300}'
wait_output a x
take a s2
fork_of s2 c
run c 'echo beside'
assert_rec stdout '"beside\n"'
echo kill-inherited >"$RUN/c/ctl"
run c 'ps | grep -c "[w]hile :; do echo x"'
assert_rec stdout '"0\n"'
assert_errno EINVAL write "$RUN/c/ctl" 'kill-inherited now\n'
echo kill >"$A/ctl"
await a
assert_rec signal '"SIGKILL"'

# -- the deadline that was left counts in the fork
put a '{"script":"echo up; trap \"\" TERM; sleep 1000","timeout_s":8}'
wait_output a up
take a s3
fork_of s3 d
inherited_gone() {
	run d 'ps | grep -c "[s]leep 1000"'
	[ "$(rec stdout)" = 0 ]
}
wait_for "the deadline of an inherited command" inherited_gone
await a
assert_rec timed_out true
