#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A snapshot of what runs, after so many MiB were written since the one before: how long the guest stands still, until it can be forked, until it
# is stored; and the tenth of one sandbox. Against QEMU alone: all of the memory into a file while the guest stands still (full), and
# background-snapshot. See README.md.
#
#   tools/bench/snapshot.sh BUILD_DIR
. "$(dirname "$0")/lib.sh"
bench_begin snapshot "$@"
ROUNDS=${BENCH_ROUNDS:-5}

start_daemon --set prepare=0 --set pool_size=0 --set warm_size=0
new_sandbox a
facts_engine a
engine_argv a
bare_dir "$DIR/full" base ''
bare_dir "$DIR/background" base ''

# Random bytes in so much memory that is in use, the same each time, but for its size.
dirty() { # MIB
	echo "mkdir -p /run/dirty && { mountpoint -q /run/dirty || mount -t tmpfs -o size=300m tmpfs /run/dirty; } &&
		dd if=/dev/urandom of=/run/dirty/it bs=1M count=$1 conv=notrunc"
}

# The same in a process's memory that is free again when it has ended.
freed() { # MIB
	echo "dd if=/dev/urandom of=/dev/null bs=$1M count=1 iflag=fullblock"
}

cells() { # CELL WORDS
	line cell "$1.pause" ns "the guest stands still; $2"
	line cell "$1.call" ns "until it can be forked (QEMU: until the file is whole)"
	line cell "$1.ready" ns "until it is stored (QEMU: with fdatasync)"
}

# The first has to take all of the memory; it is what the others grow out of.
cells snapshot.first "the first of a sandbox"
turns --rounds 1 --text true snapshot.first "crucible=snapshot:$MNT:a"

for mib in 1 16 64 256; do
	say "$mib MiB dirty"
	cells "snapshot.$mib" "$mib MiB were written"
	# Random bytes come slowly in an emulated guest.
	turns --rounds $((mib < 256 ? ROUNDS : 2)) --text "$(dirty $mib)" "snapshot.$mib" "crucible=snapshot:$MNT:a" "full=migrate:$DIR/full" "background=background:$DIR/background"
	# 15 ms, and what was written at 2 GB/s; the guest writes some for itself, so this is told by what it captured.
	line limit "snapshot.$mib.pause" crucible $((15000000 + mib * 1048576 / 2))
	line faster "snapshot.$mib.pause" crucible full 10
done

new_sandbox c
take c c
until_true "snapshot c to be stored" is_stored c
cells snapshot.freed "256 MiB were written, and are free again"
turns --rounds 1 --text "$(freed 256)" snapshot.freed "crucible=snapshot:$MNT:c"

new_sandbox b
for i in {1..9}; do
	dirty 1 >"$RUN/b/cmd"
	cat "$RUN/b/wait" >/dev/null
	take b "b$i"
	until_true "snapshot b$i to be stored" is_stored "b$i"
done
cells snapshot.tenth "the tenth of one sandbox, 1 MiB between"
turns --rounds 1 --text "$(dirty 1)" snapshot.tenth "crucible=snapshot:$MNT:b"
line limit snapshot.tenth.pause crucible 15500000

bench_end
