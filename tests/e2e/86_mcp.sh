#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# limit: 300
#
# `crucible mcp serve` as a process: every byte of its output, wrong input, revisions of the protocol, what memory it takes, and how it
# ends.
. "$(dirname "$0")/lib.sh"
. "$E2E/lib_mcp.sh"

start_daemon
export CRUCIBLE_MOUNT=$MNT

no_runs() { [ -z "$(ls -A "$RUN")" ]; }
runs_one() { [ "$(cat "$RUN"/run-*/status 2>/dev/null)" = running ]; }

# -- nothing to read: gone at once, nothing said
assert_eq "$(bounded "$CRUCIBLE" mcp serve </dev/null 2>&1)" ""
assert_eq "$(: | bounded "$CRUCIBLE" mcp serve 2>&1)" ""
# -- a file of requests
printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"ping"}' >"$DIR/requests"
assert_eq "$(bounded "$CRUCIBLE" mcp serve <"$DIR/requests")" '{"jsonrpc":"2.0","id":1,"result":{}}'

# -- handshakes
serve
n=0
for version in 2024-11-05 2025-03-26 2025-06-18 2025-11-25; do
	ask $((++n)) initialize "{\"protocolVersion\":\"$version\",\"capabilities\":{}}"
	assert_json "$A" result.protocolVersion "\"$version\"" result.serverInfo.name '"crucible"'
done
ask 10 initialize '{"protocolVersion":"1999-01-01"}'
assert_json "$A" result.protocolVersion '"2025-11-25"'
say '{"jsonrpc":"2.0","method":"notifications/initialized"}'
# -- none: the revision stands in each request
meta() { echo "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"$1\"${2-,\"io.modelcontextprotocol/clientCapabilities\":{\}}}"; }
ask 20 server/discover "{$(meta 2026-07-28)}"
assert_json "$A" result.resultType '"complete"' result.supportedVersions.0 '"2026-07-28"' result.cacheScope '"private"'
ask 21 tools/list "{$(meta 2026-07-28)}"
assert_json "$A" result.resultType '"complete"' result.tools.0.name '"run"' result.ttlMs 0
ask 22 tools/list "{$(meta 2030-01-01)}"
assert_json "$A" error.code -32022 error.data.requested '"2030-01-01"' error.data.supported.0 '"2026-07-28"'
ask 23 tools/list "{$(meta 2026-07-28 '')}"
assert_json "$A" error.code -32602
ask 24 ping "{$(meta 2026-07-28)}"
assert_json "$A" error.code -32601
ask 25 tools/call "{\"name\":\"list_sandboxes\",\"arguments\":{},$(meta 2026-07-28)}"
assert_json "$A" result.resultType '"complete"' result.structuredContent.sandboxes '[]'
ask 26 tools/list
assert_eq "$(json_of "$A" result | jq 'has("resultType")')" false
echo "tools/list: $(printf %s "$A" | wc -c) bytes"

# -- what is no request
ask 30 no/such
assert_json "$A" error.code -32601 error.message '=~no/such'
say 'garbage'
say '{"jsonrpc":"2.0","id":31}'
say '[]'
say '{"jsonrpc":"1.0","id":33,"method":"ping"}'
say '{"jsonrpc":"2.0","id":{},"method":"ping"}'
say '{"jsonrpc":"2.0","id":34,"method":"ping","params":[]}'
say '{"jsonrpc":"2.0","id":35,"result":{}}'
say ''
head -c 17000000 /dev/zero | tr '\0' x >&$TO
say ''
ask 36 ping
assert_json "$A" result '{}'
assert_eq "$(jq -c 'select(type == "object" and .id == null) | .error.code' "$DIR/answers" | tr '\n' ' ')" "-32700 -32600 -32600 -32700 "
assert_json "$(answer 31)" error.code -32600
assert_json "$(answer 33)" error.code -32600
assert_json "$(answer 34)" error.code -32602
assert_eq "$(answer 35)" ""

# -- a list of requests is answered by a list, when the slowest is done
say '[{"jsonrpc":"2.0","id":37,"method":"tools/call","params":{"name":"run","arguments":{"command":["echo","in a batch"]}}},{"jsonrpc":"2.0","id":38,"method":"ping"}]'
in_batch() { jq -e 'select(type == "array") | map(.id) | sort == [37, 38]' "$DIR/answers"; }
wait_for "the answers to a batch" in_batch
assert_json "$(jq -c 'select(type == "array") | .[] | select(.id == 37)' "$DIR/answers")" result.structuredContent.stdout '"in a batch\n"'

