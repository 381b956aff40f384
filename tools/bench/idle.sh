#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What is idle: anonymous memory of each process with eight idle sandboxes and after 200 MiB of output, and how often each wakes in
# ten seconds; against a bare QEMU of the same machine. See README.md.
#
#   tools/bench/idle.sh BUILD_DIR
. "$(dirname "$0")/lib.sh"
bench_begin idle "$@"
SANDBOXES=8
SECONDS_IDLE=10

anonymous() { # PID: bytes
	awk '/^Anonymous:/ { print $2 * 1024 }' "/proc/$1/smaps_rollup"
}

# Without what lies in the guest's RAM, which is the range that begins with the mapping of its memfd (or what took its place).
beyond_guest() { # PID
	awk -v ram="$(fact guest.memory_mib)" 'function hex(t, i, n) { for (i = 1; i <= length(t); i++) n = n * 16 + index("0123456789abcdef", substr(t, i, 1)) - 1; return n }
		/^[0-9a-f]+-[0-9a-f]+ / { split($1, a, "-"); from = hex(a[1]); to = hex(a[2]); if (to - from == ram * 1048576) guest = from; inside = guest && from >= guest && from < guest + ram * 1048576; next }
		/^Anonymous:/ && !inside { n += $2 * 1024 } END { print n }' "/proc/$1/smaps"
}

wakeups() { # PID: of all its threads, so far
	cat "/proc/$1"/task/*/status | awk '/^voluntary_ctxt_switches/ { n += $2 } END { print n }'
}

# The same machine and nothing around it; its agent waits for a hello that does not come.
start_bare() {
	local i a
	local -a argv

	mkdir "$DIR/bare"
	new_overlay "$DIR/bare/overlay" base
	own_disk "$DIR/bare/overlay"
	for ((i = 0; i < ${#ENGINE_ARGV[@]}; i++)); do
		a=${ENGINE_ARGV[i]}
		case $a in
		socket,id=monitor,* | socket,id=control,* | socket,id=bulk,*)
			a=${a%,fd=*}
			a=$a,path=$DIR/bare/${a#*id=},server=on,wait=off
			;;
		esac
		argv+=("$a")
	done
	"${argv[@]}" </dev/null >"$DIR/bare/log" 2>&1 6>>"$DIR/bare/console" &
	BARE=$!
	PIDS+=("$BARE")
}

start_daemon --set prepare=0 --set pool_size=0
for ((i = 1; i <= SANDBOXES; i++)); do
	new_sandbox "s$i" limits/output_mib=256
done
facts_engine s1
line fact sandboxes "$SANDBOXES"
engine_argv s1
start_bare
LAUNCHER=$(pgrep -P "$DAEMON" -x crucible-launch)
PAGER=$(pgrep -P "$LAUNCHER" -x crucible-pager)
WRITER=$(pgrep -P "$LAUNCHER" -x crucible-store)
for ((i = 1; i <= SANDBOXES; i++)); do
	BOXES+=("$(box_of "s$i")")
	ENGINES+=("$(engine_of "s$i")")
done

say "$SANDBOXES sandboxes, left alone"
# Boots, and what they leave to be done, come to rest. Guests write their disks for half a minute after it (journal, dirty pages): that wakes the
# block server, and is their doing. The pager is at rest when nothing has woken it for ten seconds.
at_rest() {
	local seen

	seen=$(wakeups "$PAGER")
	sleep 10
	[ "$(wakeups "$PAGER")" = "$seen" ]
}
rested=
for ((i = 0; i < 12; i++)); do
	at_rest && rested=yes && break
done
line fact rested "${rested:-no, after two minutes}"

line cell idle.memory.daemon bytes "anonymous memory of crucibled with $SANDBOXES idle sandboxes"
line sample idle.memory.daemon crucible "$(anonymous "$DAEMON")"
line limit idle.memory.daemon crucible $((16 << 20))
line cell idle.memory.launcher bytes "of crucible-launch"
line sample idle.memory.launcher crucible "$(anonymous "$LAUNCHER")"
line cell idle.memory.pager bytes "of crucible-pager (templates are not anonymous)"
line sample idle.memory.pager crucible "$(anonymous "$PAGER")"
line cell idle.memory.store bytes "of crucible-store"
line sample idle.memory.store crucible "$(anonymous "$WRITER")"
line cell idle.memory.all bytes "of daemon, pager and launcher together"
line sample idle.memory.all crucible $(($(anonymous "$DAEMON") + $(anonymous "$PAGER") + $(anonymous "$LAUNCHER")))
line limit idle.memory.all crucible $((24 << 20))
line cell idle.memory.box bytes "of one sandbox's crucible-box"
line cell idle.memory.engine bytes "of its engine, which has run one command, against a bare QEMU that has booted (both without the guest's RAM)"
for ((i = 0; i < SANDBOXES; i++)); do
	line sample idle.memory.box crucible "$(anonymous "${BOXES[i]}")"
	line sample idle.memory.engine crucible "$(beyond_guest "${ENGINES[i]}")"
done
line limit idle.memory.box crucible $((2 << 20))
line sample idle.memory.engine bare "$(beyond_guest "$BARE")"

names=(daemon launcher pager store)
pids=("$DAEMON" "$LAUNCHER" "$PAGER" "$WRITER")
for ((i = 0; i < SANDBOXES; i++)); do
	names+=(box engine)
	pids+=("${BOXES[i]}" "${ENGINES[i]}")
done
for p in "${pids[@]}" "$BARE"; do
	before+=("$(wakeups "$p")")
done
sleep "$SECONDS_IDLE"
for p in "${pids[@]}" "$BARE"; do
	after+=("$(wakeups "$p")")
done
for n in daemon launcher pager store box engine; do
	line cell "idle.wakeups.$n" count "voluntary context switches of a $n in $SECONDS_IDLE s, all threads"
	[ "$n" = engine ] || line limit "idle.wakeups.$n" crucible 0
done
for ((i = 0; i < ${#pids[@]}; i++)); do
	line sample "idle.wakeups.${names[i]}" crucible $((after[i] - before[i]))
done
line sample idle.wakeups.engine bare $((after[i] - before[i]))

say "after 200 MiB of output"
turns --rounds 1 --bytes $((200 << 20)) --text "head -c $((200 << 20)) /dev/zero" idle.time.output "crucible=output:$RUN/s1"
line cell idle.time.output ns "200 MiB of output, for the rows below"
line cell idle.output.daemon bytes "anonymous memory of crucibled after a command's 200 MiB of output were read"
line sample idle.output.daemon crucible "$(anonymous "$DAEMON")"
line limit idle.output.daemon crucible $((16 << 20))
line cell idle.output.box bytes "of its crucible-box"
line sample idle.output.box crucible "$(anonymous "${BOXES[0]}")"
line limit idle.output.box crucible $((2 << 20))

bench_end
