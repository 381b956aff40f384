#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Everyday tools on the FUSE layer alone: the tree over a made-up domain (tests/unit/fakefs.c), commands run by this host's shell. No guest, so it
# takes seconds; what a guest adds is asserted in the other scripts. Needs root. 16_view_tools.sh does the same through a view, bound elsewhere ($through_view).
set -Eeuo pipefail

if [ -z "${CRUCIBLE_TEST_DIR-}" ]; then
	exec "$(dirname "$0")/../run.sh" "$0"
fi
exec >&2
mnt=$CRUCIBLE_TEST_DIR/mnt tmp=$CRUCIBLE_TEST_DIR/tmp faults=0
python=/usr/bin/python3
export PYTHONDONTWRITEBYTECODE=1

[ "$(id -u)" = 0 ] || {
	echo "skip: only root can mount"
	exit 77
}
[ -e /dev/fuse ] || {
	echo "skip: no /dev/fuse"
	exit 77
}
[ -x "$CRUCIBLE_BUILD/unit/fakefs" ] || {
	echo "$CRUCIBLE_BUILD/unit/fakefs is not built: make check-e2e, or make $CRUCIBLE_BUILD/unit/fakefs"
	exit 1
}
mkdir -p "$mnt" "$tmp"
chmod 755 "$CRUCIBLE_TEST_DIR" "$mnt"
"$CRUCIBLE_BUILD/unit/fakefs" "$mnt" &
# shellcheck disable=SC2034 # for 16_view_tools.sh
daemon=$!
trap 'cd /; umount -l "$tmp/view" "$mnt" 2>/dev/null || :; wait' EXIT
until [ -e "$mnt/version" ]; do sleep 0.02; done
if [ -n "${through_view-}" ]; then
	mkdir "$mnt/views/v" "$tmp/view"
	echo '{}' >"$mnt/views/v/policy"
	mount --bind "$mnt/views/v/tree" "$tmp/view"
	chmod 755 "$tmp"
	cd "$tmp/view/run"
else
	cd "$mnt/run"
fi

fault() {
	echo "FAULT: $*"
	faults=$((faults + 1))
}
has() { command -v "$1" >/dev/null; }
ok() { # what, command…
	local what=$1
	shift
	"$@" >"$tmp/out" 2>&1 || fault "$what: $(head -3 "$tmp/out")"
}
fails() { # what, command…
	local what=$1
	shift
	! "$@" >"$tmp/out" 2>&1 || fault "$what: it should fail"
}
eq() { [ "$2" = "$3" ] || fault "$1: got [$2], not [$3]"; } # what, got, wanted
count() { find t/exec -maxdepth 1 -name '[0-9]*' | wc -l; }
one() { # what, command…: makes one command of the sandbox, not none and not two
	local before what=$1
	shift
	before=$(count)
	"$@" || fault "$what: exit code $?"
	eq "$what: commands" $(($(count) - before)) 1
	cat t/wait >/dev/null
}
output() { tr '\n' ' ' <t/stdout; }
env_is() { eq "$1" "$(cat t/env)" "$2"; }
ms() { echo $(($(date +%s%N) / 1000000)); }

mkdir t

# -- sizes are true: every way of reading -------------------------------------------------------------------

cat >"$tmp/ways.py" <<'END'
import mmap, os, sys
p, way = sys.argv[1:]
fd = os.open(p, os.O_RDONLY)
out = b""
if way == "mmap":
    out = mmap.mmap(fd, 0, prot=mmap.PROT_READ)[:]
elif way == "splice":
    r, w = os.pipe()
    while n := os.splice(fd, w, 65536):
        out += os.read(r, n)
elif way == "stat":
    out = os.read(fd, os.stat(p).st_size)
sys.stdout.buffer.write(out)
END
echo 'seq 1 3000' >t/cmd
cat t/wait >/dev/null
for f in t/result.json ../README.md t/status t/stdout; do
	sum=$(md5sum <$f)
	eq "$f dd" "$(dd if=$f bs=7 status=none | md5sum)" "$sum"
	eq "$f head" "$(head -c 1000000 $f | md5sum)" "$sum"
	eq "$f wc" "$(wc -c <$f)" "$(stat -c %s $f)"
	eq "$f tar" "$(tar cf - $f 2>/dev/null | tar xOf - | md5sum)" "$sum"
	cp $f "$tmp/copy"
	eq "$f cp" "$(md5sum <"$tmp/copy")" "$sum"
	for way in mmap splice stat; do
		eq "$f $way" "$($python "$tmp/ways.py" $f $way | md5sum)" "$sum"
	done
	! has busybox || eq "$f busybox" "$(busybox cat $f | md5sum)" "$sum"
	! has node || eq "$f node" "$(node -e 'process.stdout.write(require("fs").readFileSync(process.argv[1]))' $f | md5sum)" "$sum"
	! has rsync || {
		rm -f "$tmp/copy"
		rsync -a $f "$tmp/copy"
		eq "$f rsync" "$(md5sum <"$tmp/copy")" "$sum"
	}
