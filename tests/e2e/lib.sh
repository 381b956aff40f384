# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# For the scripts of this directory: a daemon of the test's own, sandboxes in it, assertions and waiting. A script begins with
#
#	#!/bin/bash
#	# What it shows, in one or two lines.
#	. "$(dirname "$0")/lib.sh"
#	start_daemon
#	new_sandbox a
#	run a 'echo hi'
#	assert_rec exit_code 0 stdout '"hi\n"'
#
# and ends by itself: what was started is stopped, and stopping asserts that nothing is left. Run by hand it goes through
# tests/run.sh, so `tests/e2e/01_hello.sh` is enough.
#
#   $MNT $STORE $DIR    the mount, the store and the directory of this test       $RUN = $MNT/run, $SNAPS = $MNT/snapshots
#   $REC                the record of the last `run`                              $PYTHON, $CRUCIBLE, $LIBEXEC
#
# CRUCIBLE_TEST_GO_ON=1: a failed assertion is told and the script goes on, to see all at once; it fails at its end.
#
# No fixed sleeps and no timed assertions: wait_for polls a condition up to $BOUND seconds, which is for a hang, not for speed.
set -Eeuo pipefail

if [ -z "${CRUCIBLE_TEST_DIR-}" ]; then
	exec "$(dirname "${BASH_SOURCE[0]}")/../run.sh" "$0"
fi
exec >&2 # one stream, so that the log is in order

E2E=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
TOP=$(realpath "$E2E/../..")
BUILD=${CRUCIBLE_BUILD:-$TOP/build/release}
TESTSTORE=${CRUCIBLE_TEST_STORE:-$TOP/build/teststore}
LIBEXEC=$BUILD/libexec
export CRUCIBLE=$BUILD/bin/crucible
DIR=$CRUCIBLE_TEST_DIR
MNT=$DIR/mnt
RUN=$MNT/run
SNAPS=$MNT/snapshots
STORE=$DIR/store
DAEMON_LOG=$DIR/daemon.log
DAEMON_PID=
CGROUP=$CRUCIBLE_TEST_CGROUP
UID_BASE=$CRUCIBLE_TEST_UID_BASE
BOUND=${CRUCIBLE_TEST_BOUND:-90}
TICK=0.05
REC=
IN_NET=()         # a command that enters the daemon's network namespace (lib_net.sh)
DAEMON_OPTIONS=() # of every daemon of this test
AT_EXIT=()        # functions, after the daemon was stopped
EXPECTED_ERRORS= # a regular expression for lines of level err that this test provokes
PYTHON=/usr/bin/python3 # not a shim of a home directory: other users run it, too
[ -x "$PYTHON" ] || PYTHON=$(command -v python3 || :)
export PYTHONDONTWRITEBYTECODE=1 PYTHONUTF8=1

# -- ending --------------------------------------------------------------------------------------------------

skip() {
	echo "skip: $*"
	exit 77
}

