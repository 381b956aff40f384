#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare members of the JSON text on standard input: json_check.py [KEY VALUE]… | --get KEY

KEY is a path of names and list indexes with dots between ("isolation.unenforced.0"). VALUE is JSON; =~REGEX (searched in a text); !VALUE: not so;
>N or <N; @len N: a length; absent. Prints the first difference and exits 1."""
import json
import re
import sys

MISSING = object()


def look_up(o, key):
    for part in key.split("."):
        if isinstance(o, list) and part.lstrip("-").isdigit():
            o = o[int(part)] if -len(o) <= int(part) < len(o) else MISSING
        elif isinstance(o, dict):
            o = o.get(part, MISSING)
        else:
            return MISSING
        if o is MISSING:
            return o
    return o


def holds(got, want):
    if want == "absent":
        return got is MISSING
    if got is MISSING:
        return False
    if want.startswith("!"):
        return not holds(got, want[1:])
    if want.startswith("=~"):
        return isinstance(got, str) and re.search(want[2:], got, re.S) is not None
    if want.startswith("@len "):
        return len(got) == int(want[5:])
    if want[0] in "<>" and not isinstance(got, bool):
        return got < float(want[1:]) if want[0] == "<" else got > float(want[1:])
    want = json.loads(want)
    return type(got) is type(want) and got == want


def main(args):
    try:
        o = json.loads(sys.stdin.read())
    except ValueError as e:
        print(f"not JSON ({e})")
        return 1
    if args[:1] == ["--get"]:
        got = look_up(o, args[1])
        if got is MISSING:
            print(f"no {args[1]}")
            return 1
        sys.stdout.write(got if isinstance(got, str) else json.dumps(got))
        return 0
    if len(args) % 2:
        print("json_check.py: a KEY without VALUE")
        return 1
    for key, want in zip(args[::2], args[1::2]):
        got = look_up(o, key)
        if not holds(got, want):
            print(f"{key} is {'absent' if got is MISSING else json.dumps(got)[:400]}, want {want}")
            return 1
    return 0


sys.exit(main(sys.argv[1:]))
