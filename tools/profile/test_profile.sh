#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# crucible-profile from outside: wrong input, missing tools, full disks, interruptions, and when it builds what.
# Needs root and Debian's packages (CRUCIBLE_DEB_CACHE=DIR keeps them between runs). `test_profile.sh PATTERN` runs the matching tests.
set -uo pipefail

here=$(realpath "$(dirname "$0")")
profile=$here/crucible-profile
tmp=$(mktemp -d "${TMPDIR:-/tmp}/test_profile.XXXXXX")
passed=0
failed=0
: >"$tmp/pids"

cleanup() {
	while read -r pid; do
		kill -KILL "$pid" 2>/dev/null || :
	done <"$tmp/pids"
	rm -rf --one-file-system "$tmp"
}
trap cleanup EXIT

if [ "$(id -u)" != 0 ]; then
	echo "SKIP: needs root"
	[ -z "${CRUCIBLE_MUST_RUN-}" ] || exit 1
	exit 77
fi

bad() {
	echo "    $*"
	return 1
}

# build ARGUMENT...: runs it in this test's store; its status, $tmp/out and $tmp/err.
build() {
	"$profile" build "$@" --store "$S" --agent "$tmp/agent" --profiles "$tmp/profiles" >"$tmp/out" 2>"$tmp/err"
}

must_build() {
	build "$@" || bad "build $* failed: $(cat "$tmp/err")"
}

# One clear line, exit 1, and these words in it.
must_fail() { # WORDS COMMAND...
	local words=$1 rc=0

	shift
	"$@" >"$tmp/out" 2>"$tmp/err" || rc=$?
	[ "$rc" = 1 ] || bad "exit $rc instead of 1: $(cat "$tmp/err")" || return 1
	[ "$(wc -l <"$tmp/err")" = 1 ] || bad "not one line: $(cat "$tmp/err")" || return 1
	grep -q '^crucible-profile: ' "$tmp/err" || bad "no crucible-profile: before $(cat "$tmp/err")" || return 1
	grep -qF -- "$words" "$tmp/err" || bad "no '$words' in: $(cat "$tmp/err")"
}

no_leftover() {
	local left

	left=$(find "$S" -maxdepth 1 -name '.build.*')
	[ -z "$left" ] || bad "left behind: $left" || return 1
	left=$(find "$tmp/tmpdir" -mindepth 1)
	[ -z "$left" ] || bad "left behind: $left" || return 1
	! grep -q "$S/" /proc/self/mounts || bad "a mount is left in $S"
}

recipe() { # NAME: text from stdin
	cat >"$tmp/profiles/$1.profile"
}

info() { # PROFILE FIELD
	jq -r ".$2" "$S/profiles/$1/info.json"
}

wait_until() { # COMMAND...
	local n

	for ((n = 0; n < 600; n++)); do
		"$@" && return 0
		read -rt 0.1 <>"$tmp/never" || :
	done
	bad "waited 60 s for: $*"
}

# -- what is asked for ------------------------------------------------------------------------

test_usage() {
	must_fail "build, boot, ls or rm is missing" "$profile" &&
		must_fail "unknown command 'bild'" "$profile" bild tiny --store "$S" &&
		must_fail "unknown option '--stroe'" "$profile" build tiny --stroe "$S" &&
		must_fail "--store DIR is missing" "$profile" build tiny &&
		must_fail "--store needs a value" "$profile" build tiny --store &&
		must_fail "build needs the name" "$profile" build --store "$S" &&
		must_fail "'b' is too much" "$profile" build a b --store "$S" &&
		must_fail "not '7'" "$profile" build tiny --store "$S" --size-mib 7 &&
		must_fail "--force and --size-mib are for build" "$profile" boot --force --store "$S" &&
		must_fail "not 'xml'" "$profile" ls --store "$S" -o xml &&
		must_fail "no store at" "$profile" ls --store "$tmp/nowhere" &&
		must_fail "no such directory" "$profile" build tiny --store "$S" --profiles "$tmp/nowhere" &&
		"$profile" --help | grep -q '^usage: '
}