fail() {
	local i

	printf 'FAILED: %s\n' "$*"
	for ((i = 0; i < ${#FUNCNAME[@]} - 1; i++)); do
		[ "${BASH_SOURCE[i + 1]}" = "${BASH_SOURCE[0]}" ] ||
			echo "  at ${BASH_SOURCE[i + 1]##*/}:${BASH_LINENO[i]}: $(sed -n "${BASH_LINENO[i]}s/^[[:space:]]*//p" "${BASH_SOURCE[i + 1]}")"
	done
	if [ "${CRUCIBLE_TEST_GO_ON-}" = 1 ]; then
		echo fault >>"$DIR/.faults"
		return 0
	fi
	trap - ERR
	exit 1
}

on_err() {
	local rc=$?

	[ "$BASH_SUBSHELL" -gt 0 ] || CRUCIBLE_TEST_GO_ON='' fail "a command ended with exit code $rc"
}

# What the tree says of itself when a test has failed. Nothing here may hang: the daemon may be what is broken.
describe() {
	local s f

	[ -n "$DAEMON_PID" ] || return 0
	for s in "$STORE"/sandboxes/*/; do
		[ -f "$s/sandbox.json" ] || continue
		echo "-- $(head -c 600 "$s/sandbox.json")"
		for f in "$s"/box/exec/*/result.json; do
			[ ! -f "$f" ] || printf -- '-- last record: %s\n' "$f"
		done | tail -n 1
	done
	[ -z "$REC" ] || printf -- '-- REC: %.1500s\n' "$REC"
}

on_exit() {
	local rc=$? f

	trap - EXIT
	[ "$rc" -eq 0 ] || [ "$rc" -eq 77 ] || describe
	[ -z "$DAEMON_PID" ] || stop_daemon # a failure in it is one of the test
	for f in "${AT_EXIT[@]}"; do "$f"; done
	[ ! -e "$DIR/.faults" ] || rc=1
	exit "$rc"
}
trap on_err ERR
trap on_exit EXIT
trap 'exit 143' TERM

# -- what the host has -----------------------------------------------------------------------------------------

need() { # TOOL…
	local t

	for t in "$@"; do
		command -v "$t" >/dev/null || skip "$t is not installed"
	done
}

need_profile() { # NAME
	[ -f "$TESTSTORE/profiles/$1/root.img" ] || skip "profile $1 is not in $TESTSTORE (CRUCIBLE_TEST_PYTHON=1 make builds python)"
}

[ "$(id -u)" = 0 ] || skip "needs root"
[ -c /dev/fuse ] || skip "no /dev/fuse"
[ -n "$PYTHON" ] || skip "python3 is not installed"

# -- waiting -----------------------------------------------------------------------------------------------------

# Until COMMAND succeeds; it is tried again and again and may print.
wait_for() { # WORDS COMMAND…
	local words=$1 end=$((SECONDS + BOUND))

	shift
	until "$@" >/dev/null 2>&1; do
		if [ "$SECONDS" -gt "$end" ]; then
			fail "waited $BOUND s for $words (last try: $("$@" 2>&1 | tail -n 3))"
			return 0
		fi
		sleep "$TICK"
	done
}

# For what must not hang. 124 when it did.
bounded() { # COMMAND…
	timeout -k 5 "$BOUND" "$@"
}

gone() { # PID
	! kill -0 "$1" 2>/dev/null
}

# Is the process waiting inside the kernel for an answer of FUSE? (Where the kernel does not say, sleeping must do.)
is_parked() { # PID
	local where

	where=$(cat "/proc/$1/wchan" 2>/dev/null) || return 1
	case $where in
	*request_wait* | *fuse*) return 0 ;;
	0 | '') grep -q '^State:.[SD]' "/proc/$1/status" ;;
	*) return 1 ;;
	esac
}

all_parked() { # PID…
	local p

	for p in "$@"; do
		is_parked "$p" || return 1
	done
}

has_status() { # SANDBOX WORD
	local is

	is=$(cat "$RUN/$1/status")
	echo "status of $1 is $is"
	[ "$is" = "$2" ]
}

wait_status() { # SANDBOX WORD
	wait_for "status $2 of $1" has_status "$1" "$2"
}

# -- assertions -------------------------------------------------------------------------------------------------

assert_eq() { # GOT WANT [WORDS]
	[ "$1" = "$2" ] || fail "${3:-value}: got $(printf '%.500q' "$1"), want $(printf '%.500q' "$2")"
}

assert_ne() { # GOT NOT_WANTED [WORDS]
	[ "$1" != "$2" ] || fail "${3:-value}: got $(printf '%.500q' "$1"), which it must not be"
}

assert_match() { # TEXT EXTENDED_REGEX [WORDS]
	grep -qE -- "$2" <<<"$1" || fail "${3:-text}: $(printf '%.500q' "$1") does not match /$2/"
}

assert_no_match() { # TEXT EXTENDED_REGEX [WORDS]
	! grep -qE -- "$2" <<<"$1" || fail "${3:-text}: $(printf '%.500q' "$1") matches /$2/"
}

