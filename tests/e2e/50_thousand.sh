#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A thousand commands in a row, in order, none stale; the newest thousand records are kept; no descriptor and no process is left over by them.
# limit: 900
. "$(dirname "$0")/lib.sh"

start_daemon --set pool_size=0 --set warm_size=0 --set prepare=0 # nothing is made behind, so that descriptors can be counted
ready_sandbox a
A=$RUN/a
fds() { find "/proc/$1/fd" -mindepth 1 | wc -l; }
daemon_before=$(fds "$DAEMON_PID")
box=$(box_pid a)
box_before=$(fds "$box")

for i in {1..1000}; do
	REC=$(echo "echo $i" >"$A/cmd" && cat "$A/wait")
	case $REC in
	"{\"exec\":$((i + 1)),"*'"exit_code":0,'*"\"stdout\":\"$i\\n\""*) ;;
	*) fail "command $i: $REC" ;;
	esac
done
assert_eq "$(find "$A/exec" -mindepth 1 -maxdepth 1 -name '[0-9]*' | wc -l)" 1000 "records that are kept"
assert_errno ENOENT stat "$A/exec/1"
assert_file "$A/exec/2/stdout" 1
assert_file "$A/exec/1001/stdout" 1000
assert_eq "$(readlink "$A/exec/latest")" 1001
settled() { [ "$(fds "$DAEMON_PID")" -le $((daemon_before + 4)) ] && [ "$(fds "$box")" -le $((box_before + 4)) ]; }
wait_for "the descriptors of a thousand commands to be closed" settled
run a 'ls /proc | grep -c "^[0-9]"; ls /sys/fs/cgroup 2>/dev/null | wc -l; cat /proc/[0-9]*/stat 2>/dev/null | grep -c ") Z "'
assert_rec exit_code '>-1'
[ "$(rec stdout | head -n 1)" -lt 120 ] || fail "$(rec stdout | head -n 1) processes in the guest"
[ "$(wc -l <"$A/log.jsonl")" -ge 2000 ] || fail "the log has $(wc -l <"$A/log.jsonl") lines"

# Sixty-four wait in order; none is lost.
put a 'echo begun; sleep 1'
wait_output a begun # it does not wait itself
for i in {1..64}; do
	put a "echo $i >>/root/order"
done
await a
run a 'cat /root/order | wc -l; sort -nc /root/order && echo sorted'
assert_rec stdout '"64\nsorted\n"'
