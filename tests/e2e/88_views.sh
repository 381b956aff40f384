#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# limit: 300
#
# A view: what its policy permits and no more, names of its own, nothing of anybody else, and its end; by `crucible mount` and by hand.
. "$(dirname "$0")/lib.sh"
. "$E2E/lib_view.sh"

start_daemon
A=$AT/agent

# -- two sandboxes without a network, for an agent
new_sandbox outside
new_sandbox same
mount_view agent '{"operations":["create","exec","read","files","delete"],"net_allow_max":[],"max_sandboxes":2}' --ttl 1h
is_mounted "$A" || fail "crucible mount did not mount"
assert_file "$VIEWS/agent/status" active
assert_file "$VIEWS/agent/error" ''
assert_match "$(cat "$VIEWS/agent/ttl")" '^3[56][0-9][0-9]$'
assert_eq "$(names "$A")" "README.md defaults events.jsonl health.json logs metrics policy.json profiles run snapshots version "
assert_json "$(cat "$A/policy.json")" max_sandboxes 2 net_allow_max '[]' operations '["create", "exec", "delete", "read", "files"]'
assert_eq "$(ls -A "$A/run")" '' "what is in run/ of a new view"
mkdir "$A/run/same" "$A/run/b" # the first name is taken outside
assert_errno EEXIST mkdir "$A/run/same"
assert_errno EDQUOT mkdir "$A/run/c"
in_view agent run same 'echo in the view'
assert_rec exit_code 0 stdout '"in the view\n"' isolation.network '"none"'
assert_errno EPERM write "$A/run/same/snapshot" 's\n'
assert_match "$(cat "$A/run/same/error")" 'snapshot.*policy|policy.*snapshot'
assert_errno EPERM write "$A/run/same/net/allow" 'example.com\n'
assert_match "$(cat "$A/run/same/error")" 'network.*policy|policy.*network'
assert_errno EPERM write "$A/run/same/net/ports" '8080:80\n'
assert_errno ENOENT listdir "$A/run/outside"
assert_errno ENOENT listdir "$A/views"
assert_errno ENOENT listdir "$A/store"
assert_file "$A/run/same/fs/etc/hostname" "$(cat "$A/run/same/fs/etc/hostname")"
assert_eq "$(names "$RUN")" "outside same " "the whole tree's names"
assert_ne "$(jq -r .uuid <"$RUN/same/info.json")" "$(jq -r .uuid <"$A/run/same/info.json")" "uuids of two sandboxes of one name"
rmdir "$A/run/b"
mkdir "$A/run/c"
rmdir "$A/run/c"

# -- the command on a view works as on the whole tree, and says why it may not
CRUCIBLE_MOUNT=$A
export CRUCIBLE_MOUNT
assert_eq "$("$CRUCIBLE" run -- echo hello)" hello
assert_eq "$(printf 'by stdin' | "$CRUCIBLE" --mount "$A" run --timeout 60 -- cat)" 'by stdin'
assert_eq "$("$CRUCIBLE" sandbox create --name d)" d
assert_eq "$("$CRUCIBLE" sandbox ls -o json | jq -r '[.[].id] | join(" ")')" "d same"
refused() { # REGEX ARGUMENT…
	local want=$1 rc=0 said

	shift
	said=$(bounded "$CRUCIBLE" "$@" 2>&1 </dev/null) || rc=$?
	assert_eq "$rc" 1 "exit code of crucible $*"
	assert_match "$said" "^crucible: .*($want)" "what crucible $* says"
}
refused 'as many sandboxes' sandbox create
refused 'policy' sandbox create --net-allow example.com
"$CRUCIBLE" rm d
refused 'policy' run --net-allow example.com -- true
refused 'policy.*snapshot|snapshot.*policy' snapshot create same
mkdir "$AT/other"
refused 'no views' mount --name agent "$AT/other"
unset CRUCIBLE_MOUNT
assert_eq "$(ls -A "$A/run")" same "what refused commands left"

# -- `..` leads to where it is mounted, never to the rest of the tree
assert_eq "$(cd "$A/run/same" && stat -c %d:%i ../../..)" "$(stat -c %d:%i "$AT")"
assert_errno ENOENT listdir "$A/run/same/../../../../mnt/../nowhere"
(cd "$A/run" && [ ! -e ../views ] && [ ! -e ../../views ]) || fail "views/ is seen from a view"

