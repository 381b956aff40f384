#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# limit: 500
# shellcheck disable=SC2086,SC2231 # user ids are numbers
#
# Three users with real user ids on one mount, at the same time: each works as if alone, sees of the others names and status, and takes nothing
# away from them, neither by what it may do (limits of its own) nor by what it tries.
. "$(dirname "$0")/lib.sh"

start_daemon --set max_sandboxes_per_uid=5 --set max_snapshots_per_uid=2
A=61001 B=61002 C=61003
sh_as() { # UID SCRIPT
	bounded setpriv --reuid="$1" --regid="$1" --clear-groups -- env M="$MNT" R="$RUN" S="$SNAPS" CRUCIBLE_MOUNT="$MNT" bash -c "set -e; $2"
}
op_as() { # UID OPERATION ARGUMENT…
	local uid=$1

	shift
	bounded setpriv --reuid="$uid" --regid="$uid" --clear-groups -- "$PYTHON" -IS "$E2E/op.py" "$@" || echo HUNG
}

# -- all at once ------------------------------------------------------------------------------------------------------

work='umask 077
mkdir $R/u$U
for i in 1 2 3 4 5; do
	echo "echo $U $i" >$R/u$U/cmd
	cat $R/u$U/wait | grep -q "\"stdout\":\"$U $i\\\\n\"" || { echo "$U $i: $(cat $R/u$U/wait)"; exit 1; }
done
echo "secret of $U" >$R/u$U/fs/root/secret
echo KEY=$U >$R/u$U/env
mkdir $R/u$U/exec/slot
echo "echo slot; sleep 600" >$R/u$U/exec/slot/cmd
echo "scratch" >$R/u$U/scratch
for try in 1 2 3 4 5; do # a guest that a busy host gave no time to freeze
	if echo s$U >$R/u$U/snapshot; then break; fi
done
echo "f$U g$U" | tr " " "\n" >$S/s$U/fork
for f in f$U g$U; do
	echo "cat /root/secret" >$R/$f/cmd
	cat $R/$f/wait | grep -q "\"stdout\":\"secret of $U\\\\n\"" || { echo "$f: $(cat $R/$f/wait)"; exit 1; }
done
cat $R/u$U/exec/slot/stdout'
pids=()
for u in $A $B $C; do
	sh_as $u "U=$u; $work" >"$DIR/out.$u" 2>&1 &
	pids+=($!)
done
for i in 0 1 2; do
	wait "${pids[i]}" || fail "user $((61001 + i)): $(tail -n 3 "$DIR/out.$((61001 + i))")"
	assert_file "$DIR/out.$((61001 + i))" slot
done
for u in $A $B $C; do
	for o in "$RUN/u$u" "$RUN/f$u" "$RUN/g$u" "$SNAPS/s$u" "$RUN/f$u/cmd" "$RUN/f$u/fs/root/secret"; do
		assert_eq "$(stat -c %u "$o")" "$u" "owner of ${o#"$MNT"/}"
	done
done

# -- what one sees of another, and what it can do to it: nothing ---------------------------------------------------------------

for u in $A $B $C; do
	assert_eq "$(sh_as $u 'for s in $R/*; do cat $s/status; done | sort -u | tr "\n" " "')" "ready running " "every status"
	assert_eq "$(sh_as $u 'ls $R | wc -l; ls $S | wc -l' | tr '\n' ' ')" "9 3 "
done
uuid=$(json_of "$(cat "$RUN/u$A/info.json")" uuid)
sh_as $B "mkdir \$R/own.$B; echo x >\$R/own.$B/mine"
tries() { # UID LIST: every operation of that user on every path of the list
	(cd "$MNT" && bounded setpriv --reuid="$1" --regid="$1" --clear-groups -- "$PYTHON" -IS "$E2E/stranger.py" try "run/own.$B") <"$2" >"$DIR/tries" 2>&1
}
(cd "$MNT" && "$PYTHON" -IS "$E2E/stranger.py" walk run/u$A run/f$A snapshots/s$A "logs/$uuid.jsonl") >"$DIR/paths"
for p in run/u$A/.wait run/u$A/exec/slot/.stdin run/u$A/.fs/root/secret run/f$A/inherited snapshots/s$A/fork; do
	grep -qF "\"$p\"" "$DIR/paths" || fail "$p is not among what is tried"
