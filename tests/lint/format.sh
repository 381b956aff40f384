#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# clang-format has nothing to change in any source.
set -euo pipefail
cd "${CRUCIBLE_TOP:-.}"
command -v clang-format >/dev/null || { echo "skip: clang-format is not installed" >&2; exit 77; }
[ -f .clang-format ] || { echo "no .clang-format" >&2; exit 1; }
find agent base cruciblefs netpolicy policy snapstore tests tools vmm -name '*.[ch]' -print0 | xargs -0 clang-format --dry-run -Werror
