#!/bin/bash
# Users against each other, and a process with an engine's user id in its network namespace: what is another's can be neither read nor written nor
# taken, ports come and go a hundred times beside a connection that lives on, and a namespace gives nothing that the guest has not.
# limit: 400
. "$(dirname "$0")/lib.sh"
. "$E2E/lib_net.sh"
need_profile python
need setpriv nft
net_world
start_daemon
me=61001 other=61002
sh_as() { # UID SCRIPT
	bounded setpriv --reuid="$1" --regid="$1" --clear-groups -- env R="$RUN" bash -c "$2"
}
op_as() { # UID OPERATION ARGUMENT…
	local uid=$1

	shift
	bounded setpriv --reuid="$uid" --regid="$uid" --clear-groups -- "$PYTHON" -IS "$E2E/op.py" "$@" || echo HUNG
}
netd_pid() {
	local p

	for p in $(uid_pids); do
		[ "$(cat "/proc/$p/comm" 2>/dev/null)" != crucible-netd ] || echo "$p"
	done
}

sh_as $me 'mkdir $R/mine && echo profile:python >$R/mine/from && echo v4.test >$R/mine/net/allow && echo 18070:8070 >$R/mine/net/ports'
sh_as $me 'echo true >$R/mine/cmd; cat $R/mine/wait' >/dev/null

# -- files ------------------------------------------------------------------------------------------------------------

for f in allow ports log.jsonl; do
	assert_eq "$(op_as $other read "$RUN/mine/net/$f")" EACCES "another user reads net/$f"
done
for f in allow ports; do
	assert_eq "$(op_as $other write "$RUN/mine/net/$f" 'third.test\n')" EACCES "another user writes net/$f"
	assert_eq "$(op_as $other write "$RUN/mine/net/$f" 'third.test\n' WRONLY,APPEND)" EACCES
done
assert_match "$(op_as $other unlink "$RUN/mine/net/allow")" '^E(ACCES|PERM)$'
assert_match "$(op_as $other write "$RUN/mine/net/new" x WRONLY,CREAT)" '^E(ACCES|PERM)$'
assert_file "$RUN/mine/net/allow" v4.test

# -- the daemon's way to netd --------------------------------------------------------------------------------------------

cat >"$DIR/sock.py" <<'PY'
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.settimeout(20)
os.chdir(sys.argv[1])
try:
    s.connect("netd.sock")
    s.send(b"\x08\0\0\0\1\0\0\0\0\0\0\0")
    print(len(s.recv(100)))
except OSError as e:
    print(type(e).__name__)
PY
before=$(netd_pid)
assert_ne "$before" "" "netd's pid"
engine=$(json_of "$(cat "$RUN/mine/info.json")" isolation.engine_uid)
for uid in $other "$engine" $((engine - 1)); do
	assert_eq "$(as_user "$uid" "$PYTHON" -IS "$DIR/sock.py" "$STORE/run" 2>&1 | grep -oE 'PermissionError' | tail -n 1)" PermissionError "uid $uid at netd's socket"
done
assert_match "$("$PYTHON" -IS "$DIR/sock.py" "$STORE/run")" '^(0|ConnectionResetError|BrokenPipeError)$' "root, who is not the daemon, at netd's socket"

# -- ports ------------------------------------------------------------------------------------------------------------------

sh_as $other 'mkdir $R/theirs && echo profile:tiny >$R/theirs/from'
for p in 18070:80 0.0.0.0:18070:80; do
	assert_eq "$(op_as $other write "$RUN/theirs/net/ports" "$p\\n")" EADDRINUSE "another user's port as $p"
	assert_no_match "$(sh_as $other 'cat $R/theirs/error')" mine "whose it is is not told"
done
nsenter --net="/proc/$NET_HOST_PID/ns/net" -- "$PYTHON" -IS -c 'import socket, time
a = socket.create_server(("127.0.0.1", 19000)); b = socket.create_server(("0.0.0.0", 19001))
print("up", flush=True); time.sleep(300)' >"$DIR/services" &
SERVICES=$!
services_end() { kill "$SERVICES" 2>/dev/null || :; }
AT_EXIT=(services_end "${AT_EXIT[@]}")
wait_for "services of the host" grep -q up "$DIR/services"
for p in 19000:80 0.0.0.0:19000:80 19001:80 192.0.2.1:19001:80; do
	assert_eq "$(op_as $other write "$RUN/theirs/net/ports" "$p\\n")" EADDRINUSE "a service of the host at $p"
done
for p in 80:80 22:22 1023:80; do
	assert_eq "$(op_as $other write "$RUN/theirs/net/ports" "$p\\n")" EACCES "a privileged port"