test_unknown_profile() {
	must_fail "no profile 'nosuch'" build nosuch || return 1
	grep -q 'known:.* python.* tiny' "$tmp/err" || bad "the known ones are not named: $(cat "$tmp/err")" || return 1
	must_fail "is no profile name" build ../tiny && must_fail "is no profile name" build 'Ti ny' && no_leftover
}

test_agent_missing() {
	must_fail "no agent at $tmp/none: run make" "$profile" build tiny --store "$S" --agent "$tmp/none" &&
		must_fail "is no program" "$profile" build tiny --store "$S" --agent /etc/passwd &&
		must_fail "not linked statically" "$profile" build tiny --store "$S" --agent /bin/ls && no_leftover
}

test_not_root() {
	must_fail "only root can do this" setpriv --reuid 65534 --regid 65534 --clear-groups "$profile" build tiny --store "$S"
}

# Each block: the line of the fault, the words, and the text up to a line with ---- alone.
test_bad_recipes() {
	local n=0 line words text rc=0

	while IFS='|' read -r line words; do
		text=
		while IFS= read -r l && [ "$l" != ---- ]; do
			text+=$l$'\n'
		done
		n=$((n + 1))
		printf %b "$text" >"$tmp/profiles/bad.profile"
		must_fail "$tmp/profiles/bad.profile:$line: $words" build bad || rc=1
	done <<-'TABLE'
		1|expected 'key: value', found 'just words'
		just words
		----
		3|unknown key 'pakages' (known: description from method size_mib packages file command)
		description: x

		pakages: curl
		----
		2|'packages:' needs a value
		description: x
		packages:
		----
		3|'size_mib:' stands twice, first in line 2
		description: x
		size_mib: 64
		size_mib: 65
		----
		2|size_mib must be a number from 16 to 65536, not '1G'
		description: x
		size_mib: 1G
		----
		2|size_mib must be a number from 16 to 65536, not '65537'
		description: x
		size_mib: 65537
		----
		2|'curl;reboot' is no name of a package
		description: x
		packages: procps curl;reboot
		----
		2|'--purge' is no name of a package
		description: x
		packages: --purge
		----
		2|unknown method 'magic' (known: debian busybox)
		description: x
		method: magic
		----
		3|the profile it is made from has 'method: busybox'
		description: x
		from: tiny
		method: debian
		----
		3|'from:' must stand before
		description: x
		packages: curl
		from: base
		----
		2|no profile 'nosuch'
		description: x
		from: nosuch
		----
		2|'from: bad' leads in a circle
		description: x
		from: bad
		----
		2|expected 'file: /PATH [MODE] <<EOF'
		description: x
		file: etc/x <<EOF
		EOF
		----
		2|expected 'file: /PATH [MODE] <<EOF'
		description: x
		file: /etc/x 0999 <<EOF
		EOF
		----
		2|the path '/etc/../x' must be absolute and plain
		description: x
		file: /etc/../x <<EOF
		EOF
		----
		3|'<<EOF' is never closed
		description: x

		file: /etc/x <<EOF
		a
		EOF2
		----
		2|'<<EOT' is never closed
		description: x
		command: <<EOT
		a
		----
		2|the line ends with a carriage return
		description: x
		packages: curl\r
		----
		2|control character
		description: x
		packages: cu\033rl
		----
		1|there is no 'description:' line
		packages: curl
		----
	TABLE
	[ "$n" = 21 ] || bad "$n recipes were tried" || return 1
	printf 'description: x\0\n' >"$tmp/profiles/bad.profile"
	must_fail "bad.profile: this is no text" build bad || rc=1
	rm "$tmp/profiles/bad.profile"
	[ ! -e "$S/profiles/bad" ] && no_leftover && return $rc
}

test_circle_of_two() {
	printf 'description: x\nfrom: b\n' | recipe a
	printf 'description: x\nfrom: a\n' | recipe b
	must_fail "b.profile:2: 'from: a' leads in a circle" build a
}

