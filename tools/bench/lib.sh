# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# For the scripts of this directory: a place, a daemon of its own, facts about host and engine, and the report at the end.
#
#	. "$(dirname "$0")/lib.sh"
#	bench_begin NAME "$@"		# sets what stands below; from here on everything is put away at the end, however that comes
#	start_daemon
#	turns …				# bench-turns; its samples go into the report
#	bench_end			# table, build/bench/NAME.json
#
#   $DIR $MNT $STORE $RUN    of this run: its directory, mount, store; $RUN = $MNT/run
#   $PAIRS                   BENCH_PAIRS or 30
set -Eeuo pipefail

HERE=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
OUT=${CRUCIBLE_BENCH_DIR:-$HERE/../../build/bench}
# shellcheck disable=SC2034 # for the scripts
PAIRS=${BENCH_PAIRS:-30}
PIDS=()   # to be ended by their ids, newest first
MOUNTS=() # to be unmounted
DAEMON=
IN_NET=() # a command that enters the network namespace of the daemons that are started from now on

fail() {
	echo "bench: $*" >&2
	exit 1
}

line() { # KIND …: for the report
	printf '%s\n' "$*" >>"$LINES"
}

say() {
	printf '  %s\n' "$*" >&2
}

# -- beginning and ending ----------------------------------------------------------------------------------------------

bench_begin() { # NAME BUILD_DIR
	NAME=$1
	BUILD=$(realpath "${2:?usage: BUILD_DIR}")
	[ "$(id -u)" = 0 ] || fail "needs root (mounts, cgroups, user ids)"
	[ -c /dev/fuse ] || fail "no /dev/fuse"
	command -v jq >/dev/null || fail "jq is not installed"
	mkdir -p "$OUT"
	OUT=$(realpath "$OUT")
	[ -f "$OUT/store/profiles/base/root.img" ] || fail "no profiles in $OUT/store: make bench-profiles"
	DIR=$(mktemp -d "$OUT/run.$NAME.XXXXXX")
	chmod 0755 "$DIR"
	LINES=$DIR/lines
	MNT=$DIR/mnt
	RUN=$MNT/run
	STORE=$DIR/store
	: >"$LINES"
	trap 'put_away' EXIT
	trap 'echo "bench: ${BASH_SOURCE[0]##*/}:$LINENO: a command failed" >&2' ERR
	trap 'exit 130' INT
	trap 'exit 143' TERM
	BEGAN=$SECONDS
	echo "== bench $NAME"
	facts_host
}

bench_end() {
	line fact load_after "$(cut -d' ' -f1-3 /proc/loadavg)"
	line fact seconds $((SECONDS - BEGAN))
	"$BUILD/bench/bench-report" "$NAME" "$OUT/$NAME.json" <"$LINES"
	echo
	echo "  $(fact host.cpu), $(fact host.cpus) CPUs, Linux $(fact host.kernel), $(fact engine.name) $(fact engine.version)/$(fact engine.accel)," \
		"guest $(fact guest.memory_mib) MiB, on $(fact host.fs), load $(fact load_before) before, $(fact load_after) after; took $((SECONDS - BEGAN)) s"
	echo "  written: $OUT/$NAME.json"
}