# -- nothing else is told of: events, logs, metrics, health
mount_view second "{\"operations\":[\"create\",\"exec\",\"read\",\"delete\"]}"
mkdir "$AT/second/run/same" "$AT/second/run/theirs"
in_view second run theirs 'echo theirs'
run outside 'echo of all'
assert_match "$(cat "$MNT/events.jsonl")" '"sandbox":"outside"'
assert_match "$(cat "$A/events.jsonl")" '"sandbox":"same"'
assert_no_match "$(cat "$A/events.jsonl")" 'outside|theirs'
assert_no_match "$(cat "$AT/second/events.jsonl")" 'outside'
assert_match "$(cat "$AT/second/events.jsonl")" '"sandbox":"theirs"'
outside=$(jq -r .uuid <"$RUN/outside/info.json")
theirs=$(jq -r .uuid <"$AT/second/run/theirs/info.json")
ours=$(jq -r .uuid <"$A/run/same/info.json")
assert_exists "$A/logs/$ours.jsonl"
assert_absent "$A/logs/$outside.jsonl" "$A/logs/$theirs.jsonl" "$A/logs/by-name/outside" "$A/logs/by-name/theirs"
assert_no_match "$(ls -R "$A/logs")" "$outside|$theirs|outside|theirs"
assert_eq "$(stat -c %s "$A/events.jsonl")" "$(wc -c <"$A/events.jsonl")" "size of what a view sees"
assert_no_match "$(cat "$A/metrics" "$A/health.json")" "outside|theirs|$outside|$theirs"
sandboxes_of() { awk '/^crucible_sandboxes(\{[^}]*\})? / { n += $2 } END { print n + 0 }' "$1/metrics"; }
assert_eq "$(sandboxes_of "$A")" 1 "sandboxes that the metrics of a view count"
assert_eq "$(sandboxes_of "$AT/second")" 2

# -- a lease in a view
mkdir "$A/run/leased"
exec {lease}>"$A/run/leased/lease"
exec {lease}>&-
assert_gone() { [ ! -e "$A/run/leased" ]; }
wait_for "the sandbox to go with its lease" assert_gone

# -- another policy, under descriptors that are open
put_text() { printf '%s' "$1" >&"$2"; }
in_view agent run same 'echo lines'
exec {out}<"$A/run/same/stdout" {cmd}>"$A/run/same/cmd"
put_text 'echo never' "$cmd"
set_policy agent '{"operations":["create"]}'
assert_json "$(cat "$A/policy.json")" operations '["create"]'
assert_match "$(LC_ALL=C bounded cat <&"$out" 2>&1)" 'not permitted' "a read of what was opened before"
assert_fails put_text 'again' "$cmd"
exec {cmd}>&- {out}<&-
set_policy agent '{"operations":["create","exec","read","delete","files"]}'
assert_eq "$(jq -r .exec <"$A/run/same/result.json")" 2 "the latest command: what was being written when the policy forbade it is none"
assert_errno OK mkdir "$A/run/b"
assert_errno OK mkdir "$A/run/c" # no maximum any more
rmdir "$A/run/b" "$A/run/c"

# -- a policy with faults: all of them, and the old one stays
before=$(cat "$VIEWS/agent/policy")
assert_errno EINVAL write "$VIEWS/agent/policy" '{"operations":["fly"],"max_fork":0,"wings":2}\n'
for f in fly max_fork wings; do
	assert_match "$(cat "$VIEWS/agent/error")" "$f"
done
assert_eq "$(wc -l <"$VIEWS/agent/error")" 1
assert_eq "$(cat "$VIEWS/agent/policy")" "$before"
assert_file "$VIEWS/agent/status" active
assert_errno EINVAL write "$VIEWS/agent/ttl" 'soon\n'
assert_errno EINVAL write "$VIEWS/agent/ttl" '0\n'

# -- crucible mount: faults at once, and nothing is left of what failed
count_views() { find "$VIEWS" -mindepth 1 -maxdepth 1 | wc -l; }
n=$(count_views)
said=$("$CRUCIBLE" --mount "$MNT" mount --policy - "$AT/other" 2>&1 <<<'{"operations":["fly"],"max_fork":0,"wings":2}') && fail "a policy with faults was taken"
for f in fly max_fork wings; do
	assert_match "$said" "$f"
