#!/bin/bash
# Published ports: data each way, many short connections, half-closed ones, ports that are taken, and ports that are given back.
. "$(dirname "$0")/lib.sh"
. "$E2E/lib_net.sh"
need_profile python
net_world
start_daemon
mkdir "$RUN/a"
echo profile:python >"$RUN/a/from"
echo 18080:8080 >"$RUN/a/net/ports"
assert_file "$RUN/a/net/ports" 127.0.0.1:18080:8080/tcp

cat >"$DIR/server.py" <<'PY'
import hashlib, socketserver
class H(socketserver.StreamRequestHandler):
    def handle(self):
        verb, n = self.rfile.readline().split()
        n = int(n)
        if verb == b"get":
            block = bytes(range(256)) * 256
            while n > 0:
                self.wfile.write(block[: min(n, len(block))]); n -= min(n, len(block))
        else: # put: until the end, then the sum
            h = hashlib.sha256()
            while data := self.rfile.read(65536):
                h.update(data)
            self.wfile.write(h.hexdigest().encode() + b"\n")
class S(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 128
S(("0.0.0.0", 8080), H).serve_forever()
PY
cat >"$DIR/client.py" <<'PY'
import hashlib, socket, sys
what, n = sys.argv[1], int(sys.argv[2])
block = bytes(range(256)) * 256
def connect():
    return socket.create_connection(("127.0.0.1", 18080), 60)
if what == "get":
    s = connect(); s.sendall(b"get %d\n" % n); h = hashlib.sha256(); got = 0
    while data := s.recv(65536):
        h.update(data); got += len(data)
    print(got, h.hexdigest())
elif what == "put":
    s = connect(); s.sendall(b"put 0\n"); left = n
    while left > 0:
        s.sendall(block[: min(left, len(block))]); left -= min(left, len(block))
    s.shutdown(socket.SHUT_WR); print(s.makefile().readline().strip())
elif what == "sum":
    h = hashlib.sha256(); left = n
    while left > 0:
        h.update(block[: min(left, len(block))]); left -= min(left, len(block))
    print(h.hexdigest())
else: # short: every fourth is half closed and read to its end, every fifth left without a word
    for i in range(n):
        s = connect()
        if i % 5 == 4:
            s.close(); continue
        if i % 4 == 3:
            s.sendall(b"put 0\nabc"); s.shutdown(socket.SHUT_WR)
            assert s.makefile().readline().strip() == hashlib.sha256(b"abc").hexdigest(), i
        else:
            s.sendall(b"get 10\n"); data = b""
            while len(data) < 10:
                more = s.recv(10); assert more, i; data += more
        s.close()
    print("ok", n)
PY
client() { in_host "$PYTHON" -IS "$DIR/client.py" "$@"; }

bounded cp "$DIR/server.py" "$RUN/a/fs/root/server.py"
run a 'setsid python3 /root/server.py >/root/server.log 2>&1 </dev/null & for i in $(seq 200); do python3 -c "import socket; socket.create_connection((\"127.0.0.1\", 8080))" 2>/dev/null && exit 0; done; cat /root/server.log; exit 1'
assert_rec exit_code 0

n=$((100 * 1024 * 1024))
sum=$(client sum $n)
assert_eq "$(BOUND=300 bounded env true; client get $n)" "$n $sum" "100 MiB out of the guest"
assert_eq "$(client put $n)" "$sum" "100 MiB into the guest"
assert_eq "$(client short 1000)" "ok 1000" "short connections"
assert_eq "$(client get 5)" "5 $(client sum 5)" "one more"

# Nothing but its owner's loopback listens: not the daemon's other addresses.
assert_fails in_host "$PYTHON" -IS -c 'import socket; socket.create_connection(("192.0.2.1", 18080), 2)'

# -- taken, given back -------------------------------------------------------------------------------------------------

new_sandbox b
assert_errno EADDRINUSE write "$RUN/b/net/ports" 18080:80
assert_match "$(cat "$RUN/b/error")" '127.0.0.1 port 18080 of this host is taken by sandbox a'
assert_file "$RUN/b/net/ports" ''
for bad in 80 x:80 0:80 70000:80 80:0 8080:80/udp host:8080:80 1.2.3.4.5:80:80; do
	assert_errno EINVAL write "$RUN/b/net/ports" "$bad"
done
echo 18081:8080 >"$RUN/a/net/ports"
assert_fails in_host "$PYTHON" -IS -c 'import socket; socket.create_connection(("127.0.0.1", 18080), 2)'
echo 18080:80 >"$RUN/b/net/ports"
assert_file "$RUN/b/net/ports" 127.0.0.1:18080:80/tcp
rmdir "$RUN/b"
wait_for "the port to be free" in_host "$PYTHON" -IS -c 'import socket; socket.create_server(("127.0.0.1", 18080))'
assert_fails grep 'event=peer-lost' "$DAEMON_LOG" # crucible-netd lives through all that
