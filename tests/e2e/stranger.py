#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Everything that a stranger can try on what belongs to somebody else. For 99_users.sh.

    stranger.py walk PATH…       every path below, unlisted ones too, as a JSON list (run as root)
    stranger.py try OWN          read such a list; try every operation on every path of it, with OWN, a directory of the
                                 caller's in the same mount; compare with the table below; exit 1 when one differs

The table: for what may be seen (names, status) and for all the rest, which outcomes each operation may have. An errno that the
table does not name is a fault even if it refuses: it would be an answer from behind the modes."""
import ctypes
import errno
import json
import os
import re
import stat
import sys

# What is everybody's: names, kinds and modes of an object's own files, its status, the two links that only tell a name.
PUBLIC = re.compile(r"^(run|snapshots)/[^/]+(/status|/fs|/wait)?$|^(run|snapshots)/[^/]+/(exec/[^/]+/wait)$")
# Directories of an object that nobody else enters: what is below them has no name for others.
CLOSED = re.compile(r"^(run/[^/]+/(\.fs|exec|limits|net|inherited|snapshots)|snapshots/[^/]+/forks)/")

DENIED = {"EACCES"}
# default: a file or a directory that can be seen and is closed.
TABLE = {
    "lstat": {"OK"},
    "access": DENIED,
    "read": DENIED,
    "read-nonblock": DENIED,
    "path-reopen": DENIED,
    "write": DENIED,
    "append": DENIED,
    "rdwr": DENIED,
    "trunc": DENIED,
    "truncate": DENIED,
    "listdir": DENIED,
    "chmod": {"EPERM"},
    "chown": {"EPERM"},
    "utime-now": DENIED,
    "utime": {"EPERM"},
    "setxattr": {"EACCES", "EPERM", "ENOTSUP"},
    "getxattr": {"EACCES", "ENODATA", "ENOTSUP"},
    "removexattr": {"EACCES", "EPERM", "ENOTSUP"},
    "listxattr": {"OK", "ENOTSUP"},  # of names: `ls -l` asks, and there are none
    "unlink": {"EACCES", "EPERM"},  # (EPERM: the sticky run/)
    "rmdir": {"EACCES", "EPERM"},
    "rename-away": {"EACCES", "EPERM", "EXDEV"},
    "rename-onto": {"EACCES", "EPERM", "EXDEV"},
    "exchange": {"EACCES", "EPERM", "EXDEV", "EINVAL"},
    "link": {"EPERM", "EACCES", "EXDEV"},
    "link-into": DENIED,
    "create-in": DENIED,
    "mkdir-in": DENIED,
    "mknod-in": DENIED,
    "symlink-in": DENIED,
    "tmpfile-in": {"EACCES", "EOPNOTSUPP", "EISDIR"},
    "readlink": {"OK"},
    "exec": DENIED,
    "chdir": DENIED,
    "inotify": DENIED,
}
# An object's own directory can be listed and entered; its status be read; links tell their names.
OF_PUBLIC_DIR = {"access": {"OK"}, "read": {"EISDIR", "OK"}, "listdir": {"OK"}, "chdir": {"OK"}, "inotify": {"OK"}, "path-reopen": {"OK"}}
OF_PUBLIC_FILE = {"access": {"OK"}, "read": {"OK"}, "read-nonblock": {"OK"}, "path-reopen": {"OK"}, "inotify": {"OK"}}

libc = ctypes.CDLL(None, use_errno=True)


def check(result):
    if result < 0:
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))
    return result


def opened(path, flags):
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if flags & os.O_ACCMODE in (os.O_RDONLY, os.O_RDWR) and not flags & os.O_DIRECTORY:
            os.read(fd, 10)
    finally:
        os.close(fd)


def path_reopen(path):
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    try:
        os.close(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK))
    finally:
        os.close(fd)


def chdir(path):
    here = os.open(".", os.O_PATH)
    try:
        os.chdir(path)
    finally:
        os.fchdir(here)
        os.close(here)


def inotify(path):
    fd = check(libc.inotify_init1(0))
    try:
        check(libc.inotify_add_watch(fd, os.fsencode(path), 0xFFF))
    finally:
        os.close(fd)


def execute(path):
    pid = os.fork()
    if not pid:
        try:
            os.execv(path, [path])
        except OSError as e:
            os._exit(e.errno)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        raise OSError(code, "")


def operations(path, kind, own):
    mine = own + "/mine"
    yield "lstat", lambda: os.lstat(path)
    yield "chown", lambda: os.lchown(path, os.getuid(), os.getgid())
    yield "utime", lambda: os.utime(path, (1, 1), follow_symlinks=False)
    yield "listxattr", lambda: os.listxattr(path, follow_symlinks=False)
    yield "rename-away", lambda: os.rename(path, own + "/stolen")
    yield "exchange", lambda: check(libc.renameat2(-100, os.fsencode(path), -100, os.fsencode(mine), 2))
    yield "link", lambda: os.link(path, own + "/hard", follow_symlinks=False)
    if kind == "l":
        yield "readlink", lambda: os.readlink(path)
        yield "unlink", lambda: os.unlink(path)
        return
    yield "access", lambda: None if os.access(path, os.R_OK) else (_ for _ in ()).throw(OSError(errno.EACCES, ""))
    yield "path-reopen", lambda: path_reopen(path)
    yield "chmod", lambda: os.chmod(path, 0o777)
    yield "utime-now", lambda: os.utime(path)
    yield "setxattr", lambda: os.setxattr(path, "user.x", b"x")
    yield "getxattr", lambda: os.getxattr(path, "user.x")
    yield "removexattr", lambda: os.removexattr(path, "user.x")
    yield "inotify", lambda: inotify(path)
    if kind == "d":
        yield "listdir", lambda: os.listdir(path)
        yield "chdir", lambda: chdir(path)
        yield "rmdir", lambda: os.rmdir(path)
        yield "create-in", lambda: opened(path + "/new", os.O_WRONLY | os.O_CREAT)
        yield "mkdir-in", lambda: os.mkdir(path + "/new")
        yield "mknod-in", lambda: os.mknod(path + "/new", stat.S_IFIFO | 0o600)
        yield "symlink-in", lambda: os.symlink("x", path + "/new")
        yield "link-into", lambda: os.link(mine, path + "/new")
        yield "tmpfile-in", lambda: os.close(os.open(path, os.O_TMPFILE | os.O_WRONLY, 0o600))
        return
    yield "read", lambda: opened(path, os.O_RDONLY)
    yield "read-nonblock", lambda: opened(path, os.O_RDONLY | os.O_NONBLOCK)
    yield "write", lambda: opened(path, os.O_WRONLY)
    yield "append", lambda: opened(path, os.O_WRONLY | os.O_APPEND)
    yield "rdwr", lambda: opened(path, os.O_RDWR)
    yield "trunc", lambda: opened(path, os.O_WRONLY | os.O_TRUNC)
    yield "truncate", lambda: os.truncate(path, 0)
    yield "unlink", lambda: os.unlink(path)
    yield "rename-onto", lambda: os.rename(mine, path)
    yield "exec", lambda: execute(path)


def may(name, kind, operation):
    if CLOSED.match(name):
        return DENIED | ({"EXDEV"} if operation in ("rename-away", "exchange", "link") else set())
    if PUBLIC.match(name):
        public = OF_PUBLIC_DIR if kind == "d" else OF_PUBLIC_FILE
        if operation in public:
            return public[operation]
    return TABLE[operation]


def outcome(function):
    try:
        function()
        return "OK"
    except OSError as e:
        return "ENOTSUP" if e.errno == errno.ENOTSUP else errno.errorcode.get(e.errno, str(e.errno))


def walk(paths):
    found = []

    def kind_of(path):
        mode = os.lstat(path).st_mode
        return "l" if stat.S_ISLNK(mode) else "d" if stat.S_ISDIR(mode) else "f"

    def visit(path):
        kind = kind_of(path)
        found.append((path, kind))
        if kind != "d":
            return
        for name in sorted(os.listdir(path)):
            if path.endswith("/.fs") and name not in ("etc", "root"):
                continue
            visit(f"{path}/{name}")
        for name in (".fs", ".wait", ".stdin"):
            if os.path.lexists(f"{path}/{name}"):
                visit(f"{path}/{name}")

    for path in paths:
        visit(path)
    json.dump(found, sys.stdout)


def attempt(own):
    faults = tried = 0
    for path, kind in json.load(sys.stdin):
        for operation, function in operations(path, kind, own):
            got = outcome(function)
            tried += 1
            if got not in may(path, kind, operation):
                faults += 1
                print(f"{operation} {path}: {got}, may be {' '.join(sorted(may(path, kind, operation)))}")
    print(f"{tried} tries")
    sys.exit(1 if faults else 0)


if sys.argv[1] == "walk":
    walk(sys.argv[2:])
else:
    attempt(sys.argv[2])
