#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The daemon: what it refuses and in which words, its options, its mount (TREE.md rule 12), its end. No guest.
. "$(dirname "$0")/lib.sh"

make_store "$STORE"

# -- one line that says what and how, and nothing left ------------------------------------------------------------------

refuse_daemon 'crucibled: .*"nonsense"' nonsense
refuse_daemon 'no setting' --set nonsense=1
refuse_daemon 'not KEY=VALUE' --set nonsense
refuse_daemon 'from 1 to 4096' --set max_sandboxes=0
refuse_daemon 'err, warn, info, debug' --log-level loud
refuse_daemon 'auto, tcg, kvm' --set accel=fast
refuse_daemon 'ready-fd' --ready-fd 77
refuse_daemon 'absent.conf' --config "$DIR/absent.conf"
printf 'max_sandboxes = 7\n# a comment\nbogus\n' >"$DIR/bad.conf"
refuse_daemon 'bad.conf:3' --config "$DIR/bad.conf"
echo 'max_sandboxes = many' >"$DIR/bad.conf"
refuse_daemon 'bad.conf:1.*many.*from 1 to 4096' --config "$DIR/bad.conf"
refuse_daemon 'store .* inside the mount' --store "$MNT/store"
refuse_daemon 'mount .* inside the store' --mount "$STORE/mnt"
refuse_daemon 'store .*' --store "$DIR/absent/store"
refuse_daemon 'a name, not a path' --set cgroup=a/b
refuse_daemon '/nonexistent/qemu' --set qemu=/nonexistent/qemu
touch "$DIR/file"
refuse_daemon 'mount' --mount "$DIR/file"
REFUSE_CWD=$MNT refuse_daemon 'current directory .* inside the mount' --log-level info
REFUSE_ENV=HOME=$MNT/home refuse_daemon 'HOME' --log-level info
said=$(as_user 61001 "$LIBEXEC/crucibled" --mount "$MNT" --store "$STORE" 2>&1) && fail "starts without being root"
assert_match "$said" 'root.*sudo'
assert_match "$("$LIBEXEC/crucibled" --help)" '--mount .*--store .*--config .*--log-level'
assert_match "$("$LIBEXEC/crucibled" --version)" '^crucibled [0-9]'
! is_mounted "$MNT" || fail "a daemon that did not start left its mount"
assert_eq "$(uid_pids)" "" "processes of a daemon that did not start"
no_daemon_cgroups || fail "a daemon that did not start left a cgroup"

# -- a store that the daemon makes, and one that it cannot use -----------------------------------------------------------

umask 022
kept=$STORE
STORE=$DIR/fresh/store
mkdir -p "$STORE"
chmod 0700 "$STORE"
refuse_daemon "its mode is 0700.*chmod o\\+x $STORE"
chmod 0711 "$STORE"
mkdir -p "$STORE/state/events.jsonl" # known only when all is mounted
refuse_daemon 'events.jsonl: Is a directory'
! is_mounted "$MNT" || fail "a daemon that failed left its mount"
rm -r "$STORE"
daemon_command
(cd / && exec "${COMMAND[@]}" --ready-fd 9 9>"$DIR/said" </dev/null >>"$DAEMON_LOG" 2>&1) &
DAEMON_PID=$!
wait_for "a daemon whose store was not there" grep -q ready "$DIR/said"
assert_eq "$(stat -c %a "$STORE")" 755
mkdir "$RUN/a"
assert_file "$RUN/a/status" configured
stop_daemon
STORE=$kept

# -- the mount ----------------------------------------------------------------------------------------------------------

start_daemon
options=$(awk -v m="$MNT" '$5 == m { print $6 "," $NF }' /proc/self/mountinfo)
for o in nosuid nodev noexec default_permissions allow_other; do
	assert_match ",$options," ",$o," "mount option"
