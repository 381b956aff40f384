#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The first fork when nothing is cached: templates given back, the kernel's caches dropped. With the working set that an earlier fork has shown,
# and without. And the rate at which the store is read then, against what the disk can do: fio, io_uring, random 64 KiB of the same file.
#
#   tools/bench/cold.sh BUILD_DIR
. "$(dirname "$0")/lib.sh"
bench_begin cold "$@"
ROUNDS=${BENCH_ROUNDS:-5}

start_daemon --set prepare=0 --set pool_size=0 --set warm_size=0
new_sandbox a
facts_engine a
engine_argv a
echo 'head -c 110m /dev/urandom >/dev/shm/fill' >"$RUN/a/cmd"
cat "$RUN/a/wait" >/dev/null
take a s
until_true "the snapshot to be stored" is_stored s
destroy a

# The store's own reader on the same memory, in one pack of its own.
bench_images() {
	bare_dir "$DIR/images" base "memory-backend-file,id=ram,size=512M,mem-path=$DIR/images/ram,share=on"
	mv "$DIR/images/disk.new" "$DIR/images/disk"
	"$BUILD/bench/bench-savestate" "$DIR/images" 'head -c 110m /dev/urandom >/dev/shm/fill' 1 || fail "no image of a guest's memory"
	rm "$DIR/images/ram"
	mkdir "$DIR/read"
	"$BUILD/bench/bench-snapstore" in "$DIR/read" "$DIR/images/image.1" >/dev/null
	PACK=$(find "$DIR/read" -name '*.pack' -printf '%s %p\n' | sort -n | tail -n 1 | cut -d' ' -f2-)
}
bench_images
PACK_BYTES=$(stat -c %s "$PACK")

drop_caches() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
}

line cell cold.fork ns "echo x >fork until it returns, by a daemon and a pager that have just started, all caches dropped; warm: the one after it"
for ((i = 0; i < ROUNDS; i++)); do
	end_process "$DAEMON"
	until_true "the mount to go" eval "! mountpoint -q $MNT"
	drop_caches
	SAME_UIDS=1 start_daemon --set prepare=0 --set pool_size=0 --set warm_size=0
	began=$(date +%s%N)
	echo "cold$i" >"$MNT/snapshots/s/fork"
	line sample cold.fork crucible $(($(date +%s%N) - began))
	began=$(date +%s%N)
	echo "warm$i" >"$MNT/snapshots/s/fork"
	line sample cold.fork warm $(($(date +%s%N) - began))
	destroy "cold$i"
	destroy "warm$i"
done

line cell cold.rate bytes "a second, of the pack as it lies on the disk: the store's reader, all windows of 64 KiB in random order, 16 under way; fio: the same file"
for ((i = 0; i < ROUNDS; i++)); do
	drop_caches
	read -r bytes ns < <("$BUILD/bench/bench-snapstore" read "$DIR/read" random)
	line fact cold.windows_bytes "$bytes"
	line sample cold.rate crucible $((PACK_BYTES * 1000000000 / ns))
	if command -v fio >/dev/null; then
		drop_caches
		rate=$(fio --name=r --filename="$PACK" --rw=randread --bs=64k --iodepth=16 --ioengine=io_uring --readonly --norandommap=0 \
			--output-format=json 2>"$DIR/fio" | jq '.jobs[0].read.bw_bytes') || line failed cold.rate fio "$(tail -n 1 "$DIR/fio")"
		[ -z "$rate" ] || line sample cold.rate fio "$rate"
	fi
done
# 70 % of fio's rate: fio's is at most 1 / 0.7 of ours.
line at-most cold.rate fio crucible 1.43

bench_end
