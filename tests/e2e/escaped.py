#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Somebody has taken over an engine: what can be done to a template with what an engine has? For 75_escaped_engine.sh, as root.

    escaped.py ways ENGINE BOX PAGER OTHER_ENGINE OTHER_BOX TOKEN
    escaped.py holes ENGINE BOX

ENGINE is a fork's that runs, BOX its box, the others are another sandbox's. TOKEN fills pages of the fork's template; its length
divides a page. Root takes the very descriptors that the engine was given (pidfd_getfd(2): of the template from the box, which keeps what
it passed on; of the userfaultfd from the engine). Then a process becomes that engine: its namespaces, uid, gid, no group, no
capability, no new privileges. It lacks the engine's system call filters only, so what is refused here no filter has to refuse. It tries

  REFUSED   each way to change the template: each must fail with the errno that stands there,
  GRANTED   each way that changes a private copy: it must succeed, and leave the template as it was.

All of them are tried on a twin, too: a memfd that the process made itself, without a mode and without seals. There each way of REFUSED
must succeed and be seen to change it, so that no way passes for want of a target or by a mistake of its own. Then all again from the
host's own namespaces, where an engine never is and more is in reach, what others hold among it; root reaches that by the same calls.

One line for each try; exit code 1 when one differs or when the template's data have changed (what was a hole the pager may fill meanwhile).

