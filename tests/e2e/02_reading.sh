#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# TREE.md rules 1-3: one value a file; sizes are true with every tool; a text does not change under an open descriptor; streams grow.
. "$(dirname "$0")/lib.sh"

start_daemon
ready_sandbox a
run a 'i=0; while [ $i -lt 300 ]; do echo "line $i of the output"; i=$((i+1)); done; echo words >&2'
echo GREETING=hello >"$RUN/a/env"
new_sandbox b

# -- rules 1 and 2: every tool reads what stat says -------------------------------------------------------------

cat >"$DIR/readers.py" <<'END'
"""Read FILE in ways that differ in system calls; print the name of each that does not give what stat said and the first reader read."""
import mmap, os, sys

def whole(p):
    with open(p, "rb") as f:
        return f.read()

def small_preads(p):
    fd = os.open(p, os.O_RDONLY)
    out, off = b"", 0
    while True:
        b = os.pread(fd, 7, off)
        if not b:
            os.close(fd)
            return out
        out, off = out + b, off + len(b)

def mapped(p):
    fd = os.open(p, os.O_RDONLY)
    n = os.fstat(fd).st_size
    b = mmap.mmap(fd, n, prot=mmap.PROT_READ)[:] if n else b""
    os.close(fd)
    return b

def spliced(p):
    fd = os.open(p, os.O_RDONLY)
    r, w = os.pipe()
    out = b""
    while True:
        n = os.splice(fd, w, 65536)
        if not n:
            return out
        out += os.read(r, n)

def sent(p):
    fd = os.open(p, os.O_RDONLY)
    t = os.memfd_create("x")
    n, off = os.fstat(fd).st_size, 0
    while off < n:
        k = os.sendfile(t, fd, off, n - off)
        if not k:
            break
        off += k
    return os.pread(t, n + 1, 0)

