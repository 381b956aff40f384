# shellcheck shell=bash
# shellcheck disable=SC2016 # mmdebstrap's hooks and apt's formats: expanded there
# shellcheck disable=SC2034 # the KERNEL_ variables are for boot.sh
#
# Debian's packages: which sources, which lists, and the cache of downloaded files.
# apt runs with a state of its own. The host's lists are read where they are and never changed; when the host has none (or they
# are so old that the pool has moved on), lists of our own are kept in the store's cache.

SUITE=bookworm
SUITES="$SUITE $SUITE-updates $SUITE-security"
COMPONENTS='main contrib non-free non-free-firmware'
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
HOST_LISTS=/var/lib/apt/lists
LISTS_MAX_AGE_MIN=1440	# of our own lists
DEBS_MAX_MIB=1024

APT_OPTIONS=()
APT_LISTS=	# the directory that is in use

apt_setup() {
	local etc=$WORK/apt

	[ -r "$KEYRING" ] || fail "not installed: $KEYRING: apt-get install debian-archive-keyring"
	mkdir -p "$etc/state/lists/partial" "$etc/cache/archives/partial" "$DEBS"
	: >"$etc/empty.list"
	# The empty file is there for awk, which reads standard input when it is given none.
	find /etc/apt/sources.list /etc/apt/sources.list.d -maxdepth 1 \( -name '*.list' -o -name '*.sources' \) -print0 2>/dev/null | sort -z |
		xargs -0 awk -v KEYRING="$KEYRING" -v SUITES="$SUITES" -v COMPONENTS="$COMPONENTS" -f "$PARTS/sources.awk" \
			"$etc/empty.list" >"$etc/sources.list" || :
	grep -q " $SUITE " "$etc/sources.list" || apt_default_sources >"$etc/sources.list"

	APT_OPTIONS=(
		-o "Dir::Etc::SourceList=$etc/sources.list" -o Dir::Etc::SourceParts=/dev/null
		-o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
		-o "Dir::State=$etc/state" -o Dir::State::Status=/dev/null -o "Dir::Cache=$etc/cache"
		-o Dir::Cache::srcpkgcache=pkgcache.src -o Dir::Cache::pkgcache=pkgcache.bin
		-o APT::Default-Release= -o APT::Get::List-Cleanup=false -o Acquire::Languages=none -o Acquire::Retries=2
	)
}

# The host's lists, else our own.
apt_find_lists() {
	apt_use_lists "$HOST_LISTS"
	apt_lists_whole || apt_own_lists
}

# The host has no entry of Debian's: mmdebstrap knows the usual ones.
apt_default_sources() {
	need_tools mmdebstrap:mmdebstrap
	mmdebstrap --mode=root --variant=custom --skip=update,check/empty --format=directory \
		--customize-hook='cp "$1/etc/apt/sources.list" "$1/../sources.default"' \
		"$SUITE" "$WORK/apt/default" >>"$LOG" 2>&1 || fail_step "asking mmdebstrap for Debian's usual sources"
	rm -rf --one-file-system "$WORK/apt/default"
	cat "$WORK/apt/sources.default"
}

