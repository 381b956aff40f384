#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# From nothing to the first result: mkdir, cmd, wait. A prepared profile with a machine waiting in the pool (crucible), with a pool that was just
# emptied (drained), without a pool (none); and without preparation, a cold boot (cold). Against the bare boot: QEMU with the very same arguments
# (taken from a running sandbox's engine), ended by the first byte that the guest's agent writes. See README.md.
#
#   tools/bench/create.sh BUILD_DIR
. "$(dirname "$0")/lib.sh"
bench_begin create "$@"

# The profile's own snapshot is made behind the first sandbox of it.
prepare() {
	new_sandbox first
	until_true "profile base to be prepared" restored_probe
	destroy first
}

restored_probe() {
	local rc=0

	new_sandbox probe
	is_restored probe || rc=1
	destroy probe
	return $rc
}

start_daemon --set prepare=0 --set pool_size=0
new_sandbox a
facts_engine a
engine_argv a
destroy a
bare_dir "$DIR/bare" base ''
COLD=$RUN

another_daemon none
start_daemon --set pool_size=0
prepare
NONE=$RUN

another_daemon pooled
start_daemon --set pool_size=1
prepare

line cell create.first ns 'mkdir to the first record; bare: the same QEMU to the first byte of the agent, bare-ready: until it waits for hello'
turns --rounds "$(((PAIRS + 2) / 3))" --pool "$UID_BASE:1" --text true create.first "crucible=create:$RUN" "drained=create-drained:$RUN" \
	"cold=create:$COLD" "bare=boot:$DIR/bare" "bare-ready=boot-ready:$DIR/bare"
turns --rounds "$(((PAIRS + 2) / 3))" --text true create.first "none=create:$NONE"
line faster create.first crucible cold 8
line faster create.first drained cold 8
line faster create.first none cold 8
line at-most create.first cold bare 1.5

bench_end