assert_file() { # PATH CONTENT: exactly, but for line ends at the end
	local got

	got=$(bounded cat "$1") || fail "cannot read $1"
	assert_eq "$got" "$2" "$1"
}

assert_exists() { # PATH…
	local p

	for p in "$@"; do
		[ -e "$p" ] || [ -L "$p" ] || fail "$p does not exist"
	done
}

assert_absent() { # PATH…
	local p

	for p in "$@"; do
		[[ ! -e $p && ! -L $p ]] || fail "$p exists"
	done
}

lists() { # DIR NAME: is it in the listing?
	[[ $'\n'$(ls -A "$1")$'\n' == *$'\n'"$2"$'\n'* ]]
}

assert_same() { # FILE FILE
	bounded cmp "$1" "$2" || fail "$1 and $2 differ"
}

assert_fails() { # COMMAND…: in any way but a hang
	local rc=0

	bounded "$@" >/dev/null 2>&1 || rc=$?
	[ "$rc" -ne 0 ] || fail "succeeded, but must not: $*"
	[ "$rc" -ne 124 ] || fail "hung: $*"
}

# One file operation (op.py) and the name of its errno, or OK.
errno_of() { # OPERATION ARGUMENT…
	bounded "$PYTHON" -IS "$E2E/op.py" "$@" || echo "HUNG"
}

assert_errno() { # NAME OPERATION ARGUMENT…
	local want=$1

	shift
	assert_eq "$(errno_of "$@")" "$want" "errno of $*"
}

# Members of a JSON text against values: KEY (a.b, a.0) and JSON, or =~REGEX for text, or !JSON for anything else, or a comparison <N >N.
assert_json() { # TEXT KEY VALUE [KEY VALUE]…
	local text=$1 words

	shift
	words=$("$PYTHON" -IS "$E2E/json_check.py" "$@" <<<"$text") || fail "$words in $(printf '%.700s' "$text")"
}

assert_rec() { # KEY VALUE…
	assert_json "$REC" "$@"
}

json_of() { # TEXT KEY: the value, text without quotes
	"$PYTHON" -IS "$E2E/json_check.py" --get "$2" <<<"$1"
}

rec() { # KEY
	json_of "$REC" "$1"
}

as_user() { # UID COMMAND…
	local uid=$1

	shift
	setpriv --reuid="$uid" --regid="$uid" --clear-groups -- "$@"
}

# -- the daemon -----------------------------------------------------------------------------------------------------

# A store with boot/ and profiles/ of the shared one: hard links where that is possible. The launcher follows no symbolic
# link and crosses no mount below the store, so these are none.
make_store() { # DIR [PROFILE…]: all that the test store has, or these
	local dir=$1 part built=("$TESTSTORE"/profiles/*)
	shift

	[ -f "$TESTSTORE/profiles/tiny/root.img" ] || fail "$TESTSTORE holds no profile tiny: make teststore"
	mkdir -p "$dir/profiles" "$dir/disks/bases"
	[ $# -gt 0 ] || set -- "${built[@]##*/}"
	for part in boot "${@/#/profiles/}" $(for p in "$@"; do jq -r '"disks/bases/" + .base' "$TESTSTORE/profiles/$p/info.json"; done); do
		cp -al "$TESTSTORE/$part" "$dir/$part" 2>/dev/null && continue
		rm -rf "${dir:?}/$part"
		cp -a --reflink=auto --sparse=always "$TESTSTORE/$part" "$dir/$part"
	done
}

daemon_command() { # OPTION…: sets COMMAND
	COMMAND=("$LIBEXEC/crucibled" --mount "$MNT" --store "$STORE" --config "$DIR/crucible.conf" --set "cgroup=$CGROUP"
		--set "uid_base=$UID_BASE" --set "accel=${CRUCIBLE_TEST_ACCEL:-tcg}" --set memory_floor_mib=64 "${DAEMON_OPTIONS[@]}" "$@")
}

