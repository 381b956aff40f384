#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Limits that hold: memory, processes, disk, environment; what a sandbox does to itself is not felt beside it.
. "$(dirname "$0")/lib.sh"

start_daemon
new_sandbox a limits/memory_mib=128 limits/pids=200 limits/disk_mib=200
run a 'echo up'
A=$RUN/a
assert_json "$(cat "$A/info.json")" sizes.memory_mib 128 sizes.machine_memory_mib 256 sizes.disk_mib 200

# -- memory ---------------------------------------------------------------------------------------------------------

run a 'echo begun; exec tail /dev/zero'
assert_rec oom_killed true stdout '"begun\n"' signal '"SIGKILL"' exit_code -1 timed_out false
run a 'echo alive'
assert_rec oom_killed false exit_code 0 stdout '"alive\n"'
run a 'sh -c "tail /dev/zero"; echo "child ended with $?"' # a grandchild was the victim
assert_rec oom_killed true stdout '=~child ended with 137' exit_code 0
run a 'dd if=/dev/zero of=/dev/shm/big bs=1M count=400 2>&1 | tail -n 1; rm -f /dev/shm/big; echo alive'
assert_rec stdout '=~alive\n$'
run a 'i=0; x=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; while :; do x=$x$x; done'
assert_rec exit_code '!0'
run a 'dd if=/dev/zero of=/dev/shm/x bs=1M count=40 2>/dev/null; wc -c </dev/shm/x; rm /dev/shm/x' # what fits is no crime
assert_rec oom_killed false stdout '"41943040\n"'

# -- processes: a fork bomb. The sandbox answers or is reaped, the host feels nothing ------------------------------------------

put a '{"script":"f() { f | f & }; f; sleep 3; echo survived","timeout_s":5}'
new_sandbox b
run b 'echo beside a fork bomb'
assert_rec stdout '"beside a fork bomb\n"'
bounded ls -lR "$RUN" >/dev/null
await a
assert_rec error '""'
# What a command leaves in the background lives on, a bomb too: but the next command can begin, and a stop ends it.
run a 'echo after the bomb'
assert_rec stdout '=~^after the bomb' exit_code 0
echo stop >"$RUN/a/ctl"
wait_status a stopped
run a 'ls /proc | grep -c "^[0-9]"'
[ "$(rec stdout | tail -n 1)" -lt 150 ] || fail "$(rec stdout | tail -n 1) processes are left of the bomb"
# limits/pids, counted: a shell that cannot fork says so.
run a 'i=0; while [ $i -lt 400 ]; do sleep 50 & i=$((i+1)); done; echo "all 400"'
assert_no_match "$(rec stdout)" 'all 400' "processes beyond limits/pids"
run a 'exec killall sleep' # which needs no fork
run a 'echo can fork again | cat'
assert_rec stdout '"can fork again\n"'
assert_eq "$(awk '/^Threads/ { print $2 < 60 }' "/proc/$(engine_pid a)/status")" 1 "threads of the engine"

# -- disk ----------------------------------------------------------------------------------------------------------------------------

run a 'dd if=/dev/zero of=/root/full bs=1M 2>&1; echo "rc $?"; df -m / | tail -n 1'
assert_rec stdout '=~No space left on device.*rc 1\n'
assert_match "$(errno_of write "$A/fs/root/more" "$(printf 'x%.0s' {1..100})" WRONLY,CREAT)" '^(ENOSPC|OK)$'
head -c 4000000 /dev/zero >"$DIR/4m"
cp "$DIR/4m" "$A/fs/root/more" 2>"$DIR/said" && fail "4 MB fit on a full disk"
assert_match "$(cat "$DIR/said")" 'No space left'
run a 'rm /root/full /root/more; echo whole >/root/ok; cat /root/ok'
assert_rec stdout '"whole\n"'
[ "$(du -m "$STORE/disks/layers" | tail -n 1 | cut -f1)" -lt 300 ] || fail "what was written to disks is more than disk_mib"

# -- the host's side -----------------------------------------------------------------------------------------------------------------------

engine=$(engine_pid a)
assert_eq "$(awk '/^CapEff|^CapPrm|^CapBnd/ { print $2 }' "/proc/$engine/status" | sort -u)" 0000000000000000 "capabilities of the engine"
assert_eq "$(awk '/^Seccomp:|^NoNewPrivs/ { print $2 }' "/proc/$engine/status" | tr '\n' ' ')" "1 2 "
assert_eq "$(awk '/^Seccomp:|^NoNewPrivs/ { print $2 }' "/proc/$(box_pid a)/status" | tr '\n' ' ')" "1 2 " "the box"
assert_eq "$(cat "/proc/$engine/oom_score_adj") $(cat "/proc/$(box_pid a)/oom_score_adj")" "500 100"
for ns in mnt net pid ipc uts; do
	assert_ne "$(readlink "/proc/$engine/ns/$ns")" "$(readlink "/proc/self/ns/$ns")" "namespace $ns of the engine"
	assert_ne "$(readlink "/proc/$engine/ns/$ns")" "$(readlink "/proc/$(box_pid a)/ns/$ns")" "namespace $ns of engine and box"
done
assert_no_match "$(find "/proc/$engine/root/" -mindepth 1 -maxdepth 1 -printf '%f\n')" '^(root|home|etc|sys|var|tmp)$' "what the engine sees of the host"
assert_eq "$(find "/proc/$engine/root/run" -mindepth 1 -printf '%P ')" "blocks blocks/nbd.sock " "what it sees in /run"
assert_eq "$(find "/proc/$engine/root/proc" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | tr '\n' ' ')" "1 self thread-self " "what it sees in /proc: itself"
assert_eq "$(tail -n +3 "/proc/$engine/net/dev" | sed "s/:.*//; s/ //g" | sort | tr "\n" " ")" "lo $([ ! -e /dev/net/tun ] || echo 'net0 ')" "network devices of the engine"
# Its tap is down, without an address: whatever the guest sends goes nowhere.
assert_no_match "$(cat "/proc/$engine/net/route")" "net0" "routes of the engine"
assert_ne "$(json_of "$(cat "$A/info.json")" isolation.engine_uid)" "$(json_of "$(cat "$RUN/b/info.json")" isolation.engine_uid)"
if [ -z "$(json_of "$(cat "$A/info.json")" unenforced.0 2>/dev/null | grep -v '^no ' || :)" ]; then
	limit=$(find /sys/fs/cgroup -path "*/crucible-$CGROUP/$(machine_of a)/engine/memory.*" \( -name memory.limit_in_bytes -o -name memory.max \) -exec cat {} + | sort -n | sed -n 1p)
	[ "$limit" -lt 2000000000 ] || fail "no memory limit on the engine: $limit"
fi
