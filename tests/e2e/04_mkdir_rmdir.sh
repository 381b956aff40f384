#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# TREE.md rule 5: mkdir makes, rmdir destroys; unlinking hides; scratch files; renaming one over a control file writes its content there.
. "$(dirname "$0")/lib.sh"

start_daemon

# -- a fresh directory holds its files -------------------------------------------------------------------------

mkdir "$RUN/a"
for f in cmd stdin stdout stderr status wait error ctl info.json from limits env exec lease import fs log.jsonl console.log usage.json; do
	lists "$RUN/a" "$f" || fail "mkdir run/a: no $f in it"
done
for f in vcpus memory_mib disk_mib cpu_percent io_mbps timeout_s exec_timeout_s output_mib spool_mib pids; do
	assert_match "$(cat "$RUN/a/limits/$f")" '^[0-9]+$' "limits/$f"
	assert_match "$(cat "$MNT/defaults/$f")" '^[0-9]+$' "defaults/$f"
done
! lists "$RUN/a" result.json || fail "a record before the first command"
assert_errno ENOENT stat "$RUN/a/result.json"
assert_errno ENOENT read "$RUN/a/wait"
assert_eq "$(ls "$RUN/a/exec")" "" "exec/ before the first command"
assert_file "$RUN/a/error" ''
uuid=$(json_of "$(cat "$RUN/a/info.json")" uuid)
assert_match "$uuid" '^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$'

# -- names can be used again, the uuid never ---------------------------------------------------------------------

assert_errno EEXIST mkdir "$RUN/a"
rmdir "$RUN/a"
assert_absent "$RUN/a"
assert_errno ENOENT rmdir "$RUN/a"
assert_errno ENOENT stat "$RUN/a/status"
mkdir "$RUN/a"
assert_ne "$(json_of "$(cat "$RUN/a/info.json")" uuid)" "$uuid" "uuid of a name used again"
assert_exists "$MNT/logs/$uuid.jsonl" # the log outlives it
assert_match "$(cat "$MNT/logs/$uuid.jsonl")" '"event":"destroyed"'

# -- what is held open when it goes --------------------------------------------------------------------------------

exec {held}<"$RUN/a/status"
(
	cd "$RUN/a"
	rmdir "$RUN/a"
	ls >/dev/null 2>&1 && [ -n "$(ls)" ] && fail "a removed sandbox lists files"
	assert_errno ENOENT stat "$RUN/a"
)
exec {held}<&-
assert_errno ENOENT stat "$RUN/a/cmd"

# -- rm -rf removes the sandbox and does not walk through the guest's disk --------------------------------------------

ready_sandbox b
echo keep >"$RUN/b/fs/root/keep"
run b 'ls /root'
assert_rec stdout '"keep\n"'
mkdir "$RUN/b/exec/slot"
echo note >"$RUN/b/note"
bounded rm -rf "$RUN/b"
assert_absent "$RUN/b"
new_sandbox b
bounded rm -r "$RUN/b"
assert_absent "$RUN/b"
new_sandbox c
bounded busybox rm -rf "$RUN/c"
assert_absent "$RUN/c"
new_sandbox d
bounded "$PYTHON" -IS -c 'import shutil, sys; shutil.rmtree(sys.argv[1])' "$RUN/d"
assert_absent "$RUN/d"
# One with a command that runs.
ready_sandbox e
put e 'echo up; sleep 600'
up() { [ -s "$RUN/e/stdout" ]; }
wait_for "the command to run" up
bounded rm -rf "$RUN/e"
assert_absent "$RUN/e"

# -- unlinking hides until it is created again -----------------------------------------------------------------------------

new_sandbox u
for f in env ctl cmd status; do
	rm "$RUN/u/$f"
	assert_errno ENOENT stat "$RUN/u/$f"
	! lists "$RUN/u" $f || fail "unlinked $f is listed"
done
rm "$RUN/u/limits/vcpus"
assert_errno ENOENT open "$RUN/u/limits/vcpus"
echo A=1 >"$RUN/u/env"
assert_file "$RUN/u/env" A=1
echo 2 >"$RUN/u/limits/vcpus"
assert_file "$RUN/u/limits/vcpus" 2
touch "$RUN/u/status"
assert_file "$RUN/u/status" configured
assert_errno OK stat "$RUN/u/status"
echo 'echo from a file that was unlinked' >"$RUN/u/cmd"
await u
assert_rec stdout '"from a file that was unlinked\n"'

# -- scratch files: 1 MiB together --------------------------------------------------------------------------------------------

