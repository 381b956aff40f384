# shellcheck shell=bash
# shellcheck disable=SC2034 # the RECIPE_ and STEP_ variables are this file's result, read by crucible-profile and image.sh
#
# Reads a profile's text. The grammar is in README.md; whatever is not in it is an error that names file and line.
# A `from:` is read in full where it stands, so the parent's packages and steps come before the child's.

RECIPE_MAX_BYTES=1048576
RECIPE_KEYS='description from method size_mib packages file command'

RECIPE_CHAIN=()		# files that are being read, outermost first
RECIPE_DESCRIPTION=
RECIPE_METHOD=
RECIPE_SIZE_MIB=
RECIPE_PACKAGES=()
RECIPE_PACKAGES_AT=()	# FILE:LINE of each
RECIPE_SHA256=
RECIPE_TEXT=		# all texts of the chain, for the hash
STEP_KIND=()		# file | command, in the order of the text
STEP_WHERE=()		# FILE:LINE
STEP_PATH=()
STEP_MODE=()
STEP_TEXT=()

valid_name() {
	[[ $1 =~ ^[a-z0-9][a-z0-9._-]{0,63}$ ]]
}

# Sets RECIPE_FILE.
recipe_find() { # NAME WHERE
	local d

	valid_name "$1" || fail "$2'$1' is no profile name: use a-z 0-9 . _ -, 64 at most"
	for d in "${PROFILE_DIRS[@]}"; do
		RECIPE_FILE=$d/$1.profile
		[ ! -f "$RECIPE_FILE" ] || return 0
	done
	fail "$2no profile '$1': there is no $1.profile in ${PROFILE_DIRS[*]} (known:$(recipe_names))"
}

recipe_names() {
	local d f

	for d in "${PROFILE_DIRS[@]}"; do
		for f in "$d"/*.profile; do
			[ -f "$f" ] || continue
			f=${f##*/}
			printf ' %s\n' "${f%.profile}"
		done
	done | sort -u | tr -d '\n'
}

recipe_load() { # NAME
	RECIPE_CHAIN=() RECIPE_DESCRIPTION='' RECIPE_METHOD='' RECIPE_SIZE_MIB='' RECIPE_PACKAGES=() RECIPE_PACKAGES_AT=() RECIPE_TEXT=''
	STEP_KIND=() STEP_WHERE=() STEP_PATH=() STEP_MODE=() STEP_TEXT=()
	recipe_find "$1" ''
	recipe_parse "$RECIPE_FILE"
	RECIPE_SHA256=$(printf 'builder %s\n%s' "$BUILDER_VERSION" "$RECIPE_TEXT" | sha256sum)
	RECIPE_SHA256=${RECIPE_SHA256%% *}
}

# The line $n of $file, both recipe_parse's, is wrong.
bad() {
	fail "$file:$n: $*"
}

