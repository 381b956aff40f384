#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Commands: how they end and what they find. CASES.md "Commands", the short ones.
. "$(dirname "$0")/lib.sh"

start_daemon
ready_sandbox a
A=$RUN/a

# -- exit codes and signals ----------------------------------------------------------------------------------------

for code in 0 1 2 42 126 127 255; do
	run a "exit $code"
	assert_rec exit_code $code signal '""' error '""'
done
for signal in SEGV TERM KILL ABRT INT HUP USR1 PIPE; do
	run a "kill -$signal \$\$; sleep 60"
	assert_rec exit_code -1 signal "\"SIG$signal\"" error '""' timed_out false oom_killed false
done
run a 'no-such-program'
assert_rec exit_code 127 stderr '=~not found'
run a '{"argv":["/no/such/program"]}'
assert_rec exit_code -1 error '=~/no/such/program'
run a '{"argv":["/etc/passwd"]}'
assert_rec exit_code -1 error '=~/etc/passwd'
run a 'if then'
assert_rec exit_code 2 stderr '=~syntax'

# -- it ends when its own process ends ------------------------------------------------------------------------------------

run a 'sleep 60 & echo hi'
assert_rec exit_code 0 stdout '"hi\n"' duration_ms '<30000'
run a 'sh -c "sleep 61 & echo hi"'
assert_rec exit_code 0 stdout '"hi\n"' duration_ms '<30000'
run a '(echo first; sleep 62) & (sleep 62; echo late) & echo second; wait %1 2>/dev/null & exit 3'
assert_rec exit_code 3 stdout '=~second'
run a 'cat'
assert_rec exit_code 0 stdout '""' # no input: end of file at once
run a 'read -r x; echo "rc $?"'
assert_rec stdout '"rc 1\n"'

# -- the text ---------------------------------------------------------------------------------------------------------------

run a $'\xef\xbb\xbfecho bom'
assert_rec stdout '"bom\n"' exit_code 0
run a $'echo one\r\necho two\r\n'
assert_rec stdout '"one\ntwo\n"'
run a $'printf "a\\r\\n"; echo "b\r"\necho c\n' # not every line has it: kept
assert_rec stdout '"a\r\nb\r\nc\n"'
run a $'#!/bin/cat\nshown as it is\n'
assert_rec stdout '"#!/bin/cat\nshown as it is\n"'
run a $'#!/bin/sh -e\nfalse\necho not reached\n'
assert_rec exit_code 1 stdout '""'
run a $'#!/usr/bin/awk -f\nBEGIN { print 6 * 7 }\n'
assert_rec stdout '"42\n"'
run a $'\xef\xbb\xbf#!/bin/sh\r\necho crlf\r\n'
assert_rec stdout '"crlf\n"'
run a $'#!/no/such/interpreter\nx\n'
assert_rec exit_code '!0'
run a $'\n\n# a comment\n\necho after blanks\n'
assert_rec stdout '"after blanks\n"'
run a 'echo "äöü €"; echo '"'"'a"b\c'"'"
assert_rec stdout '"äöü €\na\"b\\c\n"'
run a '  {"argv":["echo","json after blanks"]}'
assert_rec stdout '"json after blanks\n"'
run a '{ echo braces; }'
assert_rec exit_code -1 error '=~.' # a text that begins with { is JSON
run a $'\n: ;{ echo braces; }'
assert_rec stdout '"braces\n"'
run a 'echo "$0 $#"; cat "$0"'
assert_rec exit_code 0 stdout '=~cat'

# -- what it finds --------------------------------------------------------------------------------------------------------------

run a 'id -u; pwd; echo $HOME; umask; ls / | tr "\n" " "; tty; echo "$(</proc/self/comm)" 2>/dev/null'
assert_rec exit_code 0 stdout '=~^0\n/.*\n/root\n0022\n'
run a 'echo to-stderr >/dev/stderr; echo to-stdout >/dev/stdout; echo x >/dev/null; echo y >/dev/fd/2'
assert_rec stdout '"to-stdout\n"' stderr '"to-stderr\ny\n"'
run a 'echo shm >/dev/shm/x && cat /dev/shm/x; head -c 4 /dev/urandom | wc -c; head -c 4 /dev/zero | od -An -tx1; ls -d /dev/pts /dev/ptmx /dev/fd; test -c /dev/full && echo full'
assert_rec stdout '=~^shm\n4\n 00 00 00 00\n.*/dev/pts.*full\n' exit_code 0
run a 'ifconfig lo | grep -o "127.0.0.1"; ip link | grep -c "^[0-9]"; cat /proc/net/dev | grep -vc "lo:\|Inter-\|face"; ping -c 1 -W 1 127.0.0.1 >/dev/null && echo pong'
assert_rec stdout '=~127.0.0.1\n1\n0\npong'
run a 'mount | grep -c "^proc \|^sysfs \|^devtmpfs \|^tmpfs "; touch /root/x /tmp/x /var/x; hostname; cat /etc/hostname'
assert_rec exit_code 0
run a 'ls'
assert_rec exit_code 0 # a bare name is found
run a 'echo $$ >/tmp/pid; cat /proc/1/comm; ps | wc -l'
assert_rec exit_code 0
run a 'ulimit -n; ulimit -c'
assert_rec exit_code 0
run a 'date +%Y; date +%s'
guest=$(rec stdout | tail -n 1)
host=$(date +%s)
if [ $((host - guest)) -lt -2 ] || [ $((host - guest)) -gt "$BOUND" ]; then
	fail "the guest's clock: $guest, the host's: $host"
fi
assert_rec started_at "=~^$(date -u +%Y)-"

# -- orphans ----------------------------------------------------------------------------------------------------------------------

for _ in {1..100}; do
	run a '(sleep 0.01 & sleep 0.02 &) ; (setsid sh -c "sleep 0.01 &" &) ; true & true & :'
	assert_rec exit_code 0
done
run a 'n=0; until [ "$(cat /proc/[0-9]*/stat 2>/dev/null | grep -c ") Z ")" = 0 ] || [ $n = 100 ]; do n=$((n+1)); sleep 0.1; done
	cat /proc/[0-9]*/stat 2>/dev/null | grep ") Z "; echo end'
assert_rec stdout '"end\n"' # no zombies

# -- side by side and in order ---------------------------------------------------------------------------------------------------------

for i in {1..20}; do
	put a "echo $i >>/tmp/order"
done
run a 'tr "\n" " " </tmp/order'
assert_rec stdout '"1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 "' queued_ms '>-1'
assert_file "$A/exec/latest/status" "done"
