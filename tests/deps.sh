#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The packages that this tree needs, in one place.
#
#   tests/deps.sh check [GROUP]     say what is missing and how to mend it; exit 1 when something is
#   tests/deps.sh install [GROUP]   apt-get install what is missing (root)
#   tests/deps.sh check-install     say what is missing to run what `make install` installs; never fails, since a
#                                   package may be built on a machine that will not run it
#   tests/deps.sh list [GROUP]      print the names
#
# GROUP is build (what `make` needs; the default of check), run, test, bench, mcp or all (the default of install; without bench and mcp).
# `make` runs `check` every time, so the usual case is two comparisons of time stamps and no other process.
# shellcheck disable=SC2086 # lists of words are split on purpose
# shellcheck disable=SC3013 # test -nt: dash and busybox have it, and it saves a process a build
set -eu

build='gcc make pkg-config libc6-dev libfuse3-dev libjson-c-dev libseccomp-dev libcap-dev libcmocka-dev uuid-dev liburing-dev liblz4-dev libssl-dev
	libarchive-dev libacl1-dev zlib1g-dev linux-libc-dev libldns-dev libnl-3-dev libnl-route-3-dev libnftables-dev'
run='qemu-system-x86 mmdebstrap e2fsprogs cpio lz4 busybox-static fuse3 util-linux jq perl libarchive13
	debian-archive-keyring'
# tests/e2e/89_remote serves SFTP with dropbear, which is only programs: openssh-server would bring a service that listens from its
# installation, or the next boot, on. Where sshd is installed anyhow it is used instead, as a process of the test's own.
test='mandoc shellcheck clang-format clang-tidy cppcheck clang libclang-rt-14-dev python3 rsync
	vim-tiny strace openssh-client openssh-sftp-server dropbear-bin sshfs xz-utils qemu-utils iproute2 openssl curl nftables'

# The MCP server against clients of others (tests/mcp). Debian's npm pulls some 300 packages, so `all` leaves it out, and a node that
# is there already, 18 or later with npm, does as well.
mcp='nodejs npm'

# What `make bench` compares with; nothing else needs them, and `all` leaves them out.
bench='qemu-utils jq openssh-client busybox-static cpio time casync borgbackup restic lz4 zstd fio iproute2 nftables perl'

has_node() {
	command -v npm >/dev/null && node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)' 2>/dev/null
}

names() {
	case $1 in
	build) echo $build ;;
	run) echo $run ;;
	test) echo $test ;;
	bench) echo $bench ;;
	mcp) has_node || echo $mcp ;;
	all) echo $build $run $test ;;
	*)
		echo "deps.sh: no such group: $1 (build, run, test, bench, mcp, all)" >&2
		exit 2
		;;
	esac
}

# Not installed among the arguments. Held in one variable, asked for in one call.
missing() {
	# "ii" and nothing else is installed; what was removed is listed as well.
	have=$(dpkg-query -W -f='${db:Status-Abbrev}:${Package};' "$@" 2>/dev/null) || true
	for p in "$@"; do
		case ";$have" in
		*";ii :$p;"*) ;;
		*) printf '%s ' "$p" ;;
		esac
	done
}

# Another distribution: look for the things themselves, name what Debian calls them.
missing_elsewhere() {
	for tool in ${CC:-cc} make pkg-config; do
		command -v "$tool" >/dev/null || printf '%s ' "$tool"
	done
	for p in fuse3 json-c libseccomp libcap cmocka uuid libarchive ldns libnl-route-3.0 libnftables; do
		pkg-config --exists "$p" 2>/dev/null || printf '%s ' "$p"
	done
}

check() {
	stamp=build/deps.$1
	if [ "$stamp" -nt "$0" ] && { [ ! -e /var/lib/dpkg/status ] || [ "$stamp" -nt /var/lib/dpkg/status ]; }; then
		return 0
	fi
	wanted=$(names "$1")
	if command -v dpkg-query >/dev/null; then
		lack=$(missing $wanted)
		lack=${lack% }
		mend="as root: tests/deps.sh install $1    (or: apt-get install --no-install-recommends $lack)"
	else
		lack=$(missing_elsewhere)
		mend='install them (names are those of pkg-config) with your package manager'
	fi
	if [ -n "$lack" ]; then
		echo "crucible: missing for '$1': $lack" >&2
		echo "  $mend" >&2
		return 1
	fi
	mkdir -p build && : >"$stamp"
}

install() {
	wanted=$(names "$1")
	if ! command -v apt-get >/dev/null; then
		echo "deps.sh: no apt-get here; the packages are: $wanted" >&2
		exit 1
	fi
	lack=$(missing $wanted)
	[ -n "$lack" ] || return 0
	if [ "$(id -u)" -ne 0 ]; then
		echo "deps.sh: must be root to install: $lack" >&2
		exit 1
	fi
	export DEBIAN_FRONTEND=noninteractive
	apt-get install -y --no-install-recommends $lack || {
		apt-get update
		apt-get install -y --no-install-recommends $lack
	}
}

case ${1:-} in
check) check "${2:-build}" ;;
check-install) check run || true ;;
install) install "${2:-all}" ;;
list) names "${2:-all}" ;;
*)
	echo "usage: tests/deps.sh check|install|list [build|run|test|bench|mcp|all] | check-install" >&2
	exit 2
	;;
esac
