#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# TREE.md rule 6: which names there are, which errno the others get, and that no name reaches outside of the mount. No guest.
. "$(dirname "$0")/lib.sh"

start_daemon
n63=$(printf 'n%.0s' {1..63})
for name in a A 0 a.b a-b a_b a..b a. 9lives "$n63" x.jsonl con nul; do
	assert_errno OK mkdir "$RUN/$name"
	assert_errno EEXIST mkdir "$RUN/$name"
	assert_json "$(cat "$RUN/$name/info.json")" id "\"$name\""
done
for name in .a -a _a 'a b' 'a:b' 'a\b' 'a%2fb' 'a$b' 'a;b' $'a\nb' $'a\tb' $'a\x7f' é 😀 $'\xff\xfe' '~' '*' 'a,b' '...' '..a' "$(printf 'a%.0s' {1..20}) "; do
	assert_errno EINVAL mkdir "$RUN/$name"
done
assert_errno ENAMETOOLONG mkdir "$RUN/n$n63"
assert_errno ENAMETOOLONG mkdir "$RUN/$(printf 'n%.0s' {1..255})"
assert_errno ENAMETOOLONG mkdir "$RUN/$(printf 'n%.0s' {1..256})"
assert_errno EEXIST mkdir "$RUN/."
assert_errno EEXIST mkdir "$RUN/.."
assert_errno ENOENT mkdir "$RUN/none/x"
assert_match "$(errno_of mkdir "$RUN/../x")" '^(EPERM|EACCES)$' "mkdir beside run/"
assert_errno ENOENT stat "$RUN/none"
assert_match "$(errno_of stat "$RUN/é")" '^ENOENT$' "looking up a name that cannot be"
assert_eq "$(find "$RUN" -mindepth 1 -maxdepth 1 | wc -l)" 13 "number of sandboxes"

# What the store holds of them is called by their uuids; nothing else was made anywhere.
assert_eq "$(find "$STORE/sandboxes" -mindepth 1 -maxdepth 1 | grep -cvE '/[0-9a-f-]{36}$')" 0 "names in the store that are no uuids"
assert_eq "$(find "$STORE/sandboxes" -mindepth 2 -maxdepth 2 -name sandbox.json | wc -l)" 13 # machines of the pool have none
assert_eq "$(find "$DIR" -mindepth 1 -maxdepth 1 ! -name mnt ! -name store ! -name 'daemon.log' ! -name ready ! -name crucible.conf)" "" \
	"what appeared beside the mount"
assert_eq "$(find "$STORE" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | tr '\n' ' ')" "blocks boot disks logs profiles run sandboxes snapshots snapstore state views " "the store"

# Renaming: the same rules, the uuid stays, what is written afterwards carries both.
uuid=$(json_of "$(cat "$RUN/a/info.json")" uuid)
mv "$RUN/a" "$RUN/final"
assert_absent "$RUN/a"
assert_json "$(cat "$RUN/final/info.json")" id '"final"' uuid "\"$uuid\""
assert_errno EINVAL rename "$RUN/final" "$RUN/.x"
assert_errno EINVAL rename "$RUN/final" "$RUN/a b"
assert_errno ENAMETOOLONG rename "$RUN/final" "$RUN/n$n63"
assert_match "$(errno_of rename "$RUN/final" "$RUN/A")" '^(EEXIST|ENOTEMPTY)$' "renaming to a taken name"
assert_errno EEXIST rename2 "$RUN/final" "$RUN/A" noreplace
assert_errno ENOENT rename "$RUN/none" "$RUN/b"
assert_match "$(errno_of rename "$RUN/final" "$MNT/final")" '^(EPERM|EACCES|EXDEV)$' "renaming out of run/"
assert_match "$(errno_of rename "$RUN/final" "$DIR/final")" '^EXDEV$' "renaming out of the mount"
mkdir "$RUN/a" # the name is free
assert_json "$(tail -n 1 "$MNT/events.jsonl")" event '"created"' sandbox '"a"' uuid '=~^[0-9a-f-]{36}$' seq '>0' uid 0
assert_json "$(grep '"renamed"' "$MNT/events.jsonl" | tail -n 1)" sandbox '"final"' uuid "\"$uuid\"" old_name '"a"'
assert_json "$(tail -n 1 "$RUN/final/log.jsonl")" event '"renamed"' uuid "\"$uuid\""
assert_same "$RUN/final/log.jsonl" "$MNT/logs/$uuid.jsonl"

# Slots have the same names, but for those of digits only, which are commands.
mkdir "$RUN/final/exec/build-1"
assert_errno EEXIST mkdir "$RUN/final/exec/build-1"
assert_errno EINVAL mkdir "$RUN/final/exec/12"
assert_errno EINVAL mkdir "$RUN/final/exec/a b"
assert_errno ENAMETOOLONG mkdir "$RUN/final/exec/n$n63"
assert_match "$(errno_of mkdir "$RUN/final/exec/latest")" '^(EEXIST|EINVAL)$' "a slot called latest"
rmdir "$RUN/final/exec/build-1"
assert_absent "$RUN/final/exec/build-1"

# Sequence numbers of events have no holes and no repeats.
"$PYTHON" -IS - "$MNT/events.jsonl" <<'END'
import json, sys
seq = [json.loads(line)["seq"] for line in open(sys.argv[1])]
assert seq == list(range(seq[0], seq[0] + len(seq))), seq
END
