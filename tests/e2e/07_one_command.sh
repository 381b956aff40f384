#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# TREE.md rule 8: what is written until the last close of a descriptor is one command, never two, never half of one; and whoever reads after
# the close sees the new command's state.
. "$(dirname "$0")/lib.sh"

start_daemon
ready_sandbox a
A=$RUN/a
count=1 # commands so far

# One more command came of it, and it printed WANT.
one() { # WORDS WANT
	await a
	count=$((count + 1))
	assert_rec exec $count exit_code 0 error '""'
	assert_eq "$(cat "$A/stdout")" "$2" "$1"
	assert_eq "$(find "$A/exec" -mindepth 1 -maxdepth 1 -name '[0-9]*' | wc -l)" $count "commands after: $1"
}

cd "$DIR"
echo 'echo first' >a
echo 'echo second' >b
{ cat a; cat b; } >"$A/cmd"
one 'two programs on one descriptor' $'first\nsecond'
cat a b >"$A/cmd"
one 'cat of two files' $'first\nsecond'
printf '#!/bin/bash\necho "echo from a generator"\n/bin/echo "echo and its child"\n(echo "echo and a subshell")\n' >gen.sh
chmod +x gen.sh
./gen.sh >"$A/cmd"
one 'a script that calls programs' $'from a generator\nand its child\nand a subshell'
dd if=b of="$A/cmd" bs=1 status=none
one 'dd bs=1' second
cp a "$A/cmd"
one 'cp' first
echo 'echo teed' | tee "$A/cmd" >/dev/null
one 'tee' teed
echo 'echo appended' >>"$A/cmd"
one '>>' appended
printf '%s\n' x y z | xargs -n 1 echo echo >"$A/cmd"
one 'xargs, three children' $'x\ny\nz'
install -m 600 a "$A/cmd"
one 'install' first
if command -v rsync >/dev/null; then
	rsync --ignore-times --inplace a "$A/cmd" # the last command may be as long and of the same second
	one 'rsync' first
fi
printf 'echo no newline' >"$A/cmd"
one 'no newline at the end' 'no newline'

{
	echo ': <<END'
	head -c 307200 /dev/zero | tr '\0' x | fold -w 99
	printf '\nEND\necho long; wc -c <"$0"\n'
} >long
bytes=$(stat -c %s long)
"$PYTHON" -IS -c 'import os, sys; d = open("long", "rb").read(); assert os.write(os.open(sys.argv[1], os.O_WRONLY), d) == len(d)' "$A/cmd"
one '300 KiB in one write' $'long\n'"$bytes"
cat long >"$A/cmd"
one '300 KiB by cat' $'long\n'"$bytes"
dd if=long of="$A/cmd" bs=512 status=none
one '300 KiB by dd' $'long\n'"$bytes"
cmp long "$A/cmd" || fail "cmd does not read as what was written"

exec {c}>"$A/cmd"
echo 'echo a' >&"$c"
echo 'echo b' >&"$c"
assert_eq "$(find "$A/exec" -mindepth 1 -maxdepth 1 -name '[0-9]*' | wc -l)" $count "commands before the close"
exec {c}>&-
one 'exec 3>cmd' $'a\nb'

# A background child that holds the descriptor holds the command back; the last close is what counts.
mkfifo hold
exec {c}>"$A/cmd"
(cat <hold >/dev/null) &
holder=$!
echo 'echo held' >&"$c"
exec {c}>&-
assert_eq "$(find "$A/exec" -mindepth 1 -maxdepth 1 -name '[0-9]*' | wc -l)" $count "commands while a child holds it"
: >hold
wait $holder
one 'the child let go' held

"$PYTHON" -IS - "$A/cmd" <<'END'
import os, subprocess, sys
fd = os.open(sys.argv[1], os.O_WRONLY)
other = os.dup(fd)
os.set_inheritable(other, True)
os.write(fd, b"echo parent\n")
os.close(fd)  # not the last
subprocess.run(["sh", "-c", f"echo echo child >&{other}"], pass_fds=[other], check=True)
if os.fork() == 0:
    os.write(other, b"echo forked\n")
    os._exit(0)
