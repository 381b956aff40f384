#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The conversation of tests/mcp/conversation.mjs once more, with nothing but cat, echo, mkdir and ls: make a machine, put a
# program and its test into it, run the test, snapshot, try three changes side by side in forks, keep the best, clean up.
. "$(dirname "$0")/lib.sh"

start_daemon
mkdir "$DIR/bin"
for program in cat echo mkdir ls; do
	ln -s "$(type -P "$program")" "$DIR/bin/$program"
done
cat >"$DIR/agent" <<'END'
set -eu
fail() { echo "agent: $*"; exit 1; }
passes() { # SANDBOX: the record of its test
	case $(cat "run/$1/wait") in
	*'"exit_code":0,'*) return 0 ;;
	*'"exit_code":1,'*) return 1 ;;
	*) fail "$1: $(cat "run/$1/wait")" ;;
	esac
}
cd "$1"
! grep x x 2>/dev/null || fail "there are other programs"
mkdir run/w
exec 3>run/w/lease # all of it goes when we do
echo 'mkdir -p /work' >run/w/cmd
cat run/w/wait >&2
echo 'echo $(($1 - $2))' >run/w/fs/work/add.sh
echo '[ "$(sh /work/add.sh 2 3)" = 5 ] && echo pass' >run/w/fs/work/test.sh
[ "$(ls run/w/fs/work)" = "add.sh
test.sh" ] || fail "files: $(ls run/w/fs/work)"
echo 'sh /work/test.sh' >run/w/cmd
! passes w || fail "the test does not find the fault"
echo state >run/w/snapshot || fail "snapshot: $(cat run/w/error)"
echo 3 >snapshots/state/fork || fail "fork: $(cat snapshots/state/error)"
exec 4>run/state-1/lease 5>run/state-2/lease 6>run/state-3/lease
echo 'echo $(($1 * $2))' >run/state-1/fs/work/add.sh
echo 'echo $(($1 + $2))' >run/state-2/fs/work/add.sh
echo 'echo $1$2' >run/state-3/fs/work/add.sh
for f in $(ls run); do
	[ "$f" = w ] || echo 'sh /work/test.sh' >"run/$f/cmd"
done
best=
for f in $(ls run); do
	[ "$f" = w ] || ! passes "$f" || best="$best$f"
done
[ "$best" = state-2 ] || fail "the best is \"$best\""
exec 3>&- 4>&- 6>&-
while [ "$(ls run)" != "$best" ]; do :; done
[ "$(cat "run/$best/fs/work/add.sh")" = 'echo $(($1 + $2))' ] || fail "the best one has another program"
cat "run/$best/stdout"
END
assert_eq "$(bounded env -i PATH="$DIR/bin" /bin/sh "$DIR/agent" "$MNT")" pass
no_runs() { [ -z "$(ls -A "$RUN")" ]; }
wait_for "the last sandbox to go with its agent" no_runs
assert_eq "$(ls "$SNAPS")" state
rmdir "$SNAPS/state" # these four make, and only leases end
