#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# fs/: the guest's files behave as on a local disk, for every tool, and sizes and content are never stale after a command has ended.
. "$(dirname "$0")/lib.sh"

start_daemon
ready_sandbox a
A=$RUN/a
F=$A/fs
G=$F/root # /root of the guest

# -- what a command wrote is there when it has ended; and the other way round --------------------------------------

for i in {1..100}; do
	run a "echo content $i of $((i * 7919)) >/root/fresh; head -c $((i * 37)) /dev/zero >>/root/fresh"
	assert_eq "$(stat -c %s "$G/fresh")" $((i * 37 + $(printf 'content %s of %s\n' "$i" $((i * 7919)) | wc -c))) "size after command $i"
	assert_eq "$(head -n 1 "$G/fresh")" "content $i of $((i * 7919))" "content after command $i"
	echo "from the host $i" >"$G/back"
	run a 'cat /root/back'
	assert_rec stdout "\"from the host $i\\n\""
done
exec {open}<"$G/fresh" # open over a change
run a 'echo changed under an open descriptor >/root/fresh'
assert_eq "$(cat <&"$open")" 'changed under an open descriptor'
exec {open}<&-

# -- files, directories, modes, times, renames, links ---------------------------------------------------------------

cd "$G"
mkdir -p d/e/f
echo x >d/e/f/x
mv d/e/f/x d/e/f/y
assert_file d/e/f/y x
mv d/e/f d/e/g # the same depth
assert_file d/e/g/y x
assert_errno EXDEV rename d/e/g g
mv d/e/g g # mv copies
assert_file g/y x
assert_absent d/e/g
assert_errno ENOTEMPTY rmdir g
assert_errno ENOTDIR open g/y/z
assert_errno EISDIR open g WRONLY
assert_errno ENOENT open none
assert_errno EEXIST mkdir g
assert_errno EEXIST open g/y WRONLY,CREAT,EXCL
ln g/y hard
assert_eq "$(stat -c '%h %i' hard)" "$(stat -c '%h %i' g/y)"
assert_eq "$(stat -c %h hard)" 2
echo through >hard
assert_file g/y through
rm g/y
assert_eq "$(stat -c %h hard)" 1
chmod 4751 hard
assert_eq "$(stat -c %a hard)" 4751
chmod 000 hard
assert_file hard through # root reads it
chmod 644 hard
touch -d '2001-02-03 04:05:06.789 UTC' hard
assert_eq "$(TZ=UTC stat -c %y hard)" '2001-02-03 04:05:06.789000000 +0000'
run a 'stat -c "%a %Y" /root/hard'
assert_rec stdout '"644 981173106\n"'
truncate -s 3 hard
assert_eq "$(cat hard)" thr
truncate -s 100000 hard
assert_eq "$(stat -c %s hard)" 100000
assert_eq "$(tail -c 1 hard | od -An -tx1 | tr -d ' ')" 00
echo appended >>hard
assert_eq "$(stat -c %s hard)" 100009
printf XX | dd of=hard bs=1 seek=50000 conv=notrunc status=none
assert_eq "$(dd if=hard bs=1 skip=49999 count=4 status=none | od -An -c | tr -s ' ')" ' \0 X X \0'
ln -s hard soft
assert_eq "$(readlink soft)" hard
assert_same soft hard
rm soft
long=$(printf 'n%.0s' {1..255})
echo long >"$long"
assert_file "$long" long
assert_errno ENAMETOOLONG open "n$long" WRONLY,CREAT
odd=$'new\nline tab\t "q" \\ é \xff'
echo odd >"$odd"
assert_file "$odd" odd
run a 'cat /root/new*; rm /root/new* /root/nnn*'
assert_rec stdout '"odd\n"'
assert_absent "$odd" "$long"
assert_errno EPERM mknod fifo fifo
assert_errno EPERM mknod dev char
assert_errno OK mknod plain file
df . >/dev/null
assert_match "$(stat -f -c %b .)" '^[1-9]'
mkdir many
(cd many && seq 2000 | xargs touch)
assert_eq "$(find many -type f | wc -l)" 2000
assert_eq "$(find many | sort | uniq -d | wc -l)" 0
rm -rf many
assert_absent many

# Removed while it is open: still there for who has it.
echo doomed >doomed
exec {open}<doomed
rm doomed
assert_eq "$(cat <&"$open")" doomed
exec {open}<&-
"$PYTHON" -IS - <<'END'
import fcntl, mmap, os
fd = os.open("m", os.O_RDWR | os.O_CREAT)
os.write(fd, b"a" * 10000)
m = mmap.mmap(fd, 10000)
m[5000:5004] = b"MMAP"
m.flush()
assert os.pread(fd, 4, 5000) == b"MMAP"
os.ftruncate(fd, 6000)
assert os.fstat(fd).st_size == 6000
os.lseek(fd, 0, os.SEEK_END)
os.write(fd, b"end")
os.fsync(fd)
assert open("m", "rb").read()[-3:] == b"end"
fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
os.posix_fallocate(fd, 0, 20000)
assert os.fstat(fd).st_size == 20000
os.close(fd)
os.rename("m", "m2")
os.replace("m2", "m")
d = os.open(".", os.O_RDONLY)
os.fsync(d)
f = os.open(".", os.O_RDWR | getattr(os, "O_TMPFILE", 0)) if False else None
with open("w", "w+b") as w:  # written and read by one descriptor
    w.write(b"one")
    w.seek(0)
    assert w.read() == b"one"
    w.seek(100)
    w.write(b"far")
