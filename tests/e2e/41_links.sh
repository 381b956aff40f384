#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A guest's symbolic links never lead out of fs/, whatever they say, also while the guest changes them as fast as it can.
# limit: 400
. "$(dirname "$0")/lib.sh"

start_daemon
ready_sandbox a
A=$RUN/a
F=$A/fs
echo "host secret $RANDOM" >"$DIR/secret"
secret=$(cat "$DIR/secret")

run a 'cd /root; mkdir -p d/e
	ln -s /etc/shadow abs; ln -s ../../../../../../etc/shadow rel; ln -s ../../../../../../../../../../../../../../../../../../etc/shadow far
	ln -s abs viaabs; ln -s d/../../../../../etc/shadow mixed; ln -s ./../../etc/shadow dotted; ln -s .. up; ln -s ../.. upup; ln -s / slash
	ln -s up/etc/../root/up/etc/shadow throughup; ln -s d dlink; ln -s dlink/../../../../etc/shadow dirlink
	ln -s loop1 loop2; ln -s loop2 loop1; ln -s self self; ln -s "" empty 2>/dev/null; ln -s nothing dangling
	ln -s /root/d/e absdir; ln -s ../../etc d/e/etc; ln -s ../../../../../../.. d/e/out; ln -s /proc/self/root procroot; ln -s /proc/1/cwd proccwd
	ln -s //etc//shadow doubled; ln -s /etc/../etc/./shadow dots; ln -s ../etc/passwd good; ln -s d/e plain
	ln -s /../../../../../../../../etc/shadow absup; echo inside >/etc/marker; ln -s /etc/marker marker; ln -s ../etc/marker relmarker'
assert_rec exit_code 0

"$PYTHON" -IS - "$F" "$DIR" <<'END'
"""Every link resolves inside of fs/ or not at all: by realpath, by open, through directories."""
import os, sys
f, host = os.path.realpath(sys.argv[1]), sys.argv[2]
shadow = open("/etc/shadow").read()
guest_shadow = open(f + "/etc/shadow").read()
assert shadow != guest_shadow
bad = []
for d, dirs, files in os.walk(f + "/root"):
    for n in dirs + files:
        p = os.path.join(d, n)
        if not os.path.islink(p):
            continue
        real = os.path.realpath(p)
        if not (real == f or real.startswith(f + "/")):
            bad.append(f"{p} -> {os.readlink(p)} resolves to {real}")
        try:
            if open(p).read() == shadow:
                bad.append(f"{p} -> {os.readlink(p)} reads the host's shadow")
        except OSError:
            pass
        for below in "etc/shadow", "../etc/shadow", "../../../etc/shadow":
            try:
                q = p + "/" + below
                if os.path.isdir(p) and open(q).read() == shadow and not os.path.realpath(q).startswith(f):
                    # only when `..` of the caller itself leaves the tree: that is the caller's path, not the guest's
                    if below == "etc/shadow":
                        bad.append(q)
            except OSError:
                pass
assert not bad, bad
# What is inside works as in the guest.
r = f + "/root/"
for n in "abs", "rel", "far", "viaabs", "mixed", "dotted", "throughup", "doubled", "dots", "absup":
    assert open(r + n).read() == guest_shadow, n
assert open(r + "marker").read() == open(r + "relmarker").read() == "inside\n"
assert open(r + "good").read() == open(f + "/etc/passwd").read()
assert os.path.samefile(r + "slash", f) and os.path.samefile(r + "upup", f) and os.path.samefile(r + "d/e/out", f)
assert os.path.samefile(r + "plain", r + "absdir") and os.path.samefile(r + "dlink", r + "d")
for n in "loop1", "loop2", "self", "dangling":
    try:
        open(r + n)
        sys.exit(n)
    except OSError:
        pass
# A relative target that stays inside is passed unchanged.
for n, t in ("good", "../etc/passwd"), ("plain", "d/e"), ("dlink", "d"), ("dangling", "nothing"), ("relmarker", "../etc/marker"):
    assert os.readlink(r + n) == t, (n, os.readlink(r + n))
END

# -- links made from the host --------------------------------------------------------------------------------------

cd "$F/root"
ln -s "$DIR/secret" to-host
ln -s ../../../../../../../../../../../../../"$DIR/secret" to-host2
assert_no_match "$(cat to-host to-host2 2>/dev/null || :)" "$secret" "a link made from the host leads out"
run a 'readlink /root/to-host'
assert_rec stdout "\"$DIR/secret\\n\""
cp -a to-host copied
assert_no_match "$(cat copied 2>/dev/null || :)" "$secret"
ln -s target relative
assert_eq "$(readlink relative)" target
cd /

# -- O_CREAT, rename and copies through them --------------------------------------------------------------------------

