# shellcheck shell=bash
#
# boot/<bootid>: the guest's kernel and the initramfs with the agent. Every profile boots with one of these.
#
# Debian's bzImage holds an ELF image in LZ4's legacy frame. QEMU starts that ELF over PVH, without firmware and without the
# kernel's own unpacking, so it is taken out here once. The virtio drivers are modules; the initramfs carries those and nothing else.
# The initramfs is not compressed: from power-on to the agent's hello under TCG, 20 boots each, 1.529 s (median), with LZ4 1.528 s.

BOOT_VERSION=1
MODULES='virtio_ring virtio virtio_mmio virtio_console virtio_blk rng-core virtio-rng virtio_balloon'
MODULES_NET='failover net_failover virtio_net inet_diag tcp_diag' # the last two: a fork's connections are reset

KERNEL_PACKAGE=
KERNEL_RELEASE=
KERNEL_VERSION=
AGENT_SHA256=
BOOT_ID=

# Sets AGENT_SHA256, the KERNEL_ variables and BOOT_ID.
boot_identify() {
	local magic

	[ -f "$AGENT" ] || fail "no agent at $AGENT: run make, or give --agent PATH"
	magic=$(head -c 4 "$AGENT" | od -An -tx1 | tr -d ' \n')
	[ "$magic" = 7f454c46 ] || fail "$AGENT is no program: give --agent PATH"
	! LC_ALL=C grep -qaF /lib64/ld-linux "$AGENT" || fail "$AGENT is not linked statically: it could not run as the guest's first process"
	AGENT_SHA256=$(sha256sum <"$AGENT")
	AGENT_SHA256=${AGENT_SHA256%% *}
	apt_setup
	if ! apt_find_lists || ! apt_kernel; then
		fail_if_full "reading Debian's package lists"
		boot_kernel_at_hand ||
			fail "Debian's package lists cannot be had ($(log_reason)): see that the network and /etc/apt/sources.list are right, then try again"
	fi
	BOOT_ID=$(printf '%s\n' "$BOOT_VERSION" "$KERNEL_PACKAGE" "$KERNEL_VERSION" "$AGENT_SHA256" "$MODULES" "$MODULES_NET" |
		sha256sum | cut -c1-12)
}

# Without lists: the kernel that is there serves on.
boot_kernel_at_hand() {
	local info=$STORE/boot/current/info.json

	[ -f "$info" ] || return 1
	KERNEL_RELEASE=$(jq -er .kernel "$info") && KERNEL_PACKAGE=$(jq -er '.kernel_package | split("=")[0]' "$info") &&
		KERNEL_VERSION=$(jq -er '.kernel_package | split("=")[1]' "$info") || return 1
	warn "Debian's package lists cannot be had ($(log_reason)): going on with kernel $KERNEL_RELEASE"
}

# Make boot/$BOOT_ID unless it is there, and let boot/current name it.
boot_build() {
	if [ ! -f "$STORE/boot/$BOOT_ID/info.json" ]; then
		boot_make
	fi
	if [ "$(readlink "$STORE/boot/current")" != "$BOOT_ID" ]; then
		ln -sfn "$BOOT_ID" "$WORK/current"
		mv -fT "$WORK/current" "$STORE/boot/current"
		sync "$STORE/boot"
	fi
}

