# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# For scripts about views, after lib.sh.
#
#   mount_view NAME POLICY [OPTION…]   `crucible mount`: the view is at $AT/NAME
#   mount_again NAME                   after a daemon was started anew
#   set_policy NAME POLICY             another one for a view that is there
#   in_view NAME COMMAND…              with $RUN and $SNAPS (so all of lib.sh's helpers) as the view has them
AT=$DIR/at
VIEWS=$MNT/views
# shellcheck disable=SC2034 # for the scripts
ALL_OPS='"create","exec","snapshot","fork","delete","read","files","network","images","admin"'

mount_view() { # NAME POLICY [OPTION…]
	local name=$1 policy=$2

	shift 2
	mkdir -p "$AT/$name"
	assert_eq "$("$CRUCIBLE" --mount "$MNT" mount --policy - --name "$name" "$@" "$AT/$name" <<<"$policy")" "$name" "what crucible mount prints"
}

mount_again() { # NAME
	"$CRUCIBLE" umount --keep "$AT/$1"
	assert_eq "$("$CRUCIBLE" --mount "$MNT" mount --name "$1" "$AT/$1")" "$1"
}

set_policy() { # NAME POLICY
	printf '%s\n' "$2" >"$DIR/.policy"
	bounded dd if="$DIR/.policy" of="$VIEWS/$1/policy" bs=64k conv=notrunc status=none || fail "policy of $1: $(cat "$VIEWS/$1/error")"
}

in_view() { # NAME COMMAND…
	# shellcheck disable=SC2034 # for those who are called
	local RUN=$AT/$1/run SNAPS=$AT/$1/snapshots

	shift
	"$@"
}

names() { # DIR: what is listed, in one line
	find "$1" -mindepth 1 -maxdepth 1 -printf '%f\n' | LC_ALL=C sort | tr '\n' ' '
}

view_is() { # NAME WORD
	[ "$(cat "$VIEWS/$1/status")" = "$2" ]
}

# It ends as soon as a ttl can.
expire() { # NAME
	echo 1 >"$VIEWS/$1/ttl"
	wait_for "view $1 to expire" view_is "$1" expired
}

views_unmount() { # (a glob would not find them: their daemon is gone)
	local d

	while read -r d; do
		umount -l "$d"
	done < <(awk -v at="$AT/" 'index($5, at) == 1 { print $5 }' /proc/self/mountinfo)
}
AT_EXIT+=(views_unmount)
