#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# mandoc -Tlint over the man pages. Its style remarks about the operating system of the page are not for us.
set -euo pipefail
cd "${CRUCIBLE_TOP:-.}"
command -v mandoc >/dev/null || { echo "skip: mandoc is not installed" >&2; exit 77; }
mapfile -t pages < <(find docs/man -name '*.[1-8]' | sort)
[ "${#pages[@]}" -gt 0 ] || { echo "skip: no man pages" >&2; exit 77; }
found=$(mandoc -Tlint -W style "${pages[@]}" 2>&1 |
	grep -vE 'STYLE: (operating system|referenced manual not found|Mdocdate|RCS id)|outdated mandoc.db|WARNING: cannot use.*operating system' || :)
echo "$found"
[ -z "$found" ]
