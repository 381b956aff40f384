#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# exec/NAME: commands that run beside the others, with live input, a terminal and orders of their own.
. "$(dirname "$0")/lib.sh"

start_daemon
ready_sandbox a
A=$RUN/a

# -- sixteen at once, each its own -------------------------------------------------------------------------------

run a 'i=1; while [ $i -le 16 ]; do mkdir -p /tmp/d$i; i=$((i+1)); done'
for i in {1..16}; do
	mkdir "$A/exec/s$i"
	echo "{\"script\":\"echo $i; read -r go; pwd; echo err $i >&2; exit $i\",\"cwd\":\"/tmp/d$i\",\"env\":{\"I\":\"$i\"}}" >"$A/exec/s$i/cmd"
done
for i in {1..16}; do
	wait_output a "^$i$" "exec/s$i/stdout" # all run before any ends
done
assert_file "$A/exec/s7/status" running
for i in {16..1}; do
	echo go >"$A/exec/s$i/stdin"
done
for i in {1..16}; do
	await a "exec/s$i"
	assert_rec exit_code "$i" stdout "\"$i\\n/tmp/d$i\\n\"" stderr "\"err $i\\n\""
	assert_same "$A/exec/s$i/result.json" "$A/exec/$(rec exec)/result.json"
done
run a 'echo the queue goes on'
assert_rec stdout '"the queue goes on\n"'

# -- live input -------------------------------------------------------------------------------------------------------

L=$A/exec/live
mkdir "$L"
for f in cmd stdin stdout stderr status wait ctl; do
	assert_exists "$L/$f"
done
assert_errno ENOENT stat "$L/result.json"
echo 'before the command' >"$L/stdin" # kept for it
echo 'while read -r x; do echo "got $x"; done; echo end' >"$L/cmd"
wait_output a 'got before the command' exec/live/stdout
echo one >"$L/stdin"
wait_output a 'got one' exec/live/stdout
printf 'half of ' >"$L/stdin"
printf 'a line\n' >"$L/stdin"
wait_output a 'got half of a line' exec/live/stdout
echo eof >"$L/ctl"
await a exec/live
assert_rec exit_code 0 stdout '"got before the command\ngot one\ngot half of a line\nend\n"'
assert_match "$(errno_of write "$L/stdin" 'late\n')" '^(OK|EPIPE)$' "input after the end"
echo 'cat; echo used again' >"$L/cmd"
echo eof >"$L/ctl"
await a exec/live
assert_rec stdout '=~used again\n'

# A write blocks when the guest does not read, can be interrupted, and nothing is lost.
mkdir "$A/exec/slow"
echo 'read -r x; echo "$x"; cat | sha256sum' >"$A/exec/slow/cmd"
head -c 3000000 /dev/urandom | base64 -w 0 >"$DIR/big"
{ echo start; cat "$DIR/big"; } >"$DIR/input"
dd if="$DIR/input" of="$A/exec/slow/stdin" bs=8k status=none conv=notrunc
echo eof >"$A/exec/slow/ctl"
await a exec/slow
assert_rec stdout "\"start\\n$(sha256sum <"$DIR/big" | cut -d' ' -f1)  -\\n\""
echo 'echo up; sleep 600' >"$A/exec/slow/cmd"
wait_output a up exec/slow/stdout
dd if=/dev/zero of="$A/exec/slow/stdin" bs=64k count=200 status=none conv=notrunc 2>"$DIR/dd" &
writer=$!
wait_for "a writer to block" is_parked $writer
bounded ls -l "$A/exec/slow" >/dev/null
run a 'echo beside a full pipe'
assert_rec stdout '"beside a full pipe\n"'
kill -TERM $writer
wait_for "the writer to be interrupted" gone $writer
"$PYTHON" -IS - "$A/exec/slow/stdin" <<'END'
import errno, os, select, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_NONBLOCK)
try:
    for _ in range(1000):
        os.write(fd, bytes(65536))
    sys.exit("a full pipe takes all")
except OSError as e:
    assert e.errno == errno.EAGAIN, e
p = select.poll()
p.register(fd, select.POLLOUT)
assert p.poll(100) == [], "poll says that a full pipe takes more"
END
echo kill >"$A/exec/slow/ctl"
await a exec/slow
assert_rec signal '"SIGKILL"'

# -- a terminal -------------------------------------------------------------------------------------------------------------

T=$A/exec/term
mkdir "$T"
echo '{"argv":["/bin/sh","-i"],"tty":{"rows":30,"cols":90},"env":{"PS1":"% "}}' >"$T/cmd"
wait_output a '%' exec/term/stdout
echo 'stty size; tty' >"$T/stdin"
wait_output a '30 90' exec/term/stdout
echo 'resize 40 100' >"$T/ctl"
echo 'stty size' >"$T/stdin"
wait_output a '40 100' exec/term/stdout
echo 'sleep 600; echo interrupted' >"$T/stdin"
sleeps() { run a "grep -l '^sleep.600' /proc/[0-9]*/cmdline 2>/dev/null | grep -c ." && [ "$(rec stdout)" != 0 ]; }
wait_for "what was typed to run" sleeps
printf '\003' >"$T/stdin" # Ctrl-C
echo 'echo still $((6*7))' >"$T/stdin"
wait_output a 'still 42' exec/term/stdout
printf '\004' >"$T/stdin" # Ctrl-D
await a exec/term
assert_rec exit_code '>-2' error '""' stdout_bytes '>20'
for bad in 'resize 0 80' 'resize 24' 'resize x y' 'signal NOPE' nonsense; do
	assert_errno EINVAL write "$T/ctl" "$bad\n"
done
assert_errno ENOENT write "$T/ctl" 'kill\n'

# -- kill, signal; removing one ---------------------------------------------------------------------------------------------------

mkdir "$A/exec/k"
echo 'trap "echo term; exit 9" TERM; echo up; while :; do sleep 0.1; done' >"$A/exec/k/cmd"
wait_output a up exec/k/stdout
echo 'signal TERM' >"$A/exec/k/ctl"
await a exec/k
assert_rec exit_code 9 stdout '"up\nterm\n"'
echo 'echo up; sleep 7100' >"$A/exec/k/cmd"
wait_output a up exec/k/stdout
rmdir "$A/exec/k"
assert_absent "$A/exec/k"
killed() {
	run a "for p in /proc/[0-9]*; do tr '\\0' ' ' <\$p/cmdline 2>/dev/null; done | grep -c 'sleep 710[0]'"
	[ "$(rec stdout)" = 0 ]
}
wait_for "a removed slot's command to be killed" killed
mkdir "$A/exec/k"
assert_errno ENOENT stat "$A/exec/k/result.json"
assert_exists "$A/exec/k/status"
rm -rf "$A/exec/k"
assert_absent "$A/exec/k"
