#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# `crucible policy`: validate says all faults of a document, or its one form, from a file and from standard input, without a daemon; show says
# what holds for whoever asks.
. "$(dirname "$0")/lib.sh"

export CRUCIBLE_MOUNT=$MNT
policy() { # ARGUMENT… <INPUT: sets RC, OUT, ERR
	RC=0
	OUT=$(bounded "$CRUCIBLE" policy "$@" 2>"$DIR/err") || RC=$?
	ERR=$(cat "$DIR/err")
}

# -- a good one: the same form from anywhere, and that form again
cat >"$DIR/good" <<'END'
{"max_fork": 4, "operations": ["read", "exec"], "net_allow_max": ["PyPI.org.", "@npm", "10.9.0.0/16:443"],
 "allow_profiles": ["tiny"], "allow_images": ["registry.example/team/*"]}
END
form='{
  "operations": [ "exec", "read" ],
  "net_allow_max": [ "pypi.org", "@npm", "10.9.0.0/16:443" ],
  "allow_profiles": [ "tiny" ],
  "allow_images": [ "registry.example/team/*" ],
  "max_fork": 4
}'
policy validate "$DIR/good" </dev/null
assert_eq "$RC $OUT $ERR" "0 $form "
policy validate - <"$DIR/good"
assert_eq "$RC $OUT $ERR" "0 $form "
policy validate <(printf %s "$form") </dev/null
assert_eq "$RC $OUT $ERR" "0 $form "
policy validate -o json "$DIR/good" </dev/null
assert_json "$OUT" operations '["exec", "read"]' max_fork 4 net_allow_max.2 '"10.9.0.0/16:443"'
assert_eq "$(wc -l <<<"$OUT")" 1
policy validate - <<<'{}'
assert_eq "$RC" 0 "$ERR"
assert_no_match "$OUT" admin

# -- a bad one: every fault, a line each, and nothing on standard output
printf '{"operations":["read","fly"],"max_fork":0,"net_allow_max":["*"],"colour":1,\n"max_vcpus":"2"}' >"$DIR/bad"
policy validate "$DIR/bad" </dev/null
assert_eq "$RC $OUT" "1 "
assert_eq "$(wc -l <<<"$ERR")" 5 "$ERR"
for fault in 'operations: "fly" is no operation; there are create ' 'max_fork: 0 is out of range; 1 to ' 'net_allow_max: rule \*: ' \
	'colour: no field of a policy; there are operations ' 'max_vcpus: a text is no whole number; 1 to '; do
	assert_match "$ERR" "^crucible: $DIR/bad: $fault"
done
policy validate - <"$DIR/bad"
assert_eq "$RC $OUT $(grep -c '^crucible: standard input: ' <<<"$ERR")" "1  5"
policy validate - <<<'{} {}'
assert_eq "$RC" 1
assert_match "$ERR" '^crucible: standard input: policy: JSON, line 1, column 4: '
policy validate - < <(head -c 100000 /dev/zero)
assert_match "$ERR" 'too long; at most 65536 bytes'
policy validate "$DIR/none" </dev/null
assert_eq "$RC $OUT $ERR" "1  crucible: $DIR/none: No such file or directory"
policy validate </dev/null
assert_match "$ERR" 'too few arguments'
policy show </dev/null
assert_eq "$RC" 1 "without a daemon"
assert_match "$ERR" 'crucible daemon'

# -- what holds here
start_daemon --set net_allow_max='@pypi example.com' --set max_sandboxes_per_uid=7
policy show </dev/null
assert_eq "$RC" 0 "$ERR"
assert_match "$OUT" '^operations +create .*admin'
assert_match "$OUT" '^net_allow_max +@pypi example.com$'
assert_match "$OUT" '^allow_profiles +any$'
assert_match "$OUT" '^max_fork +no limit$'
policy show -o json </dev/null
assert_same <(jq -S . <<<"$OUT") <(jq -S . "$MNT/policy.json")
chmod 755 "$DIR"
OUT=$(as_user 4711 "$CRUCIBLE" policy show </dev/null)
assert_match "$OUT" '^operations +create '
assert_no_match "$OUT" admin
assert_match "$OUT" '^max_sandboxes +7$'
bounded "$CRUCIBLE" policy show -o json | bounded "$CRUCIBLE" policy validate - >/dev/null || fail "policy.json is no policy"