# -- which sources ------------------------------------------------------------------------------

test_third_party_sources_ignored() {
	mkdir -p "$tmp/src"
	cat >"$tmp/src/a.list" <<-'EOF'
		# deb http://off.example/debian bookworm main
		deb http://one.example/debian bookworm main contrib other # why not
		deb-src http://one.example/debian bookworm main
		deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://two.example/mirror/ bookworm-security main
		deb [signed-by=/etc/apt/keyrings/vendor.gpg] https://vendor.example/debian bookworm main
		deb https://vendor.example/linux/debian bookworm stable
		deb https://vendor.example/apt bookworm main
		deb http://one.example/debian trixie main
		deb [check-valid-until=no] http://old.example/debian bookworm-updates main
		deb cdrom:[x]/ bookworm main
	EOF
	cat >"$tmp/src/b.sources" <<-'EOF'
		Types: deb deb-src
		# a comment
		URIs: http://three.example/debian
		 http://four.example/debian/
		suites: bookworm bookworm-updates bookworm-backports
		Components: main non-free-firmware
		Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

		Enabled: no
		Types: deb
		URIs: http://off.example/debian
		Suites: bookworm
		Components: main

		Types: deb
		URIs: http://key.example/debian
		Suites: bookworm
		Components: main
		Signed-By:
		 -----BEGIN PGP PUBLIC KEY BLOCK-----
		 .
		 -----END PGP PUBLIC KEY BLOCK-----
	EOF
	awk -v KEYRING=/k -v SUITES='bookworm bookworm-updates bookworm-security' -v COMPONENTS='main contrib non-free-firmware' \
		-f "$here/sources.awk" "$tmp/src/a.list" "$tmp/src/b.sources" >"$tmp/out"
	diff "$tmp/out" - <<-'EOF' || bad "other sources"
		deb [signed-by=/k] http://one.example/debian bookworm main contrib
		deb [signed-by=/k] http://two.example/mirror/ bookworm-security main
		deb [signed-by=/k check-valid-until=no] http://old.example/debian bookworm-updates main
		deb [signed-by=/k] http://three.example/debian bookworm main non-free-firmware
		deb [signed-by=/k] http://three.example/debian bookworm-updates main non-free-firmware
		deb [signed-by=/k] http://four.example/debian/ bookworm main non-free-firmware
		deb [signed-by=/k] http://four.example/debian/ bookworm-updates main non-free-firmware
	EOF
}

# -- building -----------------------------------------------------------------------------------

# All of PATH but one tool: also the one that tiny does not need.
path_without() { # TOOL
	local f

	mkdir -p "$tmp/path"
	find "$tmp/path" -type l -delete
	for f in /usr/bin/* /usr/sbin/*; do
		[ "${f##*/}" = "$1" ] || ln -s "$f" "$tmp/path/" 2>/dev/null || :
	done
}

test_missing_mmdebstrap() {
	path_without mmdebstrap
	PATH=$tmp/path must_fail "not installed: mmdebstrap: apt-get install mmdebstrap" build base && [ ! -e "$S/profiles/base" ] &&
		path_without lz4 && PATH=$tmp/path must_fail "not installed: lz4: apt-get install lz4" build tiny
}

