#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# crucible cp: files and directories, both ways; and that what a hostile guest offers stays harmless.
. "$(dirname "$0")/lib.sh"

start_daemon
export CRUCIBLE_MOUNT=$MNT
ready_sandbox a
cd "$DIR"

cp_ok() { bounded "$CRUCIBLE" cp "$@" || fail "cp $*"; }
cp_says() { # REGEX ARGUMENT…
	local want=$1 rc=0 said

	shift
	said=$(bounded "$CRUCIBLE" cp "$@" 2>&1) || rc=$?
	assert_eq "$rc" 1 "exit code of cp $*"
	assert_match "$said" "^crucible: .*$want"
}
in_guest() { bounded "$CRUCIBLE" sandbox exec a -- sh -c "$1"; }

mkdir -p d/sub/empty
echo one >d/one
echo two >d/sub/two
chmod 755 d/sub/two
touch -d 2020-01-01T00:00:00Z d/one
ln -s ../one d/sub/link
ln -s /etc/hostname d/absolute
mkfifo d/fifo
echo u >"d/grüß dich"
head -c 3000000 /dev/urandom >d/big

# -- files in
cp_ok d/one a:/tmp/x
cp_ok d/one a:/tmp/
cp_ok d/sub/two a:/tmp
assert_eq "$(in_guest 'cat /tmp/x /tmp/one /tmp/two; stat -c %a /tmp/two; stat -c %Y /tmp/x')" "one
one
two
755
1577836800"
cp_ok <(echo piped) a:/tmp/piped
assert_eq "$(in_guest 'cat /tmp/piped')" piped
cp_says 'No such file' d/one a:/none/x
cp_says 'No such file' d/one a:/none/
cp_says 'Not a directory' d/one a:/tmp/x/
cp_says 'begins with /' d/one a:x
cp_says 'without "..' d/one a:/tmp/../x
cp_says 'none: No such file' none a:/x
cp_says 'no sandbox "b"' d/one b:/x
cp_says 'one path of this machine' d/one d/two
cp_says 'one path of this machine' a:/x a:/y

# -- directories in
said=$(bounded "$CRUCIBLE" cp -o json d a:/work 2>"$DIR/err")
assert_json "$said" files 9 skipped 1
assert_match "$(cat "$DIR/err")" '1 left out'
assert_eq "$(in_guest 'cd /work; cat one sub/link; readlink absolute; stat -c %a sub/two; stat -c "%Y %u" one; ls -A sub; cat gr*')" "one
one
/etc/hostname
755
1577836800 0
empty
link
two
u"
assert_eq "$(in_guest 'sha256sum </work/big')" "$(sha256sum <d/big)"
cp_ok d a:/work 2>/dev/null
assert_eq "$(in_guest 'cat /work/d/one')" one "into a directory that exists the name is kept"
cp_says 'none: No such file' d a:/none/deep

# -- files out
cp_ok a:/work/one .
cp_ok a:/work/sub/two out-two
cp_ok a:/work/sub/link out-link
cp_ok a:/work/big out-big
assert_eq "$(cat one out-two out-link; stat -c %a out-two; stat -c %Y one)" "one
two
one
755
1577836800"
assert_same d/big out-big
cp_says 'No such file' a:/none x
cp_says 'No such file' a:/work/one none/
in_guest 'cp /work/one /tmp/su; chmod 4755 /tmp/su'
cp_ok a:/tmp/su su
assert_eq "$(stat -c %a su)" 755

# -- directories out
cp_ok a:/work out 2>"$DIR/err"
assert_match "$(cat "$DIR/err")" '2 left out' # two absolute links
assert_same d/big out/big
assert_eq "$(cat out/one out/sub/link "out/grüß dich"; readlink out/sub/link; stat -c %a out/sub/two; ls -A out/sub)" "one
one
u
../one
755
empty
link
two"
mkdir there
cp_ok a:/work/sub there 2>/dev/null
assert_exists there/sub/two
assert_absent there/sub/link # it would lead out of what was copied

# -- a hostile guest
in_guest 'mkdir /evil; cd /evil; ln -s /etc abs; ln -s ../.. up; mknod null c 1 3; mkfifo fifo; echo s >su; chmod 6755 su'
cp_ok a:/evil evil 2>/dev/null
assert_eq "$(ls -A evil) $(stat -c '%a %u' evil/su)" "su 755 0"
# A `tar` of its own: names that lead out, a link and a file behind it.
mkdir t t/in
echo x >t/in/f
(cd t && tar --transform 's,^in/f,../../evil-file,' -Pcf ../evil.tar in/f && ln -s "$DIR/victim" in/l && tar -cf ../link.tar in/l &&
	rm in/l && mkdir in/l && echo x >in/l/f && tar -rf ../link.tar in/l/f)
mkdir victim
for tar in evil link; do
	cp_ok $tar.tar a:/tmp/e.tar
	in_guest 'printf "#!/bin/sh\nexec cat /tmp/e.tar\n" >/bin/tar.new; chmod 755 /bin/tar.new; mv /bin/tar.new /bin/tar'
	"$CRUCIBLE" cp a:/evil hostile-$tar >/dev/null 2>&1 || :
	assert_absent evil-file ../evil-file victim/f
done
rm -rf "${DIR:?}/t"
cd /
