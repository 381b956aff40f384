#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Memory bounds, as measured: daemon at most 16 MiB and a box at most 2 MiB of anonymous memory, with eight idle sandboxes, after 200 MiB
# of output, with many readers, and after a thousand sandboxes. These are bounds on bytes, not on time.
# limit: 600
. "$(dirname "$0")/lib.sh"

[ -r /proc/self/smaps_rollup ] || skip "this kernel has no smaps_rollup"
case $BUILD in */san | */tsan) skip "a sanitizer's own memory is not what is measured" ;; esac
start_daemon
anonymous_kib() { awk '/^Anonymous:/ { print $2 }' "/proc/$1/smaps_rollup"; }
most_daemon=0 most_box=0
measure() { # WORDS
	local s kib p

	kib=$(anonymous_kib "$DAEMON_PID")
	[ "$kib" -le "$most_daemon" ] || most_daemon=$kib
	[ "$kib" -le 16384 ] || fail "crucibled has $kib KiB of anonymous memory $1; the bound is 16384"
	for s in "$@"; do
		[ -e "$RUN/$s" ] || continue
		p=$(box_pid "$s")
		kib=$(anonymous_kib "$p")
		[ "$kib" -le "$most_box" ] || most_box=$kib
		[ "$kib" -le 2048 ] || fail "the box of $s has $kib KiB of anonymous memory $1; the bound is 2048"
	done
	echo "measured $1: crucibled $(anonymous_kib "$DAEMON_PID") KiB, largest box so far $most_box KiB"
}

eight=(s1 s2 s3 s4 s5 s6 s7 s8)
for s in "${eight[@]}"; do
	ready_sandbox "$s" limits/memory_mib=96 limits/output_mib=256
done
measure 'with eight idle sandboxes' "${eight[@]}"

run s1 'head -c 209715200 /dev/zero'
assert_rec stdout_bytes 209715200 exit_code 0
bounded cat "$RUN/s1/stdout" >/dev/null
bounded cp "$RUN/s1/stdout" /dev/null
measure 'after 200 MiB of output' "${eight[@]}"

head -c 67108864 /dev/zero >"$RUN/s2/stdin"
run s2 'wc -c'
assert_rec stdout '"67108864\n"'
head -c 30000000 /dev/zero >"$RUN/s3/fs/root/big" 2>/dev/null || :
cat "$RUN/s3/fs/root/big" >/dev/null
head -c 8000000 /dev/zero | tr '\0' '#' >"$RUN/s4/cmd"
await s4
measure 'after 64 MiB of input, 30 MB through fs/, a command of 8 MB' "${eight[@]}"

for i in {1..1000}; do
	mkdir "$RUN/x$i.y"
	rmdir "$RUN/x$i.y"
done
for _ in {1..50}; do
	ls -lR "$RUN" >/dev/null
	cat "$RUN"/s?/info.json "$RUN"/s?/status "$MNT/health.json" >/dev/null
done
measure 'after a thousand sandboxes and listings' "${eight[@]}"
"$PYTHON" -IS - "$MNT/events.jsonl" "$RUN/s1/status" <<'END'
import os, sys
fds = [os.open(sys.argv[1 + i % 2], os.O_RDONLY) for i in range(2000)]
for f in fds:
    os.read(f, 100)
END
measure 'after 2000 open files' "${eight[@]}"
echo "the most: crucibled $most_daemon KiB of 16384, a box $most_box KiB of 2048"
