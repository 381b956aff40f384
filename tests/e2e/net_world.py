# SPDX-License-Identifier: Apache-2.0
"""The world that sandboxes of a network test can, or must not, reach: a name server and web servers, in a namespace of the test's own.

net_world.py DIR: reads DIR/cert.pem and DIR/key.pem, writes DIR/dns.log (one question a line: NAME TYPE udp|tcp), DIR/http.log (ADDRESS PORT
METHOD PATH HOST) and DIR/udp.log, and DIR/ready when it serves. Addresses must be there.

Paths of the web servers: /hello, /bytes/N (N bytes), POST /sum (sha256 of what was sent), /slow (a byte, then silence until the client goes).
Port 7 echoes; port 9001 waits for the end of the input, then answers with its length (half-close)."""
import hashlib
import http.server
import ipaddress
import os
import socket
import socketserver
import ssl
import struct
import sys
import threading

DIR = sys.argv[1]
UPSTREAM = "192.0.2.2"
WEB = ["93.184.216.34", "93.184.216.35", "93.184.216.36", "10.0.0.1", "169.254.169.254", "192.0.2.2", "2606:2800:220::34", "fd00::1"]
A, CNAME, AAAA = 1, 5, 28
TYPES = {1: "A", 5: "CNAME", 12: "PTR", 28: "AAAA", 65: "HTTPS", 64: "SVCB", 16: "TXT"}
ZONE = {
    "allowed.test": [(A, "93.184.216.34"), (AAAA, "2606:2800:220::34")],
    "v4.test": [(A, "93.184.216.34")],
    "v6.test": [(AAAA, "2606:2800:220::34")],
    "denied.test": [(A, "93.184.216.35")],
    "other.test": [(A, "93.184.216.34")],
    "third.test": [(A, "93.184.216.36")],
    "a.wild.test": [(A, "93.184.216.36")],
    "private.test": [(A, "10.0.0.1")],
    "private6.test": [(AAAA, "fd00::1")],
    "cname.test": [(CNAME, "private.test")],
    "good-cname.test": [(CNAME, "third.test")],
    "metadata.test": [(A, "169.254.169.254")],
    "mapped.test": [(AAAA, "::ffff:10.0.0.1")],
    "nat64.test": [(AAAA, "64:ff9b::a00:1")],
    "loop.test": [(A, "127.0.0.1"), (AAAA, "::1")],
    "mixed.test": [(A, "10.0.0.1"), (A, "93.184.216.34")],
    "big.test": [(A, f"93.184.217.{i}") for i in range(1, 121)],
}
asked = {}
lock = threading.Lock()


def log(name, line):
    with lock, open(f"{DIR}/{name}.log", "a", encoding="utf-8") as f:
        f.write(line + "\n")


def encode(name):
    return b"".join(bytes([len(x)]) + x.encode() for x in name.split(".")) + b"\0"


def record(name, kind, value):
    data = encode(value) if kind == CNAME else ipaddress.ip_address(value).packed
    return encode(name) + struct.pack("!HHIH", kind, 1, 60, len(data)) + data


def lookup(name, kind):
    """The records, and whether the name exists."""
    if name == "rebind.test":
        with lock:
            asked[kind] = asked.get(kind, 0) + 1
            n = asked[kind]
        return ([record(name, A, "93.184.216.36" if n == 1 else "10.0.0.1")] if kind == A else []), True
    rows = ZONE.get(name)
    if rows is None:
        return [], False
    out = []
    for row_kind, value in rows:
        if row_kind == CNAME:
            out.append(record(name, CNAME, value))
            out += lookup(value, kind)[0]
        elif row_kind == kind:
            out.append(record(name, kind, value))
    return out, True


