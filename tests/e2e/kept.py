#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hold a sandbox by everything that can hold it, wait, and print what all of it still gives. For 99_users.sh: what the next sandbox of
that name holds must not be among it.

    kept.py SANDBOX FIFO"""
import os
import sys

sandbox, fifo = sys.argv[1:]
FILES = ("stdout", "status", "info.json", "result.json", "env", "cmd", "log.jsonl", "exec/1/stdout", "fs/etc/hostname")
files = {f: os.open(f"{sandbox}/{f}", os.O_RDONLY) for f in FILES}
paths = {f: os.open(f"{sandbox}/{f}", os.O_PATH) for f in FILES}
top = os.open(sandbox, os.O_PATH | os.O_DIRECTORY)
listed = os.open(sandbox, os.O_RDONLY | os.O_DIRECTORY)
cmd = os.open(sandbox + "/exec", os.O_RDONLY | os.O_DIRECTORY)
env = os.open(sandbox + "/env", os.O_WRONLY)
os.chdir(sandbox)
print("held", flush=True)
open(fifo).read()


def tell(what, function):
    try:
        print(what, repr(function()))
    except OSError as e:
        print(what, e.strerror)


for name, fd in files.items():
    tell(f"pread {name}", lambda fd=fd: os.pread(fd, 4096, 0))
for name, fd in paths.items():
    tell(f"open again {name}", lambda fd=fd: os.pread(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY), 4096, 0))
for base, fd in (("top", top), ("listed", listed), ("exec", cmd)):
    for name in ("stdout", "status", "fs/root/secret", "1/stdout", "exec/1/stdout", "uuid"):
        tell(f"{base} {name}", lambda fd=fd, name=name: os.pread(os.open(name, os.O_RDONLY, dir_fd=fd), 4096, 0))
    tell(f"list {base}", lambda fd=fd: os.listdir(f"/proc/self/fd/{fd}"))
tell("cwd", lambda: os.listdir("."))
tell("cwd stdout", lambda: open("stdout").read())
tell("parent of cwd", lambda: open("../again/stdout").read())
tell("write env", lambda: os.write(env, b"STOLEN=1\n"))
tell("mkdir", lambda: os.mkdir("exec/slot", dir_fd=top))
tell("create", lambda: os.open("scratch", os.O_CREAT | os.O_WRONLY, dir_fd=top))