done
CRUCIBLE_MOUNT=$MNT
export CRUCIBLE_MOUNT
echo '{"net_allow_max":["10.0.0.0/8"]}' >"$DIR/private" # what only the daemon knows of: this host permits no private ranges
refused 'refused' mount --policy "$DIR/private" "$AT/other"
echo '{}' >"$DIR/all"
touch "$AT/file"
ln -s other "$AT/link"
refused 'not empty' mount --policy "$DIR/all" "$AT"
refused 'no directory' mount --policy "$DIR/all" "$AT/file"
refused 'symbolic link' mount --policy "$DIR/all" "$AT/link"
refused 'symbolic link' mount --policy "$DIR/all" "$AT/link/"
refused 'does not exist' mount --policy "$DIR/all" "$AT/nowhere"
refused 'in the mount itself' mount --policy "$DIR/all" "$RUN"
refused 'already' mount --policy "$DIR/all" --name agent "$AT/other"
refused 'ttl' mount --policy "$DIR/all" --ttl soon "$AT/other"
refused 'no view "none"' mount --name none "$AT/other"
assert_eq "$(count_views)" "$n" "views after mounts that failed"
made=$("$CRUCIBLE" mount --policy "$DIR/all" "$AT/other")
assert_match "$made" '^view-[0-9a-f]{8}$'
assert_file "$VIEWS/$made/ttl" none
mkdir "$AT/other/run/x"
gone_uuid=$(jq -r .uuid <"$AT/other/run/x/info.json")
refused 'no view' umount "$MNT"
refused 'nothing is mounted' umount "$RUN"
refused 'nothing is mounted' umount "$AT/other/run"
"$CRUCIBLE" umount "$AT/other"
is_mounted "$AT/other" && fail "crucible umount left the mount"
assert_absent "$VIEWS/$made"
is_gone_from_store() { [ ! -e "$STORE/sandboxes/$1" ]; }
wait_for "what was made through the view to go" is_gone_from_store "$gone_uuid"
# A bind of its own, by hand; and a view that was made again under its name stays.
mkdir "$VIEWS/hand"
assert_file "$VIEWS/hand/status" new
assert_errno ENOENT listdir "$VIEWS/hand/tree"
echo '{}' >"$VIEWS/hand/policy"
mount --bind "$VIEWS/hand/tree" "$AT/other"
rmdir "$VIEWS/hand"
assert_errno ESTALE listdir "$AT/other/run"
mkdir "$VIEWS/hand"
echo '{}' >"$VIEWS/hand/policy"
assert_errno ESTALE listdir "$AT/other/run"
assert_json "$("$CRUCIBLE" umount -o json "$AT/other")" view '"hand"' removed false
assert_exists "$VIEWS/hand/tree"
rmdir "$VIEWS/hand"
unset CRUCIBLE_MOUNT

# -- the end: paths, descriptors, who waits, what is being written; machines stop
in_view agent run same 'echo before >/root/kept; echo first'
in_view agent put same 'echo begun; sleep 600'
in_view agent wait_output same begun
machine=$(jq -r .machine <"$STORE/sandboxes/$ours/sandbox.json")
exec {out}<"$A/run/same/exec/3/stdout" {list}<"$A/run" {file}<"$A/run/same/fs/root/kept" {cmd}>"$A/run/same/cmd"
put_text 'echo never' "$cmd"
cat "$A/run/same/wait" >"$DIR/wait.out" 2>"$DIR/wait.err" &
reader=$!
wait_for "a reader to block" is_parked $reader
expire agent
wait_for "the blocked reader to end" gone $reader
wait $reader && fail "a wait that the end of the view ended succeeded"
assert_match "$(LC_ALL=C cat "$DIR/wait.err")" '[Ss]tale'
for f in '' /run /run/same /run/same/status /run/same/stdout /policy.json /version /run/same/fs/root/kept; do
	assert_errno ESTALE stat "$A$f/."
done 2>/dev/null
for f in /run/same/status /run/same/stdout /policy.json /version /run/same/fs/root/kept; do
	assert_errno ESTALE read "$A$f"
done
assert_errno ESTALE mkdir "$A/run/new"
assert_errno ESTALE listdir "$A/run"
assert_errno ESTALE rmdir "$A/run/same"
for fd in "$out" "$file"; do
	assert_match "$(LC_ALL=C bounded cat <&"$fd" 2>&1)" 'Stale' "a read of a descriptor that was open"
done
assert_match "$(LC_ALL=C bounded ls /proc/self/fd/0/ <&"$list" 2>&1)" 'Stale' "a directory that was open"
exec {cmd}>&- {out}<&- {list}<&- {file}<&-
no_machine() { ! machines | grep -qF "$1"; }
wait_for "the machine to stop" no_machine "$machine"
refused 'view.*has ended' --mount "$A" sandbox ls
assert_file "$RUN/outside/status" ready # nobody else's
assert_eq "$(in_view second error_of "$AT/second/run/theirs")" ''

# -- a new ttl revives it: disks and records are there, the dropped command is not
echo 1h >"$VIEWS/agent/ttl"
assert_file "$VIEWS/agent/status" active
assert_eq "$(ls -A "$A/run")" same
in_view agent wait_status same stopped
assert_absent "$A/run/same/exec/5"
assert_json "$(cat "$A/run/same/exec/3/result.json")" stdout '"first\n"'
in_view agent run same 'cat /root/kept'
assert_rec exit_code 0 stdout '"before\n"' exec 5

# -- rmdir ends it, with all that was made through it
rmdir "$VIEWS/agent"
assert_absent "$VIEWS/agent"
assert_errno ESTALE listdir "$A/run"
wait_for "its sandboxes to go" is_gone_from_store "$ours"
assert_eq "$(names "$RUN")" "outside same "
"$CRUCIBLE" --mount "$MNT" umount "$A" # a dead one can be taken away
"$CRUCIBLE" --mount "$MNT" umount "$AT/second"
assert_eq "$(ls -A "$VIEWS")" ''
rmdir "$RUN/outside" "$RUN/same"