`holes` reads each hole of the template by a mapping without userfaultfd, which the kernel answers with a page of zeros in the template
(SECURITY.md, "What is not defended"): that is all it may do to it."""
import ctypes
import errno
import fcntl
import hashlib
import os
import platform
import struct
import sys

PAGE = 4096
TEMPLATE = "/memfd:crucible-template-"
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
PROT_READ, PROT_WRITE = 1, 2
MAP_SHARED, MAP_PRIVATE, MAP_SHARED_VALIDATE = 1, 2, 3
MADV_DONTNEED, MADV_REMOVE, MADV_POPULATE_WRITE = 4, 9, 23
PUNCH_HOLE, KEEP_SIZE = 2, 1
PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 4, 24, 38
SYS_PIDFD_GETFD, SYS_USERFAULTFD = 438, {"x86_64": 323, "aarch64": 282}[platform.machine()]
UFFDIO_API, UFFDIO_REGISTER, UFFDIO_COPY, UFFDIO_ZEROPAGE = 0xC018AA3F, 0xC020AA00, 0xC028AA03, 0xC020AA04
UFFD_API, UFFD_USER_MODE_ONLY, UFFD_MISSING = 0xAA, 1, 1
NAMESPACES = {"mnt": 0x20000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000}
IDENTITY = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs")
EVIL = b"\xbd" * PAGE

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
libc.syscall.restype = ctypes.c_long
faults = 0


def say(ok, *words):
    global faults
    faults += not ok
    print(*([] if ok else ["WRONG:"]), *words, flush=True)


def call(function, *args):
    r = function(*args)
    if r in (-1, ctypes.c_void_p(-1).value):
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))
    return r


def outcome(function, *args):
    try:
        function(*args)
        return "OK"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))


class Unavailable(Exception):
    """This kernel does not have what a way needs."""


class Target:
    """A memfd: @at is a page of tokens, @hole one that is not there."""

    def __init__(self, fd, at, hole, own=False):
        self.fd, self.at, self.hole, self.own = fd, at, hole, own
        self.path = f"/proc/self/fd/{fd}"
        # What may be had at most of a shared mapping. The ways that begin with one need it to be there.
        self.prot = PROT_READ | PROT_WRITE if own else PROT_READ

    def map(self, prot, flags, at=None):
        return call(libc.mmap, None, PAGE, prot, flags, self.fd, self.at if at is None else at)

    def state(self):
        st = os.fstat(self.fd)
        s = [os.pread(self.fd, PAGE, self.at), st.st_size, st.st_mode, st.st_uid, st.st_gid, fcntl.fcntl(self.fd, fcntl.F_GET_SEALS)]
        # These the pager changes at any time by filling holes.
        return s + [os.pread(self.fd, PAGE, self.hole), st.st_mtime_ns, st.st_blocks] if self.own else s


def make_twin(token):
    fd = os.memfd_create("twin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4 * PAGE)
    os.pwrite(fd, token * (PAGE // len(token)), PAGE)
    return Target(fd, PAGE, 2 * PAGE, own=True)


# -- the ways -----------------------------------------------------------------------------------------------------------


def reopen(how):
    def way(t):
        fd = os.open(t.path, how)
        if not how & os.O_TRUNC:
            os.pwrite(fd, EVIL, t.at)
        os.close(fd)

    return way


def shared_write(flags):
    return lambda t: ctypes.memset(t.map(PROT_READ | PROT_WRITE, flags), 0xBD, PAGE)


def mprotect(t):
    p = t.map(PROT_READ, MAP_SHARED)
    call(libc.mprotect, p, PAGE, PROT_READ | PROT_WRITE)
    ctypes.memset(p, 0xBD, PAGE)


def write_own_memory(p):
    """Past what the mapping permits, as a debugger does."""
    fd = os.open("/proc/self/mem", os.O_RDWR)
    try:
        os.pwrite(fd, EVIL, p)
    finally:
        os.close(fd)


def kernel_fills(t):
    """A system call writes what it read into the mapping."""
    r, w = os.pipe()
    os.write(w, EVIL)
    try:
        call(libc.read, r, ctypes.c_void_p(t.map(t.prot, MAP_SHARED)), PAGE)
    finally:
        os.close(r)
        os.close(w)


def populate(t):
    # (There is nothing to see of it on a page that is there.)
    call(libc.madvise, t.map(t.prot, MAP_SHARED, t.hole), PAGE, MADV_POPULATE_WRITE)


def new_uffd():
    fd = libc.syscall(SYS_USERFAULTFD, os.O_CLOEXEC | os.O_NONBLOCK | UFFD_USER_MODE_ONLY)
    if fd < 0:
        raise Unavailable(f"userfaultfd: {os.strerror(ctypes.get_errno())}")
    fcntl.ioctl(fd, UFFDIO_API, bytearray(struct.pack("QQQ", UFFD_API, 0, 0)))
    return fd


def uffd_copy(uffd, to):
    source = ctypes.create_string_buffer(EVIL, PAGE)
    fcntl.ioctl(uffd, UFFDIO_COPY, bytearray(struct.pack("QQQQq", to, ctypes.addressof(source), PAGE, 0, 0)))


def uffd_zero(uffd, at):
    fcntl.ioctl(uffd, UFFDIO_ZEROPAGE, bytearray(struct.pack("QQQq", at, PAGE, 0, 0)))


def uffd_register_and_copy(p):
    uffd = new_uffd()
    try:
        fcntl.ioctl(uffd, UFFDIO_REGISTER, bytearray(struct.pack("QQQQ", p, PAGE, UFFD_MISSING, 0)))
        uffd_copy(uffd, p)
    finally:
        os.close(uffd)


def into(function):
    """The bytes come of another file."""

    def way(t):
        source = os.memfd_create("source")
        os.write(source, EVIL)
        os.lseek(t.fd, t.at, os.SEEK_SET)
        try:
            function(t, source)
        finally:
            os.close(source)

    return way


REFUSED = [
    ("open again for both, by /proc", reopen(os.O_RDWR), "EACCES"),
    ("open again for writing, by /proc", reopen(os.O_WRONLY), "EACCES"),
    ("open again and cut off, by /proc", reopen(os.O_RDWR | os.O_TRUNC), "EACCES"),
    ("truncate by /proc", lambda t: os.truncate(t.path, PAGE), "EACCES"),
    ("map shared and write", shared_write(MAP_SHARED), "EACCES"),
    ("map shared and write, validated", shared_write(MAP_SHARED_VALIDATE), "EACCES"),
    ("mprotect a shared mapping to writable", mprotect, "EACCES"),
    ("read(2) into a shared mapping", kernel_fills, "EFAULT"),
    ("populate a hole for writing", populate, "EINVAL EFAULT"),
    ("userfaultfd of its own over a shared mapping", lambda t: uffd_register_and_copy(t.map(t.prot, MAP_SHARED, t.hole)), "EPERM"),
    ("punch with fallocate", lambda t: call(libc.fallocate, t.fd, PUNCH_HOLE | KEEP_SIZE, t.at, PAGE), "EBADF"),
    ("fill with fallocate", lambda t: call(libc.fallocate, t.fd, KEEP_SIZE, t.hole, PAGE), "EBADF"),
    ("punch with madvise", lambda t: call(libc.madvise, t.map(t.prot, MAP_SHARED), PAGE, MADV_REMOVE), "EACCES"),
    ("ftruncate to nothing", lambda t: os.ftruncate(t.fd, 0), "EINVAL"),
    ("ftruncate to more", lambda t: os.ftruncate(t.fd, os.fstat(t.fd).st_size + PAGE), "EINVAL"),
    ("pwrite", lambda t: os.pwrite(t.fd, EVIL, t.at), "EBADF"),
    ("sendfile", into(lambda t, source: os.sendfile(t.fd, source, 0, PAGE)), "EBADF"),
    ("copy_file_range", into(lambda t, source: os.copy_file_range(source, t.fd, PAGE, 0, t.at)), "EBADF"),
    ("fchmod", lambda t: os.fchmod(t.fd, 0o606), "EPERM"),
    ("chmod by /proc", lambda t: os.chmod(t.path, 0o606), "EPERM"),
    ("times", lambda t: os.utime(t.fd, ns=(1, 1)), "EPERM"),
    ("seal against writing", lambda t: fcntl.fcntl(t.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE), "EPERM"),
    ("seal against writing later", lambda t: fcntl.fcntl(t.fd, fcntl.F_ADD_SEALS, 16), "EPERM"),
]


def private(prot, do):
    def way(t):
        p = t.map(prot, MAP_PRIVATE)
        do(p)
        if ctypes.string_at(p, PAGE) != EVIL:
            raise OSError(errno.ENODATA, "nothing was written")

    return way


GRANTED = [
    ("map private and write", private(PROT_READ | PROT_WRITE, lambda p: ctypes.memset(p, 0xBD, PAGE)), "OK"),
    ("userfaultfd of its own over a private mapping", private(PROT_READ | PROT_WRITE, uffd_register_and_copy), "OK"),
    ("forget a shared mapping", lambda t: call(libc.madvise, t.map(PROT_READ, MAP_SHARED), PAGE, MADV_DONTNEED), "OK"),
]


# Not where an engine is: the /proc of its root is read-only. (Kernels can be told to refuse the second: proc_mem.force_override.)
DEBUGGERS = [
    ("a debugger's write into a shared mapping", lambda t: write_own_memory(t.map(t.prot, MAP_SHARED)), "EIO EFAULT"),
    ("a debugger's write into a private mapping", private(PROT_READ, write_own_memory), "OK EIO EFAULT"),
]


def try_ways(ways, template, token, changes):
    for name, way, wanted in ways:
        twin = make_twin(token)
        was, there = twin.state(), template.state()
        try:
            on_twin, got = outcome(way, twin), outcome(way, template)
        except Unavailable as e:
            print(f"not tried: {name}: {e}")
            continue
        changed = twin.state() != was
        say(got in wanted.split(), f"{name}: {got}, wanted {wanted}")
        say(on_twin in ("OK" if changes else wanted).split(), f"  the twin: {on_twin}")
        say(changed == changes, f"  the twin is {'changed' if changed else 'as it was'}")
        if template.state() != there:
            say(False, f"  the template has changed by: {name}")
        os.close(twin.fd)


# -- becoming the engine ----------------------------------------------------------------------------------------------------


def status_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        fields = dict(line.rstrip("\n").split(":", 1) for line in f)
    return {k: fields[k].split() for k in IDENTITY}, fields["NSpid"].split()[-1]


def namespaces_of(pid):
    return {n: os.stat(f"/proc/{pid}/ns/{n}").st_ino for n in NAMESPACES}


def drop(who):
    """Become @who. A process that changes its uid loses its /proc to root unless it says that it may be looked at, as an engine may."""
    for cap in range(64):
        libc.prctl(PR_CAPBSET_DROP, cap, 0, 0, 0)
    os.setgroups([])
    os.setresgid(*[int(who["Gid"][0])] * 3)
    os.setresuid(*[int(who["Uid"][0])] * 3)
    call(libc.prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call(libc.prctl, PR_SET_DUMPABLE, 1, 0, 0, 0)


def child(function, *args):
    """Its number of faults, added to ours."""
    global faults
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            faults = 0
            function(*args)
            code = min(faults, 98)
        except BaseException as e:  # pylint: disable=broad-except
            print(f"WRONG: {type(e).__name__}: {e} (line {e.__traceback__.tb_lineno})", flush=True)
        finally:
            os._exit(code)
    faults += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def as_engine(engine, inside, function, *args):
    """Call @function with the engine's number, in its namespaces or (not @inside) ours, by a process that is what the engine is."""
    who, pid = status_of(engine)
    theirs, ours = namespaces_of(engine), namespaces_of("self")
    flags = sum(bit for n, bit in NAMESPACES.items() if theirs[n] != ours[n])

    def become(number, namespaces):
        drop(who)
        got = status_of("self")[0]
        say(got == who == status_of(number)[0], f"as the engine: {' '.join(k + '=' + ','.join(v) for k, v in got.items())}")
        say(namespaces_of("self") == namespaces, f"in the namespaces of {'the engine' if inside else 'the host'}")
        function(number, *args)

    def enter():
        call(libc.setns, os.pidfd_open(engine), flags)
        child(become, pid, theirs)  # a namespace of processes is for children

    if inside:
        child(enter)
    else:
        child(become, str(engine), ours)