# -- answers come as they are ready; a client that does not read holds up nothing
call 40 run '{"command":["sleep","600"]}'
call 40 run '{"command":["true"]}'
wait_for "the second request with this id to be refused" has_answer 40
assert_json "$(answer 40)" error.code -32600
ask 41 ping
wait_for "the command to run" runs_one
say '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":40}}'
wait_for "its sandbox to go" no_runs
assert_eq "$(jq -c 'select(type == "object" and .id == 40 and .result)' "$DIR/answers")" "" "answer to a cancelled call"
# -- more than a pipe holds, to a reader that comes late
mkfifo "$DIR/many.in" "$DIR/many.out"
"$CRUCIBLE" mcp serve <"$DIR/many.in" >"$DIR/many.out" &
many=$!
exec {many_in}>"$DIR/many.in"
exec {many_out}<"$DIR/many.out"
for ((i = 0; i < 600; i++)); do echo "{\"jsonrpc\":\"2.0\",\"id\":$i,\"method\":\"tools/list\"}"; done >"$DIR/requests"
bounded cat "$DIR/requests" >&$many_in &
feeder=$!
bounded head -n 600 <&$many_out | jq -c .id | cmp - <(seq 0 599) || fail "600 lists through a pipe"
wait $feeder
exec {many_in}>&- {many_out}<&-
wait $many

# -- the input ends while commands run: in a sandbox of its own, and in one that stays
ready_sandbox stays
call 50 run '{"command":["sleep","600"]}'
call 51 exec '{"sandbox_id":"stays","code":"echo $$ >/tmp/pid; exec sleep 600"}'
runs_both() { [ -s "$RUN/stays/fs/tmp/pid" ] && runs_one; }
wait_for "the commands to run" runs_both
began=$EPOCHREALTIME
end_input
awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "gone %.3f s after the end of its input\n", b - a }'
assert_eq "$(cat "$DIR/serve.err")" "" "standard error"
only_stays() { [ "$(ls -A "$RUN")" = stays ]; }
wait_for "its sandbox to go" only_stays
run stays 'while kill -0 $(cat /tmp/pid) 2>/dev/null; do sleep 0.05; done; echo cancelled'
assert_rec stdout '"cancelled\n"'

# -- 8 MiB are enough while files of 1 MiB come and go, as text and as bytes
head -c 1048576 /dev/urandom >"$DIR/bytes"
base64 -w 64 "$DIR/bytes" >"$DIR/letters"
head -c 1048576 "$DIR/letters" >"$DIR/text"
serve
for i in 1 2 3; do
	for kind in content base64; do
		if [ $kind = content ]; then
			file=$DIR/text
			jq -Rs . "$file" >"$DIR/quoted"
		else
			file=$DIR/bytes
			base64 -w 0 "$file" | jq -Rs . >"$DIR/quoted"
		fi
		{
			printf '{"jsonrpc":"2.0","id":"w%s%s","method":"tools/call","params":{"name":"write_files","arguments":{"sandbox_id":"stays","files":[' $i $kind
			printf '{"path":"/tmp/big","%s":' $kind
			tr -d '\n' <"$DIR/quoted"
			echo '}]}}}'
		} >&$TO
		wait_for "1 MiB to be written" has_answer "\"w$i$kind\""
		cmp "$file" "$RUN/stays/fs/tmp/big" || fail "what was written, as $kind"
		call "\"r$i$kind\"" read_file '{"sandbox_id":"stays","path":"/tmp/big"}'
		wait_for "1 MiB to be read" has_answer "\"r$i$kind\""
		answer "\"r$i$kind\"" | jq -j .result.structuredContent.content >"$DIR/back"
		[ $kind = content ] || { base64 -d "$DIR/back" >"$DIR/decoded" && mv "$DIR/decoded" "$DIR/back"; }
		cmp "$file" "$DIR/back" || fail "what was read, as $kind"
	done
done
most=$(awk '$1 == "VmHWM:" { print $2 }' "/proc/$SERVER/status")
echo "most memory while files of 1 MiB passed: $most KiB"
[ "$most" -le 8192 ] || fail "$most KiB were resident, more than 8 MiB"
stop_serving
rmdir "$RUN/stays"

# -- the program that started it is killed: it had the other ends of the pipes, so nothing stays
mkfifo "$DIR/parent.out"
bash -c 'coproc SERVER { exec "$CRUCIBLE" mcp serve; }
	echo "$SERVER_PID"
	printf "%s\n" "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"run\",\"arguments\":{\"command\":[\"sleep\",\"600\"]}}}" >&"${SERVER[1]}"
	read -r -u "${SERVER[0]}" _' >"$DIR/parent.out" &
