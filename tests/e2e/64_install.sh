#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What `make install` puts into a directory is complete: it serves a tree and runs a command. (Of what is built: other tests run it, too.)
. "$(dirname "$0")/lib.sh"
need make

ROOT=$DIR/root
bounded env -u MAKEFLAGS -u MAKELEVEL make -C "$TOP" CONFIG="$(basename "$BUILD")" DESTDIR="$ROOT" PREFIX=/usr/local install-built >"$DIR/said" 2>&1 ||
	fail "make install-built: $(tail -n 5 "$DIR/said")"
for f in bin/crucible share/man/man1/crucible.1 share/man/man5/netpolicy.5 lib/systemd/system/crucible.service; do
	[ -s "$ROOT/usr/local/$f" ] || fail "$f was not installed"
done

# Programs look beside themselves first: nothing of the build tree is needed.
LIBEXEC=$ROOT/usr/local/libexec/crucible
start_daemon
new_sandbox a
run a 'echo installed'
assert_rec exit_code 0 stdout '"installed\n"'