done

# -- wait ---------------------------------------------------------------------------------------------------

readers=(cat "$python $tmp/ways.py t/wait splice" "$python $tmp/ways.py t/wait mmap" "dd status=none if=t/wait")
! has busybox || readers+=("busybox cat")
! has node || readers+=("node -e process.stdout.write(require('fs').readFileSync('t/wait'))")
for reader in "${readers[@]}"; do
	echo 'sleep 0.1' >t/cmd
	case $reader in
	cat | *busybox*) eq "$reader waits" "$($reader t/wait)" "$(cat t/result.json)" ;;
	*) eq "$reader waits" "$($reader)" "$(cat t/result.json)" ;;
	esac
done
echo 'sleep 60' >t/cmd
for signal in INT TERM KILL; do
	start=$(ms)
	timeout -s $signal 0.2 cat t/wait || :
	[ $(($(ms) - start)) -lt 2000 ] || fault "SIG$signal on a waiting read"
done
echo kill >t/ctl
cat t/wait >/dev/null
cat >"$tmp/poll.py" <<'END'
import os, select
fd = os.open("t/wait", os.O_RDONLY | os.O_NONBLOCK)
try:
    os.read(fd, 100)
    raise SystemExit("read did not say EAGAIN")
except BlockingIOError:
    pass
out = os.open("t/stdout", os.O_RDONLY)
p = select.poll()
p.register(out, select.POLLIN)
assert p.poll(0) == [] and p.poll(5000), "stdout"
assert os.read(out, 100) == b"hi\n"
p = select.epoll()
p.register(fd, select.EPOLLIN)
assert p.poll(5), "wait"
assert b'"exit_code":0' in os.read(fd, 1000)
END
echo 'sleep 0.1; echo hi; sleep 0.1' >t/cmd
ok poll $python "$tmp/poll.py"
echo 'for i in 1 2 3; do echo $i; sleep 0.05; done' >t/cmd
eq "tail -f" "$(tail -n +1 -s 0.02 -f t/stdout | head -3 | tr '\n' ' ')" "1 2 3 "

# -- control files -------------------------------------------------------------------------------------------

fails "a bad word" sh -c 'echo bad >t/ctl'
! has busybox || fails "a bad word, busybox" busybox sh -c 'echo bad >t/ctl'
ok "its reason" grep -q bad t/error
ok "sed -i" sed -i 's/.*/256/' t/limits/memory_mib
eq "sed -i" "$(cat t/limits/memory_mib)" 256
printf 'A=1\nB=2\n' >t/env
echo C=3 >>t/env
env_is ">>" $'A=1\nB=2\nC=3'
echo X=1 >"$tmp/env"
ok install install -m 644 "$tmp/env" t/env
env_is install X=1
echo X=2 >"$tmp/env"
ok mv mv "$tmp/env" t/env
env_is mv X=2
echo X=3 >"$tmp/env"
ok "cp -p" cp -p "$tmp/env" t/env
env_is "cp -p" X=3
ok tee sh -c 'echo X=4 | tee t/env'
env_is tee X=4
ok dd sh -c 'echo X=5 | dd of=t/env bs=1 status=none'
env_is dd X=5
ok python $python -c 'open("t/env", "w").write("X=6\n")'
env_is python X=6
! has perl || {
	ok perl perl -pi -e 's/6/7/' t/env
	env_is perl X=7
}
! has node || {
	ok node node -e 'require("fs").writeFileSync("t/env", "X=8\n")'
	env_is node X=8
}
! has rsync || {
	n=9
	for options in "" -a --inplace; do
		echo "LONGER$options=$((n++))" >"$tmp/env"
		ok "rsync $options" rsync $options "$tmp/env" t/env || :
	done
} 2>/dev/null
echo X=1 >t/env
! has vim || for settings in '' 'set bkc=no backup' 'set bkc=yes'; do
	before=$(cat t/env)
	ok "vim $settings" vim -es -u NONE -c "$settings" -c 's/\d\+/\=submatch(0)+1/' -c wq t/env
	[ "$(cat t/env)" != "$before" ] || fault "vim $settings: nothing written"
	rm -f t/env~
done
eq "left behind" "$(find t -maxdepth 1 -name '*env?*' -o -maxdepth 1 -name 'sed*' -o -maxdepth 1 -name '4913')" ""

