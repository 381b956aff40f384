#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One user who takes all that one may have: threads that read a sandbox's `wait` until one more is refused, then open files until one
more is refused. Prints the two errnos; when the command has ended, how many got its record. For 99_users.sh.

    crowd.py UID SANDBOX   (until the end of its input the files stay open; as root: the limits of the process are raised, then it becomes that user)"""
import errno
import json
import os
import resource
import sys
import threading

uid, sandbox = int(sys.argv[1]), sys.argv[2]
resource.setrlimit(resource.RLIMIT_NOFILE, (20000, 20000))
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
threading.stack_size(128 * 1024)
records, refused = [], threading.Event()
lock = threading.Lock()


def read():
    try:
        with open(sandbox + "/wait", "rb") as f:
            record = json.loads(f.read())
        with lock:
            records.append(record["exec"])
    except OSError as e:
        if e.errno == errno.EDQUOT:
            refused.set()
        else:
            print("Error", e, flush=True)


threads = [threading.Thread(target=read) for _ in range(2049)]
for t in threads:
    t.start()
if not refused.wait(120):
    print("Error: nobody was refused", flush=True)
said, held = ["EDQUOT"], []
try:
    while True:
        held.append(os.open(sandbox + "/status", os.O_RDONLY))
except OSError as e:
    said.append(errno.errorcode[e.errno])
print("there:", *said, flush=True)
print(len(held), "files", flush=True)
sys.stdin.read()  # until the caller has looked around
for fd in held:
    os.close(fd)
print("closed", flush=True)
for t in threads:
    t.join()
print(len(records), "records", flush=True)
