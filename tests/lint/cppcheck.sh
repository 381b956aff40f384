#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# cppcheck over the sources. Suppressed, each for its reason:
#   missingIncludeSystem  it does not need the C library's headers
#   normalCheckLevelMaxBranches, checkersReport, unmatchedSuppression  remarks on itself
#   unusedFunction        not asked for: the archives are libraries
#   constParameterCallback, constParameterPointer, constVariablePointer  the type of a callback is what its caller wants
#   unusedStructMember    members that the kernel's or libfuse's headers demand
#   json_object_object_foreach is shown as a loop: cppcheck does not read json-c's headers
set -euo pipefail
cd "${CRUCIBLE_TOP:-.}"
command -v cppcheck >/dev/null || { echo "skip: cppcheck is not installed" >&2; exit 77; }
suppress=()
for s in missingIncludeSystem missingInclude normalCheckLevelMaxBranches checkersReport unmatchedSuppression constParameterCallback \
	constParameterPointer constVariablePointer unusedStructMember; do
	suppress+=("--suppress=$s")
done
dirs=()
for d in base agent vmm cruciblefs snapstore netpolicy policy tools; do
	[ -z "$(find "$d" -name '*.c' -print -quit 2>/dev/null)" ] || dirs+=("$d")
done
cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 \
	--template='{file}:{line}: {severity}: {message} [{id}]' -j "$(nproc)" -D_GNU_SOURCE -D__x86_64__ \
	'-Djson_object_object_foreach(o,k,v)=while (next_member(o,k,v))' "${suppress[@]}" -I. "${dirs[@]}"
