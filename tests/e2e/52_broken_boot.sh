#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Profiles, kernels and images that are missing or broken: the error names the step and holds the console's tail; the next sandbox is fine.
# limit: 600
. "$(dirname "$0")/lib.sh"

make_store "$STORE"
bootid=$(json_of "$(cat "$STORE/profiles/tiny/info.json")" bootid)
profile() { # NAME: a copy of tiny to be broken
	cp -a --sparse=always "$STORE/profiles/tiny" "$STORE/profiles/$1"
}
set_info() { # PROFILE SED
	sed "$2" "$STORE/profiles/$1/info.json" >"$DIR/info.json"
	cp --remove-destination "$DIR/info.json" "$STORE/profiles/$1/info.json"
}
own_base() { # PROFILE: an image has a name that no other has
	ln "$STORE/profiles/$1/root.img" "$STORE/disks/bases/$1.img"
	set_info "$1" "s/\"base\": \".*\"/\"base\": \"$1.img\"/"
}
own_boot() { # PROFILE BOOTID: let it boot from a copy of its own
	cp -a "$STORE/boot/$bootid" "$STORE/boot/$2"
	set_info "$1" "s/$bootid/$2/"
}
for p in noimage noinfo badinfo nokernel nodisk emptydisk noagent nothing; do
	profile $p
done
rm "$STORE/profiles/noimage/root.img" "$STORE/profiles/noinfo/info.json"
rm "$STORE/profiles/badinfo/info.json"
echo '{"bootid":"../../etc"}' >"$STORE/profiles/badinfo/info.json"
own_boot nokernel b-nokernel
rm "$STORE/boot/b-nokernel/vmlinux"
own_boot noagent b-noagent
rm "$STORE/boot/b-noagent/initramfs"
mkdir "$DIR/empty"
(cd "$DIR/empty" && echo | cpio --quiet -o -H newc >"$STORE/boot/b-noagent/initramfs") 2>/dev/null || : >"$STORE/boot/b-noagent/initramfs"
own_boot nothing b-nothing
rm "$STORE/boot/b-nothing/vmlinux"
head -c 1000000 /dev/urandom >"$STORE/boot/b-nothing/vmlinux"
head -c 4194304 /dev/urandom >"$DIR/noise"
for p in nodisk emptydisk; do
	rm "$STORE/profiles/$p/root.img"
done
cp "$DIR/noise" "$STORE/profiles/nodisk/root.img"
truncate -s 33554432 "$STORE/profiles/emptydisk/root.img"
own_base nodisk
own_base emptydisk
chmod -R go+rX "$STORE/profiles" "$STORE/boot"

EXPECTED_ERRORS='event=(lost|engine|box|boot)'
start_daemon

# What is known to be missing is refused when it is asked for.
new_sandbox a
for p in noimage absent; do
	assert_errno EINVAL write "$RUN/a/from" "profile:$p\n"
	assert_match "$(cat "$RUN/a/error")" "$p.*crucible profile build $p"
done
for p in noinfo badinfo nokernel; do
	new_sandbox $p
	if [ "$(errno_of write "$RUN/$p/from" "profile:$p\n")" = OK ]; then
		put $p 'echo never'
		await $p
		assert_rec exit_code -1 error "=~$p"
		assert_ne "$(errno_of write "$RUN/$p/ctl" 'start\n')" OK "starting $p"
	fi
	assert_match "$(cat "$RUN/$p/error")" "$p"
	assert_errno OK rmdir "$RUN/$p"
done

# What breaks while it boots ends the command, and `error` holds the console's tail.
for p in nodisk emptydisk noagent nothing; do
	new_sandbox $p from=profile:$p
	put $p 'echo never'
	await $p
	assert_rec exit_code -1 signal '""' stdout '""' error '=~.'
	wait_status $p failed
	case $p in
	nodisk | emptydisk) assert_match "$(cat "$RUN/$p/error")" 'root|vda|mount|ext4|disk' "error of $p names what failed" ;;
	noagent) assert_match "$(cat "$RUN/$p/error")" 'init|VFS|panic' "error of $p holds the console's tail" ;;
	nothing) assert_match "$(cat "$RUN/$p/error")" 'engine|kernel|boot' "error of $p" ;;
	esac
	assert_eq "$(wc -l <"$RUN/$p/error")" 1 "lines of error"
done
assert_match "$(tr -d '\r' <"$RUN/noagent/console.log")" 'init|VFS|panic' "console.log"
rmdir "$RUN/nodisk"
run a 'echo fine'
assert_rec exit_code 0 stdout '"fine\n"'

# Its profile is gone when it starts again.
echo stop >"$RUN/a/ctl"
wait_status a stopped
mv "$STORE/profiles/tiny" "$DIR/tiny"
run a 'echo never'
assert_rec exit_code -1 error '=~crucible profile build tiny'
mv "$DIR/tiny" "$STORE/profiles/tiny"
run a 'echo fine again'
assert_rec exit_code 0

# Nothing is built at all: it serves, and says what to do.
stop_daemon
mv "$STORE/profiles" "$DIR/profiles"
start_daemon
assert_json "$(cat "$MNT/health.json")" ready false degraded.0 '=~crucible profile build'
assert_eq "$(ls "$MNT/profiles")" ""
new_sandbox z
put z true
await z
assert_rec exit_code -1 error '=~crucible profile build'
