#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# limit: 300
#
# Each operation of a policy alone, and all the others without it: what it lets through, and that nothing else does.
. "$(dirname "$0")/lib.sh"
. "$E2E/lib_view.sh"

start_daemon
mount_view v "{\"operations\":[$ALL_OPS]}"
V=$AT/v
all() { set_policy v "{\"operations\":[$ALL_OPS]}"; }

in_view v ready_sandbox s
in_view v run s 'echo out'
in_view v take s base
mkdir "$V/run/victim"

# ACT: one file operation. What it makes or takes away is undone by restore.
n=0
act() { # NAME: the name of its errno, or OK
	case $1 in
	create) errno_of mkdir "$V/run/made" ;;
	attribute) errno_of write "$V/run/victim/limits/vcpus" '1\n' ;;
	exec) errno_of write "$V/run/s/cmd" 'true\n' ;;
	slot) errno_of mkdir "$V/run/s/exec/slot" ;;
	ctl) errno_of write "$V/run/s/ctl" 'extend 60\n' ;;
	snapshot) errno_of write "$V/run/s/snapshot" "t$n\n" ;;
	fork) errno_of write "$V/snapshots/base/fork" 'forked\n' ;;
	delete) errno_of rmdir "$V/run/victim" ;;
	delete-snapshot) errno_of rmdir "$V/snapshots/spare" ;;
	record) errno_of read "$V/run/s/exec/1/result.json" ;;
	output) errno_of read "$V/run/s/stdout" ;;
	events) errno_of read "$V/events.jsonl" ;;
	files) errno_of read "$V/run/s/fs/etc/os-release" ;;
	listing) errno_of listdir "$V/run/s/fs/etc" ;;
	network) errno_of write "$V/run/victim/net/allow" 'example.com\n' ;;
	admin) errno_of write "$V/defaults/pids" '4096\n' ;;
	esac
}
declare -A OF=([create]=create [attribute]=create [exec]=exec [slot]=exec [ctl]=exec [snapshot]=snapshot [fork]=fork [delete]=delete
	[delete-snapshot]=delete [record]=read [output]=read [events]=read [files]=files [listing]=files [network]=network [admin]=admin)
ACTS=(create attribute exec slot ctl snapshot fork record output events files listing network admin delete delete-snapshot)
restore() {
	n=$((n + 1))
	all
	rm -rf "$V/run/made" "$V/run/forked" "$V/run/s/exec/slot"
	[ -e "$V/run/victim" ] || mkdir "$V/run/victim"
	[ -e "$V/snapshots/spare" ] || in_view v take s spare
	[ ! -e "$V/snapshots/t$((n - 1))" ] || rmdir "$V/snapshots/t$((n - 1))"
	in_view v run s 'echo out'
}

# -- one operation, and nothing but what it is for
for op in create exec snapshot fork delete read files network images admin; do
	restore
	set_policy v "{\"operations\":[\"$op\"]}"
	for a in "${ACTS[@]}"; do
		want=EPERM
		[ "${OF[$a]}" != "$op" ] || want=OK
		assert_eq "$(act "$a")" "$want" "$a with the operation $op alone"
	done
	# What everybody may.
	for f in README.md version policy.json health.json run/s/status run/s/error; do
		assert_eq "$(errno_of read "$V/$f")" OK "reading $f with the operation $op alone"
	done
	assert_json "$(cat "$V/policy.json")" operations "[\"$op\"]"
	ls -lR "$V/run" "$V/snapshots" >/dev/null || fail "ls with the operation $op alone"
done

# -- all but one: its acts are refused in words, the next one's are not
last=${ACTS[-1]}
for a in "${ACTS[@]}"; do
	op=${OF[$a]}
	restore
	set_policy v "{\"operations\":[$(sed -E "s/\"$op\",?//; s/,$//" <<<"$ALL_OPS")]}"
	assert_eq "$(act "$a")" EPERM "$a without the operation $op"
	case $a in
	attribute | network) assert_match "$(cat "$V/run/victim/error")" "$op" ;;
	exec | slot | ctl | snapshot | record | output | files | listing) assert_match "$(cat "$V/run/s/error")" "$op" ;;
	fork) assert_match "$(cat "$V/snapshots/base/error")" "$op" ;;
	esac
	assert_eq "$(act "$last")" "$([ "${OF[$last]}" = "$op" ] && echo EPERM || echo OK)" "$last without the operation $op"
	last=$a
done

# -- replacing a control file is writing it
restore
set_policy v '{"operations":["create","read","delete"]}'
echo 'echo renamed' >"$V/run/s/new"
assert_errno EPERM rename "$V/run/s/new" "$V/run/s/cmd"
rm "$V/run/s/new"
all
echo 'echo renamed' >"$V/run/s/new"
assert_errno OK rename "$V/run/s/new" "$V/run/s/cmd"
in_view v await s
assert_rec stdout '"renamed\n"'

# -- maxima
restore
set_policy v '{"max_vcpus":1,"max_memory_mib":256,"max_disk_mib":2048,"max_timeout_s":60,"max_fork":1,"max_snapshots":2}'
mkdir "$V/run/made"
for f in vcpus=2 memory_mib=257 disk_mib=2049 timeout_s=61; do
	assert_errno EDQUOT write "$V/run/made/limits/${f%%=*}" "${f#*=}\n"
	assert_match "$(cat "$V/run/made/error")" "${f%%=*}"
done
for f in vcpus=1 memory_mib=256 timeout_s=60; do
	assert_errno OK write "$V/run/made/limits/${f%%=*}" "${f#*=}\n"
done
assert_errno EDQUOT write "$V/run/made/ctl" 'extend 3600\n'
assert_errno EDQUOT write "$V/snapshots/base/fork" '2\n'
assert_errno EDQUOT write "$V/run/s/snapshot" 'third\n'
rm -rf "$V/run/made"
all
