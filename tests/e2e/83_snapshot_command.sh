#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The command with snapshots: snapshot create, ls, inspect, diff, verify, rm; fork; run and sandbox create from a snapshot; store; each option
# by its effect.
# limit: 400
. "$(dirname "$0")/lib.sh"

start_daemon
export CRUCIBLE_MOUNT=$MNT

# Sets RC, OUT, ERR.
crucible() {
	RC=0
	OUT=$(bounded "$CRUCIBLE" "$@" 2>"$DIR/err" </dev/null) || RC=$?
	ERR=$(cat "$DIR/err")
}
ok() {
	crucible "$@"
	assert_eq "$RC" 0 "exit code of crucible $* ($ERR)"
}
says() { # REGEX ARGUMENT…: it fails so, and standard output stays empty
	local want=$1

	shift
	crucible "$@"
	assert_eq "$RC" 1 "exit code of crucible $* ($ERR)"
	assert_match "$ERR" "^crucible: .*$want" "what crucible $* says"
	assert_eq "$OUT" "" "output of crucible $*"
}

ok sandbox create --name a --memory 96M
ok sandbox exec a -- sh -c 'echo kept >/root/kept; echo m >/dev/shm/m; sync'

# -- snapshot create
ok snapshot create a s --wait
assert_eq "$OUT" s
assert_file "$SNAPS/s/status" ready
ok snapshot create a
made_up=$OUT
assert_match "$made_up" '^snap-[0-9a-f]{8}$'
assert_exists "$SNAPS/$made_up"
ok snapshot create a t -o json
assert_json "$OUT" id '"t"' source '"a"' parent "\"$made_up\""
says 'there is a snapshot "s" already' snapshot create a s
says 'no sandbox "none"' snapshot create none
says 'is no name' snapshot create a 'b c'
ok sandbox create --name idle
says '.' snapshot create idle x

# -- ls, inspect
ok snapshot ls
assert_match "$OUT" '^ID +STATUS +SOURCE +PARENT +FORKS +UNIQUE +OWNER +AGE$'
assert_match "$OUT" '^s +ready +a +profile:tiny +0 '
ok snapshot ls -o json
assert_match "$OUT" '"id":"t"'
ok snapshot inspect s
assert_match "$OUT" '^source +a$'
ok snapshot inspect s -o json
assert_json "$OUT" status '"ready"' fork_names '[]' error '""'
says 'no snapshot "none"' snapshot inspect none

# -- fork
ok fork s
assert_eq "$OUT" s-1
ok fork s --count 2
assert_eq "$OUT" $'s-2\ns-3'
ok fork s --name x --name y -o json
assert_json "$OUT" 0.id '"x"' 1.id '"y"' 0.from '"snapshot:s"'
ok sandbox exec x -- cat /root/kept /dev/shm/m
assert_eq "$OUT" $'kept\nm'
says 'x' fork s --name new --name x
assert_absent "$RUN/new"
says 'from 1 to 256' fork s --count 0
says 'leave --count out' fork s --count 3 --name z
says 'no snapshot "none"' fork none
ok snapshot ls --tree
assert_match "$OUT" '^tiny +profile'
assert_match "$OUT" '─ s +snapshot +ready'
assert_match "$OUT" '─ x +sandbox'
ok snapshot ls --tree -o json
assert_match "$OUT" '"name":"s","kind":"snapshot"'
ok fork s --disk-only --name disk
ok sandbox exec disk -- sh -c 'cat /root/kept; ls /dev/shm | wc -l'
assert_eq "$OUT" $'kept\n0'
"$CRUCIBLE" fork s --count 3 >"$DIR/one" &
one=$!
"$CRUCIBLE" fork s --count 3 >"$DIR/two" &
two=$!
wait $one || fail "two forks at once: the first"
wait $two || fail "two forks at once: the second"
assert_eq "$(sort -u "$DIR/one" "$DIR/two" | wc -l)" 6 "names of two batches at once"
mapfile -t names < <(cat "$DIR/one" "$DIR/two")
for n in "${names[@]}"; do
	assert_file "$RUN/$n/status" ready
done
ok rm s-1 s-2 s-3 disk "${names[@]}"

# -- run and sandbox create go on from one
ok run --snapshot s -- cat /root/kept /dev/shm/m
assert_eq "$OUT" $'kept\nm'
ok run --from snapshot:s -- cat /dev/shm/m
assert_eq "$OUT" m
says 'give one of them' run --snapshot s --profile tiny -- true
says 'none' run --snapshot none -- true
ok sandbox create --snapshot s --name born
assert_file "$RUN/born/from" snapshot:s
ok sandbox exec born -- cat /dev/shm/m
assert_eq "$OUT" m
ok rm born

# -- diff, verify
ok sandbox exec x -- sh -c 'echo new >/root/new; rm /root/kept; echo >"/root/$(printf "two\nlines")"; sync'
ok snapshot create x u --wait
ok snapshot diff u
assert_match "$OUT" '^A /root/new$'
assert_match "$OUT" '^D /root/kept$'
assert_match "$OUT" '^A /root/two\?lines$'
ok snapshot diff u -o json
assert_json "$OUT" parent '"s"' truncated false
assert_match "$(json_of "$OUT" added)" '"/root/two\\nlines"'
ok snapshot verify u
assert_match "$OUT" '^u: ok, [0-9]+ pages$'
ok snapshot verify u -o json
assert_json "$OUT" status '"ok"' damaged 0

# -- store
ok store stat
assert_match "$OUT" '^snapshots +[1-9]'
ok store stat -o json
assert_json "$OUT" snapshots '>3' packs '>0' pages '>0' bytes_packs '>0' bytes_logical '>0'
ok store verify
assert_match "$OUT" '^ok, [0-9]+ pages$'
ok snapshot rm t "$made_up"
assert_absent "$SNAPS/t"
ok store gc
assert_match "$OUT" 'before, .* now, [0-9]+ pages dropped$'
ok store gc -o json
assert_json "$OUT" status '"ok"'
RC=0
ERR=$(as_user 61001 env CRUCIBLE_MOUNT="$MNT" "$CRUCIBLE" store gc 2>&1 >/dev/null) || RC=$?
assert_eq "$RC" 1
assert_match "$ERR" '^crucible: gc: only root'

# -- rm
says 'no snapshot "t"' snapshot rm t
ok snapshot rm --force t
ok snapshot rm s u -o json
assert_eq "$OUT" '["s","u"]'
ok sandbox exec y -- cat /root/kept
assert_eq "$OUT" kept
ok snapshot ls --tree
assert_match "$OUT" '^s +removed' # y grew out of it
for words in 'snapshot create' 'snapshot ls' 'snapshot diff' fork 'store gc'; do
	# shellcheck disable=SC2086
	ok $words --help
	assert_match "$OUT" "^usage: crucible $words"
done