test_tiny() {
	local id

	must_build tiny || return 1
	id=$(readlink "$S/boot/current")
	[[ $id =~ ^[0-9a-f]{12}$ ]] || bad "boot/current is '$id'" || return 1
	[ "$(stat -c %a "$S" "$S/boot" "$S/boot/$id" "$S/profiles" "$S/profiles/tiny" | sort -u)" = 755 ] || bad "modes of directories" || return 1
	[ "$(stat -c %a "$S/boot/$id"/* "$S/profiles/tiny"/* | sort -u)" = 644 ] || bad "modes of files" || return 1
	[ "$(info tiny bootid)" = "$id" ] && [ "$(info tiny size_mib)" = 48 ] && [ "$(info tiny used_mib)" -lt 20 ] &&
		[ "$(info tiny debian)" = 12 ] || bad "info.json: $(cat "$S/profiles/tiny/info.json")" || return 1
	[ "$(stat -c %s "$S/profiles/tiny/root.img")" = $((48 << 20)) ] || bad "size of the image" || return 1
	e2fsck -fn "$S/profiles/tiny/root.img" >/dev/null 2>&1 || bad "e2fsck finds faults" || return 1
	[ "$(head -c 4 "$S/boot/$id/vmlinux" | od -An -tx1 | tr -d ' ')" = 7f454c46 ] || bad "vmlinux is no ELF" || return 1
	cpio --quiet -t <"$S/boot/$id/initramfs" | sort | tr '\n' ' ' | grep -q ' init .* modules.net modules.order ' ||
		bad "initramfs: $(cpio --quiet -t <"$S/boot/$id/initramfs")" || return 1
	awk '/^progress [0-9]+ ./ && $2 >= last && $2 <= 100 { last = $2; next } { exit 1 }' "$tmp/out" ||
		bad "progress: $(cat "$tmp/out")" || return 1
	tail -n 1 "$tmp/out" | grep -qx 'progress 100 profile tiny is ready' && [ ! -s "$tmp/err" ] && no_leftover
}

test_up_to_date() {
	local before after

	must_build tiny || return 1
	before=$(find "$S/boot" "$S/profiles" -printf '%p %i %T@\n' | sort)
	must_build tiny || return 1
	after=$(find "$S/boot" "$S/profiles" -printf '%p %i %T@\n' | sort)
	[ "$(cat "$tmp/out")" = "progress 100 up to date" ] || bad "$(cat "$tmp/out")" || return 1
	[ "$before" = "$after" ] || bad "something changed"
}

test_changed_recipe() {
	printf 'description: mine\nfrom: tiny\nfile: /etc/mine 0600 <<EOF\none\nEOF\n' | recipe mine
	must_build mine || return 1
	printf 'description: mine\nfrom: tiny\nfile: /etc/mine 0600 <<EOF\ntwo\nEOF\n' | recipe mine
	must_build mine || return 1
	grep -q 'is ready$' "$tmp/out" || bad "not rebuilt" || return 1
	[ "$(debugfs -R 'cat /etc/mine' "$S/profiles/mine/root.img" 2>/dev/null)" = two ] || bad "the old file is there" || return 1
	debugfs -R 'stat /etc/mine' "$S/profiles/mine/root.img" 2>/dev/null | grep -q 'Mode:  0600' || bad "another mode" || return 1
	# The parent's text counts as well.
	cp "$here/profiles/tiny.profile" "$tmp/profiles/tiny.profile"
	echo '# a note' >>"$tmp/profiles/tiny.profile"
	must_build mine || return 1
	grep -q 'is ready$' "$tmp/out" || bad "not rebuilt after a change of the parent" || return 1
	must_build mine && grep -qx 'progress 100 up to date' "$tmp/out" && no_leftover
}

test_size_option() {
	must_build tiny --size-mib 64 && [ "$(info tiny size_mib)" = 64 ] || return 1
	must_build tiny && grep -q 'up to date' "$tmp/out" || bad "rebuilt without a reason" || return 1
	must_build tiny --size-mib 48 && [ "$(info tiny size_mib)" = 48 ]
}

test_new_agent() {
	local old image

	must_build tiny || return 1
	printf 'description: other\nfrom: tiny\n' | recipe other
	must_build other || return 1
	old=$(info tiny bootid) image=$(stat -c %i "$S/profiles/tiny/root.img")
	echo >>"$tmp/agent"
	must_build tiny || return 1
	grep -q 'profile tiny boots with' "$tmp/out" || bad "$(cat "$tmp/out")" || return 1
	[ "$(info tiny bootid)" != "$old" ] && [ "$(readlink "$S/boot/current")" = "$(info tiny bootid)" ] || bad "bootid" || return 1
	[ "$(stat -c %i "$S/profiles/tiny/root.img")" = "$image" ] || bad "the image was built anew" || return 1
	[ -f "$S/boot/$old/vmlinux" ] || bad "a boot that a profile refers to is gone" || return 1
	must_build other || return 1
	[ ! -e "$S/boot/$old" ] || bad "a boot that nobody needs is still there" || return 1
	"$profile" boot --store "$S" --agent "$tmp/agent" >"$tmp/out" 2>&1 && no_leftover
}

