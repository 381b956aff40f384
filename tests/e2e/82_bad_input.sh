#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Bad input: names, numbers, states, owners, origins; a snapshot that this engine cannot take up.
# limit: 400
. "$(dirname "$0")/lib.sh"

start_daemon
ready_sandbox a limits/memory_mib=96
new_sandbox idle
A=$RUN/a
run a 'echo kept >/root/kept; sync'
take a s
S=$SNAPS/s

# -- names of snapshots
for bad in '../x' 'a/b' '.x' '-x' 'a b' '_x' 'ü'; do
	assert_errno EINVAL write "$A/snapshot" "$bad\\n"
done
long=$(printf 'n%.0s' {1..57})
assert_match "$(errno_of write "$A/snapshot" "$long\\n")" '^E(NAMETOOLONG|INVAL)$' "57 characters"
take a "${long%n}" # 56 are enough
assert_exists "$SNAPS/${long%n}"
rmdir "$SNAPS/${long%n}"
assert_errno EEXIST write "$A/snapshot" 's\n'
assert_errno OK write "$A/snapshot" ' \n' # blanks do nothing
assert_errno EINVAL write "$A/snapshot" 'x\x00y\n'
assert_eq "$(ls "$SNAPS")" s
assert_ne "$(error_of "$A")" "" "words"

# -- states of a sandbox
assert_errno EBUSY write "$RUN/idle/snapshot" 'x\n' # not started
assert_match "$(error_of "$RUN/idle")" 'idle' "the words name the sandbox"
echo pause >"$A/ctl"
wait_status a paused
assert_errno EBUSY write "$A/snapshot" 'x\n'
assert_match "$(error_of "$A")" 'echo resume > ctl' "the way out"
echo resume >"$A/ctl"
wait_status a ready
assert_absent "$SNAPS/x"

# -- numbers
for bad in 0 -1 +2 _x; do
	assert_errno EINVAL write "$S/fork" "$bad\\n"
done
for bad in 257 1000000 99999999999999999999; do
	assert_match "$(errno_of write "$S/fork" "$bad\\n")" '^E(INVAL|DQUOT)$' "fork: $bad"
done

assert_eq "$(count "$S/forks")" 0

# -- what is no snapshot
assert_errno ENOENT write "$SNAPS/none/fork" 'x\n'
assert_match "$(errno_of mkdir "$SNAPS/made")" '^E(PERM|ACCES)$' "mkdir in snapshots/"
assert_errno EINVAL write "$RUN/idle/from" 'snapshot:none\n'
assert_match "$(error_of "$RUN/idle")" none
assert_errno EINVAL write "$RUN/idle/from" 'snapshot:\n'
assert_errno EINVAL write "$RUN/idle/from" 'snapshot:../../s\n'
assert_errno EBUSY write "$A/from" 'snapshot:s\n'
assert_match "$(errno_of rename "$RUN/idle" "$SNAPS/idle")" '^E(XDEV|PERM|ACCES)$' "a sandbox is no snapshot"
for f in info.json parent status uuid error; do
	assert_match "$(errno_of write "$S/$f" 'x\n')" '^E(PERM|ACCES)$' "$f is read only"
done
assert_errno ENOENT read "$S/diff.json"

# -- whose they are
other() { # OPERATION ARGUMENT…
	bounded setpriv --reuid=61001 --regid=61001 --clear-groups -- "$PYTHON" -IS "$E2E/op.py" "$@" || echo HUNG
}
assert_eq "$(other read "$S/status")" OK "another user reads the status"
for f in info.json fork diff verify error uuid; do
	assert_eq "$(other read "$S/$f")" EACCES "another user reads $f"
done
assert_eq "$(other write "$S/fork" 'x\n')" EACCES "another user forks"
assert_match "$(other rmdir "$S")" '^E(PERM|ACCES)$' "another user removes it"
assert_eq "$(other write "$A/snapshot" 'x\n')" EACCES "another user takes a snapshot"
assert_eq "$(other mkdir "$RUN/his")" OK
assert_match "$(other write "$RUN/his/from" 'snapshot:s\n')" '^E(ACCES|PERM|INVAL)$' "another user's sandbox from it"
assert_match "$(other write "$MNT/store/gc" 'start\n')" '^E(ACCES|PERM)$' "another user collects"
rmdir "$RUN/his"

# -- a machine that this engine is not
wait_stored s
uuid=$(json_of "$(cat "$S/info.json")" uuid)
stop_daemon
record=$STORE/snapshots/$uuid/snapshot.json
cp "$STORE/snapstore/manifests/$uuid" "$DIR/manifest"
cp -a "$record" "$DIR/record"
"$PYTHON" -IS - "$record" <<'END' || fail "no fingerprint in snapshot.json"
import json, sys
o = json.load(open(sys.argv[1]))
found = bool(o.get("fingerprint"))
o["fingerprint"] = "qemu-99.9 " + o.get("fingerprint", "")
json.dump(o, open(sys.argv[1], "w"))
sys.exit(not found)
END
start_daemon
assert_errno EPROTONOSUPPORT write "$S/fork" 'x\n'
assert_match "$(error_of "$S")" 'disk-only' "the words tell the way out"
assert_absent "$RUN/x"
bounded "$CRUCIBLE" --mount "$MNT" fork s --disk-only --name x >"$DIR/out" || fail "fork --disk-only"
assert_file "$DIR/out" x
assert_file "$RUN/x/from" snapshot:s
run x 'cat /root/kept; ls /dev/shm'
assert_rec stdout '"kept\n"' exec 1

# Every byte of a manifest, one after another (a sample of them: each is a start of the daemon): refused in words, or as before; never a crash.
EXPECTED_ERRORS='manifest|damaged|snapshot'
rmdir "$RUN/x"
stop_daemon
cat "$DIR/record" >"$record"
size=$(stat -c %s "$DIR/manifest")
for ((at = 0; at < size; at += (size / 6) + 1)); do
	"$PYTHON" -IS -c 'import sys; b = bytearray(open(sys.argv[1], "rb").read()); b[int(sys.argv[3])] ^= 0x15; open(sys.argv[2], "wb").write(b)' \
		"$DIR/manifest" "$STORE/snapstore/manifests/$uuid" $at
	start_daemon
	if [ "$(errno_of write "$S/fork" 'x\n')" = OK ]; then
		run x 'cat /root/kept'
		assert_rec stdout '"kept\n"'
		rmdir "$RUN/x"
	fi
	run a 'echo alive'
	assert_rec stdout '"alive\n"'
	stop_daemon
done
cp "$DIR/manifest" "$STORE/snapstore/manifests/$uuid"
start_daemon
outcome "$S/verify"
assert_rec status '"ok"'
fork_of s y
run y 'cat /root/kept'
assert_rec stdout '"kept\n"'
