#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# limit: 600
#
# `crucible mcp serve` and a client of the official SDK: every tool, a conversation as an agent has it, the operator's limits.
. "$(dirname "$0")/../e2e/lib.sh"

need node
[ -d "$TOP/tests/mcp/node_modules/@modelcontextprotocol/sdk" ] || skip "the SDK is not there: make mcp-sdk (npm)"
# shellcheck disable=SC2119 # no option
start_daemon
export CRUCIBLE_MOUNT=$MNT
for part in tools conversation limits; do
	timeout -k 5 400 node "$TOP/tests/mcp/$part.mjs" || fail "$part.mjs"
	wait_for "the sandboxes to go" test -z "$(ls -A "$RUN")"
done

# The inspector's command line, where somebody has it: CRUCIBLE_MCP_INSPECTOR=…/node_modules/.bin/mcp-inspector (it is 150 MB: no dependency).
if [ -n "${CRUCIBLE_MCP_INSPECTOR-}" ]; then
	inspect() { bounded "$CRUCIBLE_MCP_INSPECTOR" --cli -e "CRUCIBLE_MOUNT=$MNT" "$CRUCIBLE" mcp serve --method "$@"; }
	assert_json "$(inspect tools/list)" tools.0.name '"run"'
	assert_json "$(inspect tools/call --tool-name run --tool-arg 'command=["echo","inspected"]')" structuredContent.stdout '"inspected\n"'
	assert_json "$(inspect resources/templates/list)" resourceTemplates.0.name '"sandbox"'
	wait_for "the sandboxes to go" test -z "$(ls -A "$RUN")"
	echo "inspector: all right"
fi