# -- what an engine has ----------------------------------------------------------------------------------------------------


def links(pid):
    for n in os.listdir(f"/proc/{pid}/fd"):
        try:
            yield int(n), os.readlink(f"/proc/{pid}/fd/{n}")
        except FileNotFoundError:
            pass


def take(pid, fd):
    pidfd = os.pidfd_open(pid)
    try:
        return call(libc.syscall, SYS_PIDFD_GETFD, pidfd, fd, 0)
    finally:
        os.close(pidfd)


def template_maps(pid):
    """(start, end, offset, inode, name in map_files) of each mapping of a template"""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as f:
        for line in f:
            w = line.split(None, 5)
            if len(w) == 6 and w[5].startswith(TEMPLATE):
                start, end = (int(x, 16) for x in w[0].split("-"))
                yield start, end, int(w[2], 16), int(w[4]), f"{start:x}-{end:x}"


def extents(fd):
    at = 0
    while True:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as e:
            if e.errno == errno.ENXIO:
                return
            raise
        at = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, at


def digest(fd, ranges):
    """Read, not mapped: a hole that is read by a mapping gets a page of zeros."""
    h = hashlib.sha256()
    for start, end in ranges:
        for at in range(start, end, 1 << 20):
            h.update(os.pread(fd, min(1 << 20, end - at), at))
    return h.hexdigest()