apt_use_lists() { # DIR
	APT_LISTS=$1
	rm -f "$WORK"/apt/cache/*.bin "$WORK"/apt/cache/*.src
}

apt_run() { # TOOL ARGUMENT...
	local tool=$1

	shift
	"$tool" "${APT_OPTIONS[@]}" -o "Dir::State::Lists=$APT_LISTS" "$@"
}

# Is the index of every source there?
apt_lists_whole() {
	local file n=0

	while IFS= read -r file; do
		[ -e "$file" ] || return 1
		n=$((n + 1))
	done < <(apt_run apt-get indextargets --format '$(FILENAME)' 'Created-By: Packages' 2>>"$LOG")
	[ "$n" -gt 0 ]
}

apt_own_lists() { # [force]
	local own=$CACHE/lists

	mkdir -p "$own/partial"
	apt_use_lists "$own"
	if [ "${1-}" != force ] && [ -n "$(find "$own/stamp" -mmin -$LISTS_MAX_AGE_MIN 2>/dev/null)" ] && apt_lists_whole; then
		return 0
	fi
	progress 3 "fetching Debian's package lists"
	if run apt-get "${APT_OPTIONS[@]}" -o "Dir::State::Lists=$own" -o APT::Update::Error-Mode=any update; then
		touch "$own/stamp"
	elif apt_lists_whole; then
		warn "Debian's package lists cannot be renewed ($(log_reason)): going on with those of $(date -r "$own/stamp" +%F)"
	else
		return 1
	fi
}

# Did the last tool fail because the lists name files that the pool no longer has? Then renew ours, once.
apt_renewed() {
	[ "$APT_RENEWED" = no ] || return 1
	grep -qaE 'Failed to fetch|404 +Not Found|Hash Sum mismatch|Unable to fetch' "$LOG" || return 1
	APT_RENEWED=yes
	apt_own_lists force
}
APT_RENEWED=no

# Sets KERNEL_PACKAGE, KERNEL_RELEASE, KERNEL_VERSION: what linux-image-cloud-amd64 depends on now.
apt_kernel() {
	local depends

	depends=$(apt_run apt-cache --no-all-versions show linux-image-cloud-amd64 2>>"$LOG" | sed -n 's/^Depends: //p')
	[[ $depends =~ linux-image-([0-9][0-9a-z.+-]*-cloud-amd64)' (= '([^\)]+)\) ]] || return 1
	KERNEL_RELEASE=${BASH_REMATCH[1]} KERNEL_VERSION=${BASH_REMATCH[2]} KERNEL_PACKAGE=linux-image-$KERNEL_RELEASE
}

# apt_download DIR PACKAGE[=VERSION]...: the files are in DIR afterwards, and in the cache.
apt_download() {
	local dir=$1 p

	shift
	mkdir -p "$dir"
	for p; do
		debs_take "$dir" "${p%%=*}_*.deb"
	done
	debs_check "$dir" || return 1
	chown -R _apt "$dir" 2>/dev/null || : # apt downloads as this user, when it can get at the place
	run env -C "$dir" apt-get "${APT_OPTIONS[@]}" -o "Dir::State::Lists=$APT_LISTS" download "$@" || return 1
	debs_keep "$dir"
}

debs_take() { # DIR PATTERN
	find "$DEBS" -maxdepth 1 -type f -name "$2" -exec cp --reflink=auto -t "$1" {} +
}

# Neither apt nor mmdebstrap looks into a file that is there already. So remove from DIR what no signed list has: it is damaged,
# of another version, or somebody else's.
debs_check() { # DIR
	local f

	[ -n "$(ls -A "$1")" ] || return 0
	apt_run apt-cache dumpavail 2>>"$LOG" | awk '/^SHA256: / { print $2 }' >"$WORK/apt/known" || return 1
	while read -r _ f; do
		rm -f "$f"
	done < <(find "$1" -type f -exec sha256sum {} + | awk 'NR == FNR { known[$1]; next } !($1 in known)' "$WORK/apt/known" -)
}

# Take the files of DIR into the cache; above its limit the oldest go.
debs_keep() { # DIR
	local f size sum=0

	for f in "$1"/*.deb; do
		if [ -f "$f" ] && ! cmp -s "$f" "$DEBS/${f##*/}"; then
			install -m 0644 "$f" "$DEBS/.new" && mv -f "$DEBS/.new" "$DEBS/${f##*/}" || return 1
		fi
	done
	while read -r _ size f; do
		sum=$((sum + size))
		[ $sum -le $((DEBS_MAX_MIB << 20)) ] || rm -f "$DEBS/$f"
	done < <(find "$DEBS" -maxdepth 1 -name '*.deb' -printf '%T@ %s %f\n' | sort -rn)
}
