#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Output arrives whole, in both streams, at any size; bytes stay bytes; what is over the cap is counted.
. "$(dirname "$0")/lib.sh"

start_daemon
ready_sandbox a
A=$RUN/a

# -- whole, at the sizes where buffers end ------------------------------------------------------------------------

head -c 1100000 /dev/urandom >"$DIR/random"
cp "$DIR/random" "$A/fs/root/random"
for n in 1 4095 4096 4097 65535 65536 65537 98304 131072 1048576; do
	run a "head -c $n /root/random"
	assert_rec exit_code 0 stdout_bytes $n stdout_truncated false
	assert_eq "$(sha256sum <"$A/stdout")" "$(head -c $n "$DIR/random" | sha256sum)" "$n bytes"
	assert_eq "$(stat -c %s "$A/stdout")" $n
	run a "head -c $n /root/random >&2"
	assert_rec exit_code 0 stderr_bytes $n stdout '""'
	assert_eq "$(sha256sum <"$A/stderr")" "$(head -c $n "$DIR/random" | sha256sum)" "$n bytes to stderr"
done
# The record's text is at most 64 KiB of it.
run a 'yes 0123456789 | head -c 200000'
assert_rec stdout_bytes 200000 stdout_truncated false
assert_eq "$(rec stdout | wc -c)" 65536

# -- floods -------------------------------------------------------------------------------------------------------------

M=1048576
run a "head -c $M /dev/zero | tr '\\0' e >&2; head -c $M /dev/zero | tr '\\0' o"
assert_rec stdout_bytes $M stderr_bytes $M exit_code 0
assert_eq "$(tr -d e <"$A/stderr" | wc -c) $(tr -d o <"$A/stdout" | wc -c)" "0 0"
run a 'i=0; while [ $i -lt 2000 ]; do echo "out $i"; echo "err $i" >&2; i=$((i+1)); done'
assert_eq "$(sha256sum <"$A/stdout")" "$(seq -f 'out %g' 0 1999 | sha256sum)"
assert_eq "$(sha256sum <"$A/stderr")" "$(seq -f 'err %g' 0 1999 | sha256sum)"
run a "(head -c $M /dev/zero >&2) & (head -c $M /dev/zero) & wait"
assert_rec stdout_bytes $M stderr_bytes $M
run a 'dd if=/dev/zero bs=1 count=20000 2>/dev/null'
assert_rec stdout_bytes 20000
# Somebody who reads while it grows gets every byte once.
put a 'i=0; while [ $i -lt 3000 ]; do echo "line $i"; i=$((i+1)); done; sleep 1'
"$PYTHON" -IS - "$A" >"$DIR/followed" <<'END'
import os, select, sys
fd = os.open(sys.argv[1] + "/stdout", os.O_RDONLY)
p = select.poll()
p.register(fd, select.POLLIN)
got = b""
while not got.endswith(b"line 2999\n"):
    assert p.poll(90000), "no more output"
    got += os.read(fd, 777)
sys.stdout.buffer.write(got)
END
assert_eq "$(sha256sum <"$DIR/followed")" "$(seq -f 'line %g' 0 2999 | sha256sum)"
await a

# -- the cap -----------------------------------------------------------------------------------------------------------------

new_sandbox c limits/output_mib=1 limits/spool_mib=4
run c 'yes abcdefg | head -c 5000000; yes ABCDEFG | head -c 2000000 >&2; exit 6'
assert_rec exit_code 6 stdout_bytes 5000000 stderr_bytes 2000000 stdout_truncated true stderr_truncated true
assert_eq "$(stat -c '%s' "$RUN/c/stdout") $(stat -c '%s' "$RUN/c/stderr")" "$M $M" "the first part is kept"
assert_eq "$(sha256sum <"$RUN/c/stdout")" "$(yes abcdefg | head -c $M | sha256sum)"
run c 'echo after'
assert_rec stdout '"after\n"' stdout_truncated false
# All outputs together: the oldest go, the newest are whole.
for i in {1..8}; do
	run c "yes $i | head -c 1000000"
	assert_rec exit_code 0 stdout_bytes 1000000
done
assert_eq "$(sha256sum <"$RUN/c/stdout")" "$(yes 8 | head -c 1000000 | sha256sum)" "the newest output under spool_mib"
assert_json "$(cat "$RUN/c/usage.json")" spool_bytes '<6000000'
rmdir "$RUN/c"

# -- bytes -----------------------------------------------------------------------------------------------------------------------

printf 'ok \xff\xfe \xc3( \xe2\x82 \xf0\x9f\x98\x80 \x00 end\n' >"$DIR/bytes"
cp "$DIR/bytes" "$A/fs/root/bytes"
run a 'cat /root/bytes'
assert_same "$DIR/bytes" "$A/stdout"
assert_rec stdout '=~^ok .* 😀 .* end\n$' stdout_bytes "$(stat -c %s "$DIR/bytes")"
run a 'printf "\303"; sleep 0.3; printf "\251"; sleep 0.3; printf "\360\237"; sleep 0.3; printf "\230\200\n"' # characters split across reads
assert_rec stdout '"é😀\n"'
run a 'printf "%65535s" x | tr " x" "aa"; printf "é%s" tail' # one split by the 64 KiB of the record
assert_rec stdout_bytes 65541
assert_eq "$(rec stdout | wc -c)" 65535
run a 'printf "\\\\ \" \b\f\n\r\t \001 \033[31m \177"'
assert_rec exit_code 0
assert_eq "$(sha256sum <"$A/stdout")" "$(printf '\\ " \b\f\n\r\t \001 \033[31m \177' | sha256sum)"
run a 'printf ""'
assert_rec stdout '""' stdout_bytes 0
assert_eq "$(stat -c %s "$A/stdout")" 0
