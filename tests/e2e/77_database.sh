#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A database that is updated in place, with fsync, under twenty snapshots: each fork sees memory and disk of one instant. Page caches are
# dropped first, or a wrong disk would not be noticed.
# limit: 1500
. "$(dirname "$0")/lib.sh"
need_profile python

start_daemon
new_sandbox a from=profile:python
A=$RUN/a
cat >"$DIR/writer.py" <<'END'
#!/usr/bin/env python3
# Money moves between accounts, each move one transaction: the sum never changes. No journal file outlives a move.
import itertools, random, sqlite3
db = sqlite3.connect("/root/bank.db", isolation_level=None)
db.execute("PRAGMA journal_mode=DELETE")
db.execute("PRAGMA synchronous=FULL")
db.execute("PRAGMA cache_size=-256")
db.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, amount INTEGER, padding BLOB)")
db.execute("CREATE INDEX by_amount ON account (amount)")
db.execute("BEGIN")
for i in range(500):
    db.execute("INSERT INTO account VALUES (?, 1000, randomblob(1500))", (i,))
db.execute("COMMIT")
print("filled", flush=True)
for n in itertools.count(1):
    a, b = random.sample(range(500), 2)
    db.execute("BEGIN IMMEDIATE")
    db.execute("UPDATE account SET amount = amount - 7, padding = randomblob(1500) WHERE id = ?", (a,))
    db.execute("UPDATE account SET amount = amount + 7, padding = randomblob(1500) WHERE id = ?", (b,))
    db.execute("COMMIT")
    if n % 10 == 0:
        print("moves", n, flush=True)
END
cat >"$DIR/checker.py" <<'END'
#!/usr/bin/env python3
import sqlite3
db = sqlite3.connect("/root/bank.db")
print(db.execute("PRAGMA integrity_check").fetchone()[0], db.execute("SELECT count(*), sum(amount) FROM account").fetchone())
END
cp "$DIR/writer.py" "$A/fs/root/writer.py"
echo '{"argv":["python3","/root/writer.py"],"timeout_s":1400}' >"$A/cmd"
wait_output a '^moves '
moves() { tail -n 1 "$A/stdout" | tr -dc 0-9; }
moved_on() { [ "$(moves)" -gt "$1" ]; }

for i in {1..20}; do
	wait_for "money to move" moved_on "$(moves)"
	take a "s$i"
	fork_of "s$i" f
	echo kill-inherited >"$RUN/f/ctl"
	run f 'sync; echo 3 >/proc/sys/vm/drop_caches'
	cat "$DIR/checker.py" >"$RUN/f/cmd"
	await f
	assert_rec stdout '"ok (500, 500000)\n"' exit_code 0 stderr '""'
	run f 'dmesg | grep -iE "EXT4-fs.*(error|warning)|I/O error" || echo clean'
	assert_rec stdout '"clean\n"'
	rmdir "$RUN/f"
	[ "$i" = 20 ] || rmdir "$SNAPS/s$i"
done
assert_file "$A/exec/latest/status" running

# And from the store, when all that was in memory is gone.
wait_stored s20
echo kill >"$A/ctl"
await a
stop_daemon
start_daemon
fork_of s20 f
echo kill-inherited >"$RUN/f/ctl"
cat "$DIR/checker.py" >"$RUN/f/cmd"
await f
assert_rec stdout '"ok (500, 500000)\n"'
