#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# limit: 400
#
# The tree on another machine: `sshfs host:/crucible DIR`. The command, `crucible mcp serve` and plain shells through it, what SFTP does not
# carry and the ways around it that docs/REMOTE.md names, and a connection that dies.
. "$(dirname "$0")/lib.sh"
. "$E2E/lib_remote.sh"

start_daemon --set max_sandboxes_per_uid=5
remote_world
R=$DIR/r W=$DIR/w # work, and wait: a mount of its own
sshfs_mount "$R"
sshfs_mount "$W"
export CRUCIBLE_MOUNT=$R
crucible() { bounded "$CRUCIBLE" "$@"; }
holds() { grep -q -- "$2" "$1"; } # FILE REGEX
is_gone() { [ ! -e "$RUN/$1" ]; }
grep -qF -- "sshfs -o ${REMOTE_OPTIONS%,no_contain_symlinks},no_contain_symlinks host:/crucible /crucible" "$TOP/docs/REMOTE.md" || fail "docs/REMOTE.md names other options than are tested here"

# -- the tree ---------------------------------------------------------------------------------------------------------

assert_file "$R/version" "$(cat "$MNT/version")"
mkdir "$R/run/a"
assert_eq "$(stat -c %u "$RUN/a")" "$REMOTE_UID" "whose it is"
bounded ls -laR "$R" >/dev/null
bounded grep -r nothing-holds-this "$R" >/dev/null || assert_eq $? 1 "grep -r over all"
assert_file "$R/run/a/status" configured # harmless
for f in README.md health.json policy.json run/a/info.json run/a/from run/a/limits/vcpus run/a/ctl; do
	assert_eq "$(stat -c %s "$R/$f")" "$(bounded cat "$R/$f" | wc -c)" "size of $f"
done

# -- the command --------------------------------------------------------------------------------------------------------

s=$(crucible sandbox create)
assert_match "$(crucible sandbox ls)" "^$s +configured"
# Output comes while the command runs: it waits for a file that is written when its first line is there.
crucible sandbox exec "$s" -- sh -c 'echo first; until [ -e /root/go ]; do sleep 0.1; done; echo second; echo wrong >&2; exit 7' >"$DIR/out" 2>"$DIR/err" &
pid=$!
wait_for "its first line" holds "$DIR/out" first
: >"$R/run/$s/fs/root/go"
rc=0
wait $pid || rc=$?
assert_eq "$rc $(tr '\n' ' ' <"$DIR/out")$(cat "$DIR/err")" "7 first second wrong"
assert_eq "$(crucible sandbox exec -o json "$s" -- sh -c 'sleep 0.2; echo x' | jq -r .stdout)" x
# Input, live, and one that nobody reads: the others go on meanwhile.
assert_eq "$(seq 100000 | crucible sandbox exec -i "$s" -- sh -c 'sleep 0.5; md5sum')" "$(seq 100000 | md5sum)"
env --default-signal=INT "$CRUCIBLE" sandbox exec -i "$s" --timeout 300s -- sh -c 'echo up; exec sleep 200' </dev/zero >"$DIR/out" 2>&1 &
pid=$!
wait_for "the one that does not read" holds "$DIR/out" up
assert_eq "$(crucible sandbox exec "$s" -- echo beside)" beside
kill -INT $pid # goes to the command
wait $pid || assert_eq $? 130 "exit code after Ctrl-C"
# Files.
mkdir "$DIR/tree"
seq 10000 >"$DIR/tree/numbers"
ln -s numbers "$DIR/tree/link"
crucible cp "$DIR/tree" "$s:/root/"
crucible cp "$s:/root/tree" "$DIR/back"
diff -r --no-dereference "$DIR/tree" "$DIR/back" || fail "cp there and back"
assert_same "$R/run/$s/fs/root/tree/link" "$DIR/tree/numbers"
# Snapshots.
assert_eq "$(crucible snapshot create "$s" base)" base
assert_eq "$(crucible fork base --count 2 | tr '\n' ' ')" "base-1 base-2 "
assert_eq "$(crucible sandbox exec base-2 -- cat /root/go)" ""
assert_match "$(crucible snapshot ls)" '^base '
assert_eq "$(readlink "$R/run/$s/snapshots/base")" ../../../snapshots/base
assert_exists "$R/run/$s/snapshots/base/status"
crucible rm base-1 base-2 >/dev/null
# Logs, while it is there and afterwards; the events of all.
assert_match "$(crucible logs "$s")" 'exit_code=7'
crucible rm "$s" >/dev/null
assert_absent "$R/run/$s"
assert_match "$(crucible logs "$s")" 'destroyed'
assert_match "$(crucible events)" "created +$s"
# One-shot; Ctrl-C takes the sandbox along.
assert_eq "$(crucible run -- sh -c 'echo $((6 * 7))')" 42
"$CRUCIBLE" run -- sh -c 'echo up; sleep 600' >"$DIR/out" 2>&1 &
pid=$!
wait_for "a run" holds "$DIR/out" up
kill -TERM $pid
wait $pid || assert_eq $? 143 "exit code after SIGTERM"
assert_eq "$(ls "$RUN")" a "what is left of run"