new_sandbox s
echo text >"$RUN/s/notes.txt"
assert_file "$RUN/s/notes.txt" text
echo more >>"$RUN/s/notes.txt"
assert_file "$RUN/s/notes.txt" $'text\nmore'
assert_eq "$(stat -c %s "$RUN/s/notes.txt")" 10
mv "$RUN/s/notes.txt" "$RUN/s/other.txt"
assert_absent "$RUN/s/notes.txt"
lists "$RUN/s" other.txt || fail "a scratch file is not listed"
truncate -s 4 "$RUN/s/other.txt"
assert_file "$RUN/s/other.txt" text
rm "$RUN/s/other.txt"
head -c 1048576 /dev/zero >"$RUN/s/full"
assert_eq "$(stat -c %s "$RUN/s/full")" 1048576
assert_match "$(errno_of write "$RUN/s/more" x WRONLY,CREAT)" '^(EDQUOT|ENOSPC|EFBIG)$' "scratch beyond 1 MiB"
rm "$RUN/s/full"
rm -f "$RUN/s/more"
echo again >"$RUN/s/more"
assert_file "$RUN/s/more" again
assert_errno EPERM mkdir "$RUN/s/sub"
assert_match "$(errno_of symlink /etc/passwd "$RUN/s/link")" '^(EPERM|EACCES)$' "a symbolic link in a sandbox"
assert_match "$(errno_of mknod "$RUN/s/node" char)" '^(EPERM|EACCES)$' "a device in a sandbox"
for d in "$MNT" "$RUN" "$MNT/profiles" "$MNT/defaults" "$MNT/logs" "$RUN/s/exec"; do
	assert_match "$(errno_of write "$d/scratch" x WRONLY,CREAT)" '^(EPERM|EACCES)$' "a scratch file in ${d#"$DIR"/}"
done
assert_match "$(errno_of mkdir "$MNT/sub")" '^(EPERM|EACCES)$' "a directory in the root"
assert_match "$(errno_of rmdir "$RUN")" '^(EPERM|EACCES|EBUSY|ENOTEMPTY)$' "rmdir run"
assert_match "$(errno_of unlink "$MNT/version")" '^(EPERM|EACCES)$' "unlink version"

# -- renaming over a control file writes its content there -----------------------------------------------------------------------

new_sandbox r
printf 'A=1\nB=2\n' >"$RUN/r/env"
sed -i s/A=1/A=edited/ "$RUN/r/env"
assert_file "$RUN/r/env" $'A=edited\nB=2' "sed -i"
busybox sed -i s/B=2/B=busy/ "$RUN/r/env"
assert_file "$RUN/r/env" $'A=edited\nB=busy' "busybox sed -i"
echo C=3 >"$DIR/env.new"
install -m 644 "$DIR/env.new" "$RUN/r/env"
assert_file "$RUN/r/env" C=3 "install"
echo D=4 >"$DIR/env.new"
mv "$DIR/env.new" "$RUN/r/env" # from another file system: mv copies
assert_file "$RUN/r/env" D=4 "mv from outside"
echo E=5 >"$RUN/r/env.tmp"
mv "$RUN/r/env.tmp" "$RUN/r/env"
assert_file "$RUN/r/env" E=5 "mv within"
assert_absent "$RUN/r/env.tmp"
echo F=6 >"$DIR/env"
cp "$DIR/env" "$RUN/r/env"
assert_file "$RUN/r/env" F=6 "cp"
cp --remove-destination "$DIR/env" "$RUN/r/env"
assert_file "$RUN/r/env" F=6 "cp --remove-destination"
if command -v rsync >/dev/null; then
	echo H=8of-another-size >"$DIR/env" # rsync takes one of the same size and second for the same
	rsync "$DIR/env" "$RUN/r/env"
	assert_file "$RUN/r/env" H=8of-another-size "rsync"
	echo I=9 >"$DIR/env"
	rsync --inplace "$DIR/env" "$RUN/r/env"
	assert_file "$RUN/r/env" I=9 "rsync --inplace"
fi
if command -v ex >/dev/null; then
	printf '%s\n' '%s/.*/J=10/' wq | HOME=$DIR bounded ex -s "$RUN/r/env"
	assert_file "$RUN/r/env" J=10 "ex"
fi
if command -v vim >/dev/null; then
	HOME=$DIR bounded vim -es -u NONE -c 'set backup backupcopy=no' -c '%s/.*/K=11/' -c wq "$RUN/r/env" </dev/null
	assert_file "$RUN/r/env" K=11 "vim with a backup and a rename"
	rm -f "$RUN/r/env~"
fi
echo L=12 | tee "$RUN/r/env" >/dev/null
assert_file "$RUN/r/env" L=12 "tee"
echo bogus >"$RUN/r/ctl.new"
assert_errno EINVAL rename "$RUN/r/ctl.new" "$RUN/r/ctl"
assert_match "$(cat "$RUN/r/error")" bogus
rm -f "$RUN/r/ctl.new"
echo 3 >"$RUN/r/v"
assert_match "$(errno_of rename "$RUN/r/v" "$RUN/r/status")" '^(EPERM|EACCES)$' "renaming over what cannot be written"
echo 'echo by rename' >"$RUN/r/cmd.new"
mv "$RUN/r/cmd.new" "$RUN/r/cmd"
await r
assert_rec stdout '"by rename\n"'
assert_match "$(errno_of rename "$RUN/r" "$RUN/s/x")" '^(EPERM|EACCES|EXDEV|EINVAL)$' "a sandbox into another"