test_ls_and_rm() {
	must_build tiny || return 1
	"$profile" ls --store "$S" --profiles "$tmp/profiles" -o json >"$tmp/out" || return 1
	[ "$(jq -r '.[] | select(.name == "tiny").state' "$tmp/out")" = built ] || bad "$(cat "$tmp/out")" || return 1
	[ "$(jq -r '.[] | select(.name == "python").state' "$tmp/out")" = available ] || bad "$(cat "$tmp/out")" || return 1
	cp "$here/profiles/tiny.profile" "$tmp/profiles/tiny.profile"
	echo '# a note' >>"$tmp/profiles/tiny.profile"
	"$profile" ls --store "$S" --profiles "$tmp/profiles" | grep -q '^tiny  *changed ' || bad "not shown as changed" || return 1
	must_fail "no profile 'nosuch'" "$profile" rm nosuch --store "$S" || return 1
	must_fail "no profile '..'" "$profile" rm .. --store "$S" || return 1
	"$profile" rm tiny --store "$S" && [ ! -e "$S/profiles/tiny" ] && [ -e "$S/boot/current/vmlinux" ] && no_leftover
}

test_too_small() {
	printf 'description: x\nfrom: tiny\nsize_mib: 16\ncommand: head -c 20000000 /dev/urandom >/big\n' | recipe small
	must_fail "profile small does not fit into 16 MiB" build small && [ ! -e "$S/profiles/small" ] && no_leftover
}

test_failing_command() {
	printf 'description: x\nfrom: tiny\n\ncommand: echo the reason; exit 3\n' | recipe failing
	must_fail "failing.profile:4: the command failed: the reason" build failing && [ ! -e "$S/profiles/failing" ] && no_leftover
}

test_unknown_package() {
	printf 'description: x\nfrom: tiny\npackages: no-such-package\n' | recipe nopackage
	must_fail "nopackage.profile:3: E: Unable to locate package no-such-package" build nopackage || return 1
	printf 'description: x\nmethod: debian\npackages: procps\npackages: less no-such-package\n' | recipe nopackage
	must_fail "nopackage.profile:4: E: Unable to locate package no-such-package" build nopackage || return 1
	printf 'description: x\npackages: curl=1.2\n' | recipe nopackage
	must_fail "nopackage.profile:2: E: Version '1.2' for 'curl' was not found" build nopackage && no_leftover
}

# What a recipe writes stays in the tree, also through a link with an absolute target; so does what it kills.
test_stays_inside() {
	mkdir -p "$tmp/host"
	printf '%s\n' 'description: x' 'from: tiny' "command: mkdir -p $tmp/host && ln -s $tmp/host /etc/out && kill -9 -1 || :" \
		'file: /etc/out/escaped <<EOF' x EOF "command: test \"\$(cat $tmp/host/escaped)\" = x" | recipe inside
	must_build inside || return 1
	[ ! -e "$tmp/host/escaped" ] || bad "written on the host"
}

# In file systems of several sizes, so that it ends in one step after the other.
test_full_disk() {
	local mib rc=0

	must_build tiny || return 1 # has the packages in the cache
	for mib in 1 20 60 100 150; do
		mkdir -p "$tmp/full"
		mount -t tmpfs -o size=${mib}m full "$tmp/full" || return 1
		S=$tmp/full/store must_fail "no space left in $tmp/full/store" full_build || rc=1
		S=$tmp/full/store no_leftover_in_full || rc=1
		umount "$tmp/full" || rc=1
		[ "$rc" = 0 ] || bad "with $mib MiB" || return 1
	done
}

