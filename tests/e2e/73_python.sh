#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A Python session and its forks, ten generations: each adds a file and an element of a list, and has those of its ancestors and its own.
# limit: 600
. "$(dirname "$0")/lib.sh"
need_profile python

start_daemon
new_sandbox g0 from=profile:python limits/memory_mib=128
session='import os
seen = []
os.mkfifo("/dev/shm/in")
while True:
    for line in open("/dev/shm/in"):
        exec(line)'
mkdir "$RUN/g0/exec/session"
jq -nc --arg s "$session" '{argv: ["python3", "-c", $s], timeout_s: 3000}' >"$RUN/g0/exec/session/cmd"

# A line for the session, and what the list is then.
tell() { # SANDBOX LINE
	local slot=$RUN/$1/exec/tell

	mkdir "$slot" 2>/dev/null || :
	jq -nc --arg line "$2; open('/dev/shm/new', 'w').write(repr(seen)); os.rename('/dev/shm/new', '/dev/shm/seen-$((++told))')" \
		'{script: "until [ -p /dev/shm/in ]; do sleep 0.1; done; cat >/dev/shm/in", stdin: ($line + "\n")}' >"$slot/cmd"
	await "$1" exec/tell
	assert_rec exit_code 0
	wait_for "the session in $1 to answer" test -e "$RUN/$1/fs/dev/shm/seen-$told"
	SEEN=$(cat "$RUN/$1/fs/dev/shm/seen-$told")
}
told=0

list() { # LAST […]: 0 to LAST, and what else
	local all

	all=$(seq -s ', ' 0 "$1")
	echo "[$all${2:+, $2}]"
}

generations=10
for ((i = 0; i < generations; i++)); do
	tell g$i "seen.append($i)"
	assert_eq "$SEEN" "$(list $i)" "the list of generation $i"
	echo $i >"$RUN/g$i/fs/root/of-$i"
	take g$i s$i
	tell g$i 'seen.append("late")' # after the snapshot: nobody below may see it
	fork_of s$i g$((i + 1))
done
for ((i = 0; i <= generations; i++)); do
	tell g$i 'pass'
	last=$((i < generations ? i : i - 1))
	assert_eq "$SEEN" "$(list $last "$([ $i = $generations ] || echo "'late'")")" "the list of generation $i at the end"
	assert_eq "$(cd "$RUN/g$i/fs/root" && echo of-*)" "$(seq -s ' ' -f 'of-%.0f' 0 $last)" "the files of generation $i"
done