def pages_of(fd, ranges, content):
    for start, end in ranges:
        for at in range(start, end, PAGE):
            if os.pread(fd, PAGE, at) == content:
                yield at


# -- the attacks ---------------------------------------------------------------------------------------------------------------


def attack(engine, inside, template, token, maps, uffd, stranger):
    """@engine: its number where we are."""
    found = os.pread(template.fd, PAGE, template.at)
    say(found == token * (PAGE // len(token)), f"it reads the guest's token in the template: {found[: len(token) - 1].decode(errors='replace')}")
    # The same kind of descriptor, but of a file that has the mode which memfds are made with.
    say(outcome(reopen(os.O_RDWR), stranger) == "OK", "a memfd of root's with mode 0777, open for reading, is opened again for writing")
    try_ways(REFUSED, template, token, True)
    try_ways(GRANTED, template, token, False)
    if inside:
        got = outcome(os.open, "/proc/self/mem", os.O_RDWR)
        say(got == "EROFS", f"its own /proc/self/mem for writing: {got}")
        seen = [p for p in os.listdir("/proc") if p.isdigit()]
        say(sorted(seen) == sorted([engine, str(os.getpid())]), f"no process but the engine and this one is seen: {' '.join(seen)}")
    else:
        try_ways(DEBUGGERS[:1], template, token, True)
        try_ways(DEBUGGERS[1:], template, token, False)

    there = template.state()
    for name in [m[4] for m in maps[:3]]:
        for how in (os.O_RDONLY, os.O_RDWR):
            got = outcome(os.open, f"/proc/{engine}/map_files/{name}", how)
            say(got in ("EPERM", "EACCES"), f"open the engine's map_files/{name}, flags {how}: {got}")

    # Its own memory it may change, by whatever it has; that changes nobody else's. Each place takes other pages.
    addresses = [start + at - off for at in template.tokens for start, end, off, _, _ in maps if off <= at < off + end - start]
    addresses = addresses[inside::2]
    say(len(addresses) > 4, f"{len(addresses)} pages of tokens are mapped in the engine")
    if uffd >= 0:
        say(any(outcome(uffd_copy, uffd, a) == "OK" for a in addresses[:-1]), "its userfaultfd copies a page into its own memory")
        say(any(outcome(uffd_zero, uffd, a) == "OK" for a in addresses[:-1]), "its userfaultfd puts a page of zeros into its own memory")
    else:
        print("not tried: the engine has no userfaultfd")

    def write_engine():
        fd = os.open(f"/proc/{engine}/mem", os.O_RDWR)
        os.pwrite(fd, EVIL, addresses[-1])
        os.close(fd)

    got = outcome(write_engine)
    say(got in (("EROFS",) if inside else ("OK", "EACCES", "EPERM")), f"write the engine's own memory by /proc: {got}")  # (Yama forbids it)
    say(template.state() == there, "all that left the template as it was")


def ways_to(pid, fd, name):
    """What somebody may try on another process; what ends in `for writing` root may be refused, too."""
    ways = [
        ("list its descriptors", lambda: os.listdir(f"/proc/{pid}/fd")),
        ("list its mappings", lambda: os.listdir(f"/proc/{pid}/map_files")),
        ("its memory", lambda: os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY))),
        ("its memory, for writing", lambda: os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))),
        ("its root", lambda: os.listdir(f"/proc/{pid}/root/")),
        ("take a descriptor", lambda: os.close(take(pid, fd))),
    ]
    path = f"/proc/{pid}/map_files/{name}" if name else f"/proc/{pid}/fd/{fd}"
    what = "a template that it maps" if name else "a template that it holds"
    return ways + [(what, lambda: os.close(os.open(path, os.O_RDONLY))), (what + ", for writing", lambda: os.close(os.open(path, os.O_RDWR)))]