# Starts it and returns when it serves. New sandboxes are of profile tiny.
start_daemon() { # [OPTION…]
	local ready line='' fresh=

	[ -x "$LIBEXEC/crucibled" ] || fail "$LIBEXEC/crucibled is not built: make"
	[ -d "$STORE" ] || make_store "$STORE"
	[ -e "$STORE/state/defaults.json" ] || fresh=1
	mountpoint -q "$MNT" 2>/dev/null || mkdir -p "$MNT" 2>/dev/null || : # a dead mount is there already
	: >"$DIR/crucible.conf"
	rm -f "$DIR/ready"
	mkfifo "$DIR/ready"
	daemon_command "$@"
	# Opening waits for the other side; a daemon that ends before it says a word gives the end of the file.
	(cd / && exec "${IN_NET[@]}" "${COMMAND[@]}" --ready-fd 9 9>"$DIR/ready" </dev/null >>"$DAEMON_LOG" 2>&1) &
	DAEMON_PID=$!
	exec {ready}<"$DIR/ready"
	read -r -t "$BOUND" -u "$ready" line || :
	exec {ready}<&-
	if [ "$line" != ready ]; then
		wait "$DAEMON_PID" || :
		DAEMON_PID=
		CRUCIBLE_TEST_GO_ON='' fail "crucibled did not become ready: $(tail -n 5 "$DAEMON_LOG")"
	fi
	[ -z "$fresh" ] || echo profile:tiny >"$MNT/defaults/from" 2>/dev/null || : # (none is built in some tests)
}

# It must refuse to start, in these words. (REFUSE_CWD, REFUSE_ENV=NAME=VALUE)
refuse_daemon() { # REGEX OPTION…
	local want=$1 said rc=0

	shift
	mkdir -p "$MNT"
	: >"$DIR/crucible.conf"
	daemon_command "$@"
	said=$(cd "${REFUSE_CWD:-/}" && bounded env "${REFUSE_ENV:-LC_ALL=C.UTF-8}" "${COMMAND[@]}" 2>&1 </dev/null) || rc=$?
	assert_ne "$rc" 0 "exit code of crucibled $*"
	[ "$rc" -lt 124 ] || fail "crucibled $* hung or died (exit code $rc): $said"
	assert_match "$said" "$want" "what crucibled $* says"
	assert_eq "$(grep -c '^crucibled: ' <<<"$said")" 1 "number of lines of crucibled's own: $said"
}

# Processes of this test's own cgroup by the name of their program, and of the cgroups of its daemon.
own_pids() { # COMM
	local p

	[ -n "$CRUCIBLE_TEST_CGROUP_DIR" ] || return 0
	while read -r p; do
		[ "$(cat "/proc/$p/comm" 2>/dev/null)" != "$1" ] || echo "$p"
	done <"$CRUCIBLE_TEST_CGROUP_DIR/cgroup.procs"
}

no_own_pids() { # COMM
	[ -z "$(own_pids "$1")" ]
}

daemon_cgroups() {
	find /sys/fs/cgroup -maxdepth 2 -type d -name "crucible-$CGROUP" 2>/dev/null || :
}

no_daemon_cgroups() {
	[ -z "$(daemon_cgroups)" ]
}

# The machines that have cgroups (pager and store have some, too), and how many of them wait by default at most: pool_size, and warm_size twice
# once a snapshot was forked.
POOL=4
machines() {
	find /sys/fs/cgroup -maxdepth 3 -type d -path "*crucible-$CGROUP/????????-????-4*" -regex '.*/[0-9a-f-]+' -printf '%f\n' 2>/dev/null | sort -u || :
}

machine_of() { # SANDBOX: its machine has a name of its own
	json_of "$(cat "$STORE/sandboxes/$(json_of "$(cat "$RUN/$1/info.json")" uuid)/sandbox.json")" machine
}

