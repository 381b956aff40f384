#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# One page: of a fork whose template has a hole there, of one that is resident, read and written; against bare loops of UFFDIO_COPY and of a
# private mapping; torn pages. Then a real fork that writes 256 MiB of fresh memory: what that takes of the host's. See README.md.
#
#   tools/bench/fault.sh BUILD_DIR
. "$(dirname "$0")/lib.sh"
bench_begin fault "$@"
FRESH=256

line cell fault.hole ns "a page (one in each 64 KiB) that is nowhere but in the store: read, digest, decode, fill 64 KiB, wake; bare: UFFDIO_COPY of 4 KiB"
line cell fault.hole64 ns "each page, in order, 64 KiB for one event; bare: UFFDIO_COPY of 64 KiB"
line cell fault.read ns "a page that is in the template, read; bare: a private mapping of a file in memory"
line cell fault.write ns "the same, written"
line cell fault.torn count "pages that any of eight readers at once saw half filled, of 65536"
"$BUILD/bench/bench-fault" "${BENCH_ROUNDS:-10}" >"$DIR/fault" 2>&1 || fail "bench-fault: $(tail -n 3 "$DIR/fault")"
grep '^sample ' "$DIR/fault" >>"$LINES"
line at-most fault.hole crucible bare-copy 4
line at-most fault.hole64 crucible bare-copy 4
line at-most fault.read crucible bare-native 1.2
line at-most fault.write crucible bare-native 1.2
line limit fault.torn crucible 0

start_daemon --set prepare=0 --set pool_size=0 --set warm_size=0
new_sandbox a limits/memory_mib=512
facts_engine a
take a s
until_true "the snapshot to be stored" is_stored s
echo f >"$MNT/snapshots/s/fork"
echo true >"$RUN/f/cmd"
cat "$RUN/f/wait" >/dev/null
PAGER=$(pgrep -x crucible-pager -P "$(pgrep -P "$DAEMON" -x crucible-launch)")

# Anonymous memory of the fork's engine, and what lies in the pager's templates.
taken() {
	local fork template=0 f

	fork=$(awk '/^Anonymous:/ { print $2 * 1024 }' "/proc/$(engine_of f)/smaps_rollup")
	for f in "/proc/$PAGER/fd"/*; do
		[[ $(readlink "$f") == /memfd:* ]] && template=$((template + $(stat -L -c '%b * %B' "$f")))
	done
	echo $((fork + template))
}

line cell fault.fresh bytes "what the host gives for $FRESH MiB of fresh memory that a fork writes"
before=$(taken)
printf '%s' "dd if=/dev/urandom of=/dev/null bs=${FRESH}M count=1 iflag=fullblock" >"$RUN/f/cmd"
[[ $(cat "$RUN/f/wait") == *'"exit_code":0,'* ]] || fail "the fork could not write $FRESH MiB"
line sample fault.fresh crucible $(($(taken) - before))
line limit fault.fresh crucible $((FRESH * 1048576 * 105 / 100))

bench_end
