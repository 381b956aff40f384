#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Includes point one way: base <- snapstore, netpolicy <- vmm <- cruciblefs; netpolicy <- policy <- cruciblefs, tools; agent sees only base;
# tools see base, policy (with the netpolicy that its header speaks of) and the wire;
# whoever speaks to the agent sees agent/proto.h, and nothing else of it. Tests and benchmarks may see everything.
set -euo pipefail
cd "${CRUCIBLE_TOP:-.}"
bad=0

# FOLDER, then a regular expression of what its files may include with quotes (generated headers have no folder).
allow() {
	local found

	found=$(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]+"' --include='*.[ch]' --exclude-dir=bench "$1" 2>/dev/null |
		grep -vE "\"($2)\"" || :)
	[ -n "$found" ] || return 0
	echo "$1 may include only $2:"
	echo "$found"
	bad=1
}

generated='[a-z_]+_syscalls\.h'
allow base 'base/.*'
allow agent 'base/.*|agent/.*'
allow snapstore "base/.*|snapstore/.*|$generated"
allow netpolicy "base/.*|netpolicy/.*|$generated"
allow policy 'base/.*|netpolicy/.*|policy/.*'
allow vmm "base/.*|snapstore/.*|netpolicy/.*|vmm/.*|agent/proto\.h|$generated"
allow cruciblefs "base/.*|snapstore/.*|netpolicy/.*|policy/policy\.h|vmm/.*|cruciblefs/.*|agent/proto\.h|$generated"
allow tools 'base/.*|policy/policy\.h|tools/.*|agent/proto\.h'
exit "$bad"
