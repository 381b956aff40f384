#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Many at once: sandboxes made and removed under readers, names used again, records polled by two. Never stale, never stuck.
. "$(dirname "$0")/lib.sh"

start_daemon

# -- without guests -------------------------------------------------------------------------------------------------

cat >"$DIR/churn.py" <<'END'
"""Four threads make, look at, rename and remove sandboxes of few names; each removed one must vanish at once, each new one must be fresh."""
import errno, os, random, sys, threading
run, rounds = sys.argv[1], 150
bad = []
def churn(k):
    rnd = random.Random(k)
    for i in range(rounds):
        n = f"{run}/own{k}"
        try:
            os.mkdir(n)
            assert open(n + "/status").read() == "configured\n", "not fresh"
            assert open(n + "/error").read() == "" and open(n + "/limits/vcpus").read() == "1\n", "not fresh"
            with open(n + "/limits/vcpus", "w") as f:
                f.write("2\n")
            assert open(n + "/limits/vcpus").read() == "2\n", "stale"
            if rnd.random() < .3:
                os.rename(n, n + "x")
                assert not os.path.exists(n), "renamed away, still there"
                n += "x"
            os.rmdir(n)
            assert not os.path.exists(n) and os.path.basename(n) not in os.listdir(run), "removed, still there"
            try:
                open(n + "/status")
                bad.append("status of a removed sandbox")
            except FileNotFoundError:
                pass
        except (AssertionError, OSError) as e:
            bad.append(f"{k} {i} {e!r}")
def shared(k):
    """Two of these fight for the same names: any errno of the table is fine, no other."""
    fine = {errno.EEXIST, errno.ENOENT, errno.ESTALE, errno.ENOTEMPTY, errno.EBUSY}
    for i in range(rounds):
        for op in (lambda: os.mkdir(run + "/s"), lambda: open(run + "/s/status").read(), lambda: os.listdir(run + "/s"),
                   lambda: os.rename(run + "/s", run + "/t"), lambda: os.rmdir(run + "/t"), lambda: os.listdir(run),
                   lambda: os.rmdir(run + "/s")):
            try:
                op()
            except OSError as e:
                if e.errno not in fine:
                    bad.append(f"shared {k} {i} {e!r}")
ts = [threading.Thread(target=churn, args=(k,)) for k in range(3)] + [threading.Thread(target=shared, args=(k,)) for k in range(3)]
for t in ts:
    t.start()
for t in ts:
    t.join()
assert not bad, (len(bad), bad[:5])
END
bounded "$PYTHON" -IS "$DIR/churn.py" "$RUN"
find "$RUN" -mindepth 1 -maxdepth 1 -exec rmdir {} +

# -- a record that two poll: it is the latest one, or not there --------------------------------------------------------

ready_sandbox a
A=$RUN/a
cat >"$DIR/poll.py" <<'END'
"""Look for result.json all the time: it never goes back, is always whole, and what it says was written before the command's number was told."""
import json, os, sys
a, stop = sys.argv[1:]
last = seen = 0
while not os.path.exists(stop):
    try:
        r = json.load(open(a + "/result.json"))
    except FileNotFoundError:
        continue
    assert r["exec"] >= last, f"{r['exec']} after {last}"
    assert r["exec"] == 1 or r["stdout"] == f"{r['exec']}\n", r
    seen += r["exec"] != last
    last = r["exec"]
print(seen)
END
pollers=()
for p in 1 2; do
	"$PYTHON" -IS "$DIR/poll.py" "$A" "$DIR/stop" >"$DIR/polled.$p" &
	pollers+=($!)
done
for i in {2..151}; do
	echo "echo $i" >"$A/cmd"
	# Once the new one is accepted the old record is not there any more.
	got=$(cat "$A/result.json" 2>/dev/null) && assert_json "$got" exec "$i"
	bounded cat "$A/wait" >/dev/null
done
touch "$DIR/stop"
for p in "${pollers[@]}"; do
	wait "$p" || fail "a poller saw a wrong record"
done
assert_match "$(cat "$DIR/polled.1")" '^[1-9]'
exec {held}<"$A/result.json"
rmdir "$A"
assert_errno ENOENT read "$A/result.json"
new_sandbox a
assert_errno ENOENT read "$A/result.json"
assert_json "$(cat <&"$held")" exec 151 # who had it open has it
exec {held}<&-

# -- starts and ends on top of each other ----------------------------------------------------------------------------------

for i in 1 2 3 4 5 6; do
	new_sandbox r limits/memory_mib=96
	echo start >"$RUN/r/ctl"
	case $i in
	1) rmdir "$RUN/r" ;;
	2) echo stop >"$RUN/r/ctl" && rmdir "$RUN/r" ;;
	3) put r 'echo never seen' && rmdir "$RUN/r" ;;
	4) mv "$RUN/r" "$RUN/q" && run q 'echo renamed while it starts' && assert_rec stdout '"renamed while it starts\n"' && rmdir "$RUN/q" ;;
	5) echo stop >"$RUN/r/ctl" && run r 'echo started again' && assert_rec exit_code 0 && rmdir "$RUN/r" ;;
	6) echo stop >"$RUN/r/ctl" && wait_status r stopped && echo start >"$RUN/r/ctl" && wait_status r ready && rmdir "$RUN/r" ;;
	esac
	assert_absent "$RUN/r" "$RUN/q"
done
rmdir "$RUN/a"
wait_for "all machines to go" only_pool_left
