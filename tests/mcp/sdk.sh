#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# limit: 600
#
# `crucible mcp serve` and clients of others: the official SDK's (every tool, a conversation as an agent has it, the operator's
# limits), and the inspector's command line.
. "$(dirname "$0")/../e2e/lib.sh"

need node
MODULES=$TOP/tests/mcp/node_modules
[ -d "$MODULES/@modelcontextprotocol/sdk" ] || skip "the SDK is not there: make mcp-sdk (npm)"
# shellcheck disable=SC2119 # no option
start_daemon
export CRUCIBLE_MOUNT=$MNT
for part in tools conversation limits; do
	timeout -k 5 400 node "$TOP/tests/mcp/$part.mjs" || fail "$part.mjs"
	wait_for "the sandboxes to go" test -z "$(ls -A "$RUN")"
done

# The inspector's command line: another client, with a reader of its own.
# It looks for its own package.json from where it is started.
inspect() (
	cd "$MODULES/@modelcontextprotocol/inspector-cli/build"
	bounded node cli.js --cli -e "CRUCIBLE_MOUNT=$MNT" "$CRUCIBLE" mcp serve --method "$@"
)
assert_json "$(inspect tools/list)" tools.0.name '"run"'
assert_json "$(inspect tools/call --tool-name run --tool-arg 'command=["echo","inspected"]')" structuredContent.stdout '"inspected\n"'
assert_json "$(inspect resources/templates/list)" resourceTemplates.0.name '"sandbox"'
wait_for "the sandboxes to go" test -z "$(ls -A "$RUN")"
echo "inspector: all right"
