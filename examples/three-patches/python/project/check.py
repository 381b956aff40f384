# SPDX-License-Identifier: Apache-2.0
"""Each case through slug(); what differs is told, the last line counts."""
import json
import sys

from slug import slug

with open("cases.json", encoding="utf-8") as f:
    cases = json.load(f)
failed = 0
for title, want in cases.items():
    got = slug(title)
    if got != want:
        failed += 1
        print(f"{title!r}: got {got!r}, want {want!r}")
print(f"failed {failed} of {len(cases)}")
sys.exit(failed > 0)