run a 'ln -s /created-by-host /root/new; ln -s ../../../../../../../../tmp/created-outside /root/new2; rm -rf /root/evildir; ln -s /tmp /root/evildir'
echo made >"$F/root/new"
echo made >"$F/root/new2"
echo made >"$F/root/evildir/made"
run a 'cat /created-by-host /tmp/created-outside /tmp/made'
assert_rec stdout '"made\nmade\nmade\n"'
assert_absent /created-by-host /tmp/created-outside /tmp/made
# What a copy keeps is harmless where it lands, too: no link in it leads to the host.
bounded cp -a "$F/root" "$DIR/copied"
rm -rf "$DIR/copied2"
bounded rsync -a "$F/root/" "$DIR/copied2/" 2>/dev/null || :
while read -r l; do
	case $(readlink "$l") in /*) fail "a copied link is absolute: $l -> $(readlink "$l")" ;; esac
done < <(find "$DIR/copied" "$DIR/copied2" -type l)

# -- races: the guest swaps what the host walks through ---------------------------------------------------------------------

mkdir -p "$F/root/race"
cat >"$F/root/race/swap.sh" <<'END'
cd /root/race
mkdir -p real/a/b/c deep/1/2/3; echo fine >real/passwd; echo fine >real/a/b/c/passwd
while [ ! -e stop ]; do
	rm -f x; ln -s /etc x; rm -f x; ln -s ../../../../../../../../../etc x; rm -f x; mkdir x; echo fine >x/passwd; rm -r x
	mv real deep/1/2/3/real; rm -f y; ln -s ../../../../../../../../etc y; mv deep/1/2/3/real real; rm -f y; ln -s real y
	rm -f z; ln -s y z; mv z deep/z; ln -s ../../../../../../../../etc deep/z2; mv deep/z2 deep/1/2/3/z2; mv deep/1/2/3/z2 z2; rm -f z2 deep/z
done
END
mkdir "$A/exec/swap"
echo '{"argv":["/bin/sh","/root/race/swap.sh"],"timeout_s":300}' >"$A/exec/swap/cmd"
wait_for "the race to begin" test -d "$F/root/race/deep"
cat >"$DIR/walk.py" <<'END'
"""Read through links and directories that change; no path may ever lead to the host's passwd, and no `..` above fs/."""
import os, random, sys, threading
f, rounds = os.path.realpath(sys.argv[1]), int(sys.argv[2])
host = open("/etc/passwd", "rb").read()
root = os.stat("/").st_dev
race = f + "/root/race/"
bad, got = [], {"read": 0, "failed": 0}
paths = ["x/passwd", "y/passwd", "z/passwd", "z2/passwd", "deep/z/passwd", "deep/z2/passwd", "deep/1/2/3/z2/passwd", "real/passwd",
         "deep/1/2/3/real/passwd", "real/a/b/c/passwd", "deep/1/2/3/real/a/b/c/passwd", "x/shadow", "y/a/b/c/passwd"]
def walk(seed):
    rnd = random.Random(seed)
    for _ in range(rounds):
        p = rnd.choice(paths)
        try:
            fd = os.open(race + p, os.O_RDONLY)
            if os.fstat(fd).st_dev == root or os.read(fd, 1 << 16) == host:
                bad.append(p)
            os.close(fd)
            got["read"] += 1
        except OSError:
            got["failed"] += 1
        try:
            d = os.open(race + os.path.dirname(p), os.O_RDONLY | os.O_DIRECTORY)
            for n in ("passwd", "../passwd", "../etc/passwd"):
                try:
                    fd = os.open(n, os.O_RDONLY, dir_fd=d)
                    if os.read(fd, 1 << 16) == host:
                        bad.append((p, n))
                    os.close(fd)
                except OSError:
                    pass
            os.close(d)
        except OSError:
            pass
threading.stack_size(1 << 18)
ts = [threading.Thread(target=walk, args=(i,)) for i in range(4)]
for t in ts:
    t.start()
for t in ts:
    t.join()
print(got)
assert not bad, bad[:5]
assert got["read"] > 20, got
END
bounded "$PYTHON" -IS "$DIR/walk.py" "$F" 150
touch "$F/root/race/stop"
await a exec/swap
assert_rec exit_code 0
# With another depth a directory does not move under who stands in it: `..` from inside never rises above fs/.
run a 'mkdir -p /root/w/1/2/3/4'
(
	cd "$F/root/w/1/2/3/4"
	run a 'mv /root/w/1/2/3/4 /four'
	for up in .. ../.. ../../.. ../../../.. ../../../../.. ; do
		! [ -e "$up/store" ] || [ -e "$up/.fs" ] || [ "$(stat -c %d "$up")" = "$(stat -c %d "$MNT")" ] || fail "$up from a directory that moved leads out"
	done
)
