#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# With open connections both ways: netd is killed, the daemon is killed, netd is stopped, the machine is paused, stopped and started, the sandbox
# is removed in the middle of transfers. Whatever happens, nothing gets through unfiltered, and it works again by itself.
# limit: 600
. "$(dirname "$0")/lib.sh"
. "$E2E/lib_net.sh"
need curl
need_profile python
net_world
start_daemon --set pool_size=0 --set warm_size=0 --set prepare=0

# -- in the guest --------------------------------------------------------------------------------------------------------

# An echo server at 8080; `get N` gives N bytes instead.
cat >"$DIR/serve.py" <<'PY'
import socketserver
class H(socketserver.StreamRequestHandler):
    def handle(self):
        while line := self.rfile.readline():
            if line.startswith(b"get "):
                left = int(line[4:])
                while left > 0:
                    n = min(left, 65536); self.wfile.write(b"x" * n); left -= n
            else:
                self.wfile.write(line)
class S(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
S(("0.0.0.0", 8080), H).serve_forever()
PY
# A connection to the echo server of the world that counts what came back, in a file of its own.
cat >"$DIR/talk.py" <<'PY'
import socket, sys, time
at = sys.argv[1]
def put(name, text):
    with open(f"/run/{at}.{name}", "w") as f:
        f.write(f"{text}\n")
n = 0
try:
    s = socket.create_connection(("v4.test", 7), 60)
    s.settimeout(120)
    while True:
        s.sendall(b"%d\n" % n)
        if not s.recv(100):
            put("end", "closed"); break
        n += 1
        put("count", n)
        time.sleep(0.05)
except OSError as e:
    put("end", type(e).__name__)
PY
# Whatever state the filter is in: it tries to get where it must not, again and again.
cat >"$DIR/try.py" <<'PY'
import socket
n = 0
while True:
    for to in ("93.184.216.35", 80), ("10.0.0.1", 80), ("192.0.2.2", 53), ("169.254.169.254", 80):
        try:
            with socket.create_connection(to, 0.5) as s:
                s.settimeout(0.5)
                s.sendall(b"GET /unfiltered HTTP/1.0\r\n\r\n")
                if s.recv(1):
                    open("/run/reached", "a").write(f"{to}\n")
        except OSError:
            pass
        u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            u.sendto(b"unfiltered", ("93.184.216.34", 123))
            u.sendto(bytes.fromhex("000701000001000000000000") + b"\6denied\4test\0\0\1\0\1", ("192.0.2.2", 53))
        except OSError:
            pass
    n += 1
    open("/run/tried", "w").write(f"{n}\n")
PY

guest_number() { # SANDBOX FILE
	local n

	n=$(bounded cat "$RUN/$1/fs/run/$2" 2>/dev/null) || n=0
	echo "${n:-0}"
}

above() { # SANDBOX FILE NUMBER
	[ "$(guest_number "$1" "$2")" -gt "$3" ]
}

goes_on() { # SANDBOX FILE: the number in it grows
	wait_for "$2 of $1 to grow" above "$1" "$2" "$(($(guest_number "$1" "$2") + 2))"
}

background() { # SANDBOX PROGRAM ARGUMENT…
	local box=$1

	shift
	run "$box" "setsid python3 /root/$1.py ${*:2} >/root/$1.log 2>&1 </dev/null & true"
	assert_rec exit_code 0
}

serve() { # SANDBOX
	background "$1" serve
	run "$1" 'for i in $(seq 100); do python3 -c "import socket; socket.create_connection((\"127.0.0.1\", 8080))" 2>/dev/null && exit 0; done; cat /root/serve.log; exit 1'
	assert_rec exit_code 0
}

talk() { # SANDBOX NAME: a connection out of it, which has carried something
	background "$1" talk "$2"
	wait_for "connection $2 of $1" above "$1" "$2.count" 2
}

talk_ended() { # SANDBOX NAME
	wait_for "the end of connection $2 of $1" test -e "$RUN/$1/fs/run/$2.end"
}

talk_lives() { # SANDBOX NAME
	goes_on "$1" "$2.count"
	assert_absent "$RUN/$1/fs/run/$2.end"
}

# -- on the host: a connection into the guest, held by a process that answers over two pipes ------------------------------

cat >"$DIR/hold.py" <<'PY'
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60)
s.settimeout(60)
f = s.makefile("rb")
for line in sys.stdin:
    try:
        s.sendall(line.encode())
        got = f.readline().decode()
    except OSError as e:
        got = ""
    print(got.strip() or "ended", flush=True)
