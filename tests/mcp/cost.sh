#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What `mcp serve` costs: resident memory at rest and after a mixed load, and a tool call against the same file operations done by
# a shell, in the same run. It asserts nothing. Run: tests/run.sh tests/mcp/cost.sh (the figures stand in $COST_OUT).
. "$(dirname "$0")/../e2e/lib.sh"

need node perl
# shellcheck disable=SC2119 # no option
start_daemon
export CRUCIBLE_MOUNT=$MNT
ready_sandbox a
node "$TOP/tests/mcp/cost.mjs" | tee "${COST_OUT:-$DIR/cost}"