assert os.path.getsize("w") == 103 and open("w", "rb").read()[3:100] == bytes(97)
END
run a 'head -c 5004 /root/m | tail -c 4'
assert_rec stdout '"MMAP"'

# -- copying trees in and out ------------------------------------------------------------------------------------------

cd "$DIR"
mkdir -p tree/sub/deep tree/empty
for i in {1..40}; do
	head -c $((i * 1013)) /dev/urandom >"tree/sub/f$i"
done
echo 'x y' >'tree/a name with blanks'
ln -s f1 tree/sub/link
ln -s ../sub/f2 tree/sub/up
ln -s sub tree/dirlink
chmod 755 tree/sub/f1
chmod 600 tree/sub/f2
touch -d '2010-01-01 UTC' tree/sub/f3
truncate -s 1000000 tree/sparse
same_tree() { # COPY [UNIT_OF_TIME]: tar keeps whole seconds
	local unit=${2:-T@}

	diff -r --no-dereference "$DIR/tree" "$1" || fail "$1 differs"
	assert_eq "$(cd "$1" && find . -printf "%P %m %y %l %$unit\n" | grep -v '^ ' | grep -v ' d ' | sort)" \
		"$(cd "$DIR/tree" && find . -printf "%P %m %y %l %$unit\n" | grep -v '^ ' | grep -v ' d ' | sort)" "modes, links and times of $1"
}
bounded cp -a tree "$G/by-cp"
same_tree "$G/by-cp"
bounded cp -a "$G/by-cp" back-cp
same_tree "$DIR/back-cp"
tar -cf - tree | bounded tar -C "$G" -xpf -
same_tree "$G/tree" Ts
mkdir back-tar
bounded tar -C "$G" -cf - tree | tar -C back-tar -xpf -
same_tree "$DIR/back-tar/tree" Ts
if command -v rsync >/dev/null; then
	bounded rsync -a tree/ "$G/by-rsync/"
	same_tree "$G/by-rsync"
	assert_eq "$(bounded rsync -ain tree/ "$G/by-rsync/" | grep -v '/$' || :)" "" "a second rsync has nothing to do"
	bounded rsync -a "$G/by-rsync/" back-rsync/
	same_tree "$DIR/back-rsync"
fi
run a 'cd /root && tar cf - tree | sha256sum >/dev/null && find tree -type f | wc -l && readlink tree/sub/up && cat tree/sub/link | wc -c'
assert_rec stdout '"42\n../sub/f2\n1013\n"'
bounded rm -rf "$G/by-cp" "$G/tree" "$G/by-rsync"
command -v git >/dev/null && {
	(
		export HOME=$DIR GIT_CONFIG_NOSYSTEM=1
		mkdir "$G/repo"
		cd "$G/repo"
		bounded git init -q .
		echo file >file
		bounded git add file
		bounded git -c user.name=n -c user.email=e -c safe.directory='*' commit -qm first
		bounded git -c safe.directory='*' fsck --strict 2>&1
		assert_eq "$(bounded git status --porcelain)" ""
	)
}
command -v sqlite3 >/dev/null && {
	assert_eq "$(bounded sqlite3 "$G/db" 'create table t(x); insert into t values(1),(2); pragma integrity_check; select sum(x) from t;')" $'ok\n3'
}

# -- what is no file reads as an empty one, refuses writing and does not block --------------------------------------------

run a 'mkfifo /root/fifo; mknod /root/null c 1 3; mknod /root/blk b 7 0; ls -l /root/fifo /root/null | cut -c1'
assert_rec exit_code 0
for f in fifo null blk; do
	assert_eq "$(bounded cat "$G/$f")" ""
	assert_errno EPERM write "$G/$f" x WRONLY
	assert_eq "$(stat -c '%F %s' "$G/$f")" 'regular empty file 0'
done
bounded grep -r x "$F/root" >/dev/null || [ $? -eq 1 ] || fail "grep -r of a guest's directory"
bounded ls -l "$F/proc" "$F/sys" "$F/dev" >/dev/null
assert_match "$(bounded cat "$F/etc/os-release")" "crucible tiny"
mkdir cpa
bounded cp -a "$G/fifo" "$G/null" cpa/
bounded tar -C "$G" -cf /dev/null fifo null blk

# -- it starts a sandbox -------------------------------------------------------------------------------------------------------

new_sandbox b
assert_match "$(bounded cat "$RUN/b/fs/etc/passwd")" '^root:' "the first use of fs/ starts it"
assert_file "$RUN/b/status" ready
mv "$RUN/b" "$RUN/c"
assert_match "$(bounded cat "$RUN/c/fs/etc/passwd")" '^root:' "after a rename of the sandbox"
(
	cd "$RUN/c/fs/etc"
	echo stop >"$RUN/c/ctl"
	wait_status c stopped
	assert_errno ENOTCONN listdir .
	run c true
	bounded ls >/dev/null 2>&1 || bounded ls "$RUN/c/fs/etc" >/dev/null # a place of the machine before may be stale, never wrong
)
rmdir "$RUN/c"
cd /
