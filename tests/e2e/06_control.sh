#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# TREE.md rule 7: small control files act inside write(2) and return the errno there; lists gather. No guest.
. "$(dirname "$0")/lib.sh"

start_daemon
new_sandbox a
A=$RUN/a

# -- the errno comes from write, not from close -----------------------------------------------------------------

for bad in bogus 'stop now' 'signal' 'signal NOPE' 'extend' 'extend soon' START 'start;stop'; do
	assert_errno EINVAL write "$A/ctl" "$bad\n"
	assert_match "$(cat "$A/error")" 'sandbox a: .*' "error after ctl \"$bad\""
	assert_eq "$(wc -l <"$A/error")" 1 "lines of error"
done
(echo bogus >"$A/ctl") 2>"$DIR/said" && fail "a shell does not see that echo failed"
assert_match "$(cat "$DIR/said")" 'Invalid argument'
assert_errno EBUSY write "$A/ctl" 'pause\n'
assert_errno EBUSY write "$A/ctl" 'stop\n'
assert_errno ENOENT write "$A/ctl" 'kill\n'
assert_errno ENOENT write "$A/ctl" 'signal TERM\n'
assert_match "$(cat "$A/error")" 'no command runs'
for verb in start stop kill kill-inherited 'signal NAME' pause resume 'extend SECONDS'; do
	grep -qxF "$verb" "$A/ctl" || fail "reading ctl does not list $verb"
done
assert_file "$A/status" configured

for bad in 0 -1 5 99999999999999999999 2.5 2x x '1 2' 0x2; do
	assert_errno EINVAL write "$A/limits/vcpus" "$bad\n"
	assert_match "$(cat "$A/error")" 'vcpus.* from 1 to 4' "the permitted range"
done
assert_file "$A/limits/vcpus" 1
assert_errno EINVAL write "$A/limits/vcpus" '2\x00\n'
assert_errno EINVAL write "$A/from" 'profile:none\n'
assert_match "$(cat "$A/error")" 'crucible profile build none' "the way out"
assert_errno EINVAL write "$A/from" '../../etc\n'
assert_file "$A/from" profile:tiny

# -- offsets, flags, blanks -----------------------------------------------------------------------------------------

for flags in WRONLY WRONLY,TRUNC WRONLY,APPEND RDWR WRONLY,CREAT,TRUNC RDWR,APPEND,CREAT; do
	echo 1 >"$A/limits/vcpus"
	assert_errno OK write "$A/limits/vcpus" '3\n' "$flags"
	assert_file "$A/limits/vcpus" 3
done
printf 2 >"$A/limits/vcpus"
assert_file "$A/limits/vcpus" 2 "without a newline"
printf '  \t4 \r\n' >"$A/limits/vcpus"
assert_file "$A/limits/vcpus" 4 "blanks around"
printf ' \n\t\n' >"$A/limits/vcpus"
: >"$A/limits/vcpus"
assert_file "$A/limits/vcpus" 4 "blanks alone do nothing"
printf 1 | dd of="$A/limits/vcpus" bs=1 seek=4096 conv=notrunc status=none
assert_file "$A/limits/vcpus" 1 "the offset is ignored"
truncate -s 0 "$A/limits/vcpus"
assert_file "$A/limits/vcpus" 1 "truncation does nothing"
exec {w}>"$A/limits/vcpus"
echo 2 >&"$w"
assert_file "$A/limits/vcpus" 2 "it acts before the close"
echo 3 >&"$w"
assert_file "$A/limits/vcpus" 3
exec {w}>&-
assert_errno EINVAL write "$A/limits/vcpus" '1\n2\nx\n4\n'
assert_file "$A/limits/vcpus" 2 "several lines act in order up to the first error"
printf '3\n\n4\n' >"$A/limits/vcpus"
assert_file "$A/limits/vcpus" 4 "several lines"
assert_match "$(errno_of write "$A/limits/vcpus" "$(printf '1%.0s' {1..70000})")" '^(EINVAL|EFBIG)$' "a long value"

# Two writers of one file do not wait for each other.
exec {w}>"$A/limits/vcpus"
bounded bash -c 'echo 2 >"$1"' _ "$A/limits/vcpus"
exec {w}>&-
assert_file "$A/limits/vcpus" 2