done
before=$(cat "$RUN/u$A/log.jsonl" "$RUN/f$A/log.jsonl" "$RUN/u$A/error" "$SNAPS/s$A/error")
tries $B "$DIR/paths" || fail "a stranger: $(head -n 40 "$DIR/tries")"
tail -n 1 "$DIR/tries"
[ "$(sed -n 's/ tries$//p' "$DIR/tries")" -gt 3000 ] || fail "few tries: $(cat "$DIR/tries")"
assert_eq "$(cat "$RUN/u$A/log.jsonl" "$RUN/f$A/log.jsonl" "$RUN/u$A/error" "$SNAPS/s$A/error")" "$before" "logs and error of what was tried"
assert_file "$RUN/u$A/env" "KEY=$A"
assert_file "$RUN/u$A/scratch" scratch
assert_file "$RUN/own.$B/mine" x
# (The table can fail: its owner may.)
echo "[[\"run/g$A/uuid\",\"f\"]]" >"$DIR/one"
! tries $A "$DIR/one" || fail "the owner is refused all"
assert_match "$(cat "$DIR/tries")" "^read run/g$A/uuid: OK"

# Names of others: neither taken, nor replaced, nor used as an origin.
for d in run/u$A snapshots/s$A; do
	assert_eq "$(op_as $B mkdir "$MNT/$d")" EEXIST
	assert_match "$(op_as $B rmdir "$MNT/$d")" '^(EACCES|EPERM)$'
	assert_match "$(op_as $B rename "$MNT/$d" "$MNT/${d%/*}/taken")" '^(EACCES|EPERM)$'
done
assert_match "$(op_as $B rename "$RUN/own.$B" "$RUN/u$A")" '^(EEXIST|EPERM)$' "one's own in the place of another's"
assert_eq "$(op_as $B write "$SNAPS/s$A/fork" '1\n')" EACCES "a fork of another's snapshot"
assert_eq "$(op_as $B write "$RUN/own.$B/from" "snapshot:s$A\\n")" EPERM "another's snapshot as the origin"
assert_match "$(sh_as $B "cat \$R/own.$B/error")" "snapshot"
assert_eq "$(op_as $B write "$RUN/own.$B/from" "snapshot:nobodys\\n")" EINVAL

# -- what tells of many shows each its own --------------------------------------------------------------------------------------

for u in $A $B $C; do
	mine=$(sh_as $u 'cat $M/events.jsonl')
	for event in created exec exec_done snapshot forked; do
		assert_match "$mine" "\"event\":\"$event\"" "$event among the events of $u"
	done
	assert_eq "$(sh_as $u 'stat -c %s $M/events.jsonl')" "$(sh_as $u 'wc -c <$M/events.jsonl')" "size of the events of $u"
	assert_eq "$(jq -r .sandbox <<<"$mine" | grep -v '^null$' | sort -u | tr '\n' ' ')" \
		"$({ echo f$u g$u && { [ $u != $B ] || echo own.$B; } && echo u$u; } | tr ' ' '\n' | sort | tr '\n' ' ')" "whose events $u sees"
	metrics=$(sh_as $u 'cat $M/metrics')
	for o in $A $B $C; do
		[ $o = $u ] || assert_no_match "$(grep -v '"event":"error"' <<<"$mine")$metrics" "[usfg]$o" "$u sees of $o in events and metrics"
		logs=$(sh_as $u 'ls $M/logs/by-name')
		[ $o = $u ] || assert_no_match "$logs" "$o"
	done
	for f in "$RUN"/[ufg]$u; do
		id=$(json_of "$(cat "$f/info.json")" uuid)
		for o in $A $B $C; do
			assert_eq "$(op_as $o read "$MNT/logs/$id.jsonl")" "$([ $o = $u ] && echo OK || echo EACCES)" "$o reads a log of $u"
		done
	done
done
assert_match "$(cat "$MNT/events.jsonl")" "\"sandbox\":\"f$A\""

# -- limits are each one's own ------------------------------------------------------------------------------------------------------

sh_as $A 'mkdir $R/a4 $R/a5'
assert_eq "$(op_as $A mkdir "$RUN/a6")" EDQUOT "a sandbox too many"
assert_eq "$(op_as $A write "$SNAPS/s$A/fork" '1\n' WRONLY)" EDQUOT "a fork too many"
assert_match "$(sh_as $A "cat \$S/s$A/error")" 'max_sandboxes_per_uid|limit'
assert_eq "$(op_as $C mkdir "$RUN/c4")" OK "another user's, meanwhile"
sh_as $A 'rmdir $R/a4 $R/a5'
assert_eq "$(op_as $A write "$SNAPS/s$A/fork" '3\n' WRONLY)" EDQUOT "three forks where two may be: all or none"
assert_eq "$(find "$RUN" -maxdepth 1 -user $A | wc -l)" 3 "sandboxes after a batch that was refused"
take_as() { # UID SANDBOX NAME: OK or the errno; a guest that a busy host gave no time to freeze is asked again
	local try said

	for try in 1 2 3 4 5; do
		said=$(op_as "$1" write "$RUN/$2/snapshot" "$3\\n" WRONLY)
		[[ $said != OK && $(error_of "$RUN/$2") == *'did not freeze'* ]] || break
	done
	echo "$said"
}
assert_eq "$(take_as $A g$A t$A)" OK
assert_eq "$(take_as $A g$A t2$A)" EDQUOT "a snapshot too many"
assert_match "$(sh_as $A "cat \$R/g$A/error")" max_snapshots_per_uid
assert_eq "$(take_as $B g$B t$B)" OK "another user's, meanwhile"
sh_as $A "rmdir \$S/t$A"
snapshot_gone() { [ ! -e "$SNAPS/$1" ]; }
wait_for "the removed snapshot to go" snapshot_gone t$A

# -- two thousand who wait, and all the open files that one may have: nobody else notices -----------------------------------------------------

sh_as $A "echo 'echo up; sleep 600' >\$R/u$A/cmd"
wait_output u$A up
mkfifo "$DIR/hold"
"$PYTHON" -IS "$E2E/crowd.py" $A "$RUN/u$A" <"$DIR/hold" >"$DIR/crowd" 2>&1 &
crowd=$!
exec {hold}>"$DIR/hold"
wait_for "the crowd" grep -q -e '^there' -e Error "$DIR/crowd"
assert_eq "$(head -n 1 "$DIR/crowd")" "there: EDQUOT EMFILE"
sh_as $B "ls -l \$R \$R/own.$B >/dev/null; echo 'echo fine' >\$R/u$B/cmd; cat \$R/u$B/wait" >"$DIR/rec"
assert_json "$(cat "$DIR/rec")" stdout '"fine\n"'
assert_eq "$(op_as $C open "$RUN/u$C/stdout")" OK
assert_eq "$(op_as $A open "$RUN/u$A/stdout")" EMFILE "one more of the first one's"
assert_eq "$(sh_as $C "cat \$R/u$A/status")" running
exec {hold}>&-
wait_for "the files to be closed" grep -q closed "$DIR/crowd"
echo kill >"$RUN/u$A/ctl"
wait $crowd || fail "the crowd: $(tail -n 3 "$DIR/crowd")"
assert_eq "$(tail -n 1 "$DIR/crowd")" "2048 records"
assert_eq "$(op_as $A open "$RUN/u$A/stdout")" OK

# -- a name that comes back is another object ---------------------------------------------------------------------------------------------

sh_as $A "mkdir \$R/again; echo 'echo of the first' >\$R/again/cmd; cat \$R/again/wait >/dev/null"
first=$(json_of "$(cat "$RUN/again/info.json")" uuid)
mkfifo "$DIR/go"
chmod 666 "$DIR/go"
bounded setpriv --reuid=$A --regid=$A --clear-groups -- "$PYTHON" -IS "$E2E/kept.py" "$RUN/again" "$DIR/go" >"$DIR/kept" 2>&1 &
kept=$!
wait_for "what is kept open" grep -q held "$DIR/kept"
sh_as $A 'rmdir $R/again'
sh_as $B "rmdir \$R/own.$B; mkdir \$R/again; echo 'echo of the second' >\$R/again/cmd; cat \$R/again/wait >/dev/null; echo new words >\$R/again/fs/root/secret"
second=$(json_of "$(cat "$RUN/again/info.json")" uuid)
assert_ne "$second" "$first" uuid
echo go >"$DIR/go"
wait $kept || fail "what was kept open of a removed sandbox: $(cat "$DIR/kept")"
assert_no_match "$(cat "$DIR/kept")" "of the second|new words|$second"
cat "$DIR/kept"
assert_absent "$RUN/again/exec/slot" "$RUN/again/scratch"
assert_file "$RUN/again/env" ''
assert_eq "$(stat -c %u "$RUN/again")" $B
assert_file "$RUN/again/stdout" 'of the second'
assert_eq "$(sh_as $A 'readlink $M/logs/by-name/again')" "../$first.jsonl" "the log of that name that the first may read"
assert_eq "$(sh_as $B 'readlink $M/logs/by-name/again')" "../$second.jsonl"
assert_eq "$(op_as $A rmdir "$RUN/again")" "$(op_as $A rmdir "$RUN/u$B")"

# -- ends: of one at a time, while the others go on ------------------------------------------------------------------------------------------

for u in $A $B; do
	sh_as $u "for d in \$R/?$u; do rmdir \$d; done; rmdir \$S/?$u"
	assert_eq "$(sh_as $C "cat \$R/u$C/exec/slot/stdout")" slot
done
sh_as $C "echo 'cat /root/secret' >\$R/f$C/cmd; cat \$R/f$C/wait" >"$DIR/rec"
assert_json "$(cat "$DIR/rec")" stdout "\"secret of $C\\n\""
