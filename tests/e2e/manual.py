# SPDX-License-Identifier: Apache-2.0
"""cruciblefs(8) against a live tree, crucible.conf(5) against what the daemon takes. For 63_manual.sh.

    manual.py tree PAGE MOUNT SANDBOX SLOT FORK
                                              every file has its ".It Pa" line with its mode, and every line its file
    manual.py settings PAGE                   the settings of the page: "key default", a line each
"""

import os
import re
import sys

UNLISTED = ("run/ID/.wait", "run/ID/.fs", "run/ID/exec/N/.wait", "run/ID/exec/SLOT/.wait", "run/ID/exec/SLOT/.stdin")
AGAIN = "views/NAME/tree/"  # the same files once more


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def items(page):
    """{path: mode or None}: from the ".It Pa" lines, and the "Mode" that follows; what a section says for all its files counts, too."""
    found, path, common = {}, None, None
    for line in page.split("\n"):
        if line.startswith(".Sh "):
            path = common = None
        if m := re.match(r"\.It Pa (\S+)$", line):
            path = m[1]
            found[path] = common
        elif m := re.match(r"Mode (\d{4})", line):
            found[path] = int(m[1], 8)
        elif path is None and (m := re.search(r"[Cc]ontrol files? of\s*mode (\d{4})|of mode (\d{4})", line)):
            common = int(m[1] or m[2], 8)
    return found


def general(path, sandbox, slot, fork):
    for pattern, name in (
        (rf"^run/({sandbox}|{fork})(?=/|$)", "run/ID"),
        (r"^run/ID/snapshots/[^/]+", "run/ID/snapshots/NAME"),
        (r"^run/ID/inherited/\d+\.out$", "run/ID/inherited/N.out"),
        (r"^snapshots/[^/]+", "snapshots/ID"),
        (r"^views/[^/]+", "views/NAME"),
        (r"^snapshots/ID/forks/[^/]+", "snapshots/ID/forks/NAME"),
        (rf"^run/ID/exec/{slot}(?=/|$)", "run/ID/exec/SLOT"),
        (r"^run/ID/exec/\d+(?=/|$)", "run/ID/exec/N"),
        (r"^profiles/[^/]+", "profiles/NAME"),
        (r"^logs/by-name/[^/]+", "logs/by-name/NAME"),
        (r"^logs/[0-9a-f-]{36}\.jsonl", "logs/UUID.jsonl"),
    ):
        path = re.sub(pattern, name, path)
    return path


def live(mount, sandbox, slot, fork):
    found = {}
    for top, dirs, files in os.walk(mount):
        if general(os.path.relpath(top, mount), sandbox, slot, fork) + "/" == AGAIN:
            dirs.clear()
            continue
        for name in dirs + files:
            path = os.path.join(top, name)
            st = os.lstat(path)
            key = general(os.path.relpath(path, mount), sandbox, slot, fork)
            if os.path.isdir(path) and not os.path.islink(path):
                key += "/"
            found[key] = None if os.path.islink(path) else st.st_mode & 0o7777
    for key in UNLISTED:
        path = key.replace("ID", sandbox).replace("SLOT", slot).replace("/N/", "/1/")
        found[key] = os.lstat(os.path.join(mount, path)).st_mode & 0o7777
    return found


def tree(page, mount, sandbox, slot, fork):
    told, there = items(page), live(mount, sandbox, slot, fork)
    faults = [f"{p}: not in the page" for p in sorted(there.keys() - told.keys())]
    faults += [f"{p}: not in the tree" for p in sorted(told.keys() - there.keys())]
    for path in sorted(there.keys() & told.keys()):
        if there[path] != told[path]:
            faults.append(f"{path}: mode {there[path] and oct(there[path])}, the page says {told[path] and oct(told[path])}")
    sys.exit("\n".join(faults) or 0)


def settings(page):
    for part in re.split(r"^\.It Va ", page, flags=re.M)[1:]:
        key = part.split("\n", 1)[0]
        default = re.search(r"Default:\s*(?:\.(?:Pa|Cm) )?(\S+)", part)
        limits = re.search(r"From (\d+) to (\d+)", part)
        print(key, default[1].rstrip(".") if default else "-", *(limits.groups() if limits else ()))


if sys.argv[1] == "tree":
    tree(read(sys.argv[2]), *sys.argv[3:7])
else:
    settings(read(sys.argv[2]))
