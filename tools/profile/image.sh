# shellcheck shell=bash
# shellcheck disable=SC2034,SC2153 # variables of crucible-profile, run.sh and apt.sh
# shellcheck disable=SC2016 # mmdebstrap's hooks, formats of apt and dpkg, scripts for the guest's shell: expanded there
#
# profiles/<name>: the root image. A tree is made from packages (mmdebstrap, or unpacked around busybox), the recipe's files and
# commands are carried out in it, and mke2fs packs it. Nothing is mounted but in the namespaces of the tools that run in the tree.

IMAGE_MAX_BLOCKS=16777216	# 64 GiB of 4 KiB: how far the file system can grow online

TREE=

image_make() {
	local new=$WORK/profile.new

	TREE=$WORK/tree
	mkdir -p "$new"
	image_"$RECIPE_METHOD"
	image_steps
	progress 84 "cleaning up the tree"
	STDIN=$PARTS/finish.sh run "$PARTS/enter.sh" "$TREE" /bin/sh -s || fail_step "finishing the tree"
	image_ext4 "$new/root.img"
	image_info "$new"
	store_base "$new"
	chmod 0755 "$new"
	chmod 0644 "$new"/*
	progress 97 "writing to disk"
	store_place "$new" "$STORE/profiles/$NAME"
	rm -rf --one-file-system "$TREE"
}

# A Debian system with its package manager.
image_debian() {
	local -a options=(--mode=root --variant=minbase --architectures=amd64 --format=directory
		--skip=update --skip=essential/unlink --skip=check/signed-by "--dpkgopt=$PARTS/nodoc.cfg")
	local include proxy

	image_can_install
	include=$(IFS=,; echo "${RECIPE_PACKAGES[*]}")
	[ -z "$include" ] || options+=("--include=$include")
	while read -r proxy; do
		options+=("--aptopt=$proxy")
	done < <(apt-config dump 2>/dev/null | grep -E '^Acquire::(http|https)::Proxy ')
	ON_LINE=image_debian_progress
	while :; do
		progress 18 "preparing Debian"
		image_seed
		mkdir "$TREE"
		STDIN=$WORK/apt/sources.list SEED=$WORK/seed run mmdebstrap "${options[@]}" \
			--setup-hook='mkdir -p "$1/var/lib/apt/lists" "$1/var/cache/apt/archives"' \
			--setup-hook='cp -at "$1/var/lib/apt/lists" "$SEED"/lists/.' \
			--setup-hook='cp -alt "$1/var/cache/apt/archives" "$SEED"/debs/.' \
			--customize-hook='cp -alft "$SEED"/debs "$1/var/cache/apt/archives"/*.deb' \
			"$SUITE" "$TREE" - && break
		apt_renewed || fail_step "building the Debian tree"
		rm -rf --one-file-system "$TREE" "$WORK/seed"
	done
	ON_LINE=
	debs_keep "$WORK/seed/debs" || fail_step "keeping the packages"
	rm -rf "$WORK/seed"
}

# Ask apt before the long work whether there are such packages, and whether they go together.
image_can_install() {
	[ "${#RECIPE_PACKAGES[@]}" != 0 ] || return 0
	run apt-get "${APT_OPTIONS[@]}" -o "Dir::State::Lists=$APT_LISTS" --simulate --no-install-recommends install "${RECIPE_PACKAGES[@]}" ||
		image_bad_package
}

# Name the line of the recipe when the reason names the package.
image_bad_package() {
	local i p reason

	fail_if_full "choosing packages"
	reason=$(log_reason)
	for ((i = ${#RECIPE_PACKAGES[@]} - 1; i >= 0; i--)); do # the child's before the parent's
		p=${RECIPE_PACKAGES[i]%%=*}
		[[ " $reason " != *[\ \'\"]"$p"[\ \'\"]* ]] || fail "${RECIPE_PACKAGES_AT[i]}: $reason"
	done
	fail_step "choosing packages"
}

# What mmdebstrap gets instead of the network: our lists, and the packages that were fetched before.
image_seed() {
	local file suite

	mkdir -p "$WORK/seed/lists" "$WORK/seed/debs"
	while IFS= read -r file; do
		file=${file##*/} suite=${file#*_dists_}
		cp -t "$WORK/seed/lists" "$APT_LISTS/${file%%_dists_*}_dists_${suite%%_*}_"*
	done < <(apt_run apt-get indextargets --format '$(FILENAME)' 'Created-By: Packages' 2>>"$LOG")
	debs_take "$WORK/seed/debs" '*.deb'
	debs_check "$WORK/seed/debs"
}

image_debian_progress() { # LINE
	case $1 in
	'I: downloading packages'*) progress 22 "downloading the essential packages" ;;
	'I: extracting archives'*) progress 35 "unpacking the essential packages" ;;
	'I: installing essential packages'*) progress 42 "installing the essential packages" ;;
	'I: installing remaining packages'*) progress 56 "installing the other packages" ;;
	'I: cleaning package lists'*) progress 74 "removing package lists" ;;
	esac
}