# -- what cannot be written -------------------------------------------------------------------------------------------

for f in status error info.json stdout stderr usage.json log.jsonl console.log; do
	assert_errno EPERM write "$A/$f" 'x\n'
done
for f in version README.md health.json metrics events.jsonl policy.json profiles/tiny/info.json; do
	assert_errno EPERM write "$MNT/$f" 'x\n'
done
mode=$(stat -c %a "$A/status")
assert_match "$(errno_of chmod "$A/status" 777)" '^(OK|EPERM)$' "chmod" # tolerated, because install, mv and rsync do it
assert_eq "$(stat -c %a "$A/status")" "$mode" "mode after a chmod"
assert_match "$(errno_of chown "$A/status" 1 1)" '^EPERM$' "chown"
assert_errno OK utime "$A/status"
assert_match "$(errno_of setxattr "$A/status" user.x y)" '^(EPERM|ENOTSUP|EOPNOTSUPP)$' "setxattr"
assert_match "$(errno_of link "$A/status" "$A/l")" '^(EPERM|EXDEV|EACCES)$' "link"

# -- lists ----------------------------------------------------------------------------------------------------------------

E=$A/env
printf 'A=1\nB=2\n' >"$E"
assert_file "$E" $'A=1\nB=2'
echo C=3 >"$E"
assert_file "$E" C=3 "the first write of an open file replaces"
echo D=4 >>"$E"
assert_file "$E" $'C=3\nD=4' "O_APPEND only adds"
{ echo E=5; echo F=6; echo G=7; } >"$E"
assert_file "$E" $'E=5\nF=6\nG=7' "later writes add"
{ printf 'H=8\nI='; printf '9\nJ=10'; printf '11\n'; } >"$E"
assert_file "$E" $'H=8\nI=9\nJ=1011' "a line cut at the end of a write is completed by the next"
printf 'K=12\nL=13\n' | dd of="$E" bs=1 status=none
assert_file "$E" $'K=12\nL=13' "dd bs=1"
printf 'M=14' >"$E"
assert_file "$E" M=14 "a last line without its newline"
printf '\n  \n' >"$E"
assert_file "$E" M=14 "blanks alone do nothing"
printf 'N=15\n\n\nO=  a b  \n' >"$E"
assert_match "$(cat "$E")" $'^N=15\nO=  a b'
for bad in '=x' 'noequals' '1A=x' 'A-B=x' 'A B=x'; do
	assert_errno EINVAL write "$E" "$bad\n"
	assert_match "$(cat "$A/error")" 'sandbox a'
done
assert_errno EINVAL write "$E" 'P=16\nbad line\nQ=17\n'
assert_file "$E" P=16 "the lines before the bad one act"
assert_errno EINVAL write "$E" 'R=\x0018\n'
seq -f 'V%g=value' 1000 >"$E"
assert_eq "$(wc -l <"$E")" 1000
assert_match "$(errno_of write "$E" "$(seq -f 'W%g=value' 1100 | sed 's/$/\\n/' | tr -d '\n')")" '^(EFBIG|EINVAL)$' "more than 1024 lines"
seq -f 'W%g=value' 60 | tee "$E" >/dev/null
assert_eq "$(wc -l <"$E")" 60 "tee"

# -- defaults/: root's; what is made afterwards has them ---------------------------------------------------------------------

echo 2 >"$MNT/defaults/vcpus"
new_sandbox b
assert_file "$RUN/b/limits/vcpus" 2
assert_file "$A/limits/vcpus" 2
echo 1 >"$MNT/defaults/vcpus"
assert_file "$RUN/b/limits/vcpus" 2 "one that exists keeps its own"
assert_errno EINVAL write "$MNT/defaults/vcpus" 'many\n'
assert_errno EINVAL write "$MNT/defaults/from" 'profile:none\n'
# Kept over a restart, like the attributes of sandboxes.
echo 777 >"$MNT/defaults/exec_timeout_s"
stop_daemon
start_daemon
assert_file "$MNT/defaults/exec_timeout_s" 777
assert_file "$RUN/b/limits/vcpus" 2
assert_eq "$(wc -l <"$E")" 60