# No machine runs but those that wait for a sandbox.
only_pool_left() {
	[ "$(machines | wc -l)" -le "$POOL" ]
}

# Processes whose real uid is one of this test's daemon: it, its boxes and engines.
uid_pids() {
	{ grep -H '^Uid:' /proc/[0-9]*/status 2>/dev/null || :; } | # some end meanwhile
		awk -v lo="$UID_BASE" -v hi="$((UID_BASE + 65536))" '$2 >= lo && $2 < hi { split($1, p, "/"); print p[3] }'
}

no_uid_pids() {
	[ -z "$(uid_pids)" ]
}

is_mounted() { # DIR
	grep -qF " $1 " /proc/self/mountinfo
}

# The engine and the box of a sandbox, by the user ids that info.json tells: each has its own.
pid_of_uid() { # UID; one that is still to be had is no process's
	[[ $1 =~ ^[1-9][0-9]*$ ]] || return 0
	{ grep -H '^Uid:' /proc/[0-9]*/status 2>/dev/null || :; } | awk -v uid="$1" '$2 == uid { split($1, p, "/"); print p[3] }'
}

engine_pid() { # SANDBOX
	pid_of_uid "$(json_of "$(cat "$RUN/$1/info.json")" isolation.engine_uid)" | head -n 1
}

box_pid() { # SANDBOX
	pid_of_uid "$(json_of "$(cat "$RUN/$1/info.json")" isolation.box_uid)" | head -n 1
}

# What no test provokes: reports of sanitizers, assertions, errors that nobody expected.
scan_log() {
	local bad

	bad=$(grep -aE 'Sanitizer|runtime error:|[Aa]ssertion|level=err ' "$DAEMON_LOG" | grep -avE "${EXPECTED_ERRORS:-^$}") || return 0
	fail "the daemon's log: $(head -n 3 <<<"$bad")"
}

# SIGTERM, and nothing of it is left: not a process, mount, cgroup or socket.
stop_daemon() {
	local pid=$DAEMON_PID rc=0 sockets

	[ -n "$pid" ] || fail "stop_daemon: none runs"
	DAEMON_PID=
	kill -TERM "$pid" 2>/dev/null || fail "crucibled was gone before it was stopped: $(tail -n 3 "$DAEMON_LOG")"
	wait_for "crucibled to end" gone "$pid"
	wait "$pid" || rc=$?
	assert_eq "$rc" 0 "exit code of crucibled after SIGTERM; its log ends: $(tail -n 3 "$DAEMON_LOG")"
	! is_mounted "$MNT" || fail "crucibled left its mount"
	wait_for "the launcher to end" no_own_pids crucible-launch
	wait_for "boxes and engines to end" no_uid_pids
	wait_for "the cgroups to go" no_daemon_cgroups
	sockets=$(find "$STORE" -type s)
	assert_eq "$sockets" "" "sockets that crucibled left"
	scan_log
}

# As the OOM killer would. Sandboxes run on, the mount is dead.
kill_daemon() {
	local pid=$DAEMON_PID

	DAEMON_PID=
	kill -KILL "$pid"
	wait "$pid" 2>/dev/null || :
	wait_for "the launcher to end" no_own_pids crucible-launch
}

# -- sandboxes and commands ---------------------------------------------------------------------------------------

new_sandbox() { # NAME [FILE=VALUE…]
	local name=$1 a

	shift
	mkdir "$RUN/$name"
	for a in "$@"; do
		echo "${a#*=}" >"$RUN/$name/${a%%=*}"
	done
}

# Until what the latest command printed holds a line.
wait_output() { # SANDBOX REGEX [FILE]
	wait_for "/$2/ in ${3:-stdout} of $1" grep -qE -- "$2" "$RUN/$1/${3:-stdout}"
}

# Brought up, so that what follows does not wait for a boot.
ready_sandbox() { # NAME [FILE=VALUE…]
	new_sandbox "$@"
	run "$1" true
	assert_rec exit_code 0 error '""'
}

