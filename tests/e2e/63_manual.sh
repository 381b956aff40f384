#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# cruciblefs(8) lists every file of a live tree with its mode, and no other; crucible.conf(5) lists settings and ranges that the daemon takes.
. "$(dirname "$0")/lib.sh"

start_daemon
new_sandbox a
mkdir "$RUN/a/exec/slot"
run a true
echo true >"$RUN/a/exec/slot/cmd"
bounded cat "$RUN/a/exec/slot/wait" >/dev/null
put a '{"script":"while :; do echo on; sleep 0.2; done","timeout_s":600}' # for a fork that has inherited something
wait_output a on
take a s
fork_of s b
wait_for "what a fork inherited" grep -q on "$RUN/b/inherited/"*.out
wait_stored s
run b true
take b s2 # of a fork: there is something to compare it with
wait_stored s2
compare s2
mkdir "$MNT/views/v"
echo '{}' >"$MNT/views/v/policy"
"$PYTHON" -IS "$E2E/manual.py" tree "$TOP/docs/man/cruciblefs.8" "$MNT" a slot b || fail "cruciblefs(8) and the tree differ"
stop_daemon

"$PYTHON" -IS "$E2E/manual.py" settings "$TOP/docs/man/crucible.conf.5" >"$DIR/settings"
assert_eq "$(wc -l <"$DIR/settings")" "$(grep -cE '^[[:space:]]*\{ (TEXT|U32)\(|^[[:space:]]*\{ "' "$TOP/cruciblefs/domain/config.c")" \
	"settings in crucible.conf(5)"
while read -r key default low high; do
	refuse_daemon "^crucibled: .*(store|$key)" --set "$key=$([ -n "${low-}" ] && echo "$low" || echo /)" --set store=relative
	[ -n "${low-}" ] || continue
	refuse_daemon "^crucibled: .*$key: .*from $low to $high" --set "$key=$((high + 1))"
	[ "$default" -ge "$low" ] || fail "$key: the default $default is below $low"
	[ "$default" -le "$high" ] || fail "$key: the default $default is above $high"
done <"$DIR/settings"
refuse_daemon 'is no setting' --set frob=1
