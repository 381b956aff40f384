#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The command on a terminal: shell, window size, Ctrl-C, Ctrl-D, Ctrl-Z, the way out, and that the terminal is as before afterwards.
. "$(dirname "$0")/lib.sh"

start_daemon
export CRUCIBLE_MOUNT=$MNT BOUND
ready_sandbox a
"$PYTHON" "$E2E/terminal.py" a
assert_eq "$(ls -A "$RUN")" a "what is left"
rc=0
said=$(bounded "$CRUCIBLE" shell a 2>&1 </dev/null) || rc=$?
assert_eq "$rc" 1
assert_match "$said" 'needs a terminal'