# busybox-static with links for all its applets, and whatever else is named: unpacked as it is, without dependencies or scripts.
image_busybox() {
	local f

	progress 20 "fetching packages"
	until apt_download "$WORK/debs" busybox-static "${RECIPE_PACKAGES[@]}"; do
		apt_renewed || image_bad_package
	done
	progress 50 "unpacking"
	mkdir -p "$TREE/bin" "$TREE/sbin" "$TREE/usr/bin" "$TREE/usr/sbin" "$TREE/etc"
	for f in "$WORK"/debs/*.deb; do
		run dpkg-deb -x "$f" "$TREE" || fail_step "unpacking ${f##*/}"
	done
	for f in doc man info lintian; do
		rm -rf --one-file-system "${TREE:?}/usr/share/$f"
	done
	run "$PARTS/enter.sh" "$TREE" /bin/busybox --install -s || fail_step "linking busybox's applets"
}

image_steps() {
	local i n=${#STEP_KIND[@]} tmp=$WORK/step

	# The host's name must not get into an image; its resolver is only lent to the commands.
	STDIN=/etc/resolv.conf run "$PARTS/enter.sh" "$TREE" /bin/sh -euc 'rm -f /etc/resolv.conf /etc/hostname; cat >/etc/resolv.conf
		echo crucible >/etc/hostname; printf "127.0.0.1 localhost crucible\n::1 localhost\n" >/etc/hosts' ||
		fail_step "preparing the tree"
	for ((i = 0; i < n; i++)); do
		progress $((76 + 8 * i / n)) "${STEP_KIND[i]} of ${STEP_WHERE[i]##*/}"
		if [ "${STEP_KIND[i]}" = file ]; then
			printf %s "${STEP_TEXT[i]}" >"$tmp"
			STDIN=$tmp run "$PARTS/enter.sh" "$TREE" /bin/sh -euc 'mkdir -p "${1%/*}/"; cat >"$1"; chmod "$2" "$1"' \
				sh "${STEP_PATH[i]}" "${STEP_MODE[i]}" || fail_step "${STEP_WHERE[i]}: writing ${STEP_PATH[i]}"
		else
			run "$PARTS/enter.sh" "$TREE" /bin/sh -euc "${STEP_TEXT[i]}" || fail_step "${STEP_WHERE[i]}: the command"
		fi
	done
}

# The features are written out, so that the host's mke2fs.conf has no say and every guest kernel from 6.1 on can mount the result.
# Inode tables are written (and made holes again), so that no guest spends its first seconds on zeroing them. One 128 MiB group has 8192
# inodes however small the image is, since that number stays when it grows.
image_ext4() { # RET
	local id groups=$(((SIZE_MIB + 127) / 128))

	progress 88 "making the file system"
	id=$(printf 'crucible %s %s' "$NAME" "$RECIPE_SHA256" | sha256sum)
	id="${id:0:8}-${id:8:4}-5${id:13:3}-8${id:17:3}-${id:20:12}"
	run env MKE2FS_CONFIG=/dev/null mke2fs -q -F -t ext4 -b 4096 -I 256 -N $((8192 * groups)) -m 0 -J size=4 -L crucible -U "$id" \
		-O none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum \
		-E "resize=$IMAGE_MAX_BLOCKS,hash_seed=$id,root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0" \
		-d "$TREE" "$1" "${SIZE_MIB}M" || image_ext4_failed
	run fallocate --dig-holes "$1" || fail_step "making the image sparse"
	progress 94 "checking the file system"
	run e2fsck -fn "$1" || fail_step "checking the file system"
}

image_ext4_failed() {
	fail_if_full "making the file system"
	if grep -qaE 'Could not allocate|while (populating|writing|copying|allocating)' "$LOG"; then
		fail "profile $NAME does not fit into $SIZE_MIB MiB ($(du -sm --one-file-system "$TREE" | cut -f1) MiB of files): raise size_mib or give --size-mib N"
	fi
	fail_step "making the file system"
}

image_info() { # DIR
	local used

	used=$(dumpe2fs -h "$1/root.img" 2>/dev/null | awk -F: '
		/^Block count/ { n += $2 } /^Free blocks/ { n -= $2 } END { print int((n + 255) / 256) }')
	image_installed >"$WORK/installed"
	jq -n --arg name "$NAME" --arg description "$RECIPE_DESCRIPTION" --arg sha "$RECIPE_SHA256" --arg bootid "$BOOT_ID" \
		--arg at "$(date -u +%FT%TZ)" --argjson size "$SIZE_MIB" --argjson used "$used" \
		--rawfile installed "$WORK/installed" --arg packages "${RECIPE_PACKAGES[*]}" \
		'{name: $name, description: $description, recipe_sha256: $sha, packages: ($packages | split(" ") - [""]),
		size_mib: $size, used_mib: $used, built_at: $at, bootid: $bootid, debian: "12",
		installed: ($installed | split("\n") - [""])}' >"$1/info.json"
}

image_installed() {
	local f

	if [ "$RECIPE_METHOD" = debian ]; then
		dpkg-query --admindir="$TREE/var/lib/dpkg" -W -f '${Package}=${Version}\n'
	else
		for f in "$WORK"/debs/*.deb; do
			dpkg-deb -W --showformat '${Package}=${Version}\n' "$f"
		done
	fi
}
