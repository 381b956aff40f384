#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What ran goes on: a shell's variable, an open file, a file that was removed while it is open; in the parent and in each fork, without a gap.
# limit: 300
. "$(dirname "$0")/lib.sh"

start_daemon
ready_sandbox a limits/memory_mib=128
A=$RUN/a
mkdir "$A/exec/loop"
cat >"$A/exec/loop/cmd" <<'END'
{"script":"n=0; exec 5>/root/open; rm -f /root/open; while :; do n=$((n+1)); echo $n >&5; echo $n >/dev/shm/new; mv /dev/shm/new /dev/shm/n; echo $n >>/root/all; sleep 0.1; done","timeout_s":1000}
END
counter() { # SANDBOX
	cat "$RUN/$1/fs/dev/shm/n"
}
counts_beyond() { # SANDBOX N
	local n

	n=$(counter "$1")
	echo "the counter of $1 is $n"
	[ "$n" -gt "$2" ]
}
wait_for "the loop" counts_beyond a 5

before=$(counter a)
take a s
fork_of s b c
for x in a b c; do
	n=$(counter $x)
	[ "$n" -ge "$before" ] || fail "the counter of $x went back: $n after $before"
	wait_for "$x to go on" counts_beyond $x $((n + 5))
done

# Each number once, in order: nothing was done twice and nothing left out.
for x in a b c; do
	run $x 'awk "\$1 != NR { print NR, \$1; exit 1 }" /root/all && echo whole'
	assert_rec stdout '"whole\n"' exit_code 0
done

# Parent and forks do not see each other.
run b 'echo b >/root/own; echo b >/dev/shm/own'
for x in a c; do
	run $x 'ls /root/own /dev/shm/own'
	assert_rec exit_code '!0'
done

# The parent's command is a command still; the forks' is inherited and can be ended.
assert_file "$A/exec/loop/status" running
echo kill >"$A/exec/loop/ctl"
await a exec/loop
assert_rec signal '"SIGKILL"' exit_code -1
assert_json "$(cat "$RUN/b/info.json")" inherited.0.n 2
echo kill-inherited >"$RUN/b/ctl"
run b 'a=$(cat /dev/shm/n); sleep 0.5; b=$(cat /dev/shm/n); [ "$a" = "$b" ] && echo still'
assert_rec stdout '"still\n"'
n=$(counter c)
wait_for "the other fork's loop to go on" counts_beyond c "$n"

# A pattern in memory, larger than what caches hold.
fill_memory a 48
take a big
fork_of big d
run a 'rm /dev/shm/pattern'
assert_memory d "$SUM"
wait_stored big
fork_of big e
assert_memory e "$SUM"
