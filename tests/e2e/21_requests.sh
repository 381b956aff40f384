#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# JSON requests: every member, its type and its effect; and the record's own form.
. "$(dirname "$0")/lib.sh"

start_daemon
ready_sandbox a
A=$RUN/a

run a '{"argv":["printf","%s|","a b","","c\"d","é","$HOME"]}'
assert_rec stdout '"a b||c\"d|é|$HOME|"' argv '["printf","%s|","a b","","c\"d","é","$HOME"]' exit_code 0
run a '{"script":"echo $((6*7))\nexit 4"}'
assert_rec stdout '"42\n"' exit_code 4
run a '{"script":"#!/usr/bin/awk -f\nBEGIN{print \"awk\"}"}'
assert_rec stdout '"awk\n"'
run a '{"argv":["env"],"env":{"GREETING":"hi there","EMPTY":"","PATH":"/bin:/usr/bin"}}'
assert_rec stdout '=~(^|\n)GREETING=hi there\n' error '""'
assert_rec stdout '=~(^|\n)EMPTY=\n'
assert_rec stdout '=~(^|\n)PATH=/bin:/usr/bin\n'
run a '{"argv":["pwd"],"cwd":"/usr/bin"}'
assert_rec stdout '"/usr/bin\n"'
run a '{"argv":["pwd"],"cwd":"/no/such/place"}'
assert_rec exit_code -1 error '=~/no/such/place' stdout '""'
run a '{"argv":["pwd"],"cwd":"/etc/passwd"}'
assert_rec exit_code -1 error '=~/etc/passwd'
run a '{"script":"id -un; id -u; id -g; id -G; echo $HOME; touch /home/user/x && echo mine; touch /etc/x 2>/dev/null || echo refused","user":"user"}'
assert_rec stdout '"user\n1000\n1000\n1000\n/home/user\nmine\nrefused\n"'
run a '{"argv":["id","-u"],"user":"1000"}'
assert_rec stdout '"1000\n"'
run a '{"argv":["id"],"user":"nobody-of-that-name"}'
assert_rec exit_code -1 error '=~nobody-of-that-name'
run a '{"argv":["cat"],"stdin":"one\ntwo é\n"}'
assert_rec stdout '"one\ntwo é\n"'
run a '{"argv":["cat"],"stdin":""}'
assert_rec stdout '""' exit_code 0
run a '{"argv":["sleep","9"],"timeout_s":1}'
assert_rec timed_out true signal '"SIGKILL"' exit_code -1
run a '{"argv":["sleep","9"],"timeout_s":0.5}'
assert_rec timed_out true signal '"SIGKILL"' duration_ms '>400'
run a '{"script":"head -c 3000000 /dev/zero","output_mib":1}'
assert_rec stdout_bytes 3000000 stdout_truncated true
assert_eq "$(stat -c %s "$A/stdout")" 1048576
run a '{"script":"stty size; tty; test -t 0 && test -t 1 && test -t 2 && echo terminal; echo to-stderr >&2","tty":{"rows":33,"cols":111}}'
assert_rec stdout '=~^33 111\r?\n/dev/pts/[0-9]+\r?\nterminal\r?\nto-stderr' stderr '""'
run a '{"argv":["true"],"tty":{"rows":24,"cols":80},"env":{"TERM":"dumb"},"cwd":"/","user":"root","timeout_s":30,"output_mib":1}'
assert_rec exit_code 0 error '""'

# -- refused by the record, which names what is wrong ---------------------------------------------------------------

refused() { # TEXT REGEX
	put a true
	put a "$1"
	await a
	assert_rec exit_code -1 signal '""' error "=~$2" stdout '""' stderr '""' timed_out false
	assert_match "$(cat "$A/error")" 'sandbox a|command|[0-9]' "error"
}
refused '{' .
refused '{}' 'argv|script'
refused '{"argv":["true"],"script":"true"}' 'argv|script'
refused '{"argv":[]}' argv
refused '{"argv":"true"}' argv
refused '{"argv":[1]}' argv
refused '{"argv":[""]}' .
refused '{"argv":["a\u0000b"]}' .
refused '{"script":1}' script
refused '{"script":""}' script
refused '{"argv":["true"],"env":["A=1"]}' env
refused '{"argv":["true"],"env":{"A":1}}' env
refused '{"argv":["true"],"env":{"A=B":"1"}}' .
refused '{"argv":["true"],"env":{"":"1"}}' .
refused '{"argv":["true"],"cwd":1}' cwd
refused '{"argv":["true"],"user":1}' user
refused '{"argv":["true"],"timeout_s":"1"}' timeout_s
refused '{"argv":["true"],"timeout_s":0}' timeout_s
refused '{"argv":["true"],"timeout_s":-1}' timeout_s
refused '{"argv":["true"],"timeout_s":1e999}' timeout_s
refused '{"argv":["true"],"stdin":1}' stdin
refused '{"argv":["true"],"tty":true}' tty
refused '{"argv":["true"],"tty":{"rows":0,"cols":80}}' .
refused '{"argv":["true"],"tty":{"rows":24,"cols":80,"depth":1}}' .
refused '{"argv":["true"],"output_mib":0}' output_mib
refused '{"argv":["true"],"output_mib":"1"}' output_mib
refused '{"argv":["true"],"nonsense":1}' nonsense
refused '{"argv":["true"]} trailing' .
refused '{"argv":["true"]}{"argv":["true"]}' .
run a '["true"'
assert_rec exit_code '!0' # a text that does not begin with { is a script, and this one fails
put a true
put a '{"argv":["'"$(printf 'x%.0s' {1..1000})"'"'
await a

# -- the record ------------------------------------------------------------------------------------------------------------

run a 'echo out; echo err >&2'
"$PYTHON" -IS - "$A" <<'END'
import datetime, json, os, sys
a = sys.argv[1]
text = open(a + "/result.json").read()
assert text.count("\n") == 1 and text.endswith("\n"), "one line"
r = json.loads(text)
want = ["exec", "sandbox", "argv", "exit_code", "signal", "timed_out", "oom_killed", "cancelled", "error", "started_at", "duration_ms",
        "queued_ms", "stdout", "stderr", "stdout_bytes", "stderr_bytes", "stdout_truncated", "stderr_truncated", "usage", "isolation"]
assert list(r) == want, (list(r), want)
assert list(r["usage"]) == ["cpu_user_ms", "cpu_sys_ms", "peak_memory_bytes", "page_faults_major", "context_switches_involuntary",
                            "io_read_bytes", "io_write_bytes"], list(r["usage"])
assert list(r["isolation"]) == ["engine", "accel", "network", "unenforced"], r["isolation"]
started = datetime.datetime.fromisoformat(r["started_at"].replace("Z", "+00:00"))
now = datetime.datetime.now(datetime.timezone.utc)
assert datetime.timedelta(0) <= now - started < datetime.timedelta(seconds=120), (started, now)
n = r["exec"]
for f in "stdout", "stderr":
    assert open(f"{a}/{f}").read() == r[f] == open(f"{a}/exec/{n}/{f}").read()
assert os.readlink(a + "/exec/latest") == str(n)
for i in range(1, n + 1):
    assert json.load(open(f"{a}/exec/{i}/result.json"))["exec"] == i
END
run a 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; head -c 20000000 /dev/zero | wc -c'
assert_rec usage.cpu_user_ms '>0' usage.peak_memory_bytes '>100000' duration_ms '>0'