PY

hold() { # PORT
	coproc HOLD { in_host "$PYTHON" -IS "$DIR/hold.py" "$1"; }
	held_says hello
}

held() { # WORD: what comes back for it
	local got

	echo "$1" >&"${HOLD[1]}"
	read -r -t "$BOUND" -u "${HOLD[0]}" got || got='no answer'
	echo "$got"
}

held_says() { # WORD
	assert_eq "$(held "$1")" "$1" "what the connection into the guest answers"
}

let_go() {
	local pid=$HOLD_PID

	eval "exec ${HOLD[1]}>&-"
	wait "$pid" || :
}

port_answers() { # PORT
	in_host "$PYTHON" -IS - "$1" <<'PY'
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
s.settimeout(5)
s.sendall(b"you there\n")
assert s.recv(100) == b"you there\n"
PY
}

fetches() { # SANDBOX NAME: over a new connection, to its first answer
	local record

	put "$1" "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://$2/hello\", timeout=10).read())'"
	record=$(bounded cat "$RUN/$1/wait")
	[[ $record == *'"exit_code":0,'* ]]
}

refuses() { # SANDBOX NAME
	! fetches "$@" || fail "$1 reached $2"
}

works() { # SANDBOX: out, in, and the list
	wait_for "$1 to reach what it may" fetches "$1" v4.test
	wait_for "the port of $1" port_answers 18080
	refuses "$1" denied.test
}

nothing_got_through() {
	goes_on a tried
	assert_absent "$RUN/a/fs/run/reached"
	assert_eq "$(http_count '/unfiltered') $(udp_count .) $(dns_count denied.test)" '0 0 0' "what got through unfiltered ($1)"
}

# -- all begins ------------------------------------------------------------------------------------------------------------

mkdir "$RUN/a"
echo profile:python >"$RUN/a/from"
echo v4.test >"$RUN/a/net/allow"
echo 18080:8080 >"$RUN/a/net/ports"
ready_sandbox other # without a network; the others go on
run a true
bounded cp "$DIR/serve.py" "$DIR/talk.py" "$DIR/try.py" "$RUN/a/fs/root/"
serve a
background a try
works a
# The twin: what is tried can be reached from where the daemon lives.
assert_match "$(in_host curl -s http://93.184.216.35/hello)" '^hello'
NETD=$(service_pid crucible-netd)

# How long a denied name takes, in the guest. Measured, not asserted. Fewer than the resolver takes of one client at once (RESOLVER_QPS).
cat >"$DIR/denied.py" <<'PY'
import socket, statistics, time
def ask(name):
    begun = time.monotonic()
    try:
        socket.getaddrinfo(name, 80, socket.AF_INET)
    except socket.gaierror as e:
        assert e.errno == socket.EAI_NONAME, e
    return (time.monotonic() - begun) * 1000
ask("warm.test")
for kind in "denied", "v4":
    times = sorted(ask(f"{kind}.test") for i in range(20))
    print(f"{kind}.test: median {statistics.median(times):.2f} ms, worst of 20 {times[-1]:.2f} ms")
PY
bounded cp "$DIR/denied.py" "$RUN/a/fs/root/"
run a 'python3 /root/denied.py'
assert_rec exit_code 0
rec stdout

echo "-- netd is killed"
talk a t1
hold 18080
kill -KILL "$NETD"
assert_eq "$(held more)" ended "a connection into the guest of a killed netd"
let_go
talk_ended a t1
works a
assert_ne "$(service_pid crucible-netd)" "$NETD" "netd: another process"
NETD=$(service_pid crucible-netd)
nothing_got_through "netd killed"

