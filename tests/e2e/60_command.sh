#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# limit: 300
#
# The command: run, sandbox create, ls, inspect, exec, rm, stop, logs, events, profile ls, doctor, version; each option by its effect.
. "$(dirname "$0")/lib.sh"

start_daemon
export CRUCIBLE_MOUNT=$MNT

# Sets RC, OUT, ERR.
crucible() {
	RC=0
	OUT=$(bounded "$CRUCIBLE" "$@" 2>"$DIR/err") || RC=$?
	ERR=$(cat "$DIR/err")
}
ok() {
	crucible "$@" </dev/null
	assert_eq "$RC" 0 "exit code of crucible $* ($ERR)"
}
says() { # CODE REGEX ARGUMENT…: it fails so, and standard output stays empty
	local code=$1 want=$2

	shift 2
	crucible "$@" </dev/null
	assert_eq "$RC" "$code" "exit code of crucible $* ($ERR)"
	assert_match "$ERR" "^crucible: .*$want" "what crucible $* says"
	assert_eq "$OUT" "" "output of crucible $*"
}
runs() { ls -A "$RUN"; }

# -- run: streams and exit codes
crucible run -- sh -c 'echo out; echo err >&2; exit 7' </dev/null
assert_eq "$RC $OUT $ERR" "7 out err"
crucible run -- sh -c 'kill -SEGV $$' </dev/null
assert_eq "$RC" 139
crucible run --timeout 1 -- sh -c 'echo before; sleep 600' </dev/null
assert_eq "$RC $OUT" "124 before"
says 1 '/nonexistent' run -- /nonexistent
says 1 'cwd /nowhere' run --cwd /nowhere -- true
crucible run -- sha256sum <"$CRUCIBLE"
assert_eq "${OUT%% *}" "$(sha256sum <"$CRUCIBLE" | cut -d' ' -f1)" "live standard input"
ok run -- cat
assert_eq "$OUT" ""
ok run -- head -c 3000000 /dev/zero
assert_eq "$(runs)" "" "what run leaves"

