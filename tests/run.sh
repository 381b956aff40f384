#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs tests, each with a hard time limit, a directory and a cgroup of its own, and looks at what it leaves behind.
#
#   tests/run.sh [-j N] [-t SECONDS] [-o DIR] [-l LABEL] TEST…
#
#   TEST      a program or script, its arguments behind `::`, as in build/release/fuzz/x::tests/fuzz/corpus/x
#   -j N      so many at once (1)
#   -t S      the limit (120); a line `# limit: S` in a script is above it
#   -o DIR    logs of failures, each with a NAME.repro.sh beside it (build/test-logs)
#   -l LABEL  put before each name, to tell two runs apart
#
# A test passes with exit code 0, skips with 77 (the reason is its last line on standard error), fails with any other. It
# also fails when it leaves a process, mount, cgroup, socket, loop device or a file in /run/crucible. Then, and only in what
# was made for it, everything is killed and unmounted: nothing is ever found by a program's name.
# CRUCIBLE_MUST_RUN=1 makes a skip a failure. CRUCIBLE_TEST_KEEP=1 leaves the directories of failed tests.
#
# Told to the test: CRUCIBLE_TEST_DIR (its directory, also the current one and TMPDIR), CRUCIBLE_TEST_CGROUP (the name for its daemons'
# cgroup; a second daemon appends `-…` to it), CRUCIBLE_TEST_UID_BASE (65536 user ids of its own), CRUCIBLE_TEST_CGROUP_DIR (where the test
# itself runs; "" when this host has no cgroups that we may make), CRUCIBLE_BUILD (the build under test), CRUCIBLE_TOP (the source tree).
#
# Output: a line `ok|FAIL|skip NAME (REASON) (SECONDS s)` a test, a failure's own words and the end of its log below it, and last
# `N passed, N failed, N skipped`.
set -euo pipefail

top=$(realpath "$(dirname "$0")/..")
jobs=1 limit=120 out=$top/build/test-logs label=
# How long something may take to be gone after the test has ended, in ticks: a kernel on a busy host, not a process that was forgotten.
grace=20 tick=0.1

while getopts j:t:o:l: option; do
	case $option in
	j) jobs=$OPTARG ;;
	t) limit=$OPTARG ;;
	o) out=$OPTARG ;;
	l) label=$OPTARG ;;
	*)
		sed -n '3,12s/^# \{0,1\}//p' "$0" >&2
		exit 2
		;;
	esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || {
	echo "run.sh: no tests were named" >&2
	exit 2
}

export CRUCIBLE_BUILD=${CRUCIBLE_BUILD:-$top/build/release}
export LC_ALL=C.UTF-8
mkdir -p "$out"
out=$(realpath "$out")
work=$(mktemp -d "${TMPDIR:-/tmp}/crucible-test.XXXXXX")
chmod 0755 "$work" # other users reach the mounts in it
mkdir "$work/.result"

# -- cgroups -------------------------------------------------------------------------------------------------

# Mount points of the hierarchies, version 2 first.
cgroup_mounts() {
	awk '{ for (i = 7; $i != "-"; i++); if ($(i + 1) == "cgroup2") print 0, $5; else if ($(i + 1) == "cgroup") print 1, $5 }' \
		/proc/self/mountinfo | sort -n | cut -d' ' -f2
}
mapfile -t hierarchies < <(cgroup_mounts)

# Where tests get their own: the first hierarchy in which we can make one and enter it. An empty answer: sessions must do.
find_home() {
	local h probe

	for h in "${hierarchies[@]}"; do
		probe=$h/crucible-test-$$
		mkdir "$probe" 2>/dev/null || continue
		if (echo "$BASHPID" >"$probe/cgroup.procs") 2>/dev/null; then
			rmdir "$probe" 2>/dev/null || :
			echo "$h"
			return
		fi
		rmdir "$probe" 2>/dev/null || :
	done
}
home=$(find_home)

cgroup_pids() { # DIR
	find "$1" -name cgroup.procs -exec cat {} + 2>/dev/null || :
}

