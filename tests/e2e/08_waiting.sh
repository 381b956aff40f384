#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# TREE.md rule 9: what waits can be interrupted, polled and left alone in great numbers; no directory operation ever waits.
# limit: 400
. "$(dirname "$0")/lib.sh"

start_daemon
ready_sandbox a
A=$RUN/a
new_sandbox never
assert_errno ENOENT read "$RUN/never/wait"

# Nothing runs: at once.
REC=$(bounded cat "$A/wait")
assert_rec exec 1

put a 'echo up; while :; do sleep 1; done'
wait_output a up

# -- interrupting a blocked read --------------------------------------------------------------------------------

for signal in INT TERM QUIT HUP KILL; do
	# A background process of a script ignores INT and QUIT; this one takes them again.
	"$PYTHON" -IS -c 'import signal, sys
for s in signal.SIGINT, signal.SIGQUIT:
    signal.signal(s, signal.SIG_DFL)
open(sys.argv[1]).read()' "$A/wait" &
	reader=$!
	wait_for "the reader to block" is_parked $reader
	kill -$signal $reader
	wait_for "SIG$signal to end a blocked read" gone $reader
	wait $reader 2>/dev/null || :
done
rc=0
bounded timeout 0.3 cat "$A/wait" || rc=$?
assert_eq $rc 124 "timeout(1) around a blocked read"
# With a handler that restarts nothing: EINTR is what open(2) or read(2) says.
"$PYTHON" -IS - "$A/wait" <<'END'
import os, signal, sys
class Rang(Exception):
    pass
def ring(*_):
    raise Rang
signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    os.read(os.open(sys.argv[1], os.O_RDONLY), 100)
    sys.exit("the read returned")
except Rang:
    pass
END

# -- O_NONBLOCK and poll(2) -----------------------------------------------------------------------------------------

"$PYTHON" -IS - "$A" <<'END'
import errno, json, os, select, sys
a = sys.argv[1]
fd = os.open(a + "/wait", os.O_RDONLY | os.O_NONBLOCK)
for _ in range(3):
    try:
        os.read(fd, 65536)
        sys.exit("a non-blocking read of a running command's wait returned")
    except OSError as e:
        assert e.errno == errno.EAGAIN, e
p = select.poll()
p.register(fd, select.POLLIN)
assert p.poll(200) == [], "poll says ready while the command runs"
other = os.open(a + "/exec/latest/wait", os.O_RDONLY | os.O_NONBLOCK)
q = select.poll()
q.register(other, select.POLLIN)
e = select.epoll()
e.register(other, select.EPOLLIN)
with open(a + "/ctl", "w") as f:
    f.write("kill\n")
assert p.poll(90000), "poll(2) does not wake"
assert q.poll(90000) and e.poll(90), "poll(2) and epoll on a second descriptor"
for x in fd, other:
    r = json.loads(os.read(x, 1 << 20))
    assert r["exec"] == 2 and r["signal"] == "SIGKILL" and r["exit_code"] == -1, r
END

# -- many waiting readers, and the tree stays what it is ---------------------------------------------------------------

put a 'echo up; sleep 600'
mkdir "$A/exec/w"
echo 'echo up; read x; echo $x' >"$A/exec/w/cmd"
wait_output a up exec/w/stdout
pids=()
for i in {1..64}; do
	cat "$A/exec/w/wait" >"$DIR/out.$i" &
	pids+=($!)
done
cat >"$DIR/many.py" <<'END'
"""240 more readers in one process each waits on its own thread; says `up` when they are on their way, ends when all were answered."""
import os, sys, threading
out = []
def reader():
    fd = os.open(sys.argv[1], os.O_RDONLY)
    out.append(os.read(fd, 1 << 20))
threading.stack_size(65536)
ts = [threading.Thread(target=reader) for _ in range(240)]
for t in ts:
    t.start()
print("up", flush=True)
for t in ts:
    t.join()
assert len(set(out)) == 1 and len(out) == 240, len(out)
END
"$PYTHON" -IS "$DIR/many.py" "$A/exec/w/wait" >"$DIR/many" &
many=$!
wait_for "64 readers to block" all_parked "${pids[@]}"
threads_parked() {
	local t n=0

	for t in "/proc/$many/task"/*; do
		! grep -q request_wait "$t/wchan" 2>/dev/null || n=$((n + 1))
	done
	[ $n -ge 240 ] || ! grep -q request_wait "/proc/${pids[0]}/wchan"
}
wait_for "240 more" threads_parked
for _ in {1..20}; do
	bounded ls -l "$A" >/dev/null
	bounded stat "$A/status" >/dev/null
	bounded ls "$RUN" >/dev/null
done
new_sandbox other
run other 'echo not delayed'
assert_rec stdout '"not delayed\n"'
# Half of them are killed; the others are answered, all with the same.
for i in {0..31}; do
	kill -KILL "${pids[i]}"
done
for i in {0..31}; do
	wait_for "a killed reader to go" gone "${pids[i]}"
done
echo answer >"$A/exec/w/stdin"
for i in {32..63}; do
	wait "${pids[i]}" || fail "a reader failed"
	assert_json "$(cat "$DIR/out.$((i + 1))")" stdout '"up\nanswer\n"'
done
wait $many || fail "240 readers of one process"
echo kill >"$A/ctl"
await a

# -- a removed sandbox lets its readers go -----------------------------------------------------------------------------------

put other 'echo up; sleep 600'
wait_output other up
bash -c 'cat "$0"; echo "rc $?"' "$RUN/other/wait" >"$DIR/said" 2>&1 &
reader=$!
tail -f "$RUN/other/stdout" >/dev/null 2>&1 &
tail=$!
reader_is_parked() { all_parked "$(pgrep -P $reader)"; }
wait_for "the reader to block" reader_is_parked
bounded rmdir "$RUN/other"
wait $reader
assert_match "$(cat "$DIR/said")" 'rc 1' "a reader of a sandbox that was removed: $(cat "$DIR/said")"
assert_no_match "$(cat "$DIR/said")" '"exit_code":0'
kill $tail
wait $tail 2>/dev/null || :

# -- directory operations do not wait, not even for a guest that has stopped answering ------------------------------------------

engine=$(engine_pid a)
kill -STOP "$engine"
bounded timeout 20 bash -ec '
	cd "$0"
	mkdir a/exec/now
	rmdir a/exec/now
	echo "echo queued" >a/cmd
	ls -lR . >/dev/null
	cat a/status a/info.json >/dev/null
	mv a b
	mv b a
	mkdir n
	rmdir n
	echo note >a/note
	rm a/note
	echo stop >a/ctl
	rmdir a
	mkdir a
' "$RUN" || fail "an operation on directories waited for a guest that does not answer"
assert_file "$RUN/a/status" configured
wait_for "the machine that was stopped to go" gone "$engine"
