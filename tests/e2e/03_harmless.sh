#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# TREE.md rule 4: reading is harmless. Tools that walk the whole mount neither block nor create, start or consume anything; what blocks
# and what is large (wait, fs) is not listed but by a link, which they do not follow.
. "$(dirname "$0")/lib.sh"

start_daemon
new_sandbox idle              # never started: nothing may start it
ready_sandbox busy
ready_sandbox waiting
put busy 'echo begun; sleep 600' # runs while the tools walk: its `wait` blocks
has_output() { [ -s "$RUN/busy/stdout" ]; }
wait_for "the command to run" has_output
printf 'input of the next command' >"$RUN/waiting/stdin"
mkdir "$RUN/busy/exec/slot"
echo scratch >"$RUN/idle/notes.txt"
echo 'in the guest' >"$RUN/busy/fs/root/guestfile"

# What must be the same before and after: names and what they hold, but for what moves on its own.
picture() {
	(
		cd "$MNT"
		find . | sort
		find . -type f ! -name usage.json ! -name health.json ! -name metrics ! -name stat.json ! -name '*.jsonl' ! -name console.log -print0 |
			sort -z | xargs -0 sha256sum
		grep -hvE '"event":"(ready|exec_done)"' events.jsonl
	)
}
bounded true
picture >"$DIR/before"
assert_no_match "$(cat "$DIR/before")" 'guestfile' "the walk went into a guest"
assert_no_match "$(cat "$DIR/before")" '/result.json$.*idle' "a record of a sandbox that never ran"

cd "$DIR"
for walk in \
	'ls -laR "$MNT"' \
	'busybox ls -laR "$MNT"' \
	'find "$MNT" -ls' \
	'find "$MNT" -type f -exec cat {} +' \
	'grep -r in "$MNT"' \
	'grep -rI --include="*" . "$MNT"' \
	'du -a "$MNT"' \
	'tar -cf - -C "$MNT" . | wc -c' \
	'cp -r "$MNT" "$DIR/copy.$RANDOM"' \
	'cp -a "$MNT" "$DIR/copy.$RANDOM"' \
	'busybox cp -a "$MNT" "$DIR/copy.$RANDOM"' \
	'rsync -a "$MNT/" "$DIR/copy.$RANDOM/"' \
	'python3 -c "import os,sys; [open(os.path.join(d,f),\"rb\").read() for d,_,fs in os.walk(sys.argv[1]) for f in fs if not os.path.islink(os.path.join(d,f))]" "$MNT"' \
	'zip -qry "$DIR/copy.$RANDOM.zip" "$MNT"'; do
	command -v "${walk%% *}" >/dev/null || continue
	rc=0
	MNT=$MNT DIR=$DIR bounded bash -c "$walk" >"$DIR/said" 2>&1 || rc=$?
	[ "$rc" -ne 124 ] || fail "blocked: $walk"
	assert_eq "$rc" 0 "exit code of $walk ($(tail -n 2 "$DIR/said"))"
	assert_file "$RUN/idle/status" configured
	assert_file "$RUN/busy/status" running
	assert_file "$RUN/waiting/status" ready
done
picture >"$DIR/after"
diff "$DIR/before" "$DIR/after" || fail "reading the mount changed it"

# `lease` and `stdin` were opened and closed by every one of these.
run waiting 'cat'
assert_rec stdout '"input of the next command"'
assert_file "$RUN/busy/exec/1/stdout" ''
assert_file "$RUN/busy/stdout" begun

# The links are there, by name; what they lead to is not listed.
for s in idle busy waiting; do
	assert_eq "$(readlink "$RUN/$s/wait")" .wait
	assert_eq "$(readlink "$RUN/$s/fs")" .fs
	names=$(ls -A "$RUN/$s")
	assert_no_match "$names" '^\.' "listed names of $s"
	assert_eq "$(stat -c %F "$RUN/$s/.fs")" directory
	[ "$s" = idle ] || assert_match "$(stat -c %F "$RUN/$s/.wait")" '^regular( empty)? file$'
done
assert_file "$RUN/idle/status" configured # a stat of .fs starts nothing either
echo kill >"$RUN/busy/ctl"
await busy
assert_rec signal '"SIGKILL"' exit_code -1