full_build() {
	printf 'description: x\nfrom: tiny\nsize_mib: 1024\ncommand: head -c 100000000 /dev/urandom >/big\n' | recipe big
	CRUCIBLE_DEB_CACHE=$debs build big
}

no_leftover_in_full() {
	[ -z "$(find "$S" -name '.build.*' -o -name '*.img' -o -path '*/profiles/*')" ] || bad "left: $(find "$S")"
}

start_stuck_build() {
	printf 'description: x\nfrom: tiny\ncommand: tail -f /dev/null\n' | recipe stuck
	"$profile" build stuck --store "$S" --agent "$tmp/agent" --profiles "$tmp/profiles" >"$tmp/stuck" 2>"$tmp/err" &
	pid=$!
	echo "$pid" >>"$tmp/pids"
	wait_until grep -q 'command of stuck' "$tmp/stuck" && wait_until stuck_tree
}

# A process whose root is in the store.
stuck_tree() {
	[ -n "$(find /proc/[0-9]*/root -maxdepth 0 -lname "$S/.build.*" 2>/dev/null)" ]
}

no_stuck_tree() {
	! stuck_tree
}

test_interrupted() {
	local signal rc

	must_build tiny || return 1
	for signal in TERM INT HUP; do
		# INT is ignored in a shell's background: let env give it back.
		start_stuck_build || return 1
		[ $signal != INT ] || { kill -TERM "$pid"; wait "$pid"; interrupt_by_int; }
		kill -$signal "$pid"
		rc=0
		wait "$pid" || rc=$?
		[ $rc -gt 128 ] || bad "exit $rc after $signal" || return 1
		grep -q 'interrupted: nothing was left behind' "$tmp/err" || bad "said: $(cat "$tmp/err")" || return 1
		no_stuck_tree || bad "processes are left after $signal" || return 1
		[ ! -e "$S/profiles/stuck" ] && no_leftover || return 1
	done
}

interrupt_by_int() {
	env --default-signal=INT "$profile" build stuck --store "$S" --agent "$tmp/agent" --profiles "$tmp/profiles" \
		>"$tmp/stuck" 2>"$tmp/err" &
	pid=$!
	echo "$pid" >>"$tmp/pids"
	wait_until grep -q 'command of stuck' "$tmp/stuck" && wait_until stuck_tree
}

