#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The profiles that the benchmarks boot, in a store of their own: build/bench/store. Minutes the first time, then only a comparison.
#
#   tools/bench/profiles.sh BUILD_DIR
set -euo pipefail

here=$(realpath "$(dirname "$0")")
build=${1:?usage: tools/bench/profiles.sh BUILD_DIR}
out=${CRUCIBLE_BENCH_DIR:-$here/../../build/bench}
store=$out/store

[ "$(id -u)" = 0 ] || {
	echo "bench: needs root (mounts, cgroups, user ids)" >&2
	exit 1
}
mkdir -p "$store"
for p in base bench; do
	if ! "$build/libexec/crucible-profile" build "$p" --store "$store" --profiles "$here" --agent "$build/libexec/crucible-agent" \
		>"$out/profile.log" 2>&1; then
		[ -f "$store/profiles/$p/root.img" ] || {
			tail -n 5 "$out/profile.log" >&2
			exit 1
		}
		echo "bench: profile $p could not be compared, going on with what is there: $(tail -n 1 "$out/profile.log")" >&2
	fi
done