# -- words for what was refused -------------------------------------------------------------------------------------------------

assert_match "$(crucible snapshot create nobody x 2>&1)" 'no sandbox "nobody"'
for i in 1 2 3 4; do mkdir "$R/run/limit$i"; done
assert_fails mkdir "$R/run/limit5"
assert_match "$(crucible sandbox create 2>&1)" 'was refused: a limit'
assert_fails bash -c "echo nonsense >$R/run/a/ctl"
assert_match "$(cat "$R/run/a/error")" '"nonsense" is no verb'
assert_fails mkdir "$R/run/a"
assert_fails mkdir "$R/run/.x"
assert_errno EACCES write "$R/run/a/stdout" x WRONLY
assert_errno ENOENT read "$R/run/a/result.json"
rmdir "$R"/run/limit[1-4]

# -- an agent's server ------------------------------------------------------------------------------------------------------------

mkfifo "$DIR/in"
"$CRUCIBLE" mcp serve <"$DIR/in" >"$DIR/answers" 2>"$DIR/serve.err" &
server=$!
exec {to}>"$DIR/in"
n=0
ask() { # METHOD PARAMS: A is the answer
	local id=$((++n))

	echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"method\":\"$1\",\"params\":$2}" >&$to
	wait_for "the answer to $1" holds "$DIR/answers" "\"id\":${id}[,}]"
	A=$(grep "\"id\":${id}[,}]" "$DIR/answers")
}
tool() { # NAME ARGUMENTS
	ask tools/call "{\"name\":\"$1\",\"arguments\":$2}"
	A=$(json_of "$A" result)
}
ask initialize '{"protocolVersion":"2025-06-18","capabilities":{}}'
tool run '{"command":["sh","-c","echo $((6 * 7))"]}'
assert_json "$A" structuredContent.stdout '"42\n"'
tool create_sandbox '{"name":"m"}'
tool write_files '{"sandbox_id":"m","files":[{"path":"/work/deep/x","content":"text"},{"path":"/work/deep/y","content":"more"}]}'
assert_json "$A" structuredContent.files 2
tool exec '{"sandbox_id":"m","command":["cat","/work/deep/x"]}'
assert_json "$A" structuredContent.stdout '"text"'
tool exec '{"sandbox_id":"m","command":["cat"],"stdin":"fed"}'
assert_json "$A" structuredContent.stdout '"fed"'
tool read_file '{"sandbox_id":"m","path":"/work/deep/y"}'
assert_json "$A" structuredContent.content '"more"'
tool snapshot '{"sandbox_id":"m","name":"m1"}'
tool fork '{"snapshot_id":"m1","count":1}'
tool exec '{"sandbox_id":"m1-1","command":["cat","/work/deep/y"]}'
assert_json "$A" structuredContent.stdout '"more"'
tool snapshot '{"sandbox_id":"m","name":"m1"}'
assert_json "$A" isError true content.0.text '=~exists'
for id in m m1-1; do
	tool delete_sandbox "{\"sandbox_id\":\"$id\"}"
done
exec {to}>&-
wait_for "the server's end" gone $server

# -- plain shells -------------------------------------------------------------------------------------------------------------------

for i in {1..20}; do
	echo "echo $i" >"$R/run/a/cmd"
	assert_json "$(bounded cat "$R/run/a/wait")" stdout "\"$i\\n\""
