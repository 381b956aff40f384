#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# `crucible mcp serve` on a view: the tools that the policy permits, its maxima, its end and a new beginning.
. "$(dirname "$0")/lib.sh"
. "$E2E/lib_mcp.sh"
. "$E2E/lib_view.sh"

start_daemon
mount_view agent '{"operations":["create","exec","read","files","delete"],"net_allow_max":[],"max_sandboxes":2,"max_timeout_s":100,"allow_profiles":["tiny"]}'
V=$AT/agent
export CRUCIBLE_MOUNT=$V

# -- the list, and what is not in it
serve
ask 1 initialize '{"protocolVersion":"2025-11-25"}'
assert_json "$A" result.capabilities.tools.listChanged true
BASE="create_sandbox delete_sandbox delete_snapshot diff exec inspect_sandbox inspect_snapshot list_files list_images list_profiles list_sandboxes list_snapshots logs read_file run stop_sandbox wait_for_text write_files"
assert_eq "$(tools_listed 2)" "$BASE"
tool 3 snapshot '{"sandbox_id":"a"}'
assert_json "$A" error.code -32602 error.message '=~no tool "snapshot"'
tool 4 list_profiles '{}'
assert_json "$A" result.structuredContent.profiles.0.name '"tiny"'
assert_eq "$(jq '.result.structuredContent.profiles | length' <<<"$A")" 1

# -- what is permitted works; limits are the policy's
tool 10 run '{"command":["echo","in a view"],"timeout_s":3600}'
assert_json "$A" result.structuredContent.stdout '"in a view\n"'
tool 11 run '{"command":["true"],"net_allow":["example.com"]}'
assert_json "$A" result.isError true result.content.0.text '=~policy.*no network'
tool 12 run '{"command":["true"],"profile":"base"}'
assert_json "$A" result.isError true result.content.0.text '=~policy'
tool 13 create_sandbox '{"name":"a","timeout_s":0}'
assert_json "$A" result.structuredContent.id '"a"'
assert_file "$V/run/a/limits/timeout_s" 100
tool 14 write_files '{"sandbox_id":"a","files":[{"path":"/root/x","content":"written"}]}'
assert_json "$A" result.structuredContent.files 1
tool 15 read_file '{"sandbox_id":"a","path":"/root/x"}'
assert_json "$A" result.structuredContent.content '"written"'
tool 16 create_sandbox '{"name":"b"}'
tool 17 create_sandbox '{"name":"c"}'
assert_json "$A" result.isError true result.content.0.text '=~as many sandboxes'
tool 18 list_sandboxes '{}'
assert_eq "$(jq -r '[.result.structuredContent.sandboxes[].id] | sort | join(" ")' <<<"$A")" "a b"
tool 19 delete_sandbox '{"sandbox_id":"b"}'
assert_json "$A" result.structuredContent.deleted true

# -- another policy: who was refused, or asks for what was not there, finds the new one
set_policy agent '{"operations":["exec","read","snapshot","fork"]}'
tool 20 create_sandbox '{}'
assert_json "$A" result.isError true result.content.0.text '=~policy'
changes() { jq -c 'select(.method == "notifications/tools/list_changed")' "$DIR/answers" | wc -l; }
told() { [ "$(changes)" -ge "$1" ]; }
wait_for "the client to be told that the tools are others" told 1
assert_eq "$(tools_listed 21)" "diff exec fork inspect_sandbox inspect_snapshot list_images list_profiles list_sandboxes list_snapshots logs snapshot stop_sandbox wait_for_text"
tool 22 snapshot '{"sandbox_id":"a","name":"s"}'
assert_json "$A" result.structuredContent.id '"s"'
tool 23 fork '{"snapshot_id":"s"}'
assert_json "$A" result.structuredContent.sandboxes.0.id '"s-1"'
set_policy agent '{"operations":["read","files","create","fork"],"max_sandboxes":4,"max_fork":1}'
tool 24 read_file '{"sandbox_id":"a","path":"/root/x"}'
assert_json "$A" result.structuredContent.content '"written"'
tool 25 exec '{"sandbox_id":"a","command":["true"]}'
assert_json "$A" error.code -32602
tool 26 fork '{"snapshot_id":"s","count":2}'
assert_json "$A" result.isError true result.content.0.text '=~policy.*1'
wait_for "the client to be told again" told 2
# Who may make but not read is told what it has made.
set_policy agent '{"operations":["create","fork"]}'
tool 27 create_sandbox '{"name":"dark"}'
assert_json "$A" result.structuredContent.id '"dark"' result.structuredContent.status '"configured"'
tool 28 fork '{"snapshot_id":"s"}'
assert_json "$A" result.structuredContent.sandboxes.0.id '"s-2"'
set_policy agent '{}'
tool 29 exec '{"sandbox_id":"a","command":["true"]}'
assert_json "$A" result.structuredContent.exit_code 0

# -- flags and policy together
stop_serving
set_policy agent '{"operations":["create","exec","read","files","delete"],"max_timeout_s":100,"max_sandboxes":8}'
serve --deny-tools read_file --max-timeout 50 --max-sandboxes 5
assert_no_match "$(tools_listed 30)" 'read_file|(^| )snapshot|fork'
tool 31 create_sandbox '{"name":"e"}'
assert_file "$V/run/e/limits/timeout_s" 50
tool 32 create_sandbox '{"name":"f"}'
assert_json "$A" result.isError true result.content.0.text '=~operator permits 5'

# -- the end: it is told, and the server goes on
call 40 exec '{"sandbox_id":"a","command":["sleep","600"]}'
in_view agent wait_status a running
expire agent
wait_for "the answer to what ran" has_answer 40
assert_json "$(answer 40)" result.isError true result.content.0.text '=~view.*has ended'
tool 41 list_sandboxes '{}'
assert_json "$A" result.isError true result.content.0.text '=~view.*has ended'
ask 42 ping
assert_json "$A" result '{}'
ask 43 resources/list
assert_json "$A" error.code !0
echo none >"$VIEWS/agent/ttl"
tool 44 list_sandboxes '{}'
assert_eq "$(jq '.result.structuredContent.sandboxes | length' <<<"$A")" 5
tool 45 exec '{"sandbox_id":"a","command":["cat","/root/x"]}'
assert_json "$A" result.structuredContent.stdout '"written"'
stop_serving
assert_eq "$(cat "$DIR/serve.err")" ''
unset CRUCIBLE_MOUNT
"$CRUCIBLE" --mount "$MNT" umount "$V"
