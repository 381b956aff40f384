#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A snapshot that is removed while forks of it run, stored or not: they live on, they can be snapshotted, gc takes nothing that they need.
# limit: 400
. "$(dirname "$0")/lib.sh"

start_daemon
ready_sandbox a limits/memory_mib=160
fill_memory a 40
run a 'cp /dev/shm/pattern /root/pattern; sync'
assert_disk() { # SANDBOX
	run "$1" 'echo 3 >/proc/sys/vm/drop_caches; sha256sum </root/pattern'
	assert_eq "$(rec stdout)" "$SUM" "the pattern on the disk of $1"
}

# At once, while it is being stored.
take a early
fork_of early e
rmdir "$SNAPS/early"
assert_absent "$SNAPS/early" "$RUN/a/snapshots/early"
assert_memory e "$SUM"
assert_disk e

# Stored, forked, removed, the name used again.
take a s
fork_of s b c
wait_stored s
uuid=$(json_of "$(cat "$SNAPS/s/info.json")" uuid)
rmdir "$SNAPS/s"
rmdir "$RUN/a"
assert_errno ENOENT write "$SNAPS/s/fork" '1\n'
outcome "$MNT/store/gc"
assert_rec status '"ok"'
assert_memory b "$SUM"
assert_disk c
take b s
assert_ne "$(json_of "$(cat "$SNAPS/s/info.json")" uuid)" "$uuid" "the uuid of a name that is used again"
assert_json "$(cat "$SNAPS/s/info.json")" source '"b"' parent_uuid "\"$uuid\""
wait_stored s
rmdir "$RUN/b" "$RUN/c"
outcome "$MNT/store/gc"
assert_rec status '"ok"'
fork_of s d
assert_memory d "$SUM"
assert_disk d

# A batch that races with the removal: it is made or it is refused, and nothing hangs or is left half.
for i in 1 2 3; do
	take d "r$i"
	printf '3\n' >"$DIR/three"
	bounded dd if="$DIR/three" of="$SNAPS/r$i/fork" conv=notrunc status=none 2>/dev/null &
	pid=$!
	bounded rmdir "$SNAPS/r$i" || fail "rmdir of a snapshot that is being forked"
	rc=0
	wait $pid || rc=$?
	[ $rc != 124 ] || fail "the batch hangs"
	made=$(find "$RUN" -maxdepth 1 -name "r$i-*" | wc -l)
	assert_eq "$made" "$([ $rc = 0 ] && echo 3 || echo 0)" "forks of a batch that ended with $rc"
	for f in "$RUN/r$i-"*; do
		[ -d "$f" ] || continue
		run "${f##*/}" 'echo alive'
		assert_rec stdout '"alive\n"'
		rmdir "$f"
	done
done

# All gone: the store gives it back.
rmdir "$RUN/d" "$RUN/e" "$SNAPS/s"
only_prepared() { # removing goes on behind the rmdir: machine, pager, store
	[ "$(json_of "$(cat "$MNT/store/stat.json")" snapshots)" -lt 2 ]
}
wait_for "all but the prepared one are gone" only_prepared
outcome "$MNT/store/gc"
assert_rec status '"ok"'
assert_json "$(cat "$MNT/store/stat.json")" snapshots '<2'
