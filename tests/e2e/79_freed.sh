#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What a guest has freed costs its next snapshot nothing: 1 GiB is written and deleted in a guest of 512 MiB. What it still uses is whole, in parent and forks,
# it has all its memory afterwards, and a command that runs meanwhile is not killed for it.
# limit: 400
. "$(dirname "$0")/lib.sh"

LIMIT=$((10 * 1024 * 1024))
size_of() { # SNAPSHOT MEMBER
	json_of "$(cat "$SNAPS/$1/info.json")" "sizes.$2"
}
free_kib() { # SANDBOX
	run "$1" 'awk "/^MemFree:/ { print \$2 }" /proc/meminfo'
	json_of "$REC" stdout
}
write_and_delete() { # SANDBOX MIB
	run "$1" "dd if=/dev/urandom of=/root/big bs=1M count=$2 2>/dev/null && rm /root/big"
	assert_rec exit_code 0
}
stores_little() { # SNAPSHOT
	wait_stored "$1"
	[ "$(size_of "$1" unique_bytes)" -lt "$LIMIT" ] || fail "snapshot $1 stores $(size_of "$1" unique_bytes) bytes, captured $(size_of "$1" captured_bytes)"
	# Nor was it copied first, and left out then.
	[ "$(size_of "$1" captured_bytes)" -lt $((64 * 1024 * 1024)) ] || fail "snapshot $1 captured $(size_of "$1" captured_bytes) bytes"
}
# As much as before, but for what its kernel has come to use since.
has_its_memory() { # SANDBOX KIB_BEFORE
	local now

	now=$(free_kib "$1")
	[ "$now" -gt $(($2 - 32 * 1024)) ] || fail "$1 has $now KiB of free memory, after $2"
}

start_daemon
ready_sandbox a limits/memory_mib=512 limits/disk_mib=2048
fill_memory a 24
sum=$SUM
before=$(free_kib a)
take a first
wait_stored first

# It allocates and counts all the time. One that was killed counts no more.
mkdir "$RUN/a/exec/loop"
cat >"$RUN/a/exec/loop/cmd" <<'END'
{"script":"n=0; while :; do n=$((n+1)); x=$(head -c 1000000 /dev/zero | tr '\\0' x); [ ${#x} = 1000000 ] || exit 1; echo $n >/dev/shm/n; done","timeout_s":1000}
END
write_and_delete a 1024
take a second
stores_little second
assert_file "$RUN/a/exec/loop/status" running
n=$(cat "$RUN/a/fs/dev/shm/n")
counts_on() {
	[ "$(cat "$RUN/a/fs/dev/shm/n")" -gt "$n" ]
}
wait_for "the command to count on" counts_on
echo kill >"$RUN/a/exec/loop/ctl"
await a exec/loop
has_its_memory a "$before"
assert_memory a "$sum"

# A fork, whose memory is of a template: what it gives back shows that again, and is written anew before it is used.
fork_of second b c
echo kill-inherited >"$RUN/b/ctl"
has_its_memory b "$before"
for x in a b; do
	run "$x" 'dd if=/dev/urandom of=/root/new bs=1M count=200 2>/dev/null; sync; [ "$(wc -c </root/new)" = 209715200 ] || exit 1; a=$(sha256sum </root/new); echo 3 >/proc/sys/vm/drop_caches; b=$(sha256sum </root/new); rm /root/new; [ "$a" = "$b" ] && echo same'
	assert_rec stdout '"same\n"'
	assert_memory "$x" "$sum"
done
take b third
stores_little third
has_its_memory b "$before"
fork_of third d
for x in a b c d; do
	assert_memory "$x" "$sum"
done