done
assert_eq "$(awk -v m="$MNT" '$2 == m { print $3 }' /proc/self/mounts)" fuse.crucible
assert_match "$(errno_of exec "$MNT/version")" '^EACCES$' "executing a file of the mount"
assert_match "$(errno_of mknod "$RUN/dev" char)" '^E(PERM|ACCES|INVAL)$' "a device"
df "$MNT" >/dev/null
assert_errno OK statvfs "$MNT"
assert_eq "$(stat -c %U "$MNT")" root
assert_eq "$(pid_of_uid "$UID_BASE")" "$DAEMON_PID" "processes of the service uid: the daemon, which gave root up"
programs() { # those of this daemon's users, in one line; machines that wait for somebody may be there already
	for p in $(uid_pids); do cat "/proc/$p/comm"; done | grep -vxE 'crucible-box|qemu-system-x86' | sort | tr '\n' ' '
}
all_are_there() { # pager, store and netd come behind
	programs
	[ "$(programs)" = "crucible-netd crucible-pager crucible-store crucibled " ]
}
wait_for "the processes of a daemon without sandboxes" all_are_there
assert_eq "$(awk '/^CapEff/ { print $2 }' "/proc/$DAEMON_PID/status")" 0000000000000000 "capabilities of the daemon"
assert_eq "$(awk '/^NoNewPrivs/ { print $2 }' "/proc/$DAEMON_PID/status")" 1
assert_eq "$(awk '/^Seccomp:/ { print $2 }' "/proc/$DAEMON_PID/status")" 2
assert_eq "$(awk '/^Threads/ { print $2 <= 6 }' "/proc/$DAEMON_PID/status")" 1 "threads: the loop, four workers, a notifier"
launcher=$(own_pids crucible-launch)
assert_eq "$(awk '/^Seccomp:/ { print $2 }' "/proc/$launcher/status")" 2
assert_json "$(cat "$MNT/health.json")" ready true mount "\"$MNT\"" store "\"$STORE\"" engine '"qemu"' accel '"tcg"' profiles.0 '"tiny"' \
	sandboxes 0 since '=~Z$'

# -- one daemon a store, one a mount ---------------------------------------------------------------------------------------

refuse_daemon 'another crucibled uses it' --mount "$DIR/mnt2" --set "cgroup=$CGROUP-2"
make_store "$DIR/store2"
refuse_daemon 'another crucible daemon serves it' --store "$DIR/store2" --set "cgroup=$CGROUP-2" --set "uid_base=$((UID_BASE + 32768))"
mkdir -p "$DIR/mnt3"
mount -t tmpfs test "$DIR/mnt3"
refuse_daemon 'another file system' --mount "$DIR/mnt3" --store "$DIR/store2" --set "cgroup=$CGROUP-2"
umount "$DIR/mnt3"
assert_file "$MNT/version" "$(cat "$TOP/VERSION")"
new_sandbox kept
stop_daemon

# -- options and settings show their effect -----------------------------------------------------------------------------------

printf '# settings\n\nmax_sandboxes = 3\nlog_level = warn\n' >"$DIR/own.conf"
: >"$DAEMON_LOG"
start_daemon --config "$DIR/own.conf"
assert_json "$(cat "$MNT/health.json")" max_sandboxes 3
assert_no_match "$(cat "$DAEMON_LOG")" 'level=info' "log_level = warn"
assert_file "$RUN/kept/status" configured
stop_daemon
start_daemon --log-level debug --config "$DIR/own.conf" --set max_sandboxes=5
assert_json "$(cat "$MNT/health.json")" max_sandboxes 5
assert_match "$(cat "$DAEMON_LOG")" 'level=info.*event=ready'
stop_daemon
start_daemon --set memory_floor_mib=77
assert_json "$(cat "$MNT/health.json")" memory_floor_mib 77
stop_daemon

# -- SIGINT is as good as SIGTERM; a user inside the mount does not hold it ---------------------------------------------------

start_daemon
exec {held}<"$RUN/kept/status"
pid=$DAEMON_PID
(
	cd "$RUN/kept"
	exec tail -f /dev/null
) &
inside=$!
stands_there() { [ "$(cat "/proc/$inside/comm")" = tail ]; }
wait_for "somebody to stand in the mount" stands_there
kill -INT "$pid"
DAEMON_PID=
wait_for "crucibled to end" gone "$pid"
wait "$pid" || fail "exit code $? after SIGINT"
wait_for "the launcher to end" no_own_pids crucible-launch
! is_mounted "$MNT" || fail "the mount is left"
kill $inside
exec {held}<&-

# -- unmounted from outside: it ends in order ------------------------------------------------------------------------------------

start_daemon
pid=$DAEMON_PID
umount -l "$MNT"
DAEMON_PID=
wait_for "crucibled to end after an unmount" gone "$pid"
wait_for "the launcher to end" no_own_pids crucible-launch
wait_for "the cgroups to go" no_daemon_cgroups

# -- killed, and started on the same mount point -----------------------------------------------------------------------------------

for _ in 1 2 3; do
	start_daemon
	mkdir "$RUN/again"
	exec {held}<"$RUN/again/status"
	kill_daemon
	assert_errno ENOTCONN listdir "$RUN"
	start_daemon
	assert_file "$RUN/again/status" configured
	assert_file "$RUN/kept/status" configured
	rmdir "$RUN/again"
	exec {held}<&-
	stop_daemon
done
assert_eq "$(grep -c " $MNT " /proc/self/mountinfo || :)" 0 "dead mounts"
