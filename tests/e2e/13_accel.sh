#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# accel = auto: KVM only after a trial boot of the real guest succeeded; the outcome is told, and remembered by the store.
# limit: 400
. "$(dirname "$0")/lib.sh"

CRUCIBLE_TEST_ACCEL=auto start_daemon
decided() { assert_json "$(cat "$MNT/health.json")" accel '=~^(tcg|kvm)$'; }
new_sandbox a
put a 'echo first' # waits for the decision
wait_for "the decision" bash -c '! grep -q "\"accel\":\"trying\"" "$0"' "$MNT/health.json"
decided
accel=$(json_of "$(cat "$MNT/health.json")" accel)
assert_json "$(cat "$MNT/health.json")" accel_reason '=~.'
await a
assert_rec stdout '"first\n"' isolation.accel "\"$accel\""
assert_json "$(cat "$RUN/a/info.json")" accel "\"$accel\"" accel_reason '=~.'
[ -e /dev/kvm ] || assert_eq "$accel" tcg
stop_daemon
: >"$DAEMON_LOG"
CRUCIBLE_TEST_ACCEL=auto start_daemon
wait_for "the decision" bash -c '! grep -q "\"accel\":\"trying\"" "$0"' "$MNT/health.json"
assert_json "$(cat "$MNT/health.json")" accel "\"$accel\""
run a 'echo again'
assert_rec isolation.accel "\"$accel\""
stop_daemon

if [ "$accel" = tcg ]; then
	CRUCIBLE_TEST_ACCEL=kvm start_daemon
	put a 'echo forced'
	await a
	assert_rec exit_code -1 error '=~.' # forced, and refused in words instead of quietly something else
	stop_daemon
fi
CRUCIBLE_TEST_ACCEL=tcg start_daemon
run a 'echo emulated'
assert_rec isolation.accel '"tcg"'
# Its clock is the processor's, whatever else this host does: one that counts ticks loses them.
if grep -qw nonstop_tsc /proc/cpuinfo; then
	run a 'cat /sys/devices/system/clocksource/clocksource0/current_clocksource'
	assert_rec stdout '=~^tsc'
fi
