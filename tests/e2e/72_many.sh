#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Many forks at once: all or none; names that are taken; numbers; two batches at the same time.
# limit: 400
. "$(dirname "$0")/lib.sh"

start_daemon
ready_sandbox a limits/memory_mib=96
run a 'echo common >/root/common'
take a s
S=$SNAPS/s
FORK=$S/fork

# -- a number
fork_of s 8
assert_eq "$(cat "$FORK")" "$(printf 's-%d\n' {1..8})" "the names of the batch"
for i in {1..8}; do
	assert_file "$RUN/s-$i/status" ready
	put "s-$i" "cat /root/common; echo $i >/root/own; cat /root/own"
done
for i in {1..8}; do
	await "s-$i"
	assert_rec stdout "\"common\\n$i\\n\"" exec 1
done
assert_eq "$(count "$S/forks")" 8
assert_eq "$(for i in {1..8}; do cat "$RUN/s-$i/uuid"; done | sort -u | wc -l)" 8 "different uuids"
fork_of s 2 # above what is taken
assert_eq "$(cat "$FORK")" "s-9
s-10"
for i in {4..10}; do
	rmdir "$RUN/s-$i"
done
assert_eq "$(count "$S/forks")" 3

# -- all or none
new_sandbox taken
uuid=$(cat "$RUN/taken/uuid")
assert_errno EEXIST write "$FORK" 'x\ntaken\ny\n'
assert_absent "$RUN/x" "$RUN/y"
assert_file "$RUN/taken/uuid" "$uuid"
assert_match "$(error_of "$S")" 'taken' "words name what is taken"
assert_match "$(errno_of write "$FORK" 'x\nx\n')" '^E(EXIST|INVAL)$' "a name twice"
assert_errno EINVAL write "$FORK" 'x\n_name\n'
assert_match "$(errno_of write "$FORK" "x\n$(printf 'n%.0s' {1..64})\n")" '^E(NAMETOOLONG|INVAL)$' "a long name"
assert_absent "$RUN/x"
assert_eq "$(count "$S/forks")" 3 "forks after batches that failed"
fork_of s x y
assert_file "$FORK" $'x\ny'
rmdir "$RUN/x" "$RUN/y" "$RUN/taken"

# -- two batches at once: six forks, no name twice, none half made
printf '3\n' >"$DIR/three"
for i in 1 2; do
	bounded dd if="$DIR/three" of="$FORK" conv=notrunc status=none &
	pids[i]=$!
done
for i in 1 2; do
	wait "${pids[i]}" || fail "a batch beside another one failed: $(error_of "$S")"
done
assert_eq "$(count "$S/forks")" 9
for f in "$S"/forks/*; do
	assert_file "$f/status" ready
done

# -- a limit in the middle: nothing is left of the batch
stop_daemon
start_daemon --set max_sandboxes=12
have=$(count "$RUN")
assert_errno EDQUOT write "$FORK" '8\n'
assert_eq "$(count "$RUN")" "$have" "sandboxes after a batch that is too large"
