#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# TREE.md rule 10: errors have their own errno, and `error` the words that name the object, the step and the way out.
. "$(dirname "$0")/lib.sh"

start_daemon --set max_sandboxes=4 --set max_sandboxes_per_uid=2

# -- EDQUOT: a limit or policy says no more ------------------------------------------------------------------------

for i in 1 2; do
	assert_eq "$(as_user 61001 "$PYTHON" -IS "$E2E/op.py" mkdir "$RUN/u$i")" OK
done
assert_eq "$(as_user 61001 "$PYTHON" -IS "$E2E/op.py" mkdir "$RUN/u3")" EDQUOT "a third sandbox of a user who may have two"
new_sandbox a
new_sandbox b
assert_errno EDQUOT mkdir "$RUN/c"
rmdir "$RUN/u1" "$RUN/u2"
new_sandbox slots
slots=0
while [ "$(errno_of mkdir "$RUN/slots/exec/s$slots")" = OK ] && [ $slots -lt 400 ]; do
	slots=$((slots + 1))
done
assert_eq $slots 256 "slots of a sandbox"
assert_errno EDQUOT mkdir "$RUN/slots/exec/more"
rmdir "$RUN/slots"

# -- EBUSY, ENOTCONN, ENOENT: not in this state ----------------------------------------------------------------------

ready_sandbox c
assert_errno EBUSY write "$RUN/c/limits/vcpus" '2\n'
assert_match "$(cat "$RUN/c/error")" 'sandbox c: .*vcpus.*started'
assert_errno EBUSY write "$RUN/c/from" 'profile:tiny\n'
assert_errno OK write "$RUN/c/limits/timeout_s" '4000\n'
assert_errno EBUSY write "$RUN/c/ctl" 'start\n'
echo pause >"$RUN/c/ctl"
wait_status c paused
assert_errno EBUSY listdir "$RUN/c/fs/"
assert_errno EBUSY read "$RUN/c/fs/etc/passwd"
echo resume >"$RUN/c/ctl"
wait_status c ready
assert_errno OK read "$RUN/c/fs/etc/passwd"
assert_errno ENOENT read "$RUN/c/fs/etc/nothing"
put c 'sleep 600'
wait_status c running
for i in {1..64}; do
	put c "echo $i"
done
assert_errno EBUSY write "$RUN/c/cmd" 'echo the sixty-fifth\n'
assert_match "$(cat "$RUN/c/error")" 'queue is full.*mkdir exec/NAME'
(echo 'echo too many' >"$RUN/c/cmd") 2>/dev/null && fail "a shell does not see that the queue is full"
echo stop >"$RUN/c/ctl"
wait_status c stopped
assert_errno ENOTCONN listdir "$RUN/c/fs/"
assert_errno ENOTCONN read "$RUN/c/fs/etc/passwd"
assert_errno ENOTCONN write "$RUN/c/fs/root/x" x WRONLY,CREAT
assert_file "$RUN/c/status" stopped
REC=$(bounded cat "$RUN/c/exec/65/result.json")
assert_rec exit_code -1 cancelled true error '=~stopped'

# -- ETIMEDOUT: it did not answer in time ---------------------------------------------------------------------------------

ready_sandbox d
engine=$(engine_pid d)
kill -STOP "$engine"
assert_errno ETIMEDOUT read "$RUN/d/fs/etc/passwd"
assert_errno ETIMEDOUT listdir "$RUN/d/fs/"
kill -CONT "$engine"
wait_for "the guest to answer again" cat "$RUN/d/fs/etc/passwd"

# -- EPERM: policy forbids it at all ------------------------------------------------------------------------------------------

assert_errno EPERM write "$RUN/d/status" 'x\n'
assert_errno EPERM write "$RUN/d/result.json" 'x\n'
assert_errno EPERM write "$RUN/d/exec/1/stdout" 'x\n'
assert_eq "$(as_user 61001 "$PYTHON" -IS "$E2E/op.py" write "$MNT/defaults/vcpus" '1\n')" EACCES
rmdir "$RUN/d" "$RUN/c"
stop_daemon

# -- ENOSPC, ENOMEM: the host is full. In words, and nothing half made ----------------------------------------------------------------

start_daemon --set disk_floor_mib=16000000
assert_errno ENOSPC mkdir "$RUN/x"
assert_absent "$RUN/x"
assert_json "$(cat "$MNT/health.json")" ready false degraded.0 '=~disk_floor_mib'
put a 'echo never'
await a
assert_rec exit_code -1 error '=~disk_floor_mib.*free'
stop_daemon

start_daemon --set memory_floor_mib=1048576
assert_errno ENOMEM write "$RUN/a/ctl" 'start\n'
assert_match "$(cat "$RUN/a/error")" 'sandbox a: start: .*memory_floor_mib'
assert_errno ENOMEM listdir "$RUN/a/fs/"
put a 'echo never'
await a
assert_rec exit_code -1 error '=~memory_floor_mib'
stop_daemon

start_daemon --set overcommit_percent=10
echo 4096 >"$RUN/a/limits/memory_mib"
host=$(awk '/^MemTotal/ { print int($2 / 1024) }' /proc/meminfo)
if [ "$host" -lt 40000 ]; then
	assert_errno ENOMEM write "$RUN/a/ctl" 'start\n'
	assert_match "$(cat "$RUN/a/error")" 'overcommit_percent; stop others or lower limits/memory_mib'
fi
