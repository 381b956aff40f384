# shellcheck shell=bash
#
# The store's directories that this program owns: boot/, profiles/, cache/, build.lock. What stands there is whole: it was made in
# $WORK, written to disk, and put into place by one rename.

store_open() {
	local d

	for d in "$STORE" "$STORE/boot" "$STORE/profiles" "$CACHE"; do
		[ ! -L "$d" ] || [ "$d" = "$STORE" ] || fail "$d is a symbolic link: remove it"
		[ -d "$d" ] || mkdir -p "$d" 2>>"$LOG" || fail "cannot make $d: $(log_reason)"
	done
	[ ! -L "$STORE/build.lock" ] || fail "$STORE/build.lock is a symbolic link: remove it"
	{ exec 9>>"$STORE/build.lock"; } 2>/dev/null || fail "cannot write $STORE/build.lock: $(store_free_mib) MiB are free there"
	if ! flock -n 9; then
		progress 0 "waiting for another build"
		flock 9 &
		CHILD=$!
		wait "$CHILD"
		CHILD=
	fi
	# We hold the lock, so whatever stands there is of a builder that was killed.
	rm -rf --one-file-system "$STORE"/.build.*
	WORK=$(mktemp -d "$STORE/.build.XXXXXX") || fail "cannot make a directory in $STORE: $(store_free_mib) MiB are free there"
}

# Put the directory NEW at FINAL. One that stands there is exchanged for it in a single step, or, where the file system has no
# such step, moved away just before.
store_place() { # NEW FINAL
	sync "$1"/* "$1"
	if [ ! -e "$2" ]; then
		mv -T "$1" "$2"
	elif store_exchange "$1" "$2"; then
		rm -rf --one-file-system "$1"
	else
		mv -T "$2" "$1.old"
		mv -T "$1" "$2"
		rm -rf --one-file-system "$1.old"
	fi
	sync "${2%/*}"
}

# renameat2(RENAME_EXCHANGE); mv has it from coreutils 9.5 on. Perl is essential in Debian.
store_exchange() { # A B
	# shellcheck disable=SC2016 # Perl's variables
	mv --exchange -T "$1" "$2" 2>/dev/null ||
		perl -e 'exit(syscall(316, -100, $ARGV[0], -100, $ARGV[1], 2) != 0)' "$1" "$2" 2>/dev/null
}

# A profile whose image stays as it is boots with $BOOT_ID from now on.
store_set_boot() { # NAME
	store_set_info "$STORE/profiles/$1" bootid "$BOOT_ID"
}

store_set_info() { # DIR KEY VALUE
	jq --arg key "$2" --arg value "$3" '.[$key] = $value' "$1/info.json" >"$WORK/info.json"
	chmod 0644 "$WORK/info.json"
	sync "$WORK/info.json"
	mv -fT "$WORK/info.json" "$1/info.json"
	sync "$1"
}

# The image once more, under a name that is never used again: disks and snapshots that were made from it keep it when the
# profile is built anew. It is a hard link and takes no room.
store_base() { # DIR
	local id

	id=$(cat /proc/sys/kernel/random/uuid).img
	mkdir -p "$STORE/disks/bases"
	chmod 0755 "$STORE/disks/bases"
	ln -T "$1/root.img" "$STORE/disks/bases/$id"
	sync "$STORE/disks/bases"
	store_set_info "$1" base "$id"
}

store_base_of() { # DIR
	echo "$STORE/disks/bases/$(jq -r '.base // "none"' "$1/info.json")"
}

# What KEY says in every profile, sandbox and snapshot of the store, a blank after each.
store_words() { # KEY
	# shellcheck disable=SC2016 # jq's variable
	find "$STORE/profiles" "$STORE/sandboxes" "$STORE/snapshots" -mindepth 2 -maxdepth 2 -type f \
		\( -name info.json -o -name sandbox.json -o -name snapshot.json \) -print0 2>/dev/null |
		xargs -0r jq -r --arg key "$1" '.[$key] // empty' 2>/dev/null | tr '\n' ' ' || :
}

# Remove every boot that is neither the current one nor named by anything, and every image that nothing was made from.
store_prune() {
	local d used

	used=" $(store_words base)"
	for d in "$STORE"/disks/bases/*.img; do
		if [ -f "$d" ] && [[ $used != *" ${d##*/} "* ]] && ! grep -qsF "${d##*/}" "$STORE"/disks/stacks/*; then
			rm -f "$d"
		fi
	done
	used=" $(readlink "$STORE/boot/current") $(store_words bootid)"
	for d in "$STORE"/boot/*; do
		if [ -d "$d" ] && [ ! -L "$d" ] && [[ $used != *" ${d##*/} "* ]]; then
			mv -T "$d" "$WORK/boot.old"
			rm -rf --one-file-system "$WORK/boot.old"
		fi
	done
}

store_rm() { # NAME
	if ! valid_name "$1" || [ ! -d "$STORE/profiles/$1" ]; then
		fail "no profile '$1' in $STORE: crucible-profile ls --store $STORE"
	fi
	mv -T "$STORE/profiles/$1" "$WORK/profile.old"
	sync "$STORE/profiles"
	store_prune
}

# One JSON object a profile: those in the store, then those that could be built. "state": built, changed (the recipe is another
# since), available.
store_list() {
	local info name state

	for info in "$STORE"/profiles/*/info.json; do
		[ -f "$info" ] || continue
		name=${info%/info.json} name=${name##*/} state=built
		if [[ " $(recipe_names) " == *" $name "* ]]; then
			state=$( (recipe_load "$name" && echo "$RECIPE_SHA256") 3>/dev/null) || state=
			[ "$state" = "$(jq -r .recipe_sha256 "$info")" ] && state=built || state=changed
		fi
		jq -c --arg state "$state" '. + {state: $state}' "$info"
	done
	for name in $(recipe_names); do
		[ ! -f "$STORE/profiles/$name/info.json" ] || continue
		(recipe_load "$name" && jq -nc --arg name "$name" --arg text "$RECIPE_DESCRIPTION" --argjson size "$RECIPE_SIZE_MIB" \
			'{name: $name, description: $text, size_mib: $size, state: "available"}') || :
	done
}

store_ls() { # FORMAT
	if [ "$1" = json ]; then
		store_list | jq -s .
	else
		store_list | jq -rs '(["NAME", "STATE", "USED", "SIZE", "BUILT", "DESCRIPTION"],
			(.[] | [.name, .state, (if .used_mib then "\(.used_mib) MiB" else "-" end), "\(.size_mib) MiB",
			.built_at // "-", .description])) | @tsv' |
			awk -F '\t' '{ printf "%-16s %-10s %9s %9s  %-20s  %s\n", $1, $2, $3, $4, $5, $6 }'
	fi
}