# -- a command is what was written between open and the last close -----------------------------------------------

echo 'echo a' >"$tmp/a"
echo 'echo b' >"$tmp/b"
head -c 300000 /dev/zero | tr '\0' '#' >"$tmp/big"
echo >>"$tmp/big"
one group sh -c "{ cat $tmp/a; cat $tmp/b; } >t/cmd"
eq group "$(output)" "a b "
one xargs sh -c "ls $tmp/a $tmp/b | xargs cat >t/cmd"
one "dd bs=1" sh -c "dd if=$tmp/a of=t/cmd bs=1 status=none"
one "300 KiB, cp" cp "$tmp/big" t/cmd
one "300 KiB, cat" sh -c "cat $tmp/big >t/cmd"
one "300 KiB, dd" sh -c "dd if=$tmp/big of=t/cmd bs=1M status=none"
one ">>" sh -c 'echo "echo z" >>t/cmd'
one mv sh -c "cp $tmp/a t/new && mv t/new t/cmd"
one "exec 3>" bash -c 'exec 3>t/cmd; echo "echo a" >&3; echo "echo b" >&3; exec 3>&-'
one python $python -c '
import os, subprocess
f = open("t/cmd", "wb", 0)
f.write(b"echo 1\n")
subprocess.run(["echo", "echo 2"], stdout=f)
d = os.dup(f.fileno()); os.write(d, b"echo 3\n"); os.close(d)
f.close()'
eq python "$(output)" "1 2 3 "
! has node || one node node -e 'const fs = require("fs"), cp = require("child_process"), f = fs.openSync("t/cmd", "w");
	fs.writeSync(f, "echo 1\n"); cp.spawnSync("echo", ["echo 2"], {stdio: ["ignore", f, "inherit"]}); fs.closeSync(f)'
fails NUL sh -c 'printf "a\0b" >t/cmd'
one "bad JSON" sh -c 'echo "{bad" >t/cmd'
ok "bad JSON" grep -q 'bad JSON' t/wait
before=$(count)
: >t/cmd
eq nothing "$(count)" "$before"
for i in $(seq 60); do
	echo "echo $i; exit $((i % 7))" >t/cmd
	grep -q "\"exit_code\":$((i % 7))," t/wait || fault "stale record after $i"
	eq "stale output" "$(cat t/stdout)" "$i"
done

# -- reading is harmless --------------------------------------------------------------------------------------------

echo 'sleep 60' >t/cmd
before=$(count) state=$(cat t/status)
ok "walking" timeout 60 sh -c "cd ..; ls -laR .; grep -rc zzz .; find . -ls; du -a .; tar cf $tmp/all.tar .; cp -r . $tmp/all; rm -rf $tmp/all" ||
	:
eq walking "$(count) $(cat t/status)" "$before $state"
echo kill >t/ctl

# -- names -------------------------------------------------------------------------------------------------------------

mkdir b
ok "mv" mv b final
ok "mv" test -f final/status -a ! -e b
ok slot mkdir final/exec/web
fails "a file in run/" touch file
fails "a bad name" mkdir ./-x
fails "mkdir elsewhere" mkdir ../x
ok "rm -rf" rm -rf final
fails "rm -rf" test -e final
for how in "rm -rf" "busybox rm -rf" "$python -c 'import shutil, sys; shutil.rmtree(sys.argv[1])'" rmdir; do
	has "${how%% *}" || continue
	mkdir c
	echo true >c/cmd
	cat c/wait >/dev/null
	ok "$how" sh -c "$how c"
	fails "$how" test -e c
done
mkdir l
sh -c 'exec 9>l/lease; echo held; exec sleep 60' >"$tmp/held" &
holder=$!
until [ -s "$tmp/held" ]; do sleep 0.02; done
ok lease test -d l
kill -KILL $holder
wait $holder || :
while [ -e l ]; do sleep 0.02; done # the run's time limit is the failure

# -- other users ---------------------------------------------------------------------------------------------------------

as() { setpriv --reuid="$1" --regid="$1" --clear-groups "${@:2}"; }
ok "another user makes one" as 65534 mkdir mine
ok "its status" as 65533 cat mine/status
for f in cmd stdout info.json env limits exec fs/; do
	fails "another user's $f" as 65533 cat mine/$f
	fails "root's $f" as 65534 cat t/$f
done
fails "rmdir of another's" as 65533 rmdir mine
fails "writing another's" as 65533 sh -c 'echo true >mine/cmd'
ok "its own" as 65534 sh -c 'echo "echo hi" >mine/cmd; cat mine/wait; rm -rf mine'
fails "root's default" as 65534 sh -c 'echo 1 >../defaults/vcpus'
ok df df .

[ "$faults" = 0 ]
