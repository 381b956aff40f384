#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Views and user ids: a view in a mount namespace of another user's, a view that belongs to one, and a policy that is bound to a uid besides.
. "$(dirname "$0")/lib.sh"
. "$E2E/lib_view.sh"
need unshare setpriv

me=61001 other=61002 bound=61003
echo '{"operations":["create","exec","read","delete"],"max_sandboxes":2}' >"$DIR/bound.json"
DAEMON_OPTIONS+=(--set "policy_uid=$bound $DIR/bound.json")
start_daemon
chmod 755 "$DIR"
op_as() { # UID OPERATION ARGUMENT…
	local uid=$1

	shift
	bounded setpriv --reuid="$uid" --regid="$uid" --clear-groups -- "$PYTHON" -IS "$E2E/op.py" "$@" || echo HUNG
}

# -- a view that belongs to a user: it comes through views/NAME, and cannot widen it
mount_view mine '{"operations":["create","exec","read","delete"],"max_sandboxes":3}' --ttl 1h --owner $me:$me
assert_eq "$(stat -c '%u:%g %a' "$VIEWS/mine")" "$me:$me 700"
assert_eq "$(op_as $me mkdir "$VIEWS/mine/tree/run/a")" OK
assert_eq "$(as_user $me sh -c "echo id >$VIEWS/mine/tree/run/a/cmd; cat $VIEWS/mine/tree/run/a/wait" | jq .exit_code)" 0
assert_eq "$(as_user $me ls "$VIEWS")" mine
assert_match "$(op_as $me write "$VIEWS/mine/policy" '{}\n')" '^(EACCES|EPERM)$' "the owner widens its policy"
assert_match "$(op_as $me write "$VIEWS/mine/ttl" 'none\n')" '^(EACCES|EPERM)$' "the owner gives itself time"
as_user $me sh -c "echo '{}' >$VIEWS/mine/p" 2>/dev/null || :
assert_ne "$(op_as $me rename "$VIEWS/mine/p" "$VIEWS/mine/policy")" OK "the owner replaces its policy"
assert_ne "$(op_as $me unlink "$VIEWS/mine/policy")" OK "the owner hides its policy"
assert_match "$(op_as $me mkdir "$VIEWS/theirs")" '^(EACCES|EPERM)$' "a user makes a view"
assert_match "$(op_as $me rmdir "$VIEWS/mine")" '^(EACCES|EPERM)$' "the owner removes its view"
assert_match "$(op_as $me rename "$VIEWS/mine" "$VIEWS/other")" '^(EACCES|EPERM|EXDEV)$' "the owner renames its view"
assert_json "$(cat "$VIEWS/mine/tree/policy.json")" max_sandboxes 3 operations '["create", "exec", "delete", "read"]'
assert_match "$(cat "$VIEWS/mine/ttl")" '^3[0-9]{3}$'

# -- nobody else comes there
assert_eq "$(op_as $other listdir "$VIEWS/mine")" EACCES
assert_eq "$(op_as $other stat "$VIEWS/mine/tree")" EACCES
assert_eq "$(as_user $other ls "$VIEWS")" ''
"$CRUCIBLE" umount --keep "$AT/mine"

# -- in a mount namespace of its own the view is all there is: the agent's container in small
cat >"$DIR/agent.sh" <<'END'
set -e
cd "$1"
mkdir run/in
echo 'echo from inside' >run/in/cmd
cat run/in/wait
mkdir run/a 2>/dev/null && echo "a second a"
mkdir run/b
mkdir run/c 2>&1 && echo "more than three" || :
ls ../../crucible 2>/dev/null || echo "the tree is not there"
ls ..
rmdir run/in run/b
END
mkdir -p "$AT/box"
said=$(unshare --mount --propagation private -- sh -ec '
	mount -t tmpfs none "$1"
	mkdir "$1/view"
	mount --bind "$2" "$1/view"
	mount -t tmpfs none "$3"
	exec setpriv --reuid=$4 --regid=$4 --clear-groups --bounding-set=-all -- sh -s "$1/view"' sh "$AT/box" "$VIEWS/mine/tree" "$MNT" $me <"$DIR/agent.sh" 2>&1) ||
	fail "in a namespace: $said"
assert_match "$said" 'from inside'
assert_match "$said" 'the tree is not there'
assert_no_match "$said" 'a second a|more than three'
assert_match "$said" '[Qq]uota'
assert_eq "$(tail -n 1 <<<"$said")" view "what is beside the view"
# Handles cannot be opened without a capability that containers must not have (SECURITY.md): not even in the view itself.
cat >"$DIR/handle.py" <<'END'
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
handle = ctypes.create_string_buffer(struct.pack("II", 128, 0) + bytes(128))
mount_id = ctypes.c_int()
if libc.name_to_handle_at(-100, os.fsencode(sys.argv[1]), handle, ctypes.byref(mount_id), 0):
    print("no handle:", os.strerror(ctypes.get_errno()))
    sys.exit()
fd = os.open(sys.argv[1], os.O_RDONLY)
print("opened" if libc.open_by_handle_at(fd, handle, os.O_PATH) >= 0 else os.strerror(ctypes.get_errno()))
END
said=$(as_user $me "$PYTHON" -IS - "$VIEWS/mine/tree/run" <"$DIR/handle.py")
assert_no_match "$said" opened "a user's open_by_handle_at"

# -- a view and a policy of the uid: each narrows the other
mount_view both '{"operations":["create","exec","read","files","delete"],"max_sandboxes":3}'
assert_json "$(as_user $bound cat "$AT/both/policy.json")" max_sandboxes 2 operations '["create", "exec", "delete", "read"]'
assert_json "$(cat "$AT/both/policy.json")" max_sandboxes 3
assert_eq "$(op_as $bound mkdir "$AT/both/run/1")" OK
assert_eq "$(op_as $bound mkdir "$AT/both/run/2")" OK
assert_eq "$(op_as $bound mkdir "$AT/both/run/3")" EDQUOT "more than the uid's policy permits"
assert_eq "$(op_as $bound mkdir "$RUN/outside")" EDQUOT "the same uid in the whole tree"
assert_eq "$(op_as $other mkdir "$AT/both/run/3")" OK
assert_eq "$(op_as $other mkdir "$AT/both/run/4")" EDQUOT "more than the view's policy permits"
as_user $bound sh -c "echo true >$AT/both/run/1/cmd; cat $AT/both/run/1/wait" >/dev/null
assert_eq "$(op_as $bound read "$AT/both/run/1/fs/etc/os-release")" EPERM "files, which the uid's policy lacks"
assert_eq "$(op_as $bound write "$AT/both/run/1/snapshot" 's\n')" EPERM "snapshot, which both lack"
assert_match "$(as_user $bound cat "$AT/both/run/1/error")" snapshot
assert_eq "$(op_as $bound rmdir "$AT/both/run/1")" OK
assert_eq "$(op_as $bound mkdir "$RUN/outside")" OK
assert_eq "$(op_as $bound write "$RUN/outside/net/allow" 'example.com\n')" EPERM
assert_eq "$(op_as $other mkdir "$RUN/free")" OK # no policy of its own
assert_eq "$(op_as $other write "$RUN/free/cmd" 'true\n')" OK

# -- one user's sandboxes in a view that several reach are its own
assert_eq "$(op_as $other write "$AT/both/run/2/cmd" 'true\n')" EACCES "another user's sandbox in the same view"
assert_eq "$(op_as $other read "$AT/both/run/2/status")" OK

rmdir "$VIEWS/both" "$VIEWS/mine" "$RUN/outside" "$RUN/free"