def attack_others(engine, others):
    say(outcome(os.listdir, f"/proc/{engine}/fd") == "OK", "the engine's user lists the descriptors of its own engine")
    for words, pid, fd, name in others:
        for what, way in ways_to(pid, fd, name):
            got = outcome(way)
            say(got in ("EACCES", "EPERM"), f"{words}: {what}: {got}")


def read_holes(_, fd, holes):
    for start, end in holes:
        p = call(libc.mmap, None, end - start, PROT_READ, MAP_PRIVATE, fd, start)
        bad = sum(ctypes.string_at(p + at, 1) != b"\0" for at in range(0, end - start, PAGE))
        call(libc.munmap, p, end - start)
        if bad:  # filled by the pager meanwhile
            print(f"{bad} pages between {start} and {end} are there already")


# -- what changes ----------------------------------------------------------------------------------------------------------------


class Witness:
    """Root's own descriptor of the template, and what it showed at first."""

    def __init__(self, pid, n):
        self.fd = os.open(f"/proc/{pid}/fd/{n}", os.O_RDONLY)
        self.data = list(extents(self.fd))
        self.state, self.sum = self.look(), digest(self.fd, self.data)

    def look(self):
        return Target(self.fd, self.data[0][0], 0).state()

    def compare(self):
        for start, end in self.data:
            if os.lseek(self.fd, start, os.SEEK_DATA) != start or os.lseek(self.fd, start, os.SEEK_HOLE) < end:
                say(False, f"a hole between {start} and {end}, where there were data")
        now = digest(self.fd, self.data)
        say(now == self.sum, f"sha256 of the template's data: before {self.sum}, after {now}")
        say(self.look() == self.state, "its size, owner, mode and seals are what they were")


