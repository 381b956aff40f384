#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The environment of commands: defaults, the list `env`, a request's own; many and long ones.
. "$(dirname "$0")/lib.sh"

start_daemon
new_sandbox a
A=$RUN/a
printf 'GREETING=hello world\nEMPTY=\nQUOTED="a b" $HOME `id`\nEQ=a=b=c\nUTF=äöü\n' >"$A/env"
run a 'echo "$GREETING|${EMPTY-unset}|$QUOTED|$EQ|$UTF"'
assert_rec stdout '"hello world||\"a b\" $HOME `id`|a=b=c|äöü\n"'
run a '{"argv":["env"],"env":{"GREETING":"of the request","OWN":"x"}}'
assert_rec stdout '=~(^|\n)GREETING=of the request\n'
assert_rec stdout '=~(^|\n)OWN=x\n'
assert_rec stdout '=~(^|\n)EQ=a=b=c\n'
run a 'echo "${OWN-unset} $GREETING"'
assert_rec stdout '"unset hello world\n"'
run a 'echo "$PATH|$HOME|$USER|$PWD|$SHELL|$LANG|$TERM"; env | wc -l'
assert_rec stdout '=~^/.*/bin.*\|/root\|'

# Changed while it runs: for what is accepted from now on.
put a 'sleep 1; echo "$GREETING"'
put a 'echo "$GREETING $ADDED"'
echo GREETING=changed >"$A/env"
echo ADDED=too >>"$A/env"
run a 'echo "$GREETING $ADDED ${EQ-unset}"'
assert_rec stdout '"changed too unset\n"'

# Sixty of them, and 64 KiB.
for i in {1..60}; do
	echo "V$i=value $i"
done >"$DIR/sixty"
cp "$DIR/sixty" "$A/env"
run a 'env | grep -c "^V[0-9]*=value"; echo "$V1 $V60"'
assert_rec stdout '"60\nvalue 1 value 60\n"'
for i in {1..64}; do
	echo "L$i=$(printf "%01015d" "$i")"
done >"$DIR/long"
assert_eq "$(stat -c %s "$DIR/long" | cut -c1-2)" 65
cp "$DIR/long" "$A/env"
run a 'env | grep "^L[0-9]*=" | sort | wc -c; echo "$L64" | tail -c 3'
assert_rec error '""' exit_code 0 stdout "\"$(stat -c %s "$DIR/long")\\n64\\n\""
"$PYTHON" -IS - "$A/cmd" <<'END'
import json, sys
env = {f"R{i}": "r" * 1000 for i in range(64)}
with open(sys.argv[1], "w") as f:
    json.dump({"script": "env | grep -c '^R[0-9]*=rrr'; env | grep -c '^L[0-9]*='", "env": env}, f)
END
await a
assert_rec stdout '"64\n64\n"'
# A long argument list.
"$PYTHON" -IS - "$A/cmd" <<'END'
import json, sys
with open(sys.argv[1], "w") as f:
    json.dump({"argv": ["/bin/sh", "-c", "echo $#; shift 1999; echo $1", "x"] + [f"argument number {i}" for i in range(1, 3001)]}, f)
END
await a
assert_rec stdout '"3000\nargument number 2000\n"'

# cwd and user: what does not exist is named.
run a '{"argv":["pwd"],"cwd":"relative"}'
assert_rec exit_code -1 error '=~cwd.*absolute'
run a 'mkdir -p "/tmp/a b/é"'
run a '{"argv":["pwd"],"cwd":"/tmp/a b/é"}'
assert_rec stdout '"/tmp/a b/é\n"'

# Kept over stop and start, and over a restart of the daemon.
echo KEPT=yes >"$A/env"
echo stop >"$A/ctl"
wait_status a stopped
stop_daemon
start_daemon
run a 'echo "$KEPT"'
assert_rec stdout '"yes\n"'
