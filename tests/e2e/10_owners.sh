#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# TREE.md rule 11: an object belongs to the uid that made it. Others see its name and status; its output, records and files are its
# owner's and root's. With real user ids.
. "$(dirname "$0")/lib.sh"

start_daemon
me=61001 other=61002
op_as() { # UID OPERATION ARGUMENT…
	local uid=$1

	shift
	bounded setpriv --reuid="$uid" --regid="$uid" --clear-groups -- "$PYTHON" -IS "$E2E/op.py" "$@" || echo HUNG
}
sh_as() { # UID SCRIPT
	bounded setpriv --reuid="$1" --regid="$1" --clear-groups -- env M="$MNT" R="$RUN" bash -c "$2"
}

assert_eq "$(stat -c '%a %u' "$RUN")" '1777 0' "run/ is sticky like /tmp"
sh_as $me 'umask 077; mkdir $R/mine' || fail "a user cannot make a sandbox"
sh_as $me 'echo SECRET=1 >$R/mine/env; echo "{\"script\":\"cat; echo output\",\"timeout_s\":60}" >$R/mine/cmd; cat $R/mine/wait' >"$DIR/rec"
assert_json "$(cat "$DIR/rec")" stdout '"output\n"' exit_code 0
sh_as $me 'echo private >$R/mine/fs/root/private; mkdir $R/mine/exec/slot; echo scratch >$R/mine/scratch'
for f in "$RUN/mine" "$RUN/mine/cmd" "$RUN/mine/status" "$RUN/mine/.fs" "$RUN/mine/fs/root/private" "$RUN/mine/exec/1/stdout" \
	"$RUN/mine/scratch" "$RUN/mine/limits/vcpus"; do
	assert_eq "$(stat -c '%u %g' "$f")" "$me $me" "owner of ${f#"$RUN"/}"
done
assert_eq "$(stat -c %a "$RUN/mine/.fs")" 700

# -- another user --------------------------------------------------------------------------------------------------

sh_as $other 'ls -l $R; ls -la $R/mine; stat $R/mine' >/dev/null || fail "another user cannot see the sandbox"
assert_eq "$(sh_as $other 'cat $R/mine/status')" ready "its status"
for f in stdout stderr result.json wait cmd stdin env log.jsonl console.log exec/1/stdout exec/1/result.json exec/1/cmd exec/1/wait error; do
	assert_eq "$(op_as $other read "$RUN/mine/$f")" EACCES "another user reads $f"
done
for f in cmd stdin ctl env from limits/vcpus limits/timeout_s import exec/slot/cmd exec/slot/stdin exec/slot/ctl; do
	assert_eq "$(op_as $other write "$RUN/mine/$f" 'x\n')" EACCES "another user writes $f"
done
assert_eq "$(op_as $other open "$RUN/mine/lease")" EACCES "another user holds the lease"
assert_eq "$(op_as $other listdir "$RUN/mine/fs/")" EACCES "another user lists fs/"
assert_eq "$(op_as $other read "$RUN/mine/fs/root/private")" EACCES
assert_eq "$(op_as $other read "$RUN/mine/fs/etc/passwd")" EACCES
assert_eq "$(op_as $other write "$RUN/mine/fs/root/x" x WRONLY,CREAT)" EACCES
assert_match "$(op_as $other write "$RUN/mine/new" x WRONLY,CREAT)" '^(EACCES|EPERM)$' "another user makes a scratch file"
assert_match "$(op_as $other mkdir "$RUN/mine/exec/theirs")" '^(EACCES|EPERM)$' "another user makes a slot"
assert_match "$(op_as $other unlink "$RUN/mine/scratch")" '^(EACCES|EPERM)$' "another user unlinks"
assert_match "$(op_as $other rmdir "$RUN/mine")" '^(EACCES|EPERM)$' "another user removes it"
assert_match "$(op_as $other rename "$RUN/mine" "$RUN/theirs")" '^(EACCES|EPERM)$' "another user renames it"
assert_match "$(op_as $other chmod "$RUN/mine/cmd" 666)" '^EPERM$' "another user's chmod"
op_as $me chmod "$RUN/mine/cmd" 666 >/dev/null # tolerated, because install, mv and rsync do it; it changes nothing
op_as $me chmod "$RUN/mine/result.json" 666 >/dev/null
assert_eq "$(op_as $other read "$RUN/mine/cmd")" EACCES
assert_match "$(op_as $me chown "$RUN/mine" $other $other)" '^EPERM$' "giving it away"
assert_eq "$(op_as $other mkdir "$RUN/mine")" EEXIST
sh_as $other 'rm -rf $R/mine' 2>/dev/null && fail "another user's rm -rf succeeds"
assert_file "$RUN/mine/status" ready
assert_file "$RUN/mine/scratch" scratch