done
assert_eq "$(op_as $other write "$RUN/theirs/net/ports" "198.51.100.9:18071:80\\n")" EADDRNOTAVAIL

# A connection of one user lives on while another one publishes and takes back.
cat >"$DIR/talk.py" <<'PY'
import socket, sys
s = socket.create_connection(("v4.test", 7), 60)
s.settimeout(60)
n = 0
while not __import__("os").path.exists("/root/stop"):
    s.sendall(b"%d\n" % n)
    if not s.recv(100):
        sys.exit(4)
    n += 1
    if n == 1:
        print("begins", flush=True)
print("talked")
PY
bounded cp "$DIR/talk.py" "$RUN/mine/fs/root/"
put mine 'python3 /root/talk.py'
wait_output mine begins
sh_as $other 'echo true >$R/theirs/cmd; cat $R/theirs/wait' >/dev/null
for i in {1..40}; do
	sh_as $other "echo 18$((100 + i % 7)):80 >\$R/theirs/net/ports && printf '%s\n' 18072:80 18$((110 + i % 5)):81 >\$R/theirs/net/ports"
	[ $((i % 4)) != 0 ] || sh_as $other 'printf "\n" >$R/theirs/net/ports'
done
: >"$DIR/empty"
bounded cp "$DIR/empty" "$RUN/mine/fs/root/stop"
await mine
assert_rec exit_code 0 stdout '=~talked'
assert_eq "$(netd_pid)" "$before" "netd lived through it"

# -- an engine that was taken over ----------------------------------------------------------------------------------------------

cat >"$DIR/engine.py" <<'PY'
import socket, struct
def what(fn):
    try:
        fn(); return "DONE"
    except PermissionError: return "no"
    except OSError as e: return type(e).__name__ + ":" + str(e.errno)
def tcp(addr, port, family=socket.AF_INET, set=None):
    def f():
        s = socket.socket(family); s.settimeout(3)
        if set: s.setsockopt(*set)
        s.connect((addr, port))
    return f
def netlink():
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); s.bind((0, 0))
    # RTM_NEWROUTE: a default route by the tap
    body = struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 4, 0, 1, 0) + struct.pack("=HHI", 8, 4, 2)
    s.send(struct.pack("=IHHII", 16 + len(body), 24, 0x605, 1, 0) + body)
    e = struct.unpack("=i", s.recv(4096)[16:20])[0]
    if e: raise OSError(-e, "")
def udp(addr, port):
    def f():
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2); s.connect((addr, port))
        s.send(b"\0\1\1\0\0\1\0\0\0\0\0\0\2v4\4test\0\0\1\0\1"); s.recv(100)
    return f
def listen(addr, port, family=socket.AF_INET, opt=None):
    def f():
        s = socket.socket(family); s.setsockopt(socket.SOL_SOCKET, opt or socket.SO_REUSEADDR, 1); s.bind((addr, port)); s.listen(1)
    return f
print("packet", what(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)))
print("raw", what(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 6)))
print("raw6", what(lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58)))
print("ping", what(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1)))
print("route", what(netlink))
print("out", what(tcp("93.184.216.34", 80)))
print("out6", what(tcp("2606:2800:220::34", 80, socket.AF_INET6)))
print("bound", what(tcp("93.184.216.34", 80, set=(socket.SOL_SOCKET, 25, b"net0\0"))))
print("mark", what(tcp("93.184.216.34", 80, set=(socket.SOL_SOCKET, 36, 1))))
print("transparent", what(tcp("93.184.216.34", 80, set=(0, 19, 1))))
for a in ("127.0.0.1", "10.77.0.1"):
    print("relay", what(tcp(a, 15001)))
    print("dns", what(udp(a, 53)))
print("relay6", what(tcp("fd77::1", 15001, socket.AF_INET6)))
print("listen", what(listen("10.77.0.1", 15001)))
print("listen", what(listen("10.77.0.1", 15001, opt=15)))
print("listen", what(listen("0.0.0.0", 15001, opt=15)))
print("listen", what(listen("fd77::1", 15001, socket.AF_INET6, 15)))
PY
pid=$(engine_pid mine)
nsenter --net="/proc/$pid/ns/net" -- setpriv --reuid="$engine" --regid="$engine" --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs -- \
	"$PYTHON" -IS "$DIR/engine.py" >"$DIR/engine.out" 2>&1 || fail "the engine's script: $(tail -n 3 "$DIR/engine.out")"
cat "$DIR/engine.out"
assert_eq "$(grep -c DONE "$DIR/engine.out")" 0 "what an engine's user can do in its namespace: $(grep DONE "$DIR/engine.out" | tr '\n' ' ')"
# shellcheck disable=SC2046
assert_eq "$(nsenter --net="/proc/$pid/ns/net" -- ip -o route show table main | grep -c default)" 0
