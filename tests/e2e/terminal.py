# SPDX-License-Identifier: Apache-2.0
"""Runs the command on a terminal of its own, as a person would. For 61_terminal.sh."""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

CRUCIBLE, SANDBOX, BOUND = os.environ["CRUCIBLE"], sys.argv[1], float(os.environ.get("BOUND", "90"))


class Terminal:
    def __init__(self, *words, rows=30, cols=100):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "vt220"
            os.execv(CRUCIBLE, [CRUCIBLE, *words])
        self.words = words
        self.seen = b""
        self.size(rows, cols)

    def size(self, rows, cols):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, text):
        os.write(self.fd, text)

    def read(self):
        """What comes next; b"" at the end."""
        if not select.select([self.fd], [], [], BOUND)[0]:
            sys.exit(f"{self.words}: nothing came in {BOUND} s after {self.seen!r}")
        try:
            return os.read(self.fd, 65536)
        except OSError:  # EIO: the other side is closed
            return b""

    def expect(self, text):
        """Read until `text` has come; what came, forgotten for the next call."""
        while text not in self.seen:
            piece = self.read()
            if not piece:
                sys.exit(f"{self.words}: ended before {text!r}: {self.seen!r}")
            self.seen += piece
        before, self.seen = self.seen.split(text, 1)
        return before

    def end(self, code):
        while piece := self.read():
            self.seen += piece
        got = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if got != code:
            sys.exit(f"{self.words}: exit code {got}, not {code}: {self.seen!r}")
        return self.seen

    def is_raw(self):
        return not termios.tcgetattr(self.fd)[3] & termios.ICANON


def wait_for(what, true):
    end = time.monotonic() + BOUND
    while not true():
        if time.monotonic() > end:
            sys.exit(f"waited for {what}")
        time.sleep(0.02)


def check(what, true):
    if not true:
        sys.exit(what)


def shell():
    t = Terminal("shell", SANDBOX)
    t.expect(b"# ")
    check("the terminal is not raw", t.is_raw())
    t.type(b"stty size; echo $TERM-$((6*7)); tty\r")
    t.expect(b"30 100")
    t.expect(b"vt220-42")
    t.expect(b"/dev/pts/")
    t.size(50, 132)
    # The new size is in the guest some time later.
    for _ in range(100):
        t.type(b"stty size; echo e'n'd\r")
        if b"50 132" in t.expect(b"\nend"):
            break
    else:
        sys.exit("the size did not follow")
    # Printed by the process that is to be interrupted: so it is in the foreground by then.
    t.type(b"sh -c 'echo sl\"\"eeping; exec sleep 600'\r")
    t.expect(b"\nsleeping")
    t.type(b"\x03")
    t.expect(b"# ")  # a shell that reads anew may drop what was typed ahead
    t.type(b"echo al'ive'\r")
    t.expect(b"alive")
    t.type(b"exit 5\r")
    t.end(5)


def escape():
    t = Terminal("shell", SANDBOX)
    t.expect(b"# ")
    t.type(b"echo sl'eep'ing; sleep 600\r")
    t.expect(b"\nsleeping")
    t.type(b"~")
    t.type(b".")
    check("no word of the end", b"left by" in t.end(129))


def restored():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        t = Terminal("shell", SANDBOX)
        t.expect(b"# ")
        os.kill(t.pid, number)
        wait_for("the terminal to be restored", lambda: not t.is_raw())
        got = os.waitstatus_to_exitcode(os.waitpid(t.pid, 0)[1])
        check(f"exit code {got} after signal {number}", got == 128 + number)


def stripped():
    t = Terminal("sandbox", "exec", SANDBOX, "--", "printf", r"\033[31mred\007\n")
    check("controls were not stripped", b"[31mred" in t.end(0) and b"\x1b" not in t.seen and b"\x07" not in t.seen)
    t = Terminal("sandbox", "exec", "-t", SANDBOX, "--", "printf", r"\033[31mred\007\n")
    check("-t was stripped", b"\x1b[31mred\x07" in t.end(0))


def interrupts():
    t = Terminal("run", "--", "sh", "-c", "echo up; sleep 600")
    t.expect(b"up\r\n")
    t.type(b"\x03")
    t.end(130)
    t = Terminal("sandbox", "exec", SANDBOX, "--", "sh", "-c", "trap 'echo caught; exit 9' INT; echo up; while :; do sleep 0.1; done")
    t.expect(b"up\r\n")
    t.type(b"\x03")
    t.expect(b"caught")
    t.end(9)
    t = Terminal("sandbox", "exec", SANDBOX, "--", "sh", "-c", "trap 'echo caught' INT; echo up; while :; do sleep 0.1; done")
    t.expect(b"up\r\n")
    t.type(b"\x03")
    t.expect(b"caught")
    t.type(b"\x03")
    t.end(130)


def end_of_input():
    t = Terminal("sandbox", "exec", "-it", SANDBOX, "--", "sh", "-c", "echo up; cat; echo over")
    t.expect(b"up\r\n")
    t.type(b"abc\r")
    t.expect(b"abc\r\nabc")
    t.type(b"\x04")
    t.expect(b"over")
    t.end(0)


def stopped():
    t = Terminal("sandbox", "exec", SANDBOX, "--", "sh", "-c", "echo up; sleep 1; echo done")
    t.expect(b"up\r\n")
    os.kill(t.pid, signal.SIGTSTP)
    wait_for("it to stop", lambda: open(f"/proc/{t.pid}/stat").read().rsplit(")", 1)[1].split()[0] == "T")
    os.kill(t.pid, signal.SIGCONT)
    t.expect(b"done")
    t.end(0)


for test in (shell, escape, restored, stripped, interrupts, end_of_input, stopped):
    print(test.__name__, flush=True)
    test()
