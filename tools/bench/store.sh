#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Eight snapshots of one guest's memory: what they take, how fast they go in and come out again, with how much memory; against casync, borgbackup,
# restic and, one file after the other, lz4 -1 and zstd -1. Files are in the page cache, for all alike. See README.md.
#
#   BENCH_IMAGES=N    that many images, from 3 on (8)
#   BENCH_STEP_S=N    how long one tool may take for one step (600): Python and Go are slow on a busy machine, and that is no failure
#
#   tools/bench/store.sh BUILD_DIR
. "$(dirname "$0")/lib.sh"
bench_begin store "$@"
ROUNDS=${BENCH_ROUNDS:-1}
N=${BENCH_IMAGES:-8}
STEP_S=${BENCH_STEP_S:-600}
[[ $N =~ ^[3-9]$ ]] || fail "BENCH_IMAGES is a number from 3 to 9"

start_daemon --set prepare=0 --set pool_size=0
new_sandbox a limits/memory_mib=256
facts_engine a
engine_argv a
destroy a
end_process "$DAEMON"
make_images 256 "$N"
IMAGES=("$DIR"/images/image.[1-9])
BYTES=$(cat "${IMAGES[@]}" | wc -c)
line fact images.bytes "$BYTES"
line fact images.allocated_bytes "$(du -c -B1 "${IMAGES[@]}" | tail -n 1 | cut -f 1)"

# Each: make its store below $W, take all in, give all out into $W/out. Quiet.
W=$DIR/work
export BORG_BASE_DIR=$W/home BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes RESTIC_PASSWORD=x RESTIC_CACHE_DIR=$W/cache
crucible_in() { "$BUILD/bench/bench-snapstore" in "$W" "${IMAGES[@]}"; }
crucible_out() { "$BUILD/bench/bench-snapstore" out "$W" "$W/out"; }
casync_in() { for i in "${IMAGES[@]}"; do casync make --store="$W/store.castr" "$W/${i##*/}.caibx" "$i"; done; }
casync_out() { for i in "${IMAGES[@]}"; do casync extract --store="$W/store.castr" "$W/${i##*/}.caibx" "$W/out/${i##*/}"; done; }
borg_in() { borg init -e none "$W/store" && for i in "${IMAGES[@]}"; do borg create "$W/store::${i##*/}" "$i"; done; }
borg_out() { cd "$W/out" && for i in "${IMAGES[@]}"; do borg extract "$W/store::${i##*/}"; done; }
restic_in() { restic init -q -r "$W/store" && for i in "${IMAGES[@]}"; do restic backup -q -r "$W/store" "$i"; done; }
restic_out() { for id in $(restic snapshots -r "$W/store" --json | jq -r '.[].id'); do restic restore -q -r "$W/store" -t "$W/out" "$id"; done; }
lz4_in() { for i in "${IMAGES[@]}"; do lz4 -q -1 "$i" "$W/${i##*/}.lz4"; done; }
lz4_out() { for i in "${IMAGES[@]}"; do lz4 -q -d "$W/${i##*/}.lz4" "$W/out/${i##*/}"; done; }
zstd_in() { for i in "${IMAGES[@]}"; do zstd -q -1 "$i" -o "$W/${i##*/}.zst"; done; }
zstd_out() { for i in "${IMAGES[@]}"; do zstd -q -d "$W/${i##*/}.zst" -o "$W/out/${i##*/}"; done; }
export BUILD W
export -f crucible_in crucible_out casync_in casync_out borg_in borg_out restic_in restic_out lz4_in lz4_out zstd_in zstd_out

# Time, and the largest resident set of any of its processes. Nobody is there to be asked for a password.
step() { # TOOL in|out
	local began ended rc=0

	began=$(date +%s%N)
	# shellcheck disable=SC2016 # for the inner shell
	/usr/bin/time -q -f %M -o "$DIR/peak" timeout "$STEP_S" bash -c 'IMAGES=("'"$DIR"'"/images/image.[1-9]); "$1"' _ "$1_$2" \
		</dev/null >"$DIR/said" 2>&1 || rc=$?
	if [ "$rc" != 0 ]; then
		[ "$rc" != 124 ] || echo "not within $STEP_S s" >>"$DIR/said"
		line failed "store.$2" "$1" "$(tail -n 1 "$DIR/said")"
		return 1
	fi
	ended=$(date +%s%N)
	line sample "store.$2" "$1" $((ended - began))
	line sample "store.$2_rate" "$1" $((BYTES * 1000000000 / (ended - began)))
	line sample "store.$2_memory" "$1" $(($(tail -n 1 "$DIR/peak") * 1024))
}

line cell store.bytes bytes "what $N images of $((BYTES / N >> 20)) MiB take in the store"
line cell store.in ns "all of them into it"
line cell store.in_rate bytes "the same, bytes of the images in a second"
line cell store.in_memory bytes "largest resident memory of a process that does it"
line cell store.out ns "all of them out again"
line cell store.out_rate bytes "the same, bytes of the images in a second"
line cell store.out_memory bytes "largest resident memory of a process that does it"

for ((round = 0; round < ROUNDS; round++)); do
	for tool in crucible casync borg restic lz4 zstd; do
		command -v ${tool/#crucible/true} >/dev/null || {
			line failed store.bytes $tool "not installed"
			continue
		}
		say "$tool"
		rm -rf "$W"
		mkdir -p "$W/out"
		step $tool in || continue
		line sample store.bytes $tool "$(du -s -B1 --exclude=home --exclude=cache "$W" | cut -f 1)"
		step $tool out || continue
		[ $tool != crucible ] || cmp -s "$W/out/3" "${IMAGES[2]}" || fail "the store gave back another image"
	done
done
rm -rf "$W"
line at-most store.bytes crucible casync 1
line at-most store.bytes crucible restic 1
line faster store.in crucible borg 3
line faster store.out crucible borg 3

bench_end