put() { # SANDBOX TEXT: a command, not waited for
	printf '%s' "$2" >"$RUN/$1/cmd"
}

run() { # SANDBOX TEXT: a command to its end; REC is its record
	put "$1" "$2"
	await "$1"
}

await() { # SANDBOX [SUBDIRECTORY]
	REC=$(bounded cat "$RUN/$1${2:+/$2}/wait") || fail "$1: cat wait: exit code $? (error: $(timeout 5 cat "$RUN/$1/error" || :))"
}

# -- snapshots and forks ------------------------------------------------------------------------------------------

error_of() { # DIRECTORY of a sandbox or a snapshot
	timeout 5 cat "$1/error" || :
}

# A snapshot, and back when it can be forked. A guest that a busy host gave no time to freeze goes on and is asked again.
take() { # SANDBOX NAME
	local try

	echo "$2" >"$DIR/.name"
	for try in 1 2 3 4 5; do
		bounded dd if="$DIR/.name" of="$RUN/$1/snapshot" conv=notrunc status=none && return
		[[ $(error_of "$RUN/$1") == *'did not freeze'* ]] || break
	done
	fail "snapshot $2 of $1, try $try: $(error_of "$RUN/$1")"
}

fork_of() { # SNAPSHOT NAME…: in one write; all of them or none. A number alone makes so many.
	local snapshot=$1

	shift
	printf '%s\n' "$@" >"$DIR/.names"
	bounded dd if="$DIR/.names" of="$SNAPS/$snapshot/fork" bs=64k conv=notrunc status=none || fail "fork of $snapshot: $(error_of "$SNAPS/$snapshot")"
}

snapshot_is() { # SNAPSHOT WORD
	local is

	is=$(cat "$SNAPS/$1/status")
	echo "status of snapshot $1 is $is ($(error_of "$SNAPS/$1"))"
	[ "$is" = "$2" ]
}

wait_stored() { # SNAPSHOT…
	local s

	for s in "$@"; do
		wait_for "snapshot $s to be stored" snapshot_is "$s" ready
	done
}

is_over() { # FILE of outcomes
	local text

	text=$(cat "$1")
	[ -n "$text" ] && [[ $text != *'"status":"running"'* ]]
}

# The comparison of a snapshot with its parent, made when it is not there yet.
compare() { # SNAPSHOT
	[ "$(cat "$SNAPS/$1/diff")" != none ] || echo start >"$SNAPS/$1/diff" || fail "diff of $1: $(error_of "$SNAPS/$1")"
	wait_for "the comparison of $1" grep -qx 'done' "$SNAPS/$1/diff"
}

# Start what a control file starts (verify, gc) and wait for its end: REC is the outcome.
outcome() { # FILE
	echo start >"$DIR/.start"
	# Right after the daemon's start the store may not have answered yet.
	wait_for "${1#"$MNT"/} to begin" bounded dd if="$DIR/.start" of="$1" conv=notrunc status=none
	wait_for "${1#"$MNT"/} to end" is_over "$1"
	REC=$(cat "$1")
}

# The pager and the store's writer of this test's daemon.
service_pid() { # COMM
	local p

	for p in $(uid_pids); do
		[ "$(cat "/proc/$p/comm" 2>/dev/null)" != "$1" ] || {
			echo "$p"
			return
		}
	done
	return 1
}

count() { # DIR
	find "$1" -mindepth 1 -maxdepth 1 | wc -l
}

# Uncompressible and known, in the guest's memory. SUM is its check sum.
# shellcheck disable=SC2034 # read by scripts
fill_memory() { # SANDBOX MIB
	run "$1" "head -c $2m /dev/urandom >/dev/shm/pattern && sha256sum </dev/shm/pattern"
	assert_rec exit_code 0
	SUM=$(rec stdout)
}

assert_memory() { # SANDBOX SUM
	run "$1" 'sha256sum </dev/shm/pattern'
	assert_eq "$(rec stdout)" "$2" "the pattern in the memory of $1"
}
