#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A sandbox's life: the words of `status`, the verbs of `ctl`, lifetimes, stop and start with its files, another name.
. "$(dirname "$0")/lib.sh"

start_daemon
new_sandbox a limits/timeout_s=0
A=$RUN/a
assert_file "$A/status" configured
echo start >"$A/ctl"
assert_match "$(cat "$A/status")" '^(starting|ready)$' "status after start, which returns at once"
wait_status a ready
assert_json "$(cat "$A/info.json")" status '"ready"' from '"profile:tiny"' engine '"qemu"' accel '=~^(tcg|kvm)$' guest.kernel '=~^6\.' \
	created '=~Z$' started '=~Z$' sizes.memory_mib '>0' sizes.vcpus 1 isolation.network '"none"' owner 0
assert_match "$(tr -d '\r' <"$A/console.log" | head -c 100000)" . "console.log"

# -- running, paused ---------------------------------------------------------------------------------------------

put a 'i=0; while :; do i=$((i+1)); echo $i; usleep 20000 2>/dev/null || sleep 1; done'
wait_status a running
wait_output a '^3$'
echo pause >"$A/ctl"
wait_status a paused
n=$(stat -c %s "$A/stdout")
assert_errno EBUSY read "$A/fs/etc/passwd"
assert_file "$A/status" paused
assert_eq "$(stat -c %s "$A/stdout")" "$n" "output of a paused machine"
echo pause >"$A/ctl" # again: fine
echo resume >"$A/ctl"
wait_status a running
more() { [ "$(stat -c %s "$A/stdout")" -gt "$n" ]; }
wait_for "output after resume" more
echo 'signal TERM' >"$A/ctl"
await a
assert_rec signal '"SIGTERM"' exit_code -1 error '""' timed_out false
wait_status a ready
put a 'trap "echo caught; exit 7" USR1; echo up; while :; do sleep 1; done'
wait_output a up
echo 'signal SIGUSR1' >"$A/ctl"
await a
assert_rec exit_code 7 stdout '"up\ncaught\n"'

# -- the clock of a pause is not the command's -----------------------------------------------------------------------

# A deadline that passes while the machine is paused: time limits are kept by the host and a pause does not count.
put a '{"script":"echo up; read x </dev/null; i=0; while [ $i -lt 8 ]; do sleep 1; i=$((i+1)); done; echo done","timeout_s":14}'
wait_output a up
echo pause >"$A/ctl"
wait_status a paused
echo resume >"$A/ctl"
await a
assert_rec exit_code 0 stdout '"up\ndone\n"' timed_out false

# -- stop and start: the files stay -----------------------------------------------------------------------------------

head -c 3000000 /dev/urandom >"$DIR/random"
cp "$DIR/random" "$A/fs/root/by-fs"
run a 'cat /root/by-fs >/root/by-cmd; i=0; while [ $i -lt 200 ]; do echo $i >/root/f$i; i=$((i+1)); done'
echo stop >"$A/ctl" # at once after the write
wait_status a stopped
assert_json "$(cat "$A/info.json")" isolation.engine_uid null isolation.box_uid null # 0 would be root
echo stop >"$A/ctl" # again: fine
assert_errno ENOTCONN listdir "$A/fs/"
assert_file "$A/exec/latest/status" "done"
echo start >"$A/ctl"
wait_status a ready
assert_same "$DIR/random" "$A/fs/root/by-fs"
assert_same "$DIR/random" "$A/fs/root/by-cmd"
run a 'cat /root/f* | wc -l; cat /root/f199'
assert_rec stdout '"200\n199\n"' exec 5
assert_json "$(cat "$A/exec/1/result.json")" signal '"SIGTERM"' # the history stays, too

# A command that was written to a stopped sandbox starts it; one that ran when it was stopped is ended and says so.
put a 'echo up; sleep 600'
wait_output a up
put a 'echo queued behind it'
echo stop >"$A/ctl"
wait_status a stopped
assert_json "$(cat "$A/exec/6/result.json")" exit_code -1 stdout '"up\n"' cancelled true signal '=~^SIG(TERM|KILL)$'
assert_json "$(cat "$A/exec/7/result.json")" exit_code -1 cancelled true
run a 'echo a new start'
assert_rec exit_code 0 stdout '"a new start\n"' exec 8

# -- another name ------------------------------------------------------------------------------------------------------

put a 'echo up; sleep 600'
wait_output a up
mv "$A" "$RUN/final"
A=$RUN/final
assert_file "$A/status" running
run_after() { echo kill >"$A/ctl" && await final; }
run_after
assert_rec sandbox '=~^(a|final)$' exec 9
run final 'echo renamed'
assert_rec sandbox '"final"' stdout '"renamed\n"' exec 10

# -- lifetime -------------------------------------------------------------------------------------------------------------

echo 1 >"$A/limits/timeout_s" # it is older than that
wait_status final stopped
assert_match "$(cat "$A/error")" 'sandbox final: .*timeout_s'
echo 0 >"$A/limits/timeout_s"
run final 'echo lives again'
assert_rec stdout '"lives again\n"'
echo 100000 >"$A/limits/timeout_s"
echo 'extend 5000' >"$A/ctl"
assert_file "$A/limits/timeout_s" 105000

# -- what is shown -----------------------------------------------------------------------------------------------------------

have_usage() { json_of "$(cat "$A/usage.json")" cpu_ms | grep -q '[1-9]'; }
wait_for "usage.json to tell of the machine" have_usage
assert_json "$(cat "$A/usage.json")" memory_bytes '>1000000' execs 11 tasks '>0'
"$PYTHON" -IS - "$A/log.jsonl" <<'END'
import json, sys
events = [json.loads(l) for l in open(sys.argv[1])]
words = [e["event"] for e in events]
for w in "created", "starting", "ready", "paused", "stopped", "exec", "exec_done", "renamed":
    assert w in words, (w, words)
assert len({e["uuid"] for e in events}) == 1
END
