#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The same tools as in 15_fuse_tools.sh, through a view that is bound elsewhere: without the page cache and with nothing remembered. Then its end, as
# programs see it: paths, open descriptors, what waits, what is being written.
through_view=1
. "$(dirname "$0")/15_fuse_tools.sh"

# -- readers that are not cat: nothing is cached, and all goes as with a cache ----------------------------------------------------

view=$tmp/view
echo 'seq 1000' >t/cmd
cat t/wait >/dev/null
for f in "$view/README.md" t/stdout t/result.json; do
	sum=$(md5sum <"$f")
	ok "$f cp" cp "$f" "$tmp/copy"
	eq "$f cp" "$(md5sum <"$tmp/copy")" "$sum"
	eq "$f dd" "$(dd if="$f" bs=7 status=none | md5sum)" "$sum"
	eq "$f mapped" "$("$python" -IS -c 'import mmap, sys
with open(sys.argv[1], "rb") as f, mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ) as m:
    sys.stdout.buffer.write(m)' "$f" | md5sum)" "$sum"
	eq "$f pread" "$("$python" -IS -c 'import os, sys
fd, at = os.open(sys.argv[1], os.O_RDONLY), 0
while data := os.pread(fd, 1000, at):
    at += os.write(1, data)' "$f" | md5sum)" "$sum"
done

# -- the command on a view ---------------------------------------------------------------------------------------------------------

crucible=$CRUCIBLE_BUILD/bin/crucible
tells() { # what, REGEX, command…
	local what=$1 wanted=$2
	shift 2
	! "$@" >"$tmp/out" 2>&1 || fault "$what: it should fail"
	grep -Eq "$wanted" "$tmp/out" || fault "$what: $(head -3 "$tmp/out")"
}
cd "$tmp"
tells "cp from what does not run" "exec t -- true.*echo start >view/run/t/ctl" "$crucible" --mount view cp t:/etc/passwd "$tmp/copy"
"$crucible" doctor --mount view >"$tmp/out" 2>&1 || :
! grep -q '^store' "$tmp/out" || fault "doctor judges the store of a view's daemon: $(grep ^store "$tmp/out")"
cd "$view/run"

# -- the end -----------------------------------------------------------------------------------------------------------------------

stale() { # what, command…
	local what=$1
	shift
	! "$@" >"$tmp/out" 2>&1 || fault "$what: it should fail"
	grep -q 'Stale file handle' "$tmp/out" || fault "$what: $(head -1 "$tmp/out")"
}
echo 'while sleep 0.1; do echo on; done' >t/cmd
until [ -s t/stdout ]; do sleep 0.02; done
exec 3<t/stdout 4<"$view/README.md" 5<t 6>t/cmd
echo "touch $tmp/ran" >&6
cat t/wait >"$tmp/waited" 2>&1 &
waiter=$!
tail -f t/stdout >"$tmp/followed" 2>"$tmp/follower" &
follower=$!
until [ -s "$tmp/followed" ]; do sleep 0.02; done
"$python" -IS -c 'import select, sys
p = select.poll()
p.register(sys.stdin.fileno(), select.POLLIN)
sys.stdin.buffer.read()
print("polls", flush=True)
while not any(events & select.POLLERR for _, events in p.poll()):
    sys.stdin.buffer.read()' <t/stdout >"$tmp/polled" 2>"$tmp/poller" &
poller=$!
until [ -s "$tmp/polled" ]; do sleep 0.02; done
cd /
echo 0 >"$mnt/views/v/ttl" # the made-up domain ends it then
wait $waiter && fault "cat wait: it should fail"
grep -q 'Stale file handle' "$tmp/waited" || fault "cat wait: $(cat "$tmp/waited")"
wait $follower || :
grep -q 'Stale file handle' "$tmp/follower" || fault "tail -f: $(cat "$tmp/follower")"
wait $poller || grep -q 'Stale file handle' "$tmp/poller" || fault "poll: $(cat "$tmp/poller")"
stale "ls" ls "$view"
stale "cat" cat "$view/version"
stale "stat" stat "$view/run/t"
stale "mkdir" mkdir "$view/run/n"
stale "an open stream" sh -c 'cat <&3'
stale "an open text" sh -c 'cat <&4'
stale "an open directory" ls /proc/self/fd/5/
exec 3<&- 4<&- 5<&-
exec 6>&- || :
cd "$tmp"
tells "ls after the end" "view \"v\" on view has ended.*echo 2h >$mnt/views/v/ttl" "$crucible" sandbox ls --mount view
tells "doctor after the end" "^daemon +warn +view \"v\" on view has ended" "$crucible" doctor --mount view
! grep -Eq '^(store|profiles|accelerator) |cannot run sandboxes|not running' "$tmp/out" || fault "doctor judges: $(cat "$tmp/out")"
mkdir "$tmp/other"
tells "mount after the end" 'its time is over; add --ttl' "$crucible" --mount "$mnt" mount --name v other
ok "mount that gives it more" "$crucible" --mount "$mnt" mount --name v --ttl 1h other
ok "ls where it is mounted anew" "$crucible" sandbox ls --mount other
ok "umount --keep" "$crucible" umount --keep other
echo 0 >"$mnt/views/v/ttl"
cd /
ok "find over the mount" find "$mnt" -ls
eq "status" "$(cat "$mnt/views/v/status")" expired
echo 60 >"$mnt/views/v/ttl"
eq "it lives again" "$(cat "$view/version")" "$(cat "$mnt/version")"
[ ! -e "$tmp/ran" ] || fault "what was being written ran"
ok "rmdir" rmdir "$mnt/views/v"
stale "after the removal" ls "$view"

# -- the end of the daemon ---------------------------------------------------------------------------------------------------------

mkdir "$mnt/views/w"
echo '{}' >"$mnt/views/w/policy"
cd "$tmp"
ok "mount of another" "$crucible" --mount "$mnt" mount --name w other
kill -KILL $daemon
wait $daemon || :
tells "ls of a dead view" "start that of the tree again, then: crucible umount --keep other; crucible mount --mount $mnt --name w other\$" \
	"$crucible" sandbox ls --mount other
! grep -q 'crucible daemon --mount other' "$tmp/out" || fault "a daemon on a view's mount point: $(cat "$tmp/out")"
tells "doctor of a dead view" '^daemon +warn +the daemon of view "w" on other has ended' "$crucible" doctor --mount other
tells "ls of a dead tree" "crucible daemon --mount $mnt \(with the same --store" "$crucible" sandbox ls --mount "$mnt"
ok "umount --keep of a dead view" "$crucible" umount --keep other
cd /

[ "$faults" = 0 ]