# -- run: options
ok run -e A=b -e 'L=x
y' -w /tmp -u nobody -- sh -c 'echo "$A $L $PWD $(id -un)"'
assert_eq "$OUT" "b x
y /tmp nobody"
ok run --vcpus 2 --memory 96M --disk 128 -- sh -c 'nproc; df -m / | tail -n 1'
assert_match "$OUT" '^2$'
ok run --profile tiny -- true
ok run --from profile:tiny -- true
says 1 'profile build none' run --profile none -- true
says 1 'from 96 to 4096' run --memory 64G -- true
says 1 'give one of them' run --profile tiny --from tiny -- true
ok run -o json -- sh -c 'echo hi; exit 0'
assert_json "$OUT" exit_code 0 stdout '"hi\n"' sandbox '=~^run-'
ok run --keep -- true
kept=${ERR##* }
assert_exists "$RUN/$kept"
ok rm "$kept"
crucible run -t -- tty </dev/null
assert_match "$OUT" /dev/pts

# -- run: however it ends, nothing is left
for signal in KILL TERM; do
	: >"$DIR/started"
	"$CRUCIBLE" run -- sh -c 'echo up; sleep 600' >"$DIR/started" 2>/dev/null </dev/null &
	pid=$!
	wait_for "the command to start" grep -q up "$DIR/started"
	kill -$signal $pid
	rc=0
	wait $pid || rc=$?
	assert_eq "$rc" "$([ $signal = KILL ] && echo 137 || echo 143)" "exit code after SIG$signal"
	wait_for "the sandbox to go" test -z "$(runs)"
done
rc=0
"$CRUCIBLE" run -- sh -c 'while :; do echo y; done' 2>"$DIR/err" </dev/null | head -n 1 || rc=${PIPESTATUS[0]}
assert_eq "$rc $(cat "$DIR/err")" "141 " "a closed pipe ends it quietly"
wait_for "the sandbox to go" test -z "$(runs)"
rc=0
"$CRUCIBLE" run -- echo hi >/dev/full 2>"$DIR/err" </dev/null || rc=$?
assert_eq "$rc" 1
assert_match "$(cat "$DIR/err")" 'standard output: No space'

# -- words of its own
says 1 'put -- before' run echo hi
says 1 'there is no command "frob"' frob
says 1 'no such option: --frob' run --frob -- true
says 1 'needs a value' run --env
for later in image build registry; do
	says 1 "there is no command \"$later" "$later"
done
says 1 'crucible daemon --mount' --mount "$DIR/nowhere" sandbox ls
says 1 'no crucible mount' --mount "$DIR" sandbox ls
for words in run 'sandbox create' 'sandbox exec' cp doctor 'profile build'; do
	# shellcheck disable=SC2086
	ok $words --help
	assert_match "$OUT" "^usage: crucible $words"
done

# -- sandboxes that stay
ok sandbox create --memory 256M --timeout 1h -e FOO=bar
id=$OUT
assert_eq "$(cat "$RUN/$id/limits/memory_mib" "$RUN/$id/limits/timeout_s" "$RUN/$id/env")" "256
3600
FOO=bar"
says 1 already sandbox create --name "$id"
ok sandbox create --name named -o json
assert_json "$OUT" id '"named"' status '"configured"'
ok sandbox exec "$id" -- sh -c 'echo $FOO'
assert_eq "$OUT" bar
crucible sandbox exec "$id" -i -e X=y -w / -- sh -c 'cat; echo $X; exit 3' < <(echo in)
assert_eq "$RC $OUT" "3 in
y"
crucible sandbox exec "$id" -- cat < <(echo in)
assert_eq "$OUT" "" "without -i there is no input"
crucible sandbox exec "$id" --timeout 0.5 -- sleep 600 </dev/null
assert_eq "$RC" 124
assert_eq "$(find "$RUN/$id/exec" -maxdepth 1 -name 'cli-*')" "" "slots that exec leaves"
ok sandbox ls
assert_match "$OUT" "^$id +ready +profile:tiny"
ok sandbox ls -o json
assert_json "$OUT" 0.from '"profile:tiny"'
ok sandbox inspect "$id"
assert_match "$OUT" '^limits.memory_mib +256$'
ok sandbox inspect "$id" -o json
assert_json "$OUT" id "\"$id\"" limits.memory_mib 256 status '"ready"' usage.commands_running 0
ok stop "$id" named
assert_file "$RUN/$id/status" stopped
ok stop "$id"
ok sandbox exec "$id" -- echo again
assert_eq "$OUT" again
says 1 'no sandbox "none"' stop none
says 1 'no sandbox "none"' sandbox exec none -- true
says 1 'is no name' sandbox inspect ../version

# -- control characters
crucible sandbox exec "$id" -- printf 'a\033[31mb\n' </dev/null
assert_eq "$OUT" $'a\e[31mb' "a pipe gets the bytes as they are"

# -- somebody else
chmod 755 "$DIR"
as_user 4711 "$CRUCIBLE" sandbox ls >"$DIR/others"
assert_match "$(cat "$DIR/others")" "^$id +ready +-"
for words in "sandbox exec $id -- true" "sandbox inspect $id" "stop $id" "rm $id" "cp $id:/etc/passwd $DIR/x" "logs $id"; do
	rc=0
	# shellcheck disable=SC2086
	said=$(as_user 4711 "$CRUCIBLE" $words 2>&1 </dev/null) || rc=$?
	assert_eq "$rc" 1 "exit code of $words"
	assert_match "$said" 'belongs to somebody else'
done

# -- what happened
uuid=$(cat "$RUN/$id/uuid")
ok logs "$id"
assert_match "$OUT" '  exec_done +exec=1  exit_code=0'
ok logs --source exec "$id"
assert_no_match "$OUT" ' created '
ok logs --source service "$id"
assert_no_match "$OUT" exec_done
bounded "$CRUCIBLE" logs -f "$id" >"$DIR/followed" &
follower=$!
ok rm "$id" named
assert_eq "$OUT" ""
wait $follower
assert_match "$(tail -n 1 "$DIR/followed")" '  destroyed ' "logs -f ends with the sandbox"
ok logs "$id"
ok logs "$uuid" -o json
assert_json "$(tail -n 1 <<<"$OUT")" event '"destroyed"' uuid "\"$uuid\""
says 1 'no sandbox' rm "$id"
ok rm -f "$id"
ok events -o json
seq=$(json_of "$(tail -n 2 <<<"$OUT" | head -n 1)" seq)
ok events --since "$seq"
assert_eq "$(wc -l <<<"$OUT")" 1
ok events
assert_match "$OUT" "  destroyed +$id"
assert_eq "$(bounded "$CRUCIBLE" events -f | head -n 1 | wc -l)" 1

# -- the rest
ok profile ls
assert_match "$OUT" '^tiny '
ok profile ls -o json
assert_match "$OUT" '"name": ?"tiny"'
ok version -o json
assert_json "$OUT" daemon '=~^[0-9]'
ok doctor
assert_match "$OUT" 'This host can run sandboxes'
ok doctor --json --deep
assert_json "$OUT" can_run true
assert_match "$OUT" 'ran `true` in it'
ok doctor --store "$STORE"
assert_match "$OUT" "$STORE"
assert_eq "$(runs)" ""
