#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# `crucible setup`: a real command first, then a block for each program in its own shape; merging keeps what was there.
. "$(dirname "$0")/lib.sh"

export HOME=$DIR/home CRUCIBLE_MOUNT=$MNT
unset XDG_CONFIG_HOME
mkdir "$HOME" "$DIR/project"
cd "$DIR/project"
setup() { # sets RC, OUT, ERR
	RC=0
	OUT=$(bounded "$CRUCIBLE" setup "$@" 2>"$DIR/err" </dev/null) || RC=$?
	ERR=$(cat "$DIR/err")
}

# -- no daemon
setup
assert_eq "$RC $(tail -n 1 <<<"$OUT")" "1 not ready"
assert_match "$OUT" 'start the daemon'

start_daemon
setup
assert_eq "$RC" 0 "exit code ($ERR)"
assert_match "$(tail -n 1 <<<"$OUT")" '^(ready|degraded)$'
assert_eq "$(grep -c '^# ' <<<"$OUT")" 5
assert_eq "$(ls -A "$RUN")" ""
setup -o json
exe=$(realpath "$CRUCIBLE")
shape() { # CLIENT JSON
	assert_eq "$(jq -c --arg c "$1" '.clients[] | select(.client == $c) | .block' <<<"$OUT")" "$2" "block of $1"
}
entry="\"command\":\"$exe\",\"args\":[\"mcp\",\"serve\",\"--mount\",\"$MNT\"]"
shape claude "{\"mcpServers\":{\"crucible\":{\"type\":\"stdio\",$entry}}}"
shape claude-desktop "{\"mcpServers\":{\"crucible\":{$entry}}}"
shape cursor "{\"mcpServers\":{\"crucible\":{$entry}}}"
shape vscode "{\"servers\":{\"crucible\":{\"type\":\"stdio\",$entry}}}"
shape zed "{\"context_servers\":{\"crucible\":{\"source\":\"custom\",$entry}}}"

# -- merged: all else stays, what was there is kept once
mkdir -p "$HOME/.cursor"
echo '{"mcpServers":{"other":{"command":"x"}},"n":1.50}' >"$HOME/.cursor/mcp.json"
cp "$HOME/.cursor/mcp.json" "$DIR/before"
chmod 0600 "$HOME/.cursor/mcp.json"
for _ in 1 2; do
	setup --client cursor --write
	assert_eq "$RC" 0 "exit code ($ERR)"
	assert_eq "$(jq -c . "$HOME/.cursor/mcp.json")" "{\"mcpServers\":{\"other\":{\"command\":\"x\"},\"crucible\":{$entry}},\"n\":1.5}"
	assert_match "$(cat "$HOME/.cursor/mcp.json")" '1\.50'
	assert_same "$HOME/.cursor/mcp.json.before-crucible" "$DIR/before"
	assert_eq "$(stat -c %a "$HOME/.cursor/mcp.json")" 600
done
assert_no_match "$OUT" 'mcpServers'
# -- a file that was not there; one with comments is not touched, nor one of another shape
setup --client claude --write
assert_eq "$(jq -c . .mcp.json)" "{\"mcpServers\":{\"crucible\":{\"type\":\"stdio\",$entry}}}"
assert_absent .mcp.json.before-crucible
mkdir -p "$HOME/.config/zed"
printf '// mine\n{}\n' >"$HOME/.config/zed/settings.json"
setup --client zed --write
assert_eq "$RC" 1
assert_match "$ERR" 'comments'
assert_match "$OUT" 'context_servers'
assert_file "$HOME/.config/zed/settings.json" $'// mine\n{}'
echo '{"servers":[]}' >.mcp.json && mkdir .vscode && mv .mcp.json .vscode/mcp.json
setup --client vscode --write
assert_eq "$RC" 1
assert_file .vscode/mcp.json '{"servers":[]}'
# -- the block works as it stands
setup -o json --client claude
mapfile -t args < <(jq -r '.clients[0].block.mcpServers.crucible.args[]' <<<"$OUT")
assert_match "$(printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"ping"}' | env -u CRUCIBLE_MOUNT "$exe" "${args[@]}")" '"result":\{\}'
