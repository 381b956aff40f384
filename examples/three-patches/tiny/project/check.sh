#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each case through slug.sh; what differs is told, the last line counts.
failed=0 n=0
while IFS='|' read -r title want; do
	n=$((n + 1))
	got=$(sh ./slug.sh "$title")
	[ "$got" = "$want" ] || {
		failed=$((failed + 1))
		echo "\"$title\": got \"$got\", want \"$want\""
	}
done <cases
echo "failed $failed of $n"
[ "$failed" = 0 ]