cgroup_kill() { # DIR
	local pids

	echo 1 2>/dev/null >"$1/cgroup.kill" && return 0
	pids=$(cgroup_pids "$1")
	# shellcheck disable=SC2086 # words on purpose
	[ -z "$pids" ] || kill -KILL $pids 2>/dev/null || :
}

cgroup_remove() { # DIR
	find "$1" -depth -type d -exec rmdir {} + 2>/dev/null || :
	[ ! -d "$1" ]
}

# -- what a test left ------------------------------------------------------------------------------------------

# Try COMMAND until it succeeds or the grace is over.
within_grace() {
	local i

	for ((i = 0; i < grace; i++)); do
		"$@" && return 0
		sleep "$tick"
	done
	"$@"
}

show_pids() { # PID…
	ps -o pid=,user=,args= -p "$(echo "$*" | tr ' ' ',')" 2>/dev/null | cut -c1-100 || :
}

is_empty() { # DIR
	[ -z "$(cgroup_pids "$1")" ]
}

sweep_own_cgroup() { # DIR
	[ -n "$1" ] || return 0
	within_grace is_empty "$1" || {
		# shellcheck disable=SC2046 # words on purpose
		echo "process: $(show_pids $(cgroup_pids "$1") | tr '\n' ';')"
	}
	cgroup_kill "$1"
	within_grace cgroup_remove "$1" || echo "a process that cannot be killed in $1"
}

# The cgroups that daemons made under the name which the test was given.
sweep_daemons() { # NAME
	local h d found=

	for h in "${hierarchies[@]}"; do
		for d in "$h/crucible-$1" "$h/crucible-$1"-*; do
			[ -d "$d" ] || continue
			found=1
			echo "cgroup: $d$(is_empty "$d" || echo ' (with processes)')"
			cgroup_kill "$d"
		done
	done
	[ -n "$found" ] || return 0
	for h in "${hierarchies[@]}"; do
		for d in "$h/crucible-$1" "$h/crucible-$1"-*; do
			[ ! -d "$d" ] || within_grace cgroup_remove "$d" || echo "cgroup that cannot be removed: $d"
		done
	done
}

uid_range_pids() { # BASE
	{ grep -H '^Uid:' /proc/[0-9]*/status 2>/dev/null || :; } | # some end meanwhile
		awk -v lo="$1" '$2 >= lo && $2 < lo + 65536 { split($1, path, "/"); print path[3] }'
}

no_pids() { # BASE
	[ -z "$(uid_range_pids "$1")" ]
}

sweep_uids() { # BASE
	local pids

	within_grace no_pids "$1" && return 0
	pids=$(uid_range_pids "$1")
	# shellcheck disable=SC2086
	echo "process of its user ids: $(show_pids $pids | tr '\n' ';')"
	# shellcheck disable=SC2086
	kill -KILL $pids 2>/dev/null || :
	within_grace no_pids "$1" || echo "a process of its user ids that cannot be killed"
}

mounts_below() { # DIR
	awk -v dir="$1/" 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo | tac
}

sweep_mounts() { # DIR
	local m

	mounts_below "$1" | while read -r m; do
		m=$(printf '%b' "$m") # octal escapes
		echo "mount: $m"
		umount -l "$m" 2>/dev/null || echo "mount that cannot be taken away: $m"
	done
}

