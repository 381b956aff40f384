# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# For scripts that speak with `crucible mcp serve` by hand, after lib.sh.
#
#   serve FLAG…             starts a server (of the user that AS says): write to fd $TO, answers stand in $DIR/answers; sets SERVER
#   say LINE                answer ID: the latest answer with this id
#   ask ID METHOD [PARAMS]  and waits: sets A          call ID TOOL ARGUMENTS: not waited for; tool: waited for, sets A
#   end_input               and so it ends             stop_serving: the same; every line that it ever said was a message
AS=() # whose server

serve() { # FLAG…
	rm -f "$DIR/in" "$DIR/answers"
	mkfifo "$DIR/in"
	"${AS[@]}" "$CRUCIBLE" mcp serve "$@" <"$DIR/in" >"$DIR/answers" 2>"$DIR/serve.err" &
	SERVER=$!
	exec {TO}>"$DIR/in"
}

end_input() {
	exec {TO}>&-
	wait "$SERVER"
}

stop_serving() {
	local line

	end_input || fail "mcp serve ended with $?: $(cat "$DIR/serve.err")"
	while read -r line; do
		jq -e 'if type == "array" then .[0] else . end | .jsonrpc == "2.0"' <<<"$line" >/dev/null || fail "no message: $line"
	done <"$DIR/answers"
}

say() { printf '%s\n' "$*" >&"$TO"; }

answer() { # ID
	jq -c "select(type == \"object\" and .id == $1)" "$DIR/answers" 2>/dev/null | tail -n 1
}

has_answer() { [ -n "$(answer "$1")" ]; }

ask() { # ID METHOD [PARAMS]
	say "{\"jsonrpc\":\"2.0\",\"id\":$1,\"method\":\"$2\",\"params\":${3:-{\}}}"
	wait_for "the answer to $2" has_answer "$1"
	A=$(answer "$1")
}

call() { # ID TOOL ARGUMENTS
	say "{\"jsonrpc\":\"2.0\",\"id\":$1,\"method\":\"tools/call\",\"params\":{\"name\":\"$2\",\"arguments\":$3}}"
}

tool() { # ID TOOL ARGUMENTS
	ask "$1" tools/call "{\"name\":\"$2\",\"arguments\":$3}"
}

tools_listed() { # ID: their names, sorted, in one line
	ask "$1" tools/list
	jq -r '[.result.tools[].name] | sort | join(" ")' <<<"$A"
}
