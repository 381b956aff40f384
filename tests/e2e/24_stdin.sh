#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Standard input: what was written into `stdin` is the next command's, at any size; without it there is the end of the file at once.
. "$(dirname "$0")/lib.sh"

start_daemon
ready_sandbox a
A=$RUN/a

echo 'for the next' >"$A/stdin"
run a 'cat'
assert_rec stdout '"for the next\n"'
run a 'cat' # not for the one after it
assert_rec stdout '""' exit_code 0
echo first >"$A/stdin"
echo second >"$A/stdin" # the newest counts
run a 'cat'
assert_rec stdout '"second\n"'
{ echo a; echo b; cat /etc/hostname; } >"$A/stdin" # gathered until the last close
run a 'cat'
assert_eq "$(rec stdout)" "$(printf 'a\nb\n'; cat /etc/hostname)"
: >"$A/stdin"
run a 'cat; echo end'
assert_rec stdout '"end\n"'
printf 'q' >"$A/stdin"
put a 'cat; sleep 1'
put a 'cat; echo second' # waits in the queue; the input was the first one's
await a
assert_rec stdout '"second\n"'
assert_file "$A/stdin" ''

printf 'bytes \x00\xff\xfe' >"$A/stdin"
run a 'od -An -tx1'
assert_rec stdout '=~62 79 74 65 73 20 00 ff fe'

for mib in 1 64; do
	head -c $((mib * 1048576)) /dev/urandom >"$DIR/in"
	cp "$DIR/in" "$A/stdin"
	run a 'sha256sum'
	assert_rec exit_code 0 error '""'
	assert_eq "$(rec stdout | cut -d' ' -f1)" "$(sha256sum <"$DIR/in" | cut -d' ' -f1)" "$mib MiB of input"
done
# A child that reads one byte and ends.
cp "$DIR/in" "$A/stdin"
run a 'dd bs=1 count=1 2>/dev/null | wc -c'
assert_rec exit_code 0 stdout '"1\n"'
cp "$DIR/in" "$A/stdin"
run a 'exit 3'
assert_rec exit_code 3
# It comes back through a pipe that is full both ways.
head -c 5000000 "$DIR/in" >"$DIR/in2"
cp "$DIR/in2" "$A/stdin"
run a 'cat'
assert_rec stdout_bytes 5000000
assert_same "$DIR/in2" "$A/stdout"
# More than the disk may hold is refused while it is written.
new_sandbox small limits/disk_mib=64
assert_match "$("$PYTHON" -IS - "$RUN/small/stdin" <<'END'
import errno, os, sys
fd = os.open(sys.argv[1], os.O_WRONLY)
try:
    for _ in range(70):
        os.write(fd, bytes(1 << 20))
    print("no end")
except OSError as e:
    print(errno.errorcode[e.errno])
END
)" '^(EFBIG|ENOSPC|EDQUOT)$' "70 MiB for a sandbox of 64"
run small 'cat | wc -c'
assert_rec stdout '"0\n"' # half of it must not be taken for the whole
