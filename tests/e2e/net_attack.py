# SPDX-License-Identifier: Apache-2.0
"""Run by root in a guest: frames that no honest kernel sends, and floods. Prints what it did; "begins" when a flood is under way."""
import errno
import os
import random
import select
import socket
import struct
import sys
import time

HOST_MAC = bytes.fromhex("525400c00000")
GUEST = "10.77.0.2"
GUEST6 = "fd77::2"


def mac():
    return bytes.fromhex(open("/sys/class/net/eth0/address").read().strip().replace(":", ""))


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    n = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while n >> 16:
        n = (n & 0xFFFF) + (n >> 16)
    return ~n & 0xFFFF


def pack(a):
    return socket.inet_pton(socket.AF_INET6 if ":" in a else socket.AF_INET, a)


def tcp(src, dst, sport, dport, flags=2, data=b""):
    s, d = pack(src), pack(dst)
    head = struct.pack("!HHIIBBHHH", sport, dport, 1000, 0, 5 << 4, flags, 65535, 0, 0)
    fake = s + d + (struct.pack("!BBH", 0, 6, len(head + data)) if len(s) == 4 else struct.pack("!IHBB", len(head + data), 0, 0, 6))
    return head[:16] + struct.pack("!H", checksum(fake + head + data)) + head[18:] + data


def udp(src, dst, sport, dport, data):
    s, d = pack(src), pack(dst)
    head = struct.pack("!HHHH", sport, dport, 8 + len(data), 0)
    fake = s + d + (struct.pack("!BBH", 0, 17, 8 + len(data)) if len(s) == 4 else struct.pack("!IHBB", 8 + len(data), 0, 0, 17))
    return head[:6] + struct.pack("!H", checksum(fake + head + data) or 0xFFFF) + data


