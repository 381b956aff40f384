#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# clang-tidy over the programs' sources, as .clang-tidy says; the reason of each disabled check stands there.
# limit: 1800
set -euo pipefail
cd "${CRUCIBLE_TOP:-.}"
command -v clang-tidy >/dev/null || { echo "skip: clang-tidy is not installed" >&2; exit 77; }
[ -f compile_commands.json ] || { echo "no compile_commands.json: make compile_commands.json" >&2; exit 1; }
rc=0
found=$(sed -n 's/.*"file":"\([^"]*\)".*/\1/p' compile_commands.json | grep -v '^tests/' |
	xargs -P "$(nproc)" -n 8 clang-tidy -p . --quiet --warnings-as-errors='*' 2>&1) || rc=$?
grep -vE '^[0-9]+ warnings?( and [0-9]+ errors?)? generated|^Suppressed|^Use -header-filter' <<<"$found" || :
exit "$rc"