recipe_parse() { # FILE
	local file=$1 n=0 description='' key value word mode p
	local -a lines
	local -A seen=()

	[ -r "$file" ] || fail "$file: cannot be read"
	[ "$(wc -c <"$file")" -le "$RECIPE_MAX_BYTES" ] || fail "$file: larger than 1 MiB"
	[ "$(tr -d '\000' <"$file" | wc -c)" = "$(wc -c <"$file")" ] || fail "$file: this is no text: it has NUL bytes"
	RECIPE_CHAIN+=("$file")
	mapfile -t lines <"$file"
	while ((n < ${#lines[@]})); do
		value=${lines[n]}
		((++n)) # from here on the number of this line, from 1
		[[ $value != *$'\r' ]] || bad "the line ends with a carriage return: save the file with Unix line ends"
		[[ ! $value =~ ^[[:blank:]]*(#.*)?$ ]] || continue
		[[ ! ${value//$'\t'/ } =~ [[:cntrl:]] ]] || bad "control character"
		[[ $value =~ ^([a-z_]+):[[:blank:]]*(.*)$ ]] || bad "expected 'key: value', found '${value:0:60}'"
		key=${BASH_REMATCH[1]} value=${BASH_REMATCH[2]}
		value=${value%"${value##*[![:blank:]]}"}
		[[ " $RECIPE_KEYS " == *" $key "* ]] || bad "unknown key '$key' (known: $RECIPE_KEYS)"
		[ -n "$value" ] || bad "'$key:' needs a value"
		case $key in
		description | from | method | size_mib)
			[ -z "${seen[$key]-}" ] || bad "'$key:' stands twice, first in line ${seen[$key]}"
			;;
		esac
		seen[$key]=$n
		case $key in
		description)
			[ "${#value}" -le 200 ] || bad "the description is longer than 200 characters"
			description=$value
			;;
		from)
			[ -z "${seen[packages]-}${seen[file]-}${seen[command]-}${seen[method]-}${seen[size_mib]-}" ] ||
				bad "'from:' must stand before method, size_mib, packages, file and command"
			recipe_find "$value" "$file:$n: "
			for p in "${RECIPE_CHAIN[@]}"; do
				[ "$p" != "$RECIPE_FILE" ] || bad "'from: $value' leads in a circle"
			done
			[ "${#RECIPE_CHAIN[@]}" -lt 8 ] || bad "more than 8 profiles in a row"
			recipe_parse "$RECIPE_FILE"
			;;
		method)
			[[ $value == debian || $value == busybox ]] || bad "unknown method '$value' (known: debian busybox)"
			[[ ${RECIPE_METHOD:-$value} == "$value" ]] || bad "the profile it is made from has 'method: $RECIPE_METHOD'"
			RECIPE_METHOD=$value
			;;
		size_mib)
			valid_size "$value" || bad "size_mib must be a number from 16 to 65536, not '$value'"
			RECIPE_SIZE_MIB=$value
			;;
		packages)
			for p in $value; do
				[[ $p =~ ^[a-z0-9][a-z0-9.+-]+(=[A-Za-z0-9.+:~-]+)?$ ]] || bad "'$p' is no name of a package"
				[[ " ${RECIPE_PACKAGES[*]} " == *" $p "* ]] || RECIPE_PACKAGES+=("$p") RECIPE_PACKAGES_AT+=("$file:$n")
			done
			;;
		file)
			[[ $value =~ ^(/[^[:blank:]]+)([[:blank:]]+([0-7]{3,4}))?[[:blank:]]*'<<'([A-Z][A-Z0-9_]*)$ ]] ||
				bad "expected 'file: /PATH [MODE] <<EOF', found 'file: ${value:0:60}'"
			p=${BASH_REMATCH[1]} mode=${BASH_REMATCH[3]:-0644} word=${BASH_REMATCH[4]}
			[[ ! $p/ =~ //|/\./|/\.\./ ]] || bad "the path '$p' must be absolute and plain: no '//', '.' or '..'"
			recipe_step file "$file:$n" "$p" "$mode"
			recipe_here "$word"
			;;
		command)
			recipe_step command "$file:$n" '' ''
			if [[ $value =~ ^'<<'([A-Z][A-Z0-9_]*)$ ]]; then
				recipe_here "${BASH_REMATCH[1]}"
			else
				STEP_TEXT[-1]=$value
			fi
			;;
		esac
	done
	[ -n "$description" ] || fail "$file:1: there is no 'description:' line"
	RECIPE_DESCRIPTION=$description
	: "${RECIPE_METHOD:=debian}" "${RECIPE_SIZE_MIB:=1024}"
	RECIPE_TEXT+=$(<"$file")$'\n'"end $n"$'\n'
	unset 'RECIPE_CHAIN[-1]'
}

recipe_step() { # KIND WHERE PATH MODE
	STEP_KIND+=("$1") STEP_WHERE+=("$2") STEP_PATH+=("$3") STEP_MODE+=("$4") STEP_TEXT+=('')
}

# Takes the lines up to WORD into the last step. Moves the caller's n past them.
recipe_here() { # WORD
	local start=$n text=''

	while ((n < ${#lines[@]})); do
		if [ "${lines[n]}" = "$1" ]; then
			((++n))
			STEP_TEXT[-1]=$text
			return 0
		fi
		text+=${lines[n]}$'\n'
		((++n))
	done
	fail "$file:$start: '<<$1' is never closed: a line with $1 alone must follow"
}

valid_size() {
	[[ $1 =~ ^[1-9][0-9]{1,4}$ ]] && (($1 >= 16 && $1 <= 65536))
}