done
# A slot has no older record: it can be asked again and again, by what does not block and can be interrupted.
mkdir "$R/run/a/exec/once"
echo 'echo slot' >"$R/run/a/exec/once/cmd"
wait_for "the slot's record" cat "$R/run/a/exec/once/result.json"
assert_json "$(cat "$R/run/a/exec/once/result.json")" stdout '"slot\n"'
# `wait` on a mount of its own, and another shell at work meanwhile.
echo 'echo up; sleep 600' >"$R/run/a/cmd"
env --default-signal=INT cat "$W/run/a/wait" >"$DIR/record" &
pid=$!
wait_for "the command" holds "$R/run/a/stdout" up
wait_for "cat to wait" is_parked $pid
assert_file "$R/run/a/status" running
assert_eq "$(crucible sandbox exec a -- echo beside)" beside
kill -INT $pid # is not carried: what ends it is the command's end
echo kill >"$R/run/a/ctl"
wait_for "cat to end" gone $pid
wait $pid || :
# A stream grows under a reader.
timeout "$BOUND" tail -n +1 -f "$R/run/a/stdout" >"$DIR/tail" 2>/dev/null &
tail=$!
echo 'echo one; until [ -e /root/go ]; do sleep 0.1; done; echo two' >"$R/run/a/cmd"
kill $tail
timeout "$BOUND" tail -n +1 -f "$R/run/a/stdout" >"$DIR/tail" 2>/dev/null &
tail=$!
wait_for "tail -f: one" holds "$DIR/tail" one
: >"$R/run/a/fs/root/go"
wait_for "tail -f: two" holds "$DIR/tail" two
kill $tail
# Lists: replaced, added to, edited in place.
echo A=1 >"$R/run/a/env"
echo B=2 >>"$R/run/a/env"
assert_file "$RUN/a/env" $'A=1\nB=2'
sed -i s/2/3/ "$R/run/a/env"
assert_file "$RUN/a/env" $'A=1\nB=3'
echo C=4 >"$R/run/a/env"
assert_file "$RUN/a/env" C=4
for i in {1..900}; do echo "KEY$i=$(printf %050d "$i")"; done >"$DIR/lines" # more than one message of SFTP
bounded cp "$DIR/lines" "$R/run/a/env" || fail "a long list: $(cat "$RUN/a/error")"
assert_same "$RUN/a/env" "$DIR/lines"
assert_errno ENOTSUP setxattr "$R/run/a/fs/root/go" user.k v
# One of two mkdirs makes it.
assert_errno OK mkdir "$R/run/a/exec/lock"
assert_errno EEXIST mkdir "$R/run/a/exec/lock"
# SSH waits instead of SFTP.
echo 'sleep 0.3; echo by ssh' >"$R/run/a/cmd"
assert_json "$(ssh_to cat "$RUN/a/wait")" stdout '"by ssh\n"'
# The guest's files: the cache of neither side keeps what a command has changed.
printf 'old' >"$R/run/a/fs/root/f"
assert_file "$R/run/a/fs/root/f" old
echo 'printf "new and longer" >/root/f; ln -s ../etc/hostname /root/up; mkdir -p /work/d' >"$R/run/a/cmd"
bounded cat "$R/run/a/wait" >/dev/null
assert_file "$R/run/a/fs/root/f" 'new and longer'
assert_eq "$(stat -c %s "$R/run/a/fs/root/f")" 14
assert_same "$R/run/a/fs/root/up" "$RUN/a/fs/etc/hostname"
bounded cp -r "$DIR/tree/." "$R/run/a/fs/work/d"
bounded mv "$R/run/a/fs/work/d/numbers" "$R/run/a/fs/work/d/moved"
run a 'wc -l </work/d/moved; rm -r /work/d'
assert_rec stdout '=~^ *10000'
assert_absent "$R/run/a/fs/work/d"
mv "$R/run/a" "$R/run/renamed"
assert_eq "$(ls "$RUN")" renamed
rmdir "$R/run/renamed"
assert_absent "$R/run/renamed"

# -- a connection that dies -----------------------------------------------------------------------------------------------------------

# Killed in the middle of a run: the server closes the lease, the sandbox goes.
"$CRUCIBLE" run -- sh -c 'echo up; sleep 600' >"$DIR/out" 2>"$DIR/err" &
pid=$!
wait_for "a run" holds "$DIR/out" up
assert_eq "$(count "$RUN")" 1
name=$(ls "$RUN")
sshfs_cut "$R"
wait_for "the sandbox to go with its connection" is_gone "$name"
rc=0
wait $pid || rc=$?
assert_eq "$rc" 1 "exit code without a connection"
assert_match "$(cat "$DIR/err")" '^crucible: .*(the connection to it, has gone|Input/output error)' # (the latter when a read was on its way)
# In the middle of a wait on that connection: dropbear ends what it started; under sshd the server sees the end of its connection only
# when the wait has ended. Then the lease is let go.
sshfs_mount "$R"
mkdir "$R/run/l"
exec {lease}>"$R/run/l/lease"
echo 'echo up; sleep 600' >"$R/run/l/cmd"
wait_for "a command" holds "$RUN/l/stdout" up
cat "$R/run/l/wait" >/dev/null 2>&1 &
pid=$!
wait_for "cat to wait" is_parked $pid
sshfs_cut "$R"
wait_for "cat to end" gone $pid
exec {lease}>&-
[ -z "$SSHD" ] || echo kill >"$RUN/l/ctl" || :
wait_for "the sandbox to go when the wait has ended" is_gone l
# The other machine is silent: nobody closes anything; the server's keep-alive ends it.
sshfs_mount "$R"
mkdir "$R/run/l"
exec {lease}>"$R/run/l/lease"
remote ip link set lo down
wait_for "the sandbox of a silent machine to go" is_gone l
remote ip link set lo up
sshfs_cut "$R"
sshfs_umount "$W"
exec {lease}>&- || :
remote_end
