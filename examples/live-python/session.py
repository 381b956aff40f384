# SPDX-License-Identifier: Apache-2.0
"""A Python session that takes lines from standard input, while that lasts, and from the FIFO /tmp/in.

Each line is executed; then "N: " and what it printed, or the exception, in one line of standard output. N counts lines."""
import contextlib
import io
import os
import select

PATH = "/tmp/in"


def answer(number, line, names):
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(line, names)
    except BaseException as e:  # a session survives what it is told
        out.write(f"{type(e).__name__}: {e}")
    print(f"{number}: {' '.join(out.getvalue().split())}", flush=True)


def main():
    with contextlib.suppress(FileExistsError):
        os.mkfifo(PATH, 0o600)
    # Open for writing, too: so it never ends, however many come and go.
    sources = {0: b"", os.open(PATH, os.O_RDWR): b""}
    names, number = {}, 0
    while True:
        for fd in select.select(list(sources), [], [])[0]:
            data = os.read(fd, 65536)
            if not data:
                del sources[fd]  # standard input of a fork
                continue
            *lines, sources[fd] = (sources[fd] + data).split(b"\n")
            for line in lines:
                number += 1
                answer(number, line.decode("utf-8", "replace"), names)


main()