parent=$!
read -r SERVER <"$DIR/parent.out"
wait_for "the command to run" runs_one
kill -KILL $parent
wait $parent 2>/dev/null || :
wait_for "the server to go with the program that started it" gone "$SERVER"
wait_for "its sandbox to go" no_runs

# -- killed in each way: no sandbox stays
for signal in KILL TERM INT HUP; do
	serve
	call 60 run '{"command":["sleep","600"]}'
	wait_for "the command to run" runs_one
	kill -$signal "$SERVER"
	rc=0
	wait "$SERVER" || rc=$?
	assert_eq "$rc" $((128 + $(kill -l $signal))) "exit code after SIG$signal"
	exec {TO}>&-
	wait_for "its sandbox to go" no_runs
done

# -- the output breaks: nobody is there any more
mkfifo "$DIR/out"
(exec sleep 600 >"$DIR/hold") &
holder=$!
"$CRUCIBLE" mcp serve < <(printf '%s\n' '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run","arguments":{"command":["sleep","600"]}}}'; exec tail -f /dev/null --pid=$holder) >"$DIR/out" &
SERVER=$!
exec {from}<"$DIR/out"
wait_for "the command to run" runs_one
exec {from}<&-
wait_for "the server to end" gone "$SERVER"
wait "$SERVER" || :
kill $holder
wait $holder 2>/dev/null || :
wait_for "its sandbox to go" no_runs

# -- no daemon: it starts, and says what to do
serve --mount "$DIR/nowhere"
ask 1 tools/call '{"name":"list_sandboxes","arguments":{}}'
assert_json "$A" result.isError true result.content.0.text '=~start the daemon'
stop_serving
AS=(env CRUCIBLE_MOUNT="$DIR/nowhere")
serve --mount "$MNT"
AS=()
ask 1 tools/call '{"name":"list_sandboxes","arguments":{}}'
assert_json "$A" result.structuredContent.sandboxes '[]'
stop_serving

# -- flags that are none
for words in -v --frob '--max-fork x' '--deny-tools exce' '--tools nonsense' '--max-timeout 0' '--default-profile a --allow-profiles b' \
	'--default-profile nope' '--net-allow-max *' '--net-allow-max a.test,x..y'; do
	rc=0
	read -ra flags <<<"$words"
	bounded "$CRUCIBLE" mcp serve "${flags[@]}" </dev/null >"$DIR/said" 2>"$DIR/err" || rc=$?
	assert_eq "$rc" 1 "exit code with $words"
	assert_eq "$(cat "$DIR/said")" "" "standard output with $words"
	assert_match "$(cat "$DIR/err")" "^crucible: .*${words%% *}"
done

# -- what is wrong with arguments begins with their name, and has the way out
serve
tool 1 run '{"command":["true"],"env":["A=1","bad"]}'
assert_json "$A" result.isError true result.content.0.text '=~^env\[1\]: "bad" is not KEY=VALUE'
tool 2 run '{"command":"echo hi"}'
assert_json "$A" result.isError true result.content.0.text '=~^command: must be a list: give \["sh","-c",.*code'
tool 3 run '{"command":["true"],"image":"alpine"}'
assert_json "$A" result.isError true result.content.0.text '=~^image: this version has no images yet.*list_profiles'
tool 4 list_images '{}'
assert_json "$A" result.structuredContent.images '[]'
assert_eq "$(ls -A "$RUN")" ""
stop_serving

# -- denied tools are neither listed nor called
serve --deny-tools exec
ask 1 tools/list
assert_no_match "$A" '"name":"exec"'
ask 2 tools/call '{"name":"exec","arguments":{"sandbox_id":"a","command":["true"]}}'
assert_json "$A" error.code -32602 error.message '=~no tool "exec"'
stop_serving

# -- as another user: what it makes is that user's, what is another's stays so
new_sandbox root-s
if as_user 12345 test -x "$CRUCIBLE"; then
	AS=(setpriv --reuid=12345 --regid=12345 --clear-groups --)
	serve
	AS=()
	ask 1 tools/call '{"name":"create_sandbox","arguments":{"name":"theirs"}}'
	assert_json "$A" result.structuredContent.id '"theirs"' result.structuredContent.owner 12345
	ask 2 tools/call '{"name":"exec","arguments":{"sandbox_id":"root-s","command":["true"]}}'
	assert_json "$A" result.isError true result.content.0.text '=~somebody else'
	ask 3 tools/call '{"name":"delete_sandbox","arguments":{"sandbox_id":"root-s"}}'
	assert_json "$A" result.isError true
	ask 4 tools/call '{"name":"delete_sandbox","arguments":{"sandbox_id":"theirs"}}'
	assert_json "$A" result.structuredContent.deleted true
	stop_serving
fi
rmdir "$RUN/root-s"