sweep_files() { # DIR
	local f

	find "$1" -xdev -type s | while read -r f; do
		echo "socket: ${f#"$1"/}"
	done
	for f in /sys/block/loop*/loop/backing_file; do
		[ -e "$f" ] || continue
		case $(cat "$f") in "$1"/*) ;; *) continue ;; esac
		f=${f#/sys/block/}
		echo "loop device: /dev/${f%%/*}"
		losetup -d "/dev/${f%%/*}" 2>/dev/null || :
	done
}

run_files() {
	find /run/crucible -mindepth 1 2>/dev/null || :
}

# A file in /run/crucible that was not there before and that nobody has locked: other daemons of this host lock theirs.
stray_run_files() { # BEFORE
	local f

	comm -13 <(sort <<<"$1") <(run_files | sort) | while read -r f; do
		[ -z "$f" ] || grep -q ":$(stat -c %i "$f" 2>/dev/null || echo none) " /proc/locks || echo "$f"
	done
}

no_stray_run_files() { # BEFORE
	[ -z "$(stray_run_files "$1")" ]
}

sweep_run() { # BEFORE
	within_grace no_stray_run_files "$1" || stray_run_files "$1" | sed 's/^/file: /'
}

# -- one test ----------------------------------------------------------------------------------------------------

# What a failed test said of it (fail() of lib.sh), and its end; not the logs that were collected behind.
excerpt() { # LOG
	local said

	said=$(sed '/^== .*log$/,$d' "$1")
	tail -n 15 <<<"$said" >"$1.end"
	grep -m 3 -A 3 '^FAILED' <<<"$said" | grep -vxFf "$1.end" || :
	cat "$1.end"
	rm -f "$1.end"
}

write_repro() { # NAME SPEC LIMIT
	local v

	{
		echo '#!/bin/bash'
		echo "# Runs $1 again as it was run on $(date -u +%FT%TZ), keeps its directory."
		echo "cd $(printf %q "$PWD") || exit 1"
		for v in CRUCIBLE_BUILD CRUCIBLE_MUST_RUN CRUCIBLE_TEST_PYTHON CRUCIBLE_TEST_STORE ASAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS; do
			[ -z "${!v-}" ] || printf 'export %s=%q\n' "$v" "${!v}"
		done
		echo 'export CRUCIBLE_TEST_KEEP=1'
		printf 'exec %q -o %q -t %q %q\n' "$top/tests/run.sh" "$out" "$3" "$2"
	} >"$out/$1.repro.sh"
	chmod +x "$out/$1.repro.sh"
}

collect_log() { # NAME DIR RC LEFT
	{
		echo "== $1, exit code $3"
		[ -z "$4" ] || printf '== left behind:\n%s\n' "$4"
		cat "$work/.result/$1.out" "$work/.result/$1.err"
		find "$2" -xdev \( -name 'daemon*.log' -o -name box.log -o -name console.log \) -size +0 2>/dev/null | sort | while read -r f; do
			echo "== ${f#"$2"/}"
			tail -n 200 "$f" | tr -d '\r'
		done
	} >"$out/$1.log" 2>/dev/null
}

run_one() { # SPEC NUMBER
	local spec=$1 n=$2 name program dir rc=0 left before t0 took word mylimit cg='' own='' reason=''
	local uid_base=$((0x60000000 + ($$ % 256 * 16 + n % 16) * 65536)) i
	local -a command

	IFS=$'\n' read -r -d '' -a command <<<"${spec//::/$'\n'}" || :
	for i in "${!command[@]}"; do
		[ ! -e "${command[i]}" ] || command[i]=$(realpath "${command[i]}")
	done
	program=${command[0]}
	name=${label:+$label-}$(basename "$program" .sh)
	dir=$work/$n
	mkdir "$dir"
	[ "${program##*.}" != sh ] || own=$(sed -n '1,20s/^# limit: \([0-9]\{1,\}\)$/\1/p' "$program")
	mylimit=${own:-$limit}
	if [ -n "$home" ]; then
		cg=$home/crucible-test-$$-$n
		mkdir "$cg"
	fi
	before=$(run_files)
	t0=$EPOCHREALTIME
	(
		[ -z "$cg" ] || echo "$BASHPID" >"$cg/cgroup.procs"
		cd "$dir"
		export CRUCIBLE_TEST_DIR=$dir TMPDIR=$dir CRUCIBLE_TEST_CGROUP=t$$-$n CRUCIBLE_TEST_CGROUP_DIR=$cg
		export CRUCIBLE_TEST_UID_BASE=$uid_base CRUCIBLE_TOP=$top
		exec setsid -w timeout -k 15 "$mylimit" "${command[@]}"
	) >"$work/.result/$name.out" 2>"$work/.result/$name.err" </dev/null || rc=$?
	took=$(awk -v a="$t0" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
	# Mounts before files: a dead one answers nothing.
	left=$(
		sweep_own_cgroup "$cg"
		sweep_daemons "t$$-$n"
		sweep_uids "$uid_base"
		sweep_mounts "$dir"
		sweep_files "$dir"
		sweep_run "$before"
	)
	case $rc in
	0) word=ok ;;
	77)
		word=skip
		reason=$(sed '/^[[:space:]]*$/d' "$work/.result/$name.err" | tail -n 1 | sed 's/^skip: *//')
		reason=${reason:-no reason given}
		[ "${CRUCIBLE_MUST_RUN-}" != 1 ] || word=FAIL reason="must run, but: $reason"
		;;
	124 | 137)
		word=FAIL reason="exit code $rc"
		[ "${took%.*}" -lt "$mylimit" ] || reason="time limit of $mylimit s"
		;;
	*) word=FAIL reason="exit code $rc" ;;
	esac
	if [ -n "$left" ]; then
		word=FAIL reason=${reason:+$reason, }"left behind: $(head -n 1 <<<"$left" | cut -c1-120)"
	fi
	if [ "$word" = FAIL ]; then
		collect_log "$name" "$dir" "$rc" "$left"
		write_repro "$name" "$spec" "$mylimit"
	else
		rm -f "$out/$name.log" "$out/$name.repro.sh"
	fi
	{
		echo "$word $name${reason:+ ($reason)} ($took s)"
		if [ "$word" = FAIL ]; then
			excerpt "$out/$name.log" | cut -c1-300 | sed 's/^/    | /'
			echo "    $out/$name.log, $out/$name.repro.sh"
		fi
	} >"$work/.result/$n.line"
	cat "$work/.result/$n.line" # one write: lines of tests that run at once do not mix
	if [ "$word" != FAIL ] || [ "${CRUCIBLE_TEST_KEEP-}" != 1 ]; then
		rm -rf --one-file-system "$dir" || :
	else
		echo "    kept: $dir"
	fi
}

