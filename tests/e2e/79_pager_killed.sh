#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The pager is killed under load: faults wait for the next one, check sums are right, disks too. Killed again and again: failed in words at the
# worst, and rmdir works.
# limit: 600
. "$(dirname "$0")/lib.sh"

EXPECTED_ERRORS='pager'
start_daemon
ready_sandbox a limits/memory_mib=160
fill_memory a 48
run a 'cp /dev/shm/pattern /root/pattern; sync'
take a s
wait_stored s
# From here on templates have to come from the store, page by page.
rmdir "$RUN/a"
stop_daemon
start_daemon
fork_of s b c d

pager() { service_pid crucible-pager; }
another_pager() { # PID
	local p

	p=$(pager) && [ "$p" != "$1" ]
}
for i in 1 2 3; do
	for x in b c d; do
		put $x '{"script":"sha256sum </dev/shm/pattern; echo 3 >/proc/sys/vm/drop_caches; sha256sum </root/pattern","timeout_s":200}'
	done
	old=$(pager) || fail "no pager"
	kill -KILL "$old"
	wait_for "another pager" another_pager "$old"
	for x in b c d; do
		await $x
		assert_rec exit_code 0 error '""' stdout "\"${SUM//$'\n'/}\\n${SUM//$'\n'/}\\n\""
	done
	take b "s$i"
	fork_of "s$i" "e$i"
	assert_memory "e$i" "$SUM"
	rmdir "$RUN/e$i"
done

# Again and again. (The daemon gives up on it for a while at some point: then that stands in health.json.)
for i in {1..12}; do
	old=$(pager) || break
	kill -KILL "$old"
	wait_for "the pager to go" gone "$old"
	for ((k = 0; k < 60; k++)); do
		! another_pager "$old" || break
		sleep "$TICK"
	done
done
assert_file "$MNT/version" "$("$LIBEXEC/crucibled" --version | cut -d' ' -f2)"
bounded ls -lR "$RUN" "$SNAPS" >/dev/null
pager >/dev/null || assert_match "$(json_of "$(cat "$MNT/health.json")" degraded)" pager "health.json without a pager"
for x in b c d; do
	if [ "$(cat "$RUN/$x/status")" = failed ]; then
		assert_ne "$(error_of "$RUN/$x")" "" "words of a sandbox that failed"
	fi
	bounded rmdir "$RUN/$x" || fail "rmdir of $x"
done