echo "-- the daemon is killed"
talk a t2
hold 18080
kill_daemon
held_says "without a daemon"
start_daemon --set pool_size=0 --set warm_size=0 --set prepare=0
wait_status a ready
held_says "with another daemon"
talk_lives a t2
works a
assert_eq "$(service_pid crucible-netd)" "$NETD" "netd: the same process"
assert_file "$RUN/a/net/allow" v4.test
assert_file "$RUN/a/net/ports" 127.0.0.1:18080:8080/tcp
echo third.test >"$RUN/a/net/allow"
wait_for "what was allowed by another daemon" fetches a third.test
talk_ended a t2 # a change ends what it forbids
refuses a v4.test
held_says "a change of the list"
echo v4.test >"$RUN/a/net/allow"
let_go
works a
nothing_got_through "daemon killed"

echo "-- netd hangs, and comes back"
talk a t3
hold 18080
kill -STOP "$NETD"
for f in net/allow net/ports net/log.jsonl usage.json info.json status; do
	bounded cat "$RUN/a/$f" >/dev/null || fail "$f does not answer"
done
bounded ls "$RUN/a/fs/root" >/dev/null
bounded cat "$MNT/metrics" "$MNT/health.json" >/dev/null
run other 'echo goes on'
assert_rec stdout '"goes on\n"'
ready_sandbox another
rmdir "$RUN/another"
run a 'echo goes on, too'
assert_rec stdout '"goes on, too\n"'
kill -CONT "$NETD"
held_says "it goes on"
talk_lives a t3
assert_eq "$(service_pid crucible-netd)" "$NETD" "netd: the same process"
let_go

echo "-- netd hangs, and is asked for something: another one"
kill -STOP "$NETD"
bounded bash -c 'printf "v4.test\nthird.test\n" >"$1" || :' - "$RUN/a/net/allow" || fail "a write to net/allow hangs"
run other 'echo goes on'
assert_rec stdout '"goes on\n"'
wait_for "netd that hangs to end" gone "$NETD"
talk_ended a t3
printf 'v4.test\nthird.test\n' >"$RUN/a/net/allow"
works a
wait_for "what was allowed meanwhile" fetches a third.test
NETD=$(service_pid crucible-netd)
nothing_got_through "netd stopped"

echo "-- the machine is paused"
talk a t4
hold 18080
echo pause >"$RUN/a/ctl"
wait_status a paused
echo resume >"$RUN/a/ctl"
wait_status a ready
held_says "it goes on"
talk_lives a t4
let_go

echo "-- the machine is stopped and started"
hold 18080
echo stop >"$RUN/a/ctl"
wait_status a stopped
assert_eq "$(held more)" ended "a connection into a guest that was stopped"
let_go
echo start >"$RUN/a/ctl"
wait_status a ready
run a 'rm -f /run/*.count /run/*.end'
serve a
background a try
works a
nothing_got_through "machine stopped and started"

echo "-- removed in the middle of transfers"
in_host "$PYTHON" -IS - >"$DIR/in.got" 2>&1 <<'PY' &
import socket
s = socket.create_connection(("127.0.0.1", 18080), 60)
s.settimeout(60)
s.sendall(b"get 1000000000000\n")
n = 0
try:
    while data := s.recv(1 << 20):
        if n == 0:
            open("begun", "w").close()
        n += len(data)
except OSError:
    pass
print("over", n > 0)
PY
in=$!
put a 'python3 -c "import urllib.request as u; r = u.urlopen(\"http://v4.test/bytes/1000000000000\")
while r.read(1 << 20): open(\"/run/moved\", \"w\").write(\"1\n\")"'
wait_for "a transfer out of the world" above a moved 0
wait_for "a transfer out of the guest" test -e "$DIR/begun"
bounded rmdir "$RUN/a"
wait_for "the transfer out of the guest to end" gone "$in"
wait "$in" || :
assert_file "$DIR/in.got" 'over True'
without() { ! in_host ss -Hnt state established | grep -qE '18080|93\.184\.216\.34'; }
wait_for "the connections to end" without
wait_for "the port to be free" in_host "$PYTHON" -IS -c 'import socket; socket.create_server(("127.0.0.1", 18080))'
assert_eq "$(service_pid crucible-netd)" "$NETD" "netd: the same process"
run other 'echo goes on'
assert_rec stdout '"goes on\n"'
