#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What `mcp serve` costs: resident memory at rest and after a mixed load, and a tool call against the same file operations done by
# a shell, in the same run. It asserts nothing. Run: tests/run.sh tests/mcp/cost.sh (the figures stand in $COST_OUT).
. "$(dirname "$0")/../e2e/lib.sh"

need node
# shellcheck disable=SC2119 # no option
start_daemon
export CRUCIBLE_MOUNT=$MNT
ready_sandbox a
node "$TOP/tests/mcp/cost.mjs" | tee "${COST_OUT:-$DIR/cost}"

# The same operations by a shell that is running already: of list_sandboxes (one sandbox), of exec.
rounds=200
list() { for s in run/*; do read -r _ <"$s/status"; read -r _ <"$s/info.json"; done; }
command() { mkdir run/a/exec/x; echo '{"argv":["true"],"stdin":""}' >run/a/exec/x/cmd; read -r _ <run/a/exec/x/wait; rmdir run/a/exec/x; }
cd "$MNT"
for what in list command; do
	for ((i = 0; i < rounds; i++)); do
		t=$EPOCHREALTIME
		$what
		echo $((${EPOCHREALTIME/./} - ${t/./}))
	done | sort -n | awk -v what=$what '{ v[NR] = $1 } END { printf "shell %s: median %.3f ms\n", what, v[int((NR + 1) / 2)] / 1000 }'
done | tee -a "${COST_OUT:-$DIR/cost}"
cd "$DIR"
