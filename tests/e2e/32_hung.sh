#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A guest that stops answering: its commands are lost within their time limit and 5 s, its files are ETIMEDOUT, and nobody else notices: a
# thousand commands elsewhere, with 64 reads parked on the hung one, none stale.
# limit: 900
. "$(dirname "$0")/lib.sh"

start_daemon
ready_sandbox hung
ready_sandbox well
engine=$(engine_pid hung)
put hung '{"script":"echo up; sleep 600","timeout_s":2}'
wait_output hung up
kill -STOP "$engine"
await hung
assert_rec exit_code -1 stdout '"up\n"' error '=~.'
assert_no_match "$(rec error)" '^$'
case $(cat "$RUN/hung/status") in
failed) run hung true && kill -0 "$engine" 2>/dev/null && fail "the hung engine still lives" ;;
*) kill -CONT "$engine" ;;
esac
run hung 'echo again'
assert_rec stdout '"again\n"'

engine=$(engine_pid hung)
kill -STOP "$engine"
cat >"$DIR/parked.py" <<'END'
"""Keep 64 reads of a hung guest's files waiting, each again when it was told ETIMEDOUT, until the file `stop` is there. Anything else than
ETIMEDOUT (or EBUSY: too many at once) is a fault."""
import errno, os, sys, threading
d, stop = sys.argv[1:]
faults, told = [], [0] * 64
def reader(i):
    while not os.path.exists(stop):
        try:
            (os.listdir if i % 4 == 0 else os.stat if i % 4 == 1 else lambda p: open(p).read())(d + ("/etc/passwd" if i % 4 else "/etc"))
            faults.append("an answer")
            return
        except OSError as e:
            if e.errno != errno.ETIMEDOUT:
                faults.append(errno.errorcode[e.errno])
                return
            told[i] += 1
threading.stack_size(65536)
ts = [threading.Thread(target=reader, args=(i,)) for i in range(64)]
for t in ts:
    t.start()
for t in ts:
    t.join()
print("faults", sorted(set(faults)), "least told", min(told))
END
"$PYTHON" -IS "$DIR/parked.py" "$RUN/hung/.fs" "$DIR/stop" >"$DIR/parked" &
parked=$!
W=$RUN/well
for i in {1..1000}; do
	echo "echo $i" >"$W/cmd"
	REC=$(cat "$W/wait")
	case $REC in
	*'"exit_code":0,'*"\"stdout\":\"$i\\n\""*) ;;
	*) fail "command $i beside a hung guest: $REC" ;;
	esac
	[ $((i % 100)) -ne 0 ] || assert_file "$W/stdout" "$i"
done
ls -lR "$RUN" >/dev/null
touch "$DIR/stop"
wait $parked
assert_match "$(cat "$DIR/parked")" '^faults \[\] least told [1-9]' "reads of the hung guest"
kill -CONT "$engine"
wait_for "the guest to answer again" cat "$RUN/hung/fs/etc/passwd"
run hung 'echo well again'
assert_rec stdout '"well again\n"'

# Stopping and removing one that hangs.
kill -STOP "$engine"
echo stop >"$RUN/hung/ctl"
wait_status hung stopped
wait_for "the hung engine to go" gone "$engine"
run hung 'echo a new machine'
assert_rec stdout '"a new machine\n"'
engine=$(engine_pid hung)
kill -STOP "$engine"
rmdir "$RUN/hung"
wait_for "the hung engine to go" gone "$engine"
ready_sandbox hung
kill -STOP "$(engine_pid hung)" # and SIGTERM of the daemon with one hanging: see the end of every script