def copied(p):
    fd = os.open(p, os.O_RDONLY)
    t = os.open(os.environ["TMPDIR"] + "/copied", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        while os.copy_file_range(fd, t, 1 << 20):
            pass
    except OSError:
        return None  # not between these file systems
    return os.pread(t, 1 << 24, 0)

def told(p):
    """Exactly as many bytes as stat by path says, as busybox and uutils do."""
    n = os.stat(p).st_size
    fd = os.open(p, os.O_RDONLY)
    assert os.fstat(fd).st_size == n, "fstat differs from stat"
    b = os.read(fd, n)
    assert os.read(fd, 1) == b"", "bytes behind the size"
    return b

p = sys.argv[1]
want = whole(p)
bad = [] if len(want) == os.stat(p).st_size else [f"stat says {os.stat(p).st_size}, read gives {len(want)}"]
for f in (told, small_preads, mapped, spliced, sent, copied):
    try:
        got = f(p)
    except (AssertionError, OSError) as e:
        got = f"{e}".encode()
    if got is not None and got != want:
        bad.append(f"{f.__name__}: {got[:60]!r} ({len(got)} bytes, want {len(want)})")
print("; ".join(bad), end="")
sys.exit(bool(bad))
END

texts=(version README.md policy.json defaults/vcpus defaults/from profiles/tiny/info.json run/a/status run/a/ctl run/a/error run/a/from
	run/a/info.json run/a/limits/memory_mib run/a/env run/a/result.json run/a/cmd run/a/exec/1/cmd run/a/exec/1/result.json
	run/a/exec/2/status run/a/exec/latest/result.json run/a/wait run/a/exec/2/wait run/b/status run/b/error run/b/ctl run/a/stdin)
streams=(run/a/stdout run/a/stderr run/a/exec/2/stdout run/a/console.log run/a/log.jsonl)
for f in "${texts[@]}" "${streams[@]}"; do
	said=$(bounded "$PYTHON" -I "$DIR/readers.py" "$MNT/$f") || fail "$f: $said"
done
# These change on their own; what one open gives must still be whole.
for f in health.json run/a/usage.json; do
	assert_json "$(cat "$MNT/$f")"
done
assert_match "$(cat "$MNT/metrics")" '^crucible_sandboxes\{status="ready"\} 1$'

rm -rf "$DIR/out"
mkdir "$DIR/out"
for f in run/a/result.json run/a/exec/2/stdout run/a/status version run/b/error run/a/env; do
	src=$MNT/$f ref=$DIR/ref out=$DIR/out/x
	bounded "$PYTHON" -IS -c 'import sys; sys.stdout.buffer.write(open(sys.argv[1], "rb").read())' "$src" >"$ref"
	n=$(stat -c %s "$src")
	assert_eq "$(stat -c %s "$ref")" "$n" "size of $f"
	for tool in 'cat "$src"' 'cat <"$src"' 'cat "$src" | cat' 'head -c 100000000 "$src"' 'tail -c +1 "$src"' 'tail -n +1 "$src"' \
		'dd if="$src" bs=1 status=none' 'dd if="$src" bs=64k status=none' 'dd if="$src" bs=7 iflag=fullblock status=none' \
		'sed -n p "$src"' 'tac "$src" | tac' 'busybox cat "$src"' 'busybox dd if="$src" bs=512 2>/dev/null' 'busybox head -c 9999999 "$src"' \
		'cp "$src" "$out" && cat "$out"' 'cp --sparse=always "$src" "$out" && cat "$out"' 'busybox cp "$src" "$out" && cat "$out"' \
		'rsync --inplace "$src" "$out" && cat "$out"' 'rsync "$src" "$out" && cat "$out"' 'install -m 644 "$src" "$out" && cat "$out"' \
		'tar -cf - -C "$(dirname "$src")" "$(basename "$src")" | tar -xOf -' 'split -b 100000000 "$src" "$out." && cat "$out.aa"' \
		'node -e "process.stdout.write(require(\"fs\").readFileSync(process.argv[1]))" "$src"'; do
		command -v "${tool%% *}" >/dev/null || continue
		[ "$n" -gt 0 ] || [[ $tool != split* ]] || continue
		rm -f "$out" "$out".*
		bounded env src="$src" out="$out" bash -o pipefail -c "$tool" >"$DIR/got" || fail "$tool of $f: exit code $?"
		cmp -s "$ref" "$DIR/got" || fail "$tool of $f: $(stat -c %s "$DIR/got") bytes, want $n"
	done
	assert_eq "$(wc -c <"$src")" "$n" "wc -c of $f"
	assert_eq "$(busybox wc -c "$src" | cut -d' ' -f1)" "$n" "busybox wc -c of $f"
	assert_eq "$(grep -c '' "$src" || :)" "$(grep -c '' "$ref" || :)" "grep -c of $f"
	assert_eq "$(sha256sum <"$src")" "$(sha256sum <"$ref")" "sha256sum of $f"
done

for f in run/a/status run/b/limits/vcpus version run/a/from; do
	assert_eq "$(wc -l <"$MNT/$f")" 1 "lines of $f"
	assert_eq "$(tail -c 1 "$MNT/$f" | od -An -c | tr -d ' ')" '\n' "last byte of $f"
done
bounded head -n 1 "$RUN/a/exec/2/stdout" >"$DIR/got" # ends quietly
assert_file "$DIR/got" 'line 0 of the output'
# shellcheck disable=SC2002 # the pipe is the point
assert_eq "$(bounded cat "$RUN/a/exec/2/stdout" 2>"$DIR/err" | head -1)" 'line 0 of the output'
assert_file "$DIR/err" ''

# -- a text is frozen under an open descriptor; mtime moves with content only --------------------------------------

mtime() { stat -c %.Y "$1"; }
exec {old}<"$RUN/b/status"
before=$(mtime "$RUN/b/status")
assert_eq "$(mtime "$RUN/b/status")" "$before" "mtime of a status that did not change"
ino=$(stat -c %i "$RUN/b/status")
run b 'echo up'
assert_file "$RUN/b/status" ready
assert_eq "$(cat <&"$old")" configured "a text under an open descriptor"
exec {old}<&-
assert_ne "$(mtime "$RUN/b/status")" "$before" "mtime of a status that changed"
assert_eq "$(stat -c %i "$RUN/b/status")" "$ino" "st_ino over look-ups"
before=$(mtime "$RUN/b/result.json")
assert_json "$(cat "$RUN/b/result.json")" exec 1
assert_eq "$(mtime "$RUN/b/result.json")" "$before" "mtime of a record that was read"
"$PYTHON" -IS - "$RUN/b/limits/timeout_s" <<'END'
import mmap, os, sys
p = sys.argv[1]
fd = os.open(p, os.O_RDONLY)
old = os.read(fd, 100)
m = mmap.mmap(fd, len(old), prot=mmap.PROT_READ)
with open(p, "w") as f:
    f.write("1234567\n")
assert open(p).read() == "1234567\n"
assert os.pread(fd, 100, 0) == old and m[:] == old and os.fstat(fd).st_size == len(old), "an open text changed"
END

# -- rule 3: streams ---------------------------------------------------------------------------------------------------

mkdir "$RUN/a/exec/grow"
grow=$RUN/a/exec/grow
echo 'while read -r x; do echo "got $x"; done' >"$grow/cmd"
tail -f -n +1 -s 0.1 "$grow/stdout" >"$DIR/tail" &
tail=$!
has_line() { grep -qx "$2" "$1"; }
want=0
for word in one two three; do
	echo $word >"$grow/stdin"
	wait_for "the answer to $word" has_line "$grow/stdout" "got $word"
	want=$((want + ${#word} + 5))
	assert_eq "$(stat -c %s "$grow/stdout")" $want "size of a stream: the bytes held now"
	wait_for "tail -f to show $word" has_line "$DIR/tail" "got $word"
done
kill $tail
"$PYTHON" -IS - "$grow" <<'END'
import os, select, sys
d = sys.argv[1]
fd = os.open(d + "/stdout", os.O_RDONLY)
held = os.read(fd, 1 << 20)
assert held.count(b"\n") == 3, held
assert os.read(fd, 100) == b"", "a read at the end gives 0 bytes"
assert os.pread(fd, 100, 1 << 30) == b"", "a read past the end gives 0 bytes"
p = select.poll()
p.register(fd, select.POLLIN)
while p.poll(0):  # what was ready before the last read
    assert os.read(fd, 100) == b""
    break
with open(d + "/stdin", "w") as f:
    f.write("four\n")
got = b""
while b"\n" not in got:
    assert p.poll(90000), "poll(2) does not wake"
    got += os.read(fd, 100)
assert got == b"got four\n", got
END
echo eof >"$grow/ctl"
await a exec/grow
assert_rec exit_code 0 stdout '"got one\ngot two\ngot three\ngot four\n"'
assert_eq "$(bounded tail -n 1 "$grow/stdout")" 'got four' "tail -n, which seeks"
assert_match "$(tail -n 1 "$RUN/a/log.jsonl")" '^\{.*\}$'