def template_of(engine, box):
    """The number that the box has for the template which the engine maps."""
    inode = next(template_maps(engine))[3]
    return next(n for n, to in links(box) if to.startswith(TEMPLATE) and os.stat(f"/proc/{box}/fd/{n}").st_ino == inode)


def any_template(pid):
    return next(n for n, to in links(pid) if to.startswith(TEMPLATE))


def ways(engine, box, pager, other_engine, other_box, token):
    token = token.encode() + b"\n"
    n = template_of(engine, box)
    fd, witness = take(box, n), Witness(box, n)
    st = os.fstat(fd)
    print(f"{os.readlink(f'/proc/{box}/fd/{n}')}: {st.st_size} bytes, uid {st.st_uid}, mode {st.st_mode & 0o7777:o}")
    say(st.st_uid == int(status_of(pager)[0]["Uid"][0]) and st.st_mode & 0o7777 == 0o400, "it is the pager's, mode 0400")
    say(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY, "the descriptor is open for reading only")
    say(fcntl.fcntl(fd, fcntl.F_GET_SEALS) == SEALS, "it is sealed against growing, shrinking and seals")

    tokens = list(pages_of(fd, witness.data, token * (PAGE // len(token))))
    tokens = tokens[len(tokens) // 4 : -len(tokens) // 4]  # a few are of the pipe that they came through
    holes = [end for _, end in witness.data if end < st.st_size]
    say(len(tokens) > 8 and holes, f"{len(tokens)} pages of tokens in {sum(e - s for s, e in witness.data)} bytes of data, {len(holes)} holes")
    made = os.memfd_create("stranger", os.MFD_CLOEXEC)
    os.pwrite(made, EVIL, 0)
    stranger = Target(os.open(f"/proc/self/fd/{made}", os.O_RDONLY), 0, 0)
    maps = list(template_maps(engine))
    uffds = [n for n, to in links(engine) if to == "anon_inode:[userfaultfd]"]
    uffd = take(engine, uffds[0]) if uffds else -1
    # An engine closes its template when it has mapped it. One that keeps it has the same by another number.
    held = [take(engine, n) for n, to in links(engine) if to.startswith(TEMPLATE)]
    for t in [Target(f, tokens[0], holes[0]) for f in [fd] + held]:
        t.tokens = tokens
        for inside in (True, False):
            as_engine(engine, inside, attack, inside, t, token, maps, uffd, stranger)

    others = [("the pager", pager, any_template(pager), None), ("its box", box, n, None), ("another box", other_box, any_template(other_box), None)]
    others += [("another engine", other_engine, 0, next(template_maps(other_engine))[4])]
    for words, pid, number, name in others:
        for what, way in ways_to(pid, number, name):
            if not what.endswith("for writing"):
                say(outcome(way) == "OK", f"root: {words}: {what}")
    as_engine(engine, False, attack_others, others)
    witness.compare()


def holes(engine, box):
    n = template_of(engine, box)
    fd, witness = take(box, n), Witness(box, n)
    st, at = os.fstat(fd), 0
    ranges = []
    for start, end in witness.data + [(st.st_size, 0)]:
        if start > at:
            ranges.append((at, start))
        at = end
    as_engine(engine, True, read_holes, fd, ranges)
    print(f"{(os.fstat(fd).st_blocks - st.st_blocks) * 512 // PAGE} pages of zeros were put into {len(ranges)} holes")
    witness.compare()


{"ways": ways, "holes": holes}[sys.argv[1]](*(int(a) if a.isdigit() else a for a in sys.argv[2:]))
sys.exit(bool(faults))