# -- the owner in the guest is root; ids are mapped -----------------------------------------------------------------------

run mine 'touch /root/by-guest; chown 1000:1000 /root/by-guest; stat -c "%u %g" /root/private'
assert_rec stdout '"0 0\n"'
assert_eq "$(stat -c '%u %g' "$RUN/mine/fs/root/by-guest")" "$me $me" "a guest user's file shows as the owner's"
assert_eq "$(op_as $me chown "$RUN/mine/fs/root/private" $me $me)" OK "chown to the owner"

# -- root ---------------------------------------------------------------------------------------------------------------------

assert_file "$RUN/mine/stdout" '0 0'
assert_file "$RUN/mine/exec/1/stdout" output
assert_file "$RUN/mine/fs/root/private" private

# -- events, logs and metrics show each reader what it may see ----------------------------------------------------------------------

sh_as $other 'mkdir $R/theirs'
assert_match "$(cat "$MNT/events.jsonl")" '"sandbox":"mine"'
assert_match "$(cat "$MNT/events.jsonl")" '"sandbox":"theirs"'
assert_match "$(sh_as $me 'cat $M/events.jsonl')" '"sandbox":"mine"'
assert_no_match "$(sh_as $me 'cat $M/events.jsonl')" 'theirs'
assert_no_match "$(sh_as $other 'cat $M/events.jsonl')" 'mine'
assert_eq "$(sh_as $me 'stat -c %s $M/events.jsonl')" "$(sh_as $me 'wc -c <$M/events.jsonl')" "size of what a user sees"
uuid=$(json_of "$(cat "$RUN/mine/info.json")" uuid)
assert_eq "$(op_as $me read "$MNT/logs/$uuid.jsonl")" OK
assert_match "$(op_as $other read "$MNT/logs/$uuid.jsonl")" '^(EACCES|ENOENT)$' "another user's log"
assert_json "$(grep '"event":"exec"' "$RUN/mine/log.jsonl" | head -n 1)" uid $me
run mine true
assert_json "$(grep '"event":"exec"' "$RUN/mine/log.jsonl" | tail -n 1)" uid 0
assert_match "$(sh_as $other 'cat $M/metrics')" 'crucible_commands_running 0'
assert_no_match "$(sh_as $other 'cat $M/metrics')" 'commands_total'
assert_match "$(cat "$MNT/metrics")" 'crucible_commands_total [1-9]'
assert_json "$(sh_as $me 'cat $M/policy.json')" max_sandboxes 64
assert_no_match "$(sh_as $me 'cat $M/policy.json')" '"admin"'
assert_match "$(cat "$MNT/policy.json")" '"admin"'

# -- ends -------------------------------------------------------------------------------------------------------------------------------

sh_as $me 'rmdir $R/mine' || fail "the owner cannot remove it"
rmdir "$RUN/theirs" # root may
assert_absent "$RUN/mine" "$RUN/theirs"
assert_eq "$(op_as $me read "$MNT/logs/$uuid.jsonl")" OK "the log of a removed sandbox"
