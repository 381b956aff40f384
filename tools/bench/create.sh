#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# From nothing to the first result: mkdir, cmd, wait, against the bare boot: QEMU with the very same arguments (taken from a running sandbox's
# engine), ended by the first byte that the guest's agent writes. Cold boots, both. See README.md.
#
#   tools/bench/create.sh BUILD_DIR
. "$(dirname "$0")/lib.sh"
bench_begin create "$@"

start_daemon
new_sandbox a
facts_engine a
engine_argv a
rmdir "$RUN/a"

mkdir "$DIR/bare"
printf '%s\0' "${ENGINE_ARGV[@]}" >"$DIR/bare/argv"
ln -s "$STORE/profiles/base/root.img" "$DIR/bare/base"
qemu-img create -q -f qcow2 "$DIR/bare/overlay.new" 4G

line cell create.cold ns 'mkdir to the first record; bare: the same QEMU to the first byte of the agent, bare-ready: until it waits for hello'
turns --rounds "$PAIRS" --text true create.cold "crucible=create:$RUN" "bare=boot:$DIR/bare" "bare-ready=boot-ready:$DIR/bare"
line at-most create.cold crucible bare 1.5

bench_end