# -- all --------------------------------------------------------------------------------------------------------------

cleanup() {
	local n

	trap - EXIT
	set +e
	# Interrupted: end what runs, by the cgroups that we made.
	if [ -n "$home" ]; then
		for n in "$home/crucible-test-$$"-*; do
			[ ! -d "$n" ] || cgroup_kill "$n"
		done
	fi
	# They sweep behind themselves. (`wait` would return at once: a signal is what brought us here.)
	for n in "${started[@]}"; do
		while kill -0 "$n" 2>/dev/null; do
			sleep "$tick"
		done
	done
	for n in "$work"/[0-9]*; do
		[ ! -d "$n" ] || {
			[ -z "$home" ] || sweep_own_cgroup "$home/crucible-test-$$-${n##*/}"
			sweep_daemons "t$$-${n##*/}"
			sweep_mounts "$n"
		} >/dev/null
	done
	if [ "${CRUCIBLE_TEST_KEEP-}" = 1 ]; then
		rm -rf --one-file-system "$work/.result"
		rmdir "$work" 2>/dev/null || :
	else
		rm -rf --one-file-system "$work"
	fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

n=0 started=()
for spec in "$@"; do
	[ -x "${spec%%::*}" ] || {
		echo "run.sh: ${spec%%::*}: no such program" >&2
		exit 2
	}
	n=$((n + 1))
	while [ "$(jobs -pr | wc -l)" -ge "$jobs" ]; do
		wait -n || :
	done
	run_one "$spec" "$n" &
	started+=($!)
	[ "$jobs" -gt 1 ] || wait $! || :
done
while [ "$(jobs -pr | wc -l)" -gt 0 ]; do
	wait -n || :
done

count() { # WORD
	grep -l "^$1 " "$work/.result/"*.line 2>/dev/null | wc -l || :
}
passed=$(count ok) failed=$(count FAIL) skipped=$(count skip)
# One that says nothing was lost by this program, and does not pass.
failed=$((failed + $# - passed - failed - skipped))
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