boot_make() {
	local new=$WORK/boot.new tree=$WORK/kernel

	progress 5 "fetching the kernel $KERNEL_RELEASE"
	until apt_download "$WORK/deb" "$KERNEL_PACKAGE=$KERNEL_VERSION"; do
		apt_renewed || fail_step "fetching $KERNEL_PACKAGE"
		apt_kernel || fail_step "looking for the kernel"
	done
	progress 10 "unpacking the kernel"
	run dpkg-deb -x "$WORK/deb/${KERNEL_PACKAGE}_"*.deb "$tree" || fail_step "unpacking $KERNEL_PACKAGE"
	mkdir "$new"
	boot_vmlinux "$tree/boot/vmlinuz-$KERNEL_RELEASE" "$new/vmlinux"
	progress 14 "making the initramfs"
	boot_initramfs "$tree/lib/modules/$KERNEL_RELEASE" "$new/initramfs"
	jq -n --arg bootid "$BOOT_ID" --arg kernel "$KERNEL_RELEASE" --arg package "$KERNEL_PACKAGE=$KERNEL_VERSION" \
		--arg agent "$AGENT_SHA256" --arg at "$(date -u +%FT%TZ)" \
		--rawfile modules "$WORK/initramfs/modules.order" --rawfile net "$WORK/initramfs/modules.net" \
		'{bootid: $bootid, kernel: $kernel, kernel_package: $package, agent_sha256: $agent, built_at: $at,
		modules: ($modules | split("\n") - [""]), modules_net: ($net | split("\n") - [""])}' >"$new/info.json"
	chmod 0755 "$new"
	chmod 0644 "$new"/*
	store_place "$new" "$STORE/boot/$BOOT_ID"
	rm -rf --one-file-system "$tree" "$WORK/initramfs" "$WORK/deb"
}

# The number of SIZE bytes at OFFSET of FILE.
boot_number() { # FILE OFFSET SIZE
	od -An -v "-tu$3" -j "$2" -N "$3" "$1" | tr -d ' \n'
}

# Linux's boot protocol: the payload stands setup_sects + 1 sectors and payload_offset bytes into the file; behind it, its unpacked size.
boot_vmlinux() { # BZIMAGE RET
	local at length size

	[ "$(boot_number "$1" $((0x202)) 4)" = $((0x53726448)) ] || fail "the kernel of $KERNEL_PACKAGE is no bzImage" # HdrS
	at=$((($(boot_number "$1" $((0x1f1)) 1) + 1) * 512 + $(boot_number "$1" $((0x248)) 4)))
	length=$(boot_number "$1" $((0x24c)) 4)
	[ "$(boot_number "$1" "$at" 4)" = $((0x184c2102)) ] || fail "the kernel of $KERNEL_PACKAGE is not packed with LZ4"
	size=$(boot_number "$1" $((at + length - 4)) 4)
	dd if="$1" bs=1M iflag=fullblock,skip_bytes,count_bytes skip="$at" count=$((length - 4)) status=none |
		lz4 -dc 2>>"$LOG" | dd of="$2" bs=1M iflag=fullblock conv=sparse status=none
	if [ "$(stat -c %s "$2")" != "$size" ] || [ "$(boot_number "$2" 0 4)" != $((0x464c457f)) ]; then
		fail "the kernel of $KERNEL_PACKAGE did not unpack to an ELF image of $size bytes"
	fi
}

boot_initramfs() { # MODULES_DIR RET
	local tree=$WORK/initramfs

	mkdir -p "$tree/lib/modules" "$tree/proc" "$tree/sys" "$tree/dev" "$tree/root"
	install -m 0755 "$AGENT" "$tree/init"
	mknod -m 0600 "$tree/dev/console" c 5 1
	boot_modules "$1" "$tree" "$MODULES" >"$tree/modules.order"
	boot_modules "$1" "$tree" "$MODULES_NET" >"$tree/modules.net"
	find "$tree" -exec touch -hd @0 {} +
	(cd "$tree" && find . | LC_ALL=C sort | cpio --quiet --reproducible -R 0:0 -o -H newc) >"$2" 2>>"$LOG" ||
		fail_step "packing the initramfs"
}

# Copy modules into TREE and print their file names; what the kernel has built in needs no file.
boot_modules() { # MODULES_DIR TREE NAMES
	local m file

	for m in $3; do
		! grep -q "/$m\.ko\$" "$1/modules.builtin" || continue
		file=$(find "$1" -name "$m.ko")
		[ -f "$file" ] || fail "$KERNEL_PACKAGE has no module $m"
		install -m 0644 "$file" "$2/lib/modules/$m.ko"
		echo "$m.ko"
	done
}
