#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Every script through shellcheck, found by its first line. What is disabled stands with its reason in .shellcheckrc or beside the line.
set -euo pipefail
cd "${CRUCIBLE_TOP:-.}"
command -v shellcheck >/dev/null || { echo "skip: shellcheck is not installed" >&2; exit 77; }

mapfile -t scripts < <(
	{
		grep -rlE --exclude-dir=build --exclude-dir=cache --exclude-dir=.git --exclude-dir=node_modules '^#!/(usr/)?bin/(env )?(ba|da)?sh' .ci base tests tools examples docs 2>/dev/null
		find tests tools examples -name '*.sh' -not -path '*/node_modules/*'
	} | sort -u | xargs grep -LE '^#!.*(python|awk)'
)
echo "${#scripts[@]} scripts"
shellcheck --color=never "${scripts[@]}"
