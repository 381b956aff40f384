#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The main job once, from nothing: build the `python` profile, serve a tree, run a Python command in a virtual machine by writing a
# file, print its record. Everything lies below build/demo; the daemon is ended again.
#
#   tools/demo.sh BUILD_DIR
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
build=$top/${1:?usage: tools/demo.sh BUILD_DIR}
demo=$top/build/demo
mnt=$demo/mnt
daemon=

if [ "$(id -u)" != 0 ]; then
	echo "demo: needs root (mounts, cgroups, user ids): sudo make demo" >&2
	exit 1
fi

cleanup() {
	if [ -n "$daemon" ]; then
		kill "$daemon" 2>/dev/null || true
		wait "$daemon" 2>/dev/null || true
	fi
}
trap cleanup EXIT

mkdir -p "$demo/store" "$mnt"
echo "== building the python profile (once: a minute or two; then it is only compared)"
"$build/bin/crucible" profile build python --store "$demo/store"

echo "== serving the tree at $mnt"
rm -f "$demo/ready"
mkfifo "$demo/ready"
"$build/libexec/crucibled" --mount "$mnt" --store "$demo/store" --ready-fd 9 --log-level warn 9> "$demo/ready" &
daemon=$!
# A daemon that ends first closes the pipe: then there is nothing to read.
if ! read -r -t 60 _ < "$demo/ready"; then
	echo "demo: the daemon did not come up; what it said stands above" >&2
	exit 1
fi

cat <<'SHOW'

  $ mkdir run/demo
  $ echo profile:python > run/demo/from
  $ echo "python3 -c 'print(2**10)'" > run/demo/cmd
  $ cat run/demo/wait
SHOW
mkdir "$mnt/run/demo"
echo profile:python > "$mnt/run/demo/from"
echo "python3 -c 'print(2**10)'" > "$mnt/run/demo/cmd"
cat "$mnt/run/demo/wait"
result=$(cat "$mnt/run/demo/result.json")
rmdir "$mnt/run/demo"

case $result in
*'"exit_code":0'*'"stdout":"1024\n"'*) ;;
*)
	echo "demo: the record above is not the right one" >&2
	exit 1
	;;
esac
cat <<HOW

That was a virtual machine. To go on:
  make install                                     # programs, man pages, systemd unit
  crucible profile build base                      # into /var/lib/crucible; what machines start from unless told otherwise
  crucible profile build python
  systemctl start crucible      (or: crucible daemon &)
  mkdir /crucible/run/a; echo 'uname -a' > /crucible/run/a/cmd; cat /crucible/run/a/wait
  crucible run --profile python -- python3 -c 'print("hello")'
README.md in the mount, crucible(1) and cruciblefs(8) tell the rest.
HOW
