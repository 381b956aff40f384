#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Set up a project once in a sandbox, fork it once for each candidate, test them side by side, keep the best. README.md tells more.
#
#   run.sh [--keep] [PROFILE]      PROFILE: python or tiny
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
mnt=${CRUCIBLE_MOUNT:-/crucible}
keep=
if [ "${1-}" = --keep ]; then
	keep=1
	shift
fi
profile=${1:-$([ -d "$mnt/profiles/python" ] && echo python || echo tiny)}
[ -f "$mnt/version" ] || {
	echo "$0: $mnt is no crucible mount; start the daemon, or set CRUCIBLE_MOUNT" >&2
	exit 1
}
[ -d "$here/$profile" ] || {
	echo "$0: there is no project for profile $profile" >&2
	exit 1
}
id=three-patches-$$
cd "$here/$profile/candidates"
candidates=(*)
cd "$mnt"

cleanup() {
	local x

	for x in run/"$id"-* run/"$id" snapshots/"$id"; do
		[ ! -d "$x" ] || rmdir "$x"
	done
}
trap cleanup EXIT

failed() { # WORDS SANDBOX
	echo "$0: $1: $(cat "run/$2/error")" >&2
	exit 1
}

# The result of a sandbox's latest command: one member that is a number.
number() { # SANDBOX KEY
	sed -n "s/.*\"$2\":\\(-\\{0,1\\}[0-9]*\\).*/\\1/p" "run/$1/result.json"
}

# -- once: the project, and what it needs
mkdir "run/$id"
echo "profile:$profile" >"run/$id/from"
echo 256 >"run/$id/limits/memory_mib"
cp -r "$here/$profile/project" "run/$id/fs/root/project" || failed "copying the project" "$id"
echo 'cd /root/project && exec sh ./setup.sh' >"run/$id/cmd"
cat "run/$id/wait" >/dev/null
[ "$(number "$id" exit_code)" = 0 ] || failed "setting up: $(cat "run/$id/stderr")" "$id"

# -- a snapshot, and a fork for each candidate: all of them, or none
echo "$id" >"run/$id/snapshot" || failed "snapshot" "$id"
echo "${candidates[@]/#/$id-}" >"snapshots/$id/fork" || { # one line is one write: bash's printf writes line by line
	cat "snapshots/$id/error" >&2
	exit 1
}

# -- a patch into each, and the tests of all at once
for c in "${candidates[@]}"; do
	cp "$here/$profile/candidates/$c/"* "run/$id-$c/fs/root/project/"
	echo 'cd /root/project && exec sh ./check.sh' >"run/$id-$c/cmd"
done

best='' least=
printf '%-12s %-7s %7s %6s\n' candidate verdict failed ms
for c in "${candidates[@]}"; do
	cat "run/$id-$c/wait" >/dev/null
	wrong=$(sed -n 's/^failed \([0-9]*\) of [0-9]*$/\1/p' "run/$id-$c/stdout" | tail -n 1)
	verdict=fails
	[ "$(number "$id-$c" exit_code)" != 0 ] || verdict=passes
	printf '%-12s %-7s %7s %6s\n' "$c" "$verdict" "${wrong:-all}" "$(number "$id-$c" duration_ms)"
	if [ -n "$wrong" ] && { [ -z "$least" ] || [ "$wrong" -lt "$least" ]; }; then
		best=$c least=$wrong
	fi
done
[ -n "$best" ] || {
	echo "$0: no candidate could be tested" >&2
	exit 1
}
echo "kept: $best"
if [ -n "$keep" ]; then
	mv "run/$id-$best" run/three-patches-best
else
	for f in "$here/$profile/candidates/$best/"*; do
		echo "-- ${f##*/}"
		cat "run/$id-$best/fs/root/project/${f##*/}"
	done
fi