def answer(query, proto):
    ident, flags, questions = struct.unpack("!HHH", query[:6])
    at, labels = 12, []
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode("latin-1"))
        at += 1 + query[at]
    kind = struct.unpack("!H", query[at + 1 : at + 3])[0]
    name = ".".join(labels).lower()
    log("dns", f"{name} {TYPES.get(kind, kind)} {proto}")
    records, exists = lookup(name, kind)
    head = struct.pack("!HHHHHH", ident, 0x8180 | (0 if exists else 3), questions, len(records), 0, 0)
    whole = head + query[12 : at + 5] + b"".join(records)
    if proto == "udp" and len(whole) > 1232:
        return struct.pack("!HHHHHH", ident, 0x8380, questions, 0, 0, 0) + query[12 : at + 5]
    return whole


class DnsUdp(socketserver.BaseRequestHandler):
    def handle(self):
        data, sock = self.request
        sock.sendto(answer(data, "udp"), self.client_address)


class DnsTcp(socketserver.StreamRequestHandler):
    def handle(self):
        while len(size := self.rfile.read(2)) == 2:
            data = self.rfile.read(struct.unpack("!H", size)[0])
            reply = answer(data, "tcp")
            self.wfile.write(struct.pack("!H", len(reply)) + reply)


class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def say(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def note(self):
        addr, port = self.connection.getsockname()[:2]
        log("http", f"{addr} {port} {self.command} {self.path} {self.headers.get('Host', '-')}")
        return addr, port

    def do_GET(self):
        addr, port = self.note()
        if self.path.startswith("/bytes/"):
            block = hashlib.sha256(self.path.encode()).digest() * 2048
            left = int(self.path[7:])
            self.send_response(200)
            self.send_header("Content-Length", str(left))
            self.end_headers()
            while left > 0:
                self.wfile.write(block[: min(left, len(block))])
                left -= min(left, len(block))
        elif self.path == "/slow":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x")
            self.wfile.flush()
            try:
                self.connection.recv(1)
                log("http", f"{addr} {port} END {self.path} -")
            except OSError:
                log("http", f"{addr} {port} RESET {self.path} -")
            self.close_connection = True
        else:
            self.say(f"hello from {addr} {port}\n".encode())

    def do_POST(self):
        self.note()
        left, digest = int(self.headers["Content-Length"]), hashlib.sha256()
        while left > 0:
            data = self.rfile.read(min(left, 65536))
            if not data:
                break
            digest.update(data)
            left -= len(data)
        self.say(digest.hexdigest().encode() + b"\n")

    def log_message(self, *args):
        pass


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)


class Count(socketserver.BaseRequestHandler):
    def handle(self):
        n = 0
        while data := self.request.recv(65536):
            n += len(data)
        self.request.sendall(f"{n}\n".encode())


class Datagrams(socketserver.BaseRequestHandler):
    def handle(self):
        log("udp", f"{self.server.server_address[0]} {self.server.server_address[1]} {len(self.request[0])}")


class Tcp(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 256


class Tcp6(Tcp):
    address_family = socket.AF_INET6


class Udp(socketserver.ThreadingUDPServer):
    allow_reuse_address = daemon_threads = True


def serve(server):
    threading.Thread(target=server.serve_forever, daemon=True).start()


def tcp(addr, port, handler):
    return (Tcp6 if ":" in addr else Tcp)((addr, port), handler)


def main():
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(f"{DIR}/cert.pem", f"{DIR}/key.pem")
    for name in ("dns", "http", "udp"):
        open(f"{DIR}/{name}.log", "w").close()
    serve(Udp((UPSTREAM, 53), DnsUdp))
    serve(Tcp((UPSTREAM, 53), DnsTcp))
    for addr in WEB:
        serve(tcp(addr, 80, Web))
        for port in (443, 8443):
            server = tcp(addr, port, Web)
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
            serve(server)
        serve(tcp(addr, 7, Echo))
        serve(tcp(addr, 9001, Count))
    serve(Udp(("93.184.216.34", 443), Datagrams))
    serve(Udp(("93.184.216.34", 123), Datagrams))
    with open(f"{DIR}/ready.new", "w") as f:
        f.write("ready\n")
    os.rename(f"{DIR}/ready.new", f"{DIR}/ready")
    threading.Event().wait()


main()