os.wait()
os.close(other)
END
one "Python's dup and children" $'parent\nchild\nforked'
if command -v node >/dev/null; then
	node -e 'const fs = require("fs"), cp = require("child_process"); const fd = fs.openSync(process.argv[1], "w");
		fs.writeSync(fd, "echo node\n"); cp.execFileSync("sh", ["-c", "echo echo child"], {stdio: ["ignore", fd, "inherit"]}); fs.closeSync(fd)' "$A/cmd"
	one "Node and its child" $'node\nchild'
fi

# Two shells never mix.
exec {c}>"$A/cmd"
exec {d}>"$A/cmd"
for i in 1 2 3; do
	echo "echo c$i" >&"$c"
	echo "echo d$i" >&"$d"
done
exec {c}>&-
one 'one of two shells' $'c1\nc2\nc3'
exec {d}>&-
one 'the other of two shells' $'d1\nd2\nd3'

# -- what is refused early, and what is no command --------------------------------------------------------------------

: >"$A/cmd"
printf '' | cat >"$A/cmd"
assert_errno EINVAL write "$A/cmd" 'echo a\x00b\n'
assert_match "$(cat "$A/error")" 'NUL'
assert_eq "$("$PYTHON" -IS - "$A/cmd" <<'END'
import errno, os, sys
fd = os.open(sys.argv[1], os.O_WRONLY)
n = 0
try:
    while n < 9 << 20:
        n += os.write(fd, b"#" * 65535 + b"\n")
except OSError as e:
    print(errno.errorcode[e.errno], n <= 8 << 20, n > (8 << 20) - 65537)
os.close(fd)
END
)" "EFBIG True True" "more than 8 MiB"
printf 'echo ' | cat - <(head -c $((8 * 1024 * 1024 - 6)) /dev/zero | tr '\0' ' ') <(printf x) >"$A/cmd"
one '8 MiB to the byte' x
assert_eq "$(find "$A/exec" -mindepth 1 -maxdepth 1 -name '[0-9]*' | wc -l)" $count "commands after what was refused"

# -- what closes non-empty becomes a command; a wrong one ends with a record that says why -------------------------------

wrong() { # WORDS TEXT REGEX
	put a true
	count=$((count + 1))
	put a "$2"
	await a
	count=$((count + 1))
	assert_rec exec $count exit_code -1 signal '""' error "=~$3" stdout '""'
	assert_ne "$(cat "$A/error")" "" "error after $1"
}
wrong 'bad JSON' '{"argv":["tr' .
wrong 'JSON with an unknown key' '{"argv":["true"],"argvv":1}' argvv
wrong 'JSON of a wrong type' '{"argv":"true"}' argv
wrong 'blank' $'  \n\t\n' '[Bb]lank|empty|nothing'
wrong 'an empty argv' '{"argv":[]}' argv
run a 'echo still fine'
count=$((count + 1))
assert_rec exec $count stdout '"still fine\n"'

# -- who reads after the close sees the new command, always ----------------------------------------------------------------

for i in {1..200}; do
	echo "echo $i" >"$A/cmd"
	assert_eq "$(cat "$A/cmd")" "echo $i" "cmd after the close"
	early=
	[ ! -e "$A/result.json" ] || early=1
	case $(cat "$A/exec/latest/status") in # looked at after the record was
	queued | running) assert_eq "$early" "" "a record before the end" ;;
	done) ;;
	*) fail "status of a command: $(cat "$A/exec/latest/status")" ;;
	esac
	REC=$(bounded cat "$A/wait")
	assert_eq "$(json_of "$REC" stdout)" "$i" "wait after the close"
	assert_eq "$(cat "$A/stdout")" "$i" "stdout after the end"
	assert_eq "$(cat "$A/result.json")" "$REC" "result.json after the end"
done
