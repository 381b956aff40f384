#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One file operation; prints OK or the name of its errno. The table below says which there are.

Exit code 0 in both cases, so that the caller compares words."""
import ctypes
import errno
import mmap
import os
import sys


def flags(names):
    f = 0
    for n in names.split(","):
        f |= getattr(os, "O_" + n)
    return f


def op_open(path, names="RDONLY"):
    os.close(os.open(path, flags(names), 0o644))


def op_read(path, names="RDONLY", size="65536"):
    fd = os.open(path, flags(names))
    os.read(fd, int(size))


def op_write(path, text, names="WRONLY,TRUNC"):
    """In one write(2); what close says counts as well. \\n and \\x00 are understood."""
    data = text.encode("utf-8", "surrogateescape").decode("unicode_escape").encode("latin-1")
    fd = os.open(path, flags(names), 0o644)
    n = os.write(fd, data)
    if n != len(data):
        print(f"SHORT({n})", end=" ")
    os.close(fd)


def op_mmap(path):
    fd = os.open(path, os.O_RDONLY)
    size = os.fstat(fd).st_size
    if size:
        mmap.mmap(fd, size, prot=mmap.PROT_READ)[:]


def op_mknod(path, kind):
    import stat

    kinds = {"fifo": stat.S_IFIFO, "socket": stat.S_IFSOCK, "char": stat.S_IFCHR, "block": stat.S_IFBLK, "file": stat.S_IFREG}
    os.mknod(path, kinds[kind] | 0o644, os.makedev(1, 3))


def op_rename2(old, new, how):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), {"noreplace": 1, "exchange": 2}[how]):
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))


def op_exec(path):
    os.execv(path, [path])


OPS = {
    "open": op_open,
    "read": op_read,
    "write": op_write,
    "mmap": op_mmap,
    "mkdir": lambda p, mode="755": os.mkdir(p, int(mode, 8)),
    "rmdir": os.rmdir,
    "unlink": os.unlink,
    "rename": os.rename,
    "rename2": op_rename2,
    "symlink": os.symlink,
    "link": os.link,
    "mknod": op_mknod,
    "chmod": lambda p, mode: os.chmod(p, int(mode, 8)),
    "chown": lambda p, uid, gid: os.lchown(p, int(uid), int(gid)),
    "truncate": lambda p, n: os.truncate(p, int(n)),
    "utime": os.utime,
    "stat": os.stat,
    "lstat": os.lstat,
    "readlink": os.readlink,
    "listdir": os.listdir,
    "statvfs": os.statvfs,
    "setxattr": lambda p, k, v: os.setxattr(p, k, v.encode()),
    "exec": op_exec,
}

try:
    OPS[sys.argv[1]](*sys.argv[2:])
    print("OK")
except OSError as e:
    print(errno.errorcode.get(e.errno, str(e.errno)))
