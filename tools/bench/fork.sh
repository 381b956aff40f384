#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A fork of a snapshot: to the first reply of its agent and to its first command's result, with a machine of it that waits, as configured by
# default (crucible), and with one of the pool only (pooled: warm_size=0), against QEMU that goes on from a saved state of the
# same machine in the three ways that people have: all of the RAM from a stream (-incoming), an internal snapshot of its disk (-loadvm), a file
# of RAM mapped private (x-ignore-shared; our own way without pool, pager and preload). Then the same for other sizes of RAM. See README.md.
#
#   tools/bench/fork.sh BUILD_DIR
. "$(dirname "$0")/lib.sh"
bench_begin fork "$@"
POOL=2

start_daemon --set prepare=0 --set "pool_size=$POOL" --set warm_size=0
POOLED=$MNT
another_daemon warm
start_daemon --set prepare=0 --set "pool_size=$POOL"

# The same snapshot for the other daemon: as make_states takes it.
pooled_snapshot() { # MEMORY_MIB FILL_MIB
	local MNT=$POOLED RUN=$POOLED/run

	new_sandbox "a$1" "limits/memory_mib=$1"
	echo "head -c $2m /dev/urandom >/dev/shm/fill" >"$RUN/a$1/cmd"
	[[ $(cat "$RUN/a$1/wait") == *'"exit_code":0,'* ]] || fail "a$1: the memory was not filled"
	take "a$1" "s$1"
	destroy "a$1"
	until_true "the snapshot to be stored" is_stored "s$1"
	warm_pool "s$1"
}

measure() { # CELL MEMORY_MIB ROUNDS [SUBJECT…]
	local cell=$1 mib=$2 rounds=$3 d=$DIR/$2

	shift 3
	line cell "$cell.reply" ns "guest of $mib MiB: echo x >fork until it returns; QEMU: from its start to the agent's answer"
	line cell "$cell.result" ns "the same, to the end of its first command, \`true\`"
	turns --rounds "$rounds" --text true --pool full "$cell" "crucible=fork:$MNT:s$mib" "pooled=fork:$POOLED:s$mib" "$@"
}

make_states 512 110
pooled_snapshot 512 110
D=$DIR/512
measure fork 512 "$PAIRS" "full=restore:$D/full" "loadvm=restore:$D/loadvm" "shared=restore:$D/shared"
line faster fork.reply crucible full 10
line faster fork.reply pooled full 10
line faster fork.reply crucible loadvm 10
line faster fork.result crucible full "$([ "$(fact engine.accel)" = kvm ] && echo 5 || echo 3)"
line faster fork.reply crucible shared 1
line limit fork.reply crucible 16000000

for mib in 256 2048; do
	make_states $mib $((mib == 256 ? 70 : 110))
	pooled_snapshot $mib $((mib == 256 ? 70 : 110))
	measure fork.$mib $mib $(((PAIRS + 2) / 3)) "full=restore:$DIR/$mib/full"
	line faster fork.$mib.reply crucible full 10
	rm -rf "${DIR:?}/$mib"
done

bench_end
