#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The profile python, Debian with bash in it: a Python program as a command, bash's own, pip without a network.
. "$(dirname "$0")/lib.sh"
need_profile python

start_daemon
new_sandbox p from=profile:python
P=$RUN/p
cat >"$DIR/tool.py" <<'END'
#!/usr/bin/env python3
import json, os, sys
print(json.dumps({"answer": sum(range(10)), "argv0": os.path.basename(sys.argv[0]) != "", "version": sys.version_info[0]}))
print("words", file=sys.stderr)
sys.exit(4)
END
cat "$DIR/tool.py" >"$P/cmd"
await p
assert_rec exit_code 4 stderr '"words\n"' error '""'
assert_json "$(rec stdout)" answer 45 version 3
run p $'#! python\nprint("a bare name of an interpreter is found")'
assert_rec exit_code '>-2'
run p '{"argv":["python3","-c","import sys; print(sys.stdin.read()[::-1])"],"stdin":"abc"}'
assert_rec stdout '"cba\n"'
run p '{"argv":["python3","-c","raise SystemExit(\"told\")"]}'
assert_rec exit_code 1 stderr '"told\n"'
run p $'#!/usr/bin/env python3\nimport os\nos.kill(os.getpid(), 11)'
assert_rec signal '"SIGSEGV"' exit_code -1
run p $'#!/usr/bin/env python3\nprint("\\udcff" if False else "äöü €")'
assert_rec stdout '"äöü €\n"'
run p $'#!/usr/bin/env python3\nx = []\nwhile True: x.append("x" * 10000000)'
assert_rec exit_code '!0'
run p $'#!/usr/bin/env python3\nimport subprocess, multiprocessing\nprint(subprocess.run(["echo", "child"], capture_output=True, text=True).stdout.strip())\np = multiprocessing.Process(target=print, args=("forked",)); p.start(); p.join()'
assert_rec stdout '"child\nforked\n"' exit_code 0
run p 'pip --version && python3 -m venv --without-pip /tmp/v && /tmp/v/bin/python -c "print(1)"'
assert_rec exit_code 0 stdout '=~1\n$'

# CASES.md: what bash needs.
run p $'#!/bin/bash\ncat <(echo process) <(echo substitution); echo x | tee /dev/stderr >/dev/null; [[ $BASH_VERSION ]] && echo "$BASH_SOURCE" | wc -l'
assert_rec stdout '"process\nsubstitution\n1\n"' stderr '"x\n"'
run p "bash -c 'cat <(echo x)'"
assert_rec stdout '"x\n"'
run p 'ls -d /dev/shm /dev/pts /dev/fd /dev/stdin /dev/stdout; python3 -c "import multiprocessing; multiprocessing.Lock(); print(\"semaphores\")"'
assert_rec exit_code 0 stdout '=~semaphores'
run p 'python3 -c "
import socket
s = socket.socket(); s.bind((\"127.0.0.1\", 0)); s.listen(1)
c = socket.create_connection(s.getsockname()); print(\"loopback\")
try:
    socket.create_connection((\"1.1.1.1\", 53), 3); print(\"reached the world\")
except OSError as e:
    print(\"no way out\")"'
assert_rec stdout '"loopback\nno way out\n"'
run p '{"argv":["python3","-c","import os; print(os.get_terminal_size().columns)"],"tty":{"rows":20,"cols":77}}'
assert_rec stdout '=~^77\r?\n'
run p '{"argv":["bash","-c","ulimit -u; id -un"],"user":"user"}'
assert_rec stdout '=~user\n$'