def ip4(src, dst, proto, data, ident=1, frag=0, options=b""):
    head = struct.pack("!BBHHHBBH", 0x40 | 5 + len(options) // 4, 0, 20 + len(options) + len(data), ident, frag, 64, proto, 0) + pack(src) + pack(dst) + options
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + data


def ip6(src, dst, proto, data):
    return struct.pack("!IHBB", 6 << 28, len(data), proto, 64) + pack(src) + pack(dst) + data


class Wire:
    def __init__(self):
        self.s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.s.bind(("eth0", 0))
        self.mac, self.n, self.no = mac(), 0, 0

    def send(self, kind, data, to=HOST_MAC, src=None):
        try:
            self.s.send(to + (src or self.mac) + struct.pack("!H", kind) + data)
            self.n += 1
        except OSError:
            self.no += 1


TARGETS = ["93.184.216.34", "93.184.216.35", "10.0.0.1", "169.254.169.254", "192.0.2.1", "192.0.2.2", "127.0.0.1", "10.77.0.1", "10.77.0.255", "255.255.255.255", "224.0.0.1", "0.0.0.0"]
TARGETS6 = ["2606:2800:220::34", "fd00::1", "2001:470::1", "2001:470::2", "::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "fd77::1", "fe80::1", "ff02::1", "ff02::2"]
SPOOFED = ["192.0.2.2", "127.0.0.1", "10.77.0.1", "10.77.0.3", "93.184.216.34", "0.0.0.0", "255.255.255.255"]


def frames():
    w = Wire()
    for dst in TARGETS:
        for src in [GUEST] + SPOOFED:
            for port in (22, 53, 80, 15001):
                w.send(0x0800, ip4(src, dst, 6, tcp(src, dst, 1234, port)))
                w.send(0x0800, ip4(src, dst, 6, tcp(src, dst, 1234, port, 0x10, b"x")))
                w.send(0x0800, ip4(src, dst, 17, udp(src, dst, 1234, port, b"hello")))
            for proto in (1, 2, 4, 41, 47, 50, 51, 89, 103, 132, 136, 255, 0):
                w.send(0x0800, ip4(src, dst, proto, struct.pack("!BBHI", 8, 0, 0, 0) + b"\0" * 40))
            w.send(0x0800, ip4(src, dst, 1, struct.pack("!BBHHH", 8, 0, checksum(struct.pack("!BBHHH", 8, 0, 0, 1, 1)), 1, 1)))
        # source routes, fragments: tiny, overlapping, never whole
        for opt in (0x83, 0x89):
            w.send(0x0800, ip4(GUEST, dst, 6, tcp(GUEST, dst, 1235, 80), options=bytes([opt, 7, 4]) + pack("192.0.2.2") + b"\0"))
        whole = tcp(GUEST, dst, 1236, 80) + b"y" * 44
        for i in range(50):
            w.send(0x0800, ip4(GUEST, dst, 6, whole[:8], ident=i, frag=0x2000))
            w.send(0x0800, ip4(GUEST, dst, 6, whole[8:24], ident=i, frag=0x2001 if i % 2 else 0x2000))
            w.send(0x0800, ip4(GUEST, dst, 6, whole[16:], ident=i, frag=2 if i % 3 else 8189))
        data = tcp(GUEST, dst, 1237, 80)
        for tag in (0x8100, 0x88A8):
            for vid in (0, 1, 4095):
                w.send(tag, struct.pack("!HH", vid, 0x0800) + ip4(GUEST, dst, 6, data))
                w.send(tag, struct.pack("!HHHH", vid, 0x8100, 1, 0x0800) + ip4(GUEST, dst, 6, data))
    for dst in TARGETS6:
        for src in (GUEST6, "fe80::5054:ff:fec0:1", "fd77::1", "::1", "2001:470::2", "::"):
            for port in (22, 53, 80, 15001):
                w.send(0x86DD, ip6(src, dst, 6, tcp(src, dst, 1234, port)))
                w.send(0x86DD, ip6(src, dst, 17, udp(src, dst, 1234, port, b"hello")))
            for head in (0, 60, 43, 135, 139, 140):
                ext = bytes([6, 0, 1, 4, 0, 0, 0, 0]) if head != 43 else bytes([6, 2, 0, 1, 0, 0, 0, 0]) + pack("fd00::1")
                w.send(0x86DD, ip6(src, dst, head, ext + tcp(src, dst, 1234, 80)))
                w.send(0x86DD, ip6(src, dst, head, (bytes([head, 0, 1, 4, 0, 0, 0, 0]) * 100) + ext + tcp(src, dst, 1234, 80)))
            w.send(0x86DD, ip6(src, dst, 44, bytes([6, 0, 0, 1]) + b"\0\0\0\1" + tcp(src, dst, 1234, 80)[:8]))
            w.send(0x86DD, ip6(src, dst, 44, bytes([6, 0, 0, 0]) + b"\0\0\0\2" + tcp(src, dst, 1234, 80)))
            for kind in (128, 133, 134, 135, 136, 137, 143):
                body = bytes([kind, 0, 0, 0]) + b"\0" * 4 + pack(dst) + bytes([1, 1]) + w.mac
                fake = pack(src) + pack(dst) + struct.pack("!IHBB", len(body), 0, 0, 58)
                body = body[:2] + struct.pack("!H", checksum(fake + body)) + body[4:]
                w.send(0x86DD, struct.pack("!IHBB", 6 << 28, len(body), 58, 255) + pack(src) + pack(dst) + body)
    # neighbours that are not there; the gateway's own address; requests for others
    for i in range(2000):
        src = bytes([10, 77, random.randrange(256), random.randrange(256)])
        w.send(0x0806, struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1 + i % 2) + os.urandom(6) + src + HOST_MAC + pack("10.77.0.1"), to=b"\xff" * 6)
    for op in (1, 2):
        w.send(0x0806, struct.pack("!HHBBH", 1, 0x0800, 6, 4, op) + w.mac + pack("10.77.0.1") + HOST_MAC + pack("10.77.0.1"))
    # DHCP, LLDP, STP, IPX, MPLS, PPPoE, 802.1X, EtherCAT, junk, huge, empty
    w.send(0x0800, ip4("0.0.0.0", "255.255.255.255", 17, udp("0.0.0.0", "255.255.255.255", 68, 67, b"\1\1\6\0" + b"\0" * 300)), to=b"\xff" * 6)
    for kind in (0x88CC, 0x0026, 0x8137, 0x8847, 0x8863, 0x888E, 0x88A4, 0x0000, 0xFFFF, 0x6558, 0x22F0):
        for n in (0, 1, 46, 1486):
            w.send(kind, os.urandom(n))
    for n in (1500, 1501, 9000, 60000):
        w.send(0x0800, ip4(GUEST, "93.184.216.35", 6, (tcp(GUEST, "93.184.216.35", 1238, 80) + b"z" * n)[: n - 20]))
    for n in range(0, 60):
        w.send(0x0800, ip4(GUEST, "93.184.216.34", 6, tcp(GUEST, "93.184.216.34", 1, 80))[:n])
        w.send(0x86DD, ip6(GUEST6, "2606:2800:220::34", 6, tcp(GUEST6, "2606:2800:220::34", 1, 80))[:n])
    for m in ("ffffffffffff", "01005e000001", "333300000001", "000000000000", "525400c00001"):
        w.send(0x0800, ip4(GUEST, "93.184.216.35", 6, tcp(GUEST, "93.184.216.35", 1, 80)), to=bytes.fromhex(m))
    print(w.n, "frames,", w.no, "that the guest's kernel refused")


def own():
    """Ports of the gateway and of what it might be: a connection that carries a byte is a fault."""
    bad, tried = [], 0
    for a in ("10.77.0.1", "10.77.0.3", "192.0.2.1", "127.0.0.2", "169.254.169.254", "fd77::1", "2001:470::1"):
        for port in (22, 25, 80, 111, 443, 631, 2375, 3306, 5432, 6379, 8080, 15001, 65535):
            s = socket.socket(socket.AF_INET6 if ":" in a else socket.AF_INET)
            s.settimeout(5)
            tried += 1
            try:
                s.connect((a, port))
                s.sendall(b"GET / HTTP/1.0\r\n\r\n")
                got = s.recv(10)
                if got:
                    bad.append((a, port, got))
            except OSError:
                pass
            s.close()
    print(tried, "tried", bad)
    sys.exit(bool(bad))


def syn():
    w = Wire()
    print("begins", flush=True)
    end, i = time.monotonic() + 8, 0
    while time.monotonic() < end:
        for dst in ("93.184.216.34", "93.184.216.35", "10.77.0.1"):
            i += 1
            w.send(0x0800, ip4(GUEST, dst, 6, tcp(GUEST, dst, 1024 + i % 60000, (80, 443, 53)[i % 3])))
    print(i, "SYNs")


def connect_many(addr, n, first=b""):
    all_, failed = [], 0
    for _ in range(n):
        s = socket.socket()
        s.setblocking(False)
        try:
            s.connect(addr)
        except BlockingIOError:
            pass
        except OSError:
            failed += 1
            continue
        all_.append(s)
        if first:
            select.select([], [s], [], 2)
            try:
                s.send(first)
            except OSError:
                failed += 1
    return all_, failed


def dead(socks):
    n = 0
    for s in socks:
        try:
            n += s.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            pass
        except OSError:
            n += 1
    return n


def hold():
    a = socket.gethostbyname("v4.test")
    print("begins", flush=True)
    s, failed = connect_many((a, 80), 700, b"GET /bytes/1000000 HTTP/1.1\r\nHost: x\r\n\r\n")
    time.sleep(5)
    print(len(s), "held,", failed, "failed,", dead(s), "ended")


def hello():
    a = socket.gethostbyname("v4.test")
    print("begins", flush=True)
    s, failed = connect_many((a, 443), 700, b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03")
    for _ in range(4):
        for x in s:
            try:
                x.send(b"x")
            except OSError:
                pass
        time.sleep(1)
    print(len(s), "slow hellos,", failed, "failed,", dead(s), "ended")


def question(i, name, kind=1, flags=0x100):
    return struct.pack("!HHHHHH", i & 0xFFFF, flags, 1, 0, 0, 0) + b"".join(bytes([len(x)]) + x for x in name.split(b".")) + b"\0" + struct.pack("!HH", kind, 1)


def names():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    print("begins", flush=True)
    for i in range(10000):
        s.sendto(question(i, (b"v4.test", b"secret%d.denied.test" % i, b"v6.test")[i % 3], (1, 28, 65, 16)[i % 4]), ("10.77.0.1", 53))
    n = 0
    s.settimeout(3)
    try:
        while s.recv(4096):
            n += 1
    except OSError:
        pass
    print(n, "answers")


def pipeline():
    print("begins", flush=True)
    got, conns = 0, []
    for c in range(12):
        s = socket.create_connection(("10.77.0.1", 53), 10)
        conns.append(s)
        s.settimeout(4)
        try:
            s.sendall(b"".join(struct.pack("!H", len(q)) + q for q in (question(i, b"v4.test" if i % 2 else b"secret.test") for i in range(3000))))
        except OSError:
            pass
    for s in conns:
        try:
            while data := s.recv(65536):
                got += len(data)
        except OSError:
            pass
    print(got, "bytes of answers")


def odd():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    print("begins", flush=True)
    bombs = [
        struct.pack("!HHHHHH", 1, 0x100, 1, 0, 0, 0) + b"\xc0\x0c" + b"\0\1\0\1",
        struct.pack("!HHHHHH", 1, 0x100, 1, 0, 0, 0) + b"\x01a\xc0\x0c" + b"\0\1\0\1",
        struct.pack("!HHHHHH", 1, 0x100, 1, 0, 0, 1) + b"\x02v4\x04test\0\0\1\0\1" + b"\xc0\x0c\0\x29\xff\xff\0\0\0\0\xff\xff",
        struct.pack("!HHHHHH", 1, 0x100, 65535, 65535, 65535, 65535) + b"\0" * 2000,
        struct.pack("!HHHHHH", 1, 0x8180, 1, 1, 0, 0) + b"\x02v4\x04test\0\0\1\0\1\xc0\x0c\0\1\0\1\0\0\0\xff\0\4\x0a\0\0\1",
        question(2, b"a" * 63 + b"." + b"b" * 63 + b"." + b"c" * 63 + b"." + b"d" * 61),
        question(3, b"v4\0.test"), question(4, b"v4.test\n"), question(5, b"\xff\xfe.test"), question(6, b'"},{"x":"'), question(7, b"\x1b[2J.test"),
        question(8, b"v4.test", 252), question(9, b"v4.test", 255), question(10, b"v4.test", 1, 0x2800), question(11, b"1.0.0.10.in-addr.arpa", 12),
        question(12, b"x.v4.test"), question(13, b"v4.test.localhost"),
    ]
    for _ in range(3):
        for b in bombs:
            for n in range(0, len(b) + 1, max(1, len(b) // 12)):
                s.sendto(b[: len(b) - n], ("10.77.0.1", 53))
        time.sleep(2)
    for _ in range(500):
        b = bytearray(random.choice(bombs)[:100])
        b[random.randrange(len(b))] = random.randrange(256)
        s.sendto(bytes(b), ("10.77.0.1", 53))
    time.sleep(2)
    print("sent")


def short():
    a = socket.gethostbyname("v4.test")
    print("begins", flush=True)
    end, n, failed = time.monotonic() + 8, 0, 0
    while time.monotonic() < end:
        s, f = connect_many((a, 80), 30)
        n += len(s)
        failed += f
        for x in s:
            x.close()
    print(n, "opened and closed,", failed, "failed")


def log():
    print("begins", flush=True)
    end, n = time.monotonic() + 6, 0
    while time.monotonic() < end:
        for i in range(100):
            n += 1
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex((f"198.51.{n // 250 % 250}.{n % 250}", 1 + n % 65000))
            s.close()
    print(n, "refused")


globals()[sys.argv[1]]()
