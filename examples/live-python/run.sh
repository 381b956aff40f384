#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A Python session in a slot of a sandbox, then in two forks of it, each with its own further life. README.md tells more.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
mnt=${CRUCIBLE_MOUNT:-/crucible}
[ -f "$mnt/version" ] || {
	echo "$0: $mnt is no crucible mount; start the daemon, or set CRUCIBLE_MOUNT" >&2
	exit 1
}
cd "$mnt"
[ -d profiles/python ] || {
	echo "$0: the profile python is not built: crucible profile build python" >&2
	exit 1
}
id=live-python-$$

cleanup() {
	local x

	for x in "run/$id-left" "run/$id-right" "run/$id" "snapshots/$id"; do
		[ ! -d "$x" ] || rmdir "$x"
	done
}
trap cleanup EXIT

# What line N of the session came to. Streams grow: look until it is there.
answer() { # FILE N
	local tries

	for ((tries = 0; tries < 600; tries++)); do
		sed -n "s/^$2: //p" "$1" 2>/dev/null | grep . && return
		sleep 0.1
	done
	echo "$0: the session did not answer line $2 in $1" >&2
	exit 1
}

# -- the session: a slot, with live input
mkdir "run/$id"
echo profile:python >"run/$id/from"
cp "$here/session.py" "run/$id/fs/root/"
mkdir "run/$id/exec/live"
live=run/$id/exec/live
echo '{"argv":["python3","/root/session.py"],"timeout_s":3600}' >"$live/cmd"
echo 'import time; x = [1, 2]' >"$live/stdin"
echo 'x.append(3); print("parent:", x)' >"$live/stdin"
answer "$live/stdout" 2

# -- two forks of it
echo "$id" >"run/$id/snapshot"
echo "$id-left" "$id-right" >"snapshots/$id/fork"

tell() { # SANDBOX LINE…: through the FIFO
	local text

	printf -v text '%s\\n' "${@:2}"
	printf '{"script":"cat >/tmp/in","stdin":"%s"}' "${text//\"/\\\"}" >"run/$1/cmd"
	cat "run/$1/wait" >/dev/null
}
tell "$id-left" 'x.append(10)' 'print("left:", x)'
tell "$id-right" 'x.append(20)' 'print("right:", x)'
answer "$(echo "run/$id-left/inherited/"*.out)" 4 # one command was inherited, and its number was the session's
answer "$(echo "run/$id-right/inherited/"*.out)" 4

# -- and the parent knows nothing of it
echo 'print("parent:", x)' >"$live/stdin"
answer "$live/stdout" 3
