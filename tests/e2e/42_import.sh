#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# import: a tar stream is unpacked into the guest's root, whatever its kind; a hostile one stays inside; a broken one is told.
. "$(dirname "$0")/lib.sh"

start_daemon
ready_sandbox a
A=$RUN/a
cd "$DIR"
mkdir -p in/opt/app/sub in/opt/empty
for i in {1..500}; do
	echo "file $i" >"in/opt/app/f$i"
done
ln -s f1 in/opt/app/link
ln in/opt/app/f2 in/opt/app/hard
chmod 750 in/opt/app/f3
head -c 3000000 /dev/urandom >in/opt/app/sub/big
touch -d '2012-03-04 05:06:07 UTC' in/opt/app/f4
sum=$(sha256sum <in/opt/app/sub/big | cut -d' ' -f1)

tar -C in -cf - . >"$A/import"
await a
assert_rec exit_code 0 error '""'
run a 'cd /opt/app && ls | wc -l && readlink link && stat -c %h hard && stat -c "%a %u" f3 && stat -c %Y f4 && sha256sum sub/big | cut -d" " -f1 && cat f500 && ls -d /opt/empty'
assert_eq "$(rec stdout)" "$(printf '%s\n' 503 f1 2 '750 0' 1330837567 "$sum" 'file 500' /opt/empty)"
for kind in gzip bzip2 xz zstd; do
	command -v $kind >/dev/null || continue
	run a 'rm -rf /opt/app'
	tar -C in -cf - . | $kind -c >"$A/import"
	await a
	case $kind in
	gzip) assert_rec exit_code 0 error '""' ;;
	*) [ "$(rec exit_code)" = 0 ] || { assert_rec stderr '=~tar'; continue; } ;; # unknown, and said so
	esac
	run a 'cat /opt/app/f500'
	assert_rec stdout '"file 500\n"'
done

# In order with commands: what is written after it waits for it.
run a 'rm -rf /opt/app'
tar -C in -cf - . >"$A/import"
put a 'ls /opt/app | wc -l'
await a
assert_rec stdout '"503\n"'

# The way out: tar as a command, and its raw output.
run a 'tar -C /opt -cf - app'
mkdir out
tar -C out -xf "$A/stdout"
diff -r --no-dereference in/opt/app out/app

# Hostile: absolute names, `..`, links that later entries go through, devices. Nothing may leave the guest, which is a place of its own, or
# hang; the agent lives on.
"$PYTHON" -IS - "$DIR/evil.tar" <<'END'
import io, sys, tarfile
t = tarfile.open(sys.argv[1], "w")
def add(name, kind=tarfile.REGTYPE, link="", data=b"evil\n"):
    i = tarfile.TarInfo(name)
    i.type, i.linkname = kind, link
    i.size = len(data) if kind == tarfile.REGTYPE else 0
    t.addfile(i, io.BytesIO(data) if kind == tarfile.REGTYPE else None)
add("fine")
add("../../../../tmp/up")
add("/tmp/abs")
add("link", tarfile.SYMTYPE, "/tmp")
add("link/through")
add("hard", tarfile.LNKTYPE, "/etc/hostname")
add("fifo", tarfile.FIFOTYPE)
t.close()
END
cat evil.tar >"$A/import"
await a
run a 'cat /fine; echo alive'
assert_rec stdout '=~alive\n$'
assert_absent /tmp/up /tmp/abs /tmp/through

# Broken ones are told in the record.
head -c 100000 /dev/urandom >"$A/import"
await a
assert_rec exit_code '!0'
assert_ne "$(rec error)$(rec stderr)" "" "words for what is no archive"
tar -C in -cf cut.tar .
head -c 200000 cut.tar >"$A/import"
await a
assert_rec exit_code '!0'
assert_ne "$(rec error)$(rec stderr)" "" "words for an archive that was cut"
: >"$A/import" # nothing is nothing
run a 'echo well'
assert_rec stdout '"well\n"'
cd /
