#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The main path once more under KVM: crucible runs a machine (software emulation shows it a processor with AMD's extension), and in it
# crucible runs again, with a real /dev/kvm. What the inner one prints is the result.
#
#   tests/nested/run.sh BUILD_DIR
set -euo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
build=$top/${1:?usage: tests/nested/run.sh BUILD_DIR}
work=$top/build/nested
mnt=$work/mnt
daemon=

cleanup() {
	if [ -n "$daemon" ]; then
		kill "$daemon" 2>/dev/null || true
		wait "$daemon" 2>/dev/null || true
	fi
	rm -f "$work/ready"
}
trap cleanup EXIT

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

box=$mnt/run/nested

# What the inner one needs: the build under test, and a store with the small guest.
stage=$work/stage
rm -rf "$stage"
mkdir -p "$stage/root/nested/store/profiles"
cp -a "$build/bin" "$build/libexec" "$stage/root/nested/"
cp -a --sparse=always "$work/store/boot" "$stage/root/nested/store/"
cp -a --sparse=always "$work/store/profiles/tiny" "$stage/root/nested/store/profiles/"
mkdir -p "$stage/root/nested/store/disks/bases"
cp -a --sparse=always "$work/store/disks/bases/$(jq -r .base "$work/store/profiles/tiny/info.json")" "$stage/root/nested/store/disks/bases/"
cp "$top/tests/nested/forks_inner.sh" "$stage/root/nested/"
# Engines by themselves, and the one library of theirs that the profile lacks.
mkdir -p "$stage/root/nested/unit" "$stage/root/nested/lib"
cp "$build/unit/test_engine" "$stage/root/nested/unit/"
cp "$(ldd "$build/unit/test_engine" | awk '$1 ~ /^libcmocka/ { print $3 }')" "$stage/root/nested/lib/"
chown -R 0:0 "$stage"

attempt() { # a machine with the build in it runs inner.sh: $record, $out
	rmdir "$box" 2>/dev/null || true
	mkdir "$box"
	echo profile:nested > "$box/from"
	echo 2 > "$box/limits/vcpus"
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
	echo 'bash /root/nested/forks_inner.sh 2>&1' > "$box/cmd"
	record=$(cat "$box/wait")
	out=$(cat "$box/stdout")
}

# inner.sh says how the emulated extension ends the machine's kernel. That is no verdict on what is tested; a check that failed is.
emulation_failed() {
	case $record in *'"error":"lost: the engine ended'*) ;; *) return 1 ;; esac
	! grep -q '^FAIL ' <<<"$out" && grep -q '__svm_vcpu_run' "$work/store/sandboxes/$(cat "$box/uuid")/box/console.log"
}
for try in 1 2 3; do
	attempt
	emulation_failed || break
	printf '%s\n' "$out"
	echo "nested: the kernel of the machine died of its emulated processor (try $try)"
done
rm -rf "$stage"
printf '%s\n' "$out"
rmdir "$box"
# grep -c prints 0 and fails when there is none.
passed=$(grep -c '^ok ' <<<"$out") || true
failed=$(grep -c '^FAIL ' <<<"$out") || true
case $record in
*'"exit_code":0'*) ;;
*) [ "$failed" -gt 0 ] || failed=1 ;;
esac
# 65 checks: fewer mean that the inner script ended early.
if [ "$passed" -lt 65 ] && [ "$failed" -eq 0 ]; then
	echo "FAIL nested: only $passed checks were made"
	failed=1
fi
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
