#!/bin/bash
# Forks of a networked snapshot: both talk to the same server at once; a connection that was open at the snapshot is reset in the fork, before the fork
# can do anything, and lives on in the parent. The list is inherited, ports are not.
. "$(dirname "$0")/lib.sh"
. "$E2E/lib_net.sh"
need_profile python
net_world
start_daemon
mkdir "$RUN/a"
echo profile:python >"$RUN/a/from"
echo v4.test >"$RUN/a/net/allow"
echo 18090:8090 >"$RUN/a/net/ports"
cat >"$DIR/talk.py" <<'PY'
import socket, sys, time
s = socket.create_connection(("v4.test", 7), 60)
s.settimeout(60)
open("/root/up", "w").write("up\n")
n = 0
while True:
    try:
        s.sendall(b"%d\n" % n)
        got = s.recv(100)
    except OSError as e:
        open("/root/end", "w").write(f"{type(e).__name__} {n}\n"); sys.exit(3)
    if not got:
        open("/root/end", "w").write(f"closed {n}\n"); sys.exit(4)
    n += 1
    open("/root/count", "w").write(f"{n}\n")
    time.sleep(0.05)
PY
# One that only waits, and never sends a byte: it must learn of it as well.
cat >"$DIR/wait.py" <<'PY'
import socket, sys
s = socket.create_connection(("v4.test", 9001), 60)
s.settimeout(600)
open("/root/waits", "w").write("up\n")
try:
    s.recv(1)
except OSError as e:
    open("/root/waited", "w").write(f"{type(e).__name__}\n")
PY
run a true
bounded cp "$DIR/talk.py" "$DIR/wait.py" "$RUN/a/fs/root/"
run a 'for p in talk wait; do setsid python3 /root/$p.py >/root/$p.log 2>&1 </dev/null & done; while [ ! -e /root/count ] || [ ! -e /root/waits ]; do sleep 0.05; done'
assert_rec exit_code 0
take a s
fork_of s b c
assert_file "$RUN/b/net/allow" v4.test
assert_file "$RUN/b/net/ports" ''
for f in b c; do
	run $f 'while [ ! -e /root/end ] || [ ! -e /root/waited ]; do sleep 0.05; done; cat /root/end /root/waited'
	assert_rec exit_code 0 stdout '=~^(ConnectionResetError|ConnectionAbortedError|BrokenPipeError) [0-9]+\n(ConnectionResetError|ConnectionAbortedError)\n$'
done
# Both at once, and the parent goes on with the connection of before.
for f in b c; do
	echo 'for i in 1 2 3 4 5; do python3 -c "import urllib.request as u; print(u.urlopen(\"http://v4.test/hello\").read())" || exit 1; done' >"$RUN/$f/cmd"
done
for f in b c; do
	assert_match "$(bounded cat "$RUN/$f/wait")" '"exit_code":0'
done
before=$(bounded cat "$RUN/a/fs/root/count")
wait_for "the parent's connection to go on" eval '[ "$(bounded cat "$RUN/a/fs/root/count")" -gt '"$before"' ]'
assert_absent "$RUN/a/fs/root/end"

# The next fork finds a machine that waits, whose network was made before it came: it has its list, and nothing beside it.
has_warm() { assert_json "$(cat "$MNT/health.json")" pool.fork_ready 1; }
wait_for "a machine of the next fork" eval '(CRUCIBLE_TEST_GO_ON=; trap - ERR; has_warm)'
fork_of s d
run d 'python3 -c "import urllib.request as u; print(u.urlopen(\"http://v4.test/hello\").read())"'
assert_rec exit_code 0 stdout '=~hello from '
run d 'python3 -c "import socket; socket.create_connection((\"93.184.216.35\", 80), 5).recv(1)"'
assert_rec exit_code '!0'
wait_for "a log of a refusal" net_logged d event connection verdict refused address '^93.184.216.35$'
echo third.test >"$RUN/d/net/allow"
run d 'python3 -c "import urllib.request as u; print(u.urlopen(\"http://third.test/hello\").read())"'
assert_rec exit_code 0 stdout '=~hello from '
