#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# No file of more than 1200 lines; one of more than 800 says why in its head comment ("lines"). No file that is named for no job.
set -euo pipefail
cd "${CRUCIBLE_TOP:-.}"
bad=0

files() {
	find agent base cruciblefs netpolicy policy snapstore tests tools vmm examples -type f -not -path '*/node_modules/*' "$@" 2>/dev/null
}

while read -r f; do
	n=$(wc -l <"$f")
	if [ "$n" -gt 1200 ]; then
		echo "$f: $n lines, more than 1200: split it"
		bad=1
	elif [ "$n" -gt 800 ] && ! sed -n 1,40p "$f" | grep -qE '\blines\b'; then
		echo "$f: $n lines, more than 800, and its head comment does not say why (it should speak of its lines)"
		bad=1
	fi
done < <(files \( -name '*.[ch]' -o -name '*.sh' -o -name '*.py' \))
found=$(files | grep -E '/[^/]*(util|helper|misc|common)[^/]*$' || :)
if [ -n "$found" ]; then
	echo "named for no job:"
	echo "$found"
	bad=1
fi
exit "$bad"