test_killed() {
	must_build tiny && start_stuck_build || return 1
	kill -KILL "$pid"
	wait "$pid" 2>/dev/null
	wait_until no_stuck_tree || return 1
	[ ! -e "$S/profiles/stuck" ] || bad "a half profile stands" || return 1
	rm -f "$tmp/tmpdir"/* # the log of the killed one
	must_build tiny && no_leftover
}

test_two_builders() {
	local one two

	start_stuck_build || return 1
	"$profile" build tiny --store "$S" --agent "$tmp/agent" >"$tmp/one" 2>&1 &
	one=$!
	"$profile" build tiny --store "$S" --agent "$tmp/agent" >"$tmp/two" 2>&1 &
	two=$!
	printf '%s\n' $one $two >>"$tmp/pids"
	wait_until grep -q 'waiting for another build' "$tmp/one" && wait_until grep -q 'waiting for another build' "$tmp/two" || return 1
	kill -TERM "$pid"
	wait "$pid"
	wait $one || bad "the first failed: $(cat "$tmp/one")" || return 1
	wait $two || bad "the second failed: $(cat "$tmp/two")" || return 1
	[ "$(cat "$tmp/one" "$tmp/two" | grep -c 'is ready$')" = 1 ] && [ "$(cat "$tmp/one" "$tmp/two" | grep -c 'up to date$')" = 1 ] ||
		bad "$(cat "$tmp/one" "$tmp/two")" || return 1
	no_leftover
}

# A waiting builder can be interrupted as well.
test_waiting_interrupted() {
	local one rc=0

	start_stuck_build || return 1
	"$profile" build tiny --store "$S" --agent "$tmp/agent" >"$tmp/one" 2>"$tmp/err" &
	one=$!
	echo $one >>"$tmp/pids"
	wait_until grep -q 'waiting for another build' "$tmp/one" || return 1
	kill -TERM $one
	wait $one || rc=$?
	[ $rc = 143 ] || bad "exit $rc" || return 1
	[ -d "$(find "$S" -maxdepth 1 -name '.build.*')" ] || bad "it took the other one's directory along" || return 1
	kill -TERM "$pid"
	wait "$pid"
	no_leftover
}

test_damaged_cache() {
	local f

	must_build tiny || return 1
	for f in "$debs"/busybox-static_*.deb; do
		printf damaged | dd of="$f" bs=1 seek=50000 conv=notrunc status=none
	done
	must_build tiny --force || return 1
	dpkg-deb --fsys-tarfile "$f" >/dev/null 2>&1 || bad "the damaged file is still in the cache"
}

# Without a network: what was fetched once is enough.
test_offline() {
	must_build tiny || return 1
	unshare --net "$profile" build tiny --store "$S" --agent "$tmp/agent" --force >"$tmp/out" 2>"$tmp/err" ||
		bad "$(cat "$tmp/err")" || return 1
	# Not even lists: the kernel that is there goes on.
	unshare --net --mount sh -c 'mount -t tmpfs none /var/lib/apt/lists && exec "$@"' sh \
		"$profile" build tiny --store "$S" --agent "$tmp/agent" >"$tmp/out" 2>"$tmp/err" || bad "$(cat "$tmp/err")" || return 1
	grep -q 'going on with kernel 6' "$tmp/err" && grep -q 'up to date' "$tmp/out" || bad "$(cat "$tmp/err" "$tmp/out")" || return 1
	S=$tmp/store.empty
	must_fail "package lists cannot be had" unshare --net --mount sh -c 'mount -t tmpfs none /var/lib/apt/lists && exec "$@"' sh \
		"$profile" build tiny --store "$S" --agent "$tmp/agent" && no_leftover
}

# A host where apt-get update was never run.
test_fresh_host() {
	unshare --mount sh -c 'mount -t tmpfs none /var/lib/apt/lists && exec "$@"' sh \
		"$profile" build tiny --store "$S" --agent "$tmp/agent" --profiles "$tmp/profiles" >"$tmp/out" 2>"$tmp/err" ||
		bad "$(cat "$tmp/err")" || return 1
	grep -q "fetching Debian's package lists" "$tmp/out" && no_leftover
}

# A host without any entry of Debian's.
test_default_sources() {
	if ! command -v mmdebstrap >/dev/null; then
		echo "    mmdebstrap is not installed: not tried"
		return 0
	fi
	unshare --mount sh -c 'mount -t tmpfs none /etc/apt/sources.list.d && exec "$@"' sh \
		"$profile" build tiny --store "$S" --agent "$tmp/agent" --profiles "$tmp/profiles" >"$tmp/out" 2>"$tmp/err" ||
		bad "$(cat "$tmp/err")" || return 1
	no_leftover
}

# -- all of them --------------------------------------------------------------------------------

printf 'int main(void){return 0;}' | gcc -static -x c -o "$tmp/agent.first" - || exit 1
debs=${CRUCIBLE_DEB_CACHE:-$tmp/debs}
export CRUCIBLE_DEB_CACHE=$debs
mkdir -p "$tmp/tmpdir"
mkfifo "$tmp/never"
export TMPDIR=$tmp/tmpdir

for t in $(declare -F | awk '$3 ~ /^test_/ { print $3 }'); do
	[[ $t == *${1-}* ]] || continue
	S=$tmp/store.$t
	rm -rf --one-file-system "$tmp/profiles"
	mkdir -p "$tmp/profiles" "$S"
	cp "$tmp/agent.first" "$tmp/agent"
	begin=$SECONDS
	if $t; then
		passed=$((passed + 1))
		echo "ok $t ($((SECONDS - begin)) s)"
	else
		failed=$((failed + 1))
		echo "not ok $t"
	fi
	rm -rf --one-file-system "$S"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
