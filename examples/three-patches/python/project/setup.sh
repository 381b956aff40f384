#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What takes long in a real project (an environment, packages, a database): here modules are compiled and the cases are made.
set -eu
python3 -m compileall -q /usr/lib/python3/dist-packages >/dev/null 2>&1 || :
python3 - >cases.json <<'END'
import json
cases = {
    " one": "-one", " One Two": "-one-two", "  three   blanks": "-three-blanks",
    ", a comma": "-a-comma", " at the end!": "-at-the-end",
}
print(json.dumps({w + t: w.lower() + s for w in ("Alpha", "beta") for t, s in cases.items()}))
END
