#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A timeout kills the whole tree, setsid and double forks included, and what was printed stays; kill and signal end a command as well.
. "$(dirname "$0")/lib.sh"

start_daemon
ready_sandbox a limits/exec_timeout_s=120
A=$RUN/a

nothing_runs() { # REGEX: of a command line in the guest
	run a "for p in /proc/[0-9]*; do tr '\\0' ' ' <\$p/cmdline 2>/dev/null; echo; done | grep -E '$1' | grep -v grep; echo end"
	assert_rec stdout '"end\n"'
}

t0=${EPOCHREALTIME/./}
put a '{"script":"echo begun; sleep 7001 & setsid sleep 7002 & (setsid sh -c \"sleep 7003 & sleep 7004\" &) & (trap \"\" TERM HUP INT; sleep 7005; sleep 7006) & nohup sleep 7007 >/dev/null 2>&1 & while :; do :; done","timeout_s":1}'
await a
[ $((${EPOCHREALTIME/./} - t0)) -ge 1000000 ] || fail "timed out after $((${EPOCHREALTIME/./} - t0)) us of its second" # a busy guest's own time is less
assert_rec timed_out true signal '"SIGKILL"' exit_code -1 stdout '"begun\n"' error '""'
nothing_runs 'sleep 70'
run a '{"script":"sh -c \"while :; do :; done\" & sh -c \"while :; do :; done\" & (setsid sh -c \"while :; do :; done\" &) ; (while :; do sh -c :; done) & wait","timeout_s":1}'
assert_rec timed_out true
nothing_runs 'while :'
run a '{"script":"cat /dev/zero","timeout_s":1,"output_mib":1}'
assert_rec timed_out true stdout_truncated true
run a '{"script":"trap \"\" TERM INT HUP; sleep 9; sleep 9","timeout_s":1}'
assert_rec timed_out true signal '"SIGKILL"'
run a '{"argv":["sleep","9"],"timeout_s":1}'
assert_rec timed_out true signal '"SIGKILL"' duration_ms '>900' duration_ms '<5000' # of the guest's own clock

# A child that outlives its command is not the command's time.
run a 'sleep 7008 & echo left'
assert_rec exit_code 0 timed_out false

# The sandbox's own default.
new_sandbox b limits/exec_timeout_s=1
run b 'echo x; sleep 60'
assert_rec timed_out true stdout '"x\n"'
run b '{"script":"sleep 2; echo longer","timeout_s":50}'
assert_rec timed_out false stdout '"longer\n"'
rmdir "$RUN/b"

# -- kill, signal ---------------------------------------------------------------------------------------------------

put a 'echo up; setsid sleep 7010 & (sleep 7011 &) ; while :; do :; done'
wait_output a up
echo kill >"$A/ctl"
await a
assert_rec signal '"SIGKILL"' timed_out false exit_code -1 stdout '"up\n"'
nothing_runs 'sleep 701'
assert_errno ENOENT write "$A/ctl" 'kill\n'
for how in TERM SIGTERM 15 INT HUP USR1; do
	put a 'echo up; while :; do sleep 0.2; done'
	wait_output a up
	echo "signal $how" >"$A/ctl"
	await a
	assert_rec signal '=~^SIG(TERM|INT|HUP|USR1)$' exit_code -1
done
put a 'echo up; sleep 600'
wait_output a up
put a 'echo the next one'
echo kill >"$A/ctl" # the one that runs, not the queue
await a
assert_rec stdout '"the next one\n"' exit_code 0