put_away() {
	local rc=$? i

	trap - EXIT ERR
	set +e
	[ "$rc" = 0 ] || [ ! -s "$DIR/daemon.log" ] || tail -n 5 "$DIR/daemon.log" >&2
	for ((i = ${#MOUNTS[@]} - 1; i >= 0; i--)); do
		umount "${MOUNTS[i]}" 2>/dev/null || umount -l "${MOUNTS[i]}" 2>/dev/null
	done
	for ((i = ${#PIDS[@]} - 1; i >= 0; i--)); do
		end_process "${PIDS[i]}"
	done
	! mountpoint -q "$MNT" || umount -l "$MNT" # of a daemon that was killed
	if [ -n "${BENCH_KEEP-}" ] && [ "$rc" != 0 ]; then
		echo "bench: kept $DIR" >&2
	else
		rm -rf --one-file-system "$DIR"
	fi
	exit "$rc"
}

# SIGTERM, ten seconds, SIGKILL.
end_process() { # PID
	local i

	kill "$1" 2>/dev/null || return 0
	for ((i = 0; i < 100; i++)); do
		kill -0 "$1" 2>/dev/null || break
		sleep 0.1
	done
	kill -KILL "$1" 2>/dev/null || :
	wait "$1" 2>/dev/null || :
	return 0
}

# Polls, as long as a busy machine may need.
until_true() { # WORDS COMMAND…
	local words=$1 end=$((SECONDS + 60))

	shift
	until "$@" >/dev/null 2>&1; do
		[ "$SECONDS" -lt "$end" ] || fail "waited 60 s for $words"
		sleep 0.05
	done
}

# -- facts --------------------------------------------------------------------------------------------------------------

fact() { # KEY
	sed -n "s/^fact ${1//./\\.} //p" "$LINES" | tail -n 1
}

facts_host() {
	line fact at "$(date -u +%FT%TZ)"
	line fact host.cpu "$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)"
	line fact host.cpus "$(nproc)"
	line fact host.kernel "$(uname -r)"
	line fact host.memory_mib "$(awk '/^MemTotal/ { print int($2 / 1024) }' /proc/meminfo)"
	line fact host.fs "$(findmnt -no FSTYPE -T "$DIR")"
	line fact host.libfuse "$(pkg-config --modversion fuse3 2>/dev/null || echo unknown)"
	line fact load_before "$(cut -d' ' -f1-3 /proc/loadavg)"
}

facts_engine() { # SANDBOX that runs
	local info

	info=$(<"$RUN/$1/info.json")
	line fact crucible.version "$(<"$MNT/version")"
	line fact engine.name "$(jq -r .engine <<<"$info")"
	line fact engine.version "$(jq -r .engine_version <<<"$info")"
	line fact engine.accel "$(jq -r .accel <<<"$info")"
	line fact engine.accel_reason "$(jq -r .accel_reason <<<"$info")"
	line fact guest.kernel "$(jq -r .guest.kernel <<<"$info")"
	line fact guest.memory_mib "$(jq -r .sizes.machine_memory_mib <<<"$info")"
	line fact guest.vcpus "$(jq -r .sizes.machine_vcpus <<<"$info")"
	line fact guest.from "$(jq -r .from <<<"$info")"
}

# -- the daemon ------------------------------------------------------------------------------------------------------------

# The launcher follows no symbolic link below a store: these are hard links, or copies.
make_store() { # DIR
	local part

	mkdir -p "$1/disks"
	for part in boot profiles disks/bases; do
		cp -al "$OUT/store/$part" "$1/$part" 2>/dev/null && continue
		rm -rf "${1:?}/$part"
		cp -a --reflink=auto --sparse=always "$OUT/store/$part" "$1/$part"
	done
}

# The next one is another, beside those that run: MNT, RUN, STORE of its own.
another_daemon() { # NAME
	MNT=$DIR/$1/mnt RUN=$DIR/$1/mnt/run STORE=$DIR/$1/store
}

start_daemon() { # [OPTION…]: sets DAEMON and UID_BASE
	local said='' pipe

	[ -d "$STORE" ] || make_store "$STORE"
	mkdir -p "$MNT"
	[ -n "${SAME_UIDS-}" ] || UID_BASE=$((1600000000 + ($$ % 500 * 4 + ${#PIDS[@]} % 4) * 65536))
	: >"$DIR/crucible.conf"
	rm -f "$DIR/ready"
	mkfifo "$DIR/ready"
	(cd / && exec "${IN_NET[@]}" "$BUILD/libexec/crucibled" --mount "$MNT" --store "$STORE" --config "$DIR/crucible.conf" --log-level warn \
		--set "cgroup=bench-$$-${#PIDS[@]}" --set "uid_base=$UID_BASE" --set "accel=${BENCH_ACCEL:-auto}" "$@" --ready-fd 9 9>"$DIR/ready" </dev/null >>"$DIR/daemon.log" 2>&1) &
	DAEMON=$!
	PIDS+=("$DAEMON")
	exec {pipe}<"$DIR/ready"
	read -r -t 60 -u "$pipe" said || :
	exec {pipe}<&-
	[ "$said" = ready ] || fail "crucibled did not become ready: $(tail -n 3 "$DIR/daemon.log")"
}

# Brought up: what follows does not wait for its boot.
new_sandbox() { # NAME [FILE=VALUE…]
	local dir=$RUN/$1 a record

	shift
	mkdir "$dir"
	for a in "$@"; do
		echo "${a#*=}" >"$dir/${a%%=*}"
	done
	echo true >"$dir/cmd"
	record=$(timeout 120 cat "$dir/wait") || fail "${dir##*/} does not answer"
	[[ $record == *'"exit_code":0,'* ]] || fail "${dir##*/}: the first command failed: $record"
}

# A snapshot; back when it can be forked. It is being stored meanwhile.
take() { # SANDBOX NAME
	echo "$2" >"$RUN/$1/snapshot" || fail "snapshot $2 of $1: $(cat "$RUN/$1/error")"
}

# A fork that is not measured: from now on the pool holds machines of its shape.
warm_pool() { # SNAPSHOT
	echo "warm-$1" >"$MNT/snapshots/$1/fork" || fail "fork of $1: $(cat "$MNT/snapshots/$1/error")"
	destroy "warm-$1"
}

# Whether a sandbox goes on from a saved state; else it was booted.
is_restored() { # SANDBOX
	grep -qz -- -incoming "/proc/$(engine_of "$1")/cmdline"
}

is_stored() { # SNAPSHOT
	[ "$(cat "$MNT/snapshots/$1/status")" = ready ]
}

# A sandbox with all its processes.
destroy() { # SANDBOX
	local engine box

	engine=$(engine_of "$1") box=$(box_of "$1")
	rmdir "$RUN/$1"
	until_true "the processes of $1 to end" eval "! kill -0 $engine && ! kill -0 $box"
}

# The process of a user id: each engine and each box has one of its own.
pid_of_uid() { # UID
	{ grep -H '^Uid:' /proc/[0-9]*/status 2>/dev/null || :; } | # processes end meanwhile
		awk -v uid="$1" '$2 == uid { split($1, p, "/"); pid = p[3] } END { print pid }'
}

engine_of() { # SANDBOX
	pid_of_uid "$(jq .isolation.engine_uid "$RUN/$1/info.json")"
}

box_of() { # SANDBOX
	pid_of_uid "$(jq .isolation.box_uid "$RUN/$1/info.json")"
}

# The engine's own arguments, so that a baseline is the same machine: ENGINE_ARGV. Paths are those of the sandbox's root, here ours; the
# sandbox must have been booted cold (prepare=0), so that they name a kernel.
engine_argv() { # SANDBOX
	local pid

	pid=$(engine_of "$1")
	[ -n "$pid" ] || fail "no engine of $1"
	mapfile -d '' -t ENGINE_ARGV <"/proc/$pid/cmdline"
	ENGINE_ARGV[0]=$(command -v "${ENGINE_ARGV[0]##*/}")
	ENGINE_ARGV=("${ENGINE_ARGV[@]/#\/boot\//$STORE/boot/}")
	ENGINE_ARGV=("${ENGINE_ARGV[@]/#tap,id=tap0,*/hubport,id=tap0,hubid=0}") # the tap's descriptor is the launcher's to give
}

# ENGINE_ARGV for a machine without crucible's block server: FILE is an overlay of qcow2.
own_disk() { # FILE
	local i
	local -a argv=()

	for ((i = 0; i < ${#ENGINE_ARGV[@]}; i++)); do
		if [ "${ENGINE_ARGV[i]}" = -blockdev ]; then
			i=$((i + 1))
		else
			argv+=("${ENGINE_ARGV[i]}")
		fi
	done
	# shellcheck disable=SC2054 # the commas are QEMU's
	ENGINE_ARGV=("${argv[@]}" -blockdev "driver=qcow2,node-name=disk0,discard=unmap,file.driver=file,file.filename=$1")
}

new_overlay() { # FILE PROFILE
	qemu-img create -q -f qcow2 -F raw -b "$(realpath "$STORE/profiles/$2/root.img")" "$1" 64G
}

# A folder as bare.h wants it: the machine of ENGINE_ARGV, its disk an overlay over the profile's image ("": none is made). RAM: options of a
# memory backend in the place of the memfd's ("": as it is). MORE: further arguments; with them nothing is booted, the machine goes on from a
# saved state.
bare_dir() { # DIR PROFILE RAM [MORE…]
	local dir=$1 profile=$2 ram=$3 i a
	local -a argv=() ENGINE_ARGV=("${ENGINE_ARGV[@]}")

	shift 3
	mkdir -p "$dir"
	own_disk /dev/fdset/7
	for ((i = 0; i < ${#ENGINE_ARGV[@]}; i++)); do
		a=${ENGINE_ARGV[i]}
		case $a in
		-kernel | -initrd | -append)
			[ $# = 0 ] || {
				i=$((i + 1))
				continue
			}
			;;
		memory-backend-memfd,*) [ -z "$ram" ] || a=$ram ;;
		esac
		argv+=("$a")
	done
	argv+=(-add-fd "fd=7,set=7")
	printf '%s\0' "${argv[@]}" "$@" >"$dir/argv"
	[ -z "$profile" ] || new_overlay "$dir/disk.new" "$profile"
}

# The machine with so much RAM, of which FILL_MIB are random, beside what the guest needs for itself (60 MiB). Leaves snapshot s$1 and, for the
# baselines, $DIR/$1/{full,loadvm,shared}.
make_states() { # MEMORY_MIB FILL_MIB
	local mib=$1 fill="head -c $2m /dev/urandom >/dev/shm/fill" a=a$1 d=$DIR/$1 k

	say "a guest of $mib MiB, $2 MiB of it random; its snapshots"
	new_sandbox "$a" "limits/memory_mib=$mib"
	facts_engine "$a"
	engine_argv "$a"
	echo "$fill" >"$RUN/$a/cmd"
	[[ $(cat "$RUN/$a/wait") == *'"exit_code":0,'* ]] || fail "$a: the memory was not filled"
	take "$a" "s$mib"
	line fact "guest.$mib.captured_bytes" "$(jq .sizes.captured_bytes "$MNT/snapshots/s$mib/info.json")"
	destroy "$a"

	bare_dir "$d/save" base "memory-backend-file,id=ram,size=${mib}M,mem-path=$d/save/ram,share=on"
	mv "$d/save/disk.new" "$d/save/disk"
	"$BUILD/bench/bench-savestate" "$d/save" "true; $fill" || fail "no saved states of QEMU's own"
	bare_dir "$d/full" '' '' -incoming fd:8
	bare_dir "$d/loadvm" '' '' -loadvm s
	bare_dir "$d/shared" '' "memory-backend-file,id=ram,size=${mib}M,mem-path=$d/shared/ram,share=off" -incoming defer
	for k in full shared; do
		mv "$d/save/$k.state" "$d/$k/state"
		mv "$d/save/$k.disk" "$d/$k/disk.new"
	done
	until_true "the snapshot to be stored" is_stored "s$mib" # else that is measured as well
	warm_pool "s$mib"
	mv "$d/save/shared.ram" "$d/shared/ram"
	mv "$d/save/loadvm.disk" "$d/loadvm/disk"
	rm -f "$d/save/ram"
	line fact "guest.$mib.full_state_bytes" "$(stat -c %s "$d/full/state")"
}

# Eight snapshots of one guest's memory, as files: $DIR/images/image.{1..8}. It installs nothing and reaches no network: files are read,
# programs run, some of what they made is removed again.
make_images() { # MEMORY_MIB N
	local d=$DIR/images

	say "$2 images of a guest of $1 MiB"
	bare_dir "$d" base "memory-backend-file,id=ram,size=${1}M,mem-path=$d/ram,share=on"
	mv "$d/disk.new" "$d/disk"
	# shellcheck disable=SC2016 # for the guest
	"$BUILD/bench/bench-savestate" "$d" 'case $1 in
1) find /usr/lib -type f -size -200k | head -n 600 | xargs cat >/dev/null ;;
*) find /usr/bin /usr/share -type f -size -200k | sed -n "$(($1 * 60)),$(($1 * 60 + 59))p" | xargs cat | sha256sum >/dev/shm/sum.$1
	perl -e "my %h; \$h{\$_} = \$_ x 3 for 1 .. 20000; print scalar keys %h"
	head -c 3m /dev/urandom >/dev/shm/random.$(($1 % 4)) ;;
esac' "$2" || fail "no images of a guest's memory"
	rm -f "$d/ram"
}

# -- measuring ----------------------------------------------------------------------------------------------------------------

# Where the scheduler puts two processes that answer each other, on one CPU or on two, decides more (8 us against 60) than what they do, and it
# changes its mind. For the cells of microseconds all that take part run on CPU 0.
pin() { # PID…
	local p

	for p in "$@"; do
		taskset -apc 0 "$p" >/dev/null
	done
}

unpin() { # PID…
	local p

	for p in "$@"; do
		taskset -apc "0-$(($(nproc --all) - 1))" "$p" >/dev/null
	done
}

turns() { # ARGUMENTS of bench-turns
	"$BUILD/bench/bench-turns" "$@" >>"$LINES" || :
}
