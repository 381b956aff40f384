#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# crucible once more under KVM: crucible runs a machine (software emulation shows it a processor with AMD's extension), and in it
# crucible runs again, with a real /dev/kvm. What the inner script prints is the result.
#
#   tests/nested/run.sh BUILD_DIR INNER CHECKS PROCESSORS
#
# INNER: path or forks, for inner_INNER.sh. CHECKS: how many it makes; fewer mean that it ended early. PROCESSORS: the machine's.
set -euo pipefail

usage='usage: tests/nested/run.sh BUILD_DIR INNER CHECKS PROCESSORS'
top=$(cd "$(dirname "$0")/../.." && pwd)
build=$top/${1:?$usage}
inner=inner_${2:?$usage}.sh
checks=${3:?$usage}
processors=${4:?$usage}
work=$top/build/nested
mnt=$work/mnt
box=$mnt/run/nested
stage=$work/stage
daemon=

cleanup() {
	if [ -n "$daemon" ]; then
		kill "$daemon" 2>/dev/null || true
		wait "$daemon" 2>/dev/null || true
	fi
	rm -rf "$work/ready" "$stage"
}
trap cleanup EXIT

# All of one build, also when this is run by hand: an older test_engine speaks to these programs in words of its time.
make -C "$top" --no-print-directory CONFIG="${1#build/}" all "$1/unit/test_engine"

mkdir -p "$work/store" "$mnt"
for profile in tiny nested; do
	"$build/libexec/crucible-profile" build "$profile" --store "$work/store" --profiles "$top/tests/nested" |
		sed -u 's/^progress/nested: building/'
done

rm -f "$work/ready"
mkfifo "$work/ready"
"$build/libexec/crucibled" --mount "$mnt" --store "$work/store" --set accel=tcg --set pool_size=0 --set warm_size=0 \
	--set prepare=0 --ready-fd 9 --log-level warn 9> "$work/ready" &
daemon=$!
read -r -t 60 _ < "$work/ready" || { echo "FAIL nested: the outer daemon did not come up"; exit 1; }

# What the inner one needs: the build under test, and a store with the small guest.
rm -rf "$stage"
mkdir -p "$stage/root/nested/store/profiles" "$stage/root/nested/store/disks/bases"
cp -a "$build/bin" "$build/libexec" "$stage/root/nested/"
cp -a --sparse=always "$work/store/boot" "$stage/root/nested/store/"
cp -a --sparse=always "$work/store/profiles/tiny" "$stage/root/nested/store/profiles/"
cp -a --sparse=always "$work/store/disks/bases/$(jq -r .base "$work/store/profiles/tiny/info.json")" "$stage/root/nested/store/disks/bases/"
cp "$top/tests/nested/inner_begin.sh" "$top/tests/nested/$inner" "$stage/root/nested/"
# Engines by themselves, and the one library of theirs that the profile lacks.
mkdir -p "$stage/root/nested/unit" "$stage/root/nested/lib"
cp "$build/unit/test_engine" "$stage/root/nested/unit/"
cp "$(ldd "$build/unit/test_engine" | awk '$1 ~ /^libcmocka/ { print $3 }')" "$stage/root/nested/lib/"
chown -R 0:0 "$stage"

rmdir "$box" 2>/dev/null || true
mkdir "$box"
echo profile:nested > "$box/from"
# With two, QEMU's emulation of the extension now and then loses a guest, or ends the machine's kernel (README.md).
echo "$processors" > "$box/limits/vcpus"
echo 4096 > "$box/limits/memory_mib"
echo 8192 > "$box/limits/disk_mib"
echo 900 > "$box/limits/exec_timeout_s"
tar -C "$stage" -c root > "$box/import"
case $(cat "$box/wait") in
*'"exit_code":0'*) ;;
*)
	cat "$box/result.json"
	echo "FAIL nested: the build could not be brought in"
	exit 1
	;;
esac

echo "bash /root/nested/$inner 2>&1" > "$box/cmd"
record=$(cat "$box/wait")
out=$(cat "$box/stdout")
printf '%s\n' "$out"
case $record in
*'"error":""'*) ;;
*)
	printf '%s\n' "$record"
	tail -n 40 "$work/store/sandboxes/$(cat "$box/uuid")/box/console.log"
	;;
esac
rmdir "$box"
# grep -c prints 0 and fails when there is none.
passed=$(grep -c '^ok ' <<<"$out") || true
failed=$(grep -c '^FAIL ' <<<"$out") || true
case $record in
*'"exit_code":0'*) ;;
*) [ "$failed" -gt 0 ] || failed=1 ;;
esac
if [ "$passed" -lt "$checks" ] && [ "$failed" -eq 0 ]; then
	echo "FAIL nested: only $passed of $checks checks were made"
	failed=1
fi
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
