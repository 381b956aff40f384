#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Many forks at once, by one write: until all have answered, and what each takes of the host's memory while it does nothing; against as many
# full restores of QEMU and as many machines over one file of RAM mapped private. See README.md.
#
#   tools/bench/burst.sh BUILD_DIR
. "$(dirname "$0")/lib.sh"
bench_begin burst "$@"
POOL=${BENCH_POOL:-16}
ROUNDS=${BENCH_ROUNDS:-5}

start_daemon --set prepare=0 --set warm_size=0 --set "pool_size=$POOL" # of a burst one would find the warm machine
line fact pool_size "$POOL"
make_states 512 110

# A machine of the pool takes memory before it becomes a fork, so what MemAvailable loses by a burst is too little by as many machines as the
# pool gives, and too much by as many as fill it again meanwhile. The cells `guest` and `engine` are exact.
cells() { # CELL N
	line cell "$1.wall" ns "$2 at once, until all have answered"
	line cell "$1.child" ns "the same for each of them"
	line cell "$1.available" bytes "what MemAvailable lost for each of them (a pool of $POOL stood ready)"
	line cell "$1.guest" bytes "anonymous memory of each guest's RAM"
	line cell "$1.engine" bytes "anonymous memory of each engine beside it"
}

D=$DIR/512
for n in 1 4 16 64; do
	say "$n at once"
	cells "burst.$n" $n
	others=()
	rounds=$ROUNDS
	[ $n -gt 4 ] || others=("full=restore-burst:$D/full" "shared=restore-burst:$D/shared")
	turns --rounds "$rounds" --bytes $n --pool "$UID_BASE:$POOL" "burst.$n" "crucible=fork-burst:$MNT:s512" "${others[@]}"
	if [ $n = 16 ]; then # seconds each: once
		turns --rounds 1 --bytes $n "burst.$n" "full=restore-burst:$D/full" "shared=restore-burst:$D/shared"
	fi
	if [ $n -ge 16 ]; then
		line limit "burst.$n.child" crucible 24000000
		line limit "burst.$n.available" crucible $((20 << 20))
		line limit "burst.$n.guest" crucible $((1 << 20))
	fi
	[ $n -gt 16 ] || line faster "burst.$n.wall" crucible full 10
done

bench_end
