#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Files: control files of the mount and files of a guest, against libfuse's example hello_ll with its timeouts set to 0, passthrough_ll (the same)
# over tmpfs, and tmpfs itself. See README.md.
#
#   tools/bench/fs.sh BUILD_DIR
. "$(dirname "$0")/lib.sh"
bench_begin fs "$@"

EXAMPLES=/usr/share/doc/libfuse3-dev/examples
ROUNDS=${BENCH_PAIRS:-60}
OPS=100
TREES=2

# libfuse's example, with timeouts of 0: what the kernel keeps is not what is compared here.
build_example() { # NAME
	[ -f "$EXAMPLES/$1.c" ] || return 1
	sed 's/\(timeout = \|&stbuf, \)1\.0/\10.0/' "$EXAMPLES/$1.c" >"$DIR/$1.c"
	# shellcheck disable=SC2046 # words on purpose
	"${CC:-gcc}" -O2 -w -D_FILE_OFFSET_BITS=64 -I"$EXAMPLES" $(pkg-config --cflags fuse3) -o "$DIR/$1" "$DIR/$1.c" $(pkg-config --libs fuse3)
}

# In the foreground, on one thread (faster than its pool here: no thread has to be woken for the next request).
start_fuse() { # MOUNTPOINT PROGRAM OPTION…
	local at=$1

	shift
	mkdir -p "$at"
	"$@" -f -s "$at" >>"$DIR/fuse.log" 2>&1 &
	PIDS+=($!)
	MOUNTS+=("$at")
	until_true "$at" mountpoint -q "$at"
}

# The same names as in a sandbox, as plain files.
make_twin() { # DIR
	local f

	mkdir -p "$1/run/a/limits" "$1/run/a/fs/root"
	for f in "$RUN"/a/*; do
		[ -d "$f" ] || [ -e "$1/run/a/${f##*/}" ] || echo ready >"$1/run/a/${f##*/}"
	done
	echo 86400 >"$1/run/a/limits/timeout_s"
	cp "$MNT/version" "$1/version"
	cp "$DIR/data" "$1/run/a/fs/root/data"
	: >"$1/run/a/fs/root/small"
}

perm='-o default_permissions,allow_other'
T=$DIR/tmpfs P=$DIR/pass H=$DIR/hello HP=$DIR/hello-perm D=$DIR/deep DP=$DIR/deep-perm

start_daemon --set prepare=0
head -c 16777216 /dev/urandom >"$DIR/data"
new_sandbox a
facts_engine a
cp "$DIR/data" "$RUN/a/fs/root/data"
: >"$RUN/a/fs/root/small"

mkdir "$T"
mount -t tmpfs -o size=1g bench "$T"
MOUNTS+=("$T")
make_twin "$T"
start_fuse "$D" "$BUILD/bench/bench-deep_ll"
# shellcheck disable=SC2086 # words on purpose
start_fuse "$DP" "$BUILD/bench/bench-deep_ll" $perm
hello=() pass=()
if build_example hello_ll; then
	start_fuse "$H" "$DIR/hello_ll"
	# shellcheck disable=SC2086
	start_fuse "$HP" "$DIR/hello_ll" $perm
	hello=("$H/hello" "$HP/hello")
	line fact hello_ll "built from $EXAMPLES, all timeouts 0"
else
	hello=("$D/hello" "$DP/hello")
	line fact hello_ll "no example of libfuse here: tools/bench/deep_ll.c stands in for it"
fi
if build_example passthrough_ll; then
	start_fuse "$P" "$DIR/passthrough_ll" -o "source=$T,timeout=0,cache=auto"
	pass=(1)
fi

# What every cell has; $1 is the operation, $2 the path below each.
others() { # OPERATION PATH
	[ -z "${pass-}" ] || echo "passthrough_ll=$1:$P/$2"
	echo "tmpfs=$1:$T/$2"
}

cell() { # CELL OPERATION PATH_OF_OURS BARE BARE_PERM NAME PATH_OF_OTHERS [OPTION…]
	local name=$1 op=$2 ours=$3 bare=$4 bareperm=$5 word=$6 path=$7
	local -a more

	shift 7
	mapfile -t more < <(others "$op" "$path")
	turns --rounds "$ROUNDS" --ops "$OPS" "$@" "$name" "crucible=$op:$MNT/$ours" "$word=$op:$bare" "$word+perm=$op:$bareperm" "${more[@]}"
	line at-most "$name" crucible "$word" 1.3
}

say "control files"
fuse=("${PIDS[@]}")
pin "${fuse[@]}" $$
line cell stat.version ns 'stat of a file in the root (hello_ll+perm: mounted as ours is, -o default_permissions,allow_other)'
cell stat.version stat version "${hello[@]}" hello_ll version
line cell stat.status ns 'stat of run/a/status (deep_ll: hello_ll with deeper entries, ours)'
cell stat.status stat run/a/status "$D/run/a/status" "$DP/run/a/status" deep_ll run/a/status
line cell read.version ns 'open, read to the end, close of a file in the root'
cell read.version read version "${hello[@]}" hello_ll version
line cell read.status ns 'open, read to the end, close of run/a/status'
cell read.status read run/a/status "$D/run/a/status" "$DP/run/a/status" deep_ll run/a/status
line cell write.ctl ns 'open, write a blank line, close: run/a/ctl'
cell write.ctl write run/a/ctl "$D/run/a/ctl" "$DP/run/a/ctl" deep_ll run/a/ctl --text $'\n'
line cell write.timeout ns 'open, write a number that is kept, close: run/a/limits/timeout_s (deep_ll: one level less, keeps nothing)'
cell write.timeout write run/a/limits/timeout_s "$D/run/a/ctl" "$DP/run/a/ctl" deep_ll run/a/limits/timeout_s --text $'86400\n'
line cell list.sandbox ns 'opendir, readdir to the end, closedir of run/a'
mapfile -t more < <(others list run/a)
turns --rounds "$ROUNDS" --ops "$((OPS / 2))" list.sandbox "crucible=list:$RUN/a" "${more[@]}"

unpin "${fuse[@]}" $$

say "files of the guest"
line cell guest.stat ns 'stat of a file in the guest, run/a/fs/root/small'
mapfile -t more < <(others stat run/a/fs/root/small)
turns --rounds "$PAIRS" --ops 20 guest.stat "crucible=stat:$RUN/a/fs/root/small" "${more[@]}"
line cell guest.read ns 'open, read, close of an empty file in the guest'
mapfile -t more < <(others read run/a/fs/root/small)
turns --rounds "$PAIRS" --ops 20 guest.read "crucible=read:$RUN/a/fs/root/small" "${more[@]}"
line cell guest.cat ns 'cat of 16 MiB out of the guest'
turns --rounds "$PAIRS" guest.cat "crucible=sh:cat $RUN/a/fs/root/data" ${pass:+"passthrough_ll=sh:cat $P/run/a/fs/root/data"} \
	"tmpfs=sh:cat $T/run/a/fs/root/data"
line cell guest.cp ns 'cp of 16 MiB into the guest'
turns --rounds "$PAIRS" guest.cp "crucible=sh:cp $DIR/data $RUN/a/fs/root/copy" ${pass:+"passthrough_ll=sh:cp $DIR/data $P/copy"} \
	"tmpfs=sh:cp $DIR/data $T/copy"

say "a tree of 1000 files"
mkdir -p "$DIR/tree"
for ((d = 0; d < 20; d++)); do
	mkdir "$DIR/tree/d$d"
	for ((f = 0; f < 50; f++)); do
		head -c $((f * 160)) "$DIR/data" >"$DIR/tree/d$d/f$f"
	done
done
# shellcheck disable=SC2016 # $$ is of the shell that runs it: a new name each time
in='/root/t.$$'
line cell tree.in ns '1000 files of 0 to 8 KB in 20 directories, into the guest: cp -r through fs/; tar into import, to the end of its record'
turns --rounds "$TREES" tree.in "crucible=sh:cp -r $DIR/tree $RUN/a/fs$in" \
	"crucible-import=sh:tar -C $DIR -c --transform \"s,^tree,root/t.\$\$,\" tree > $RUN/a/import && cat $RUN/a/wait" \
	${pass:+"passthrough_ll=sh:cp -r $DIR/tree $P/run/a/fs$in"} "tmpfs=sh:cp -r $DIR/tree $T/run/a/fs$in"
# shellcheck disable=SC2016
out=$T'/out.$$'
cp -r "$DIR/tree" "$RUN/a/fs/root/tree"
cp -r "$DIR/tree" "$T/run/a/fs/root/tree"
line cell tree.out ns 'the same out of the guest: cp -r through fs/; tar as a command, its stdout unpacked'
turns --rounds "$TREES" tree.out "crucible=sh:cp -r $RUN/a/fs/root/tree $out" \
	"crucible-tar=sh:mkdir $out && echo tar -C /root -c tree > $RUN/a/cmd && cat $RUN/a/wait && tar -C $out -x -f $RUN/a/stdout" \
	${pass:+"passthrough_ll=sh:cp -r $P/run/a/fs/root/tree $out"} "tmpfs=sh:cp -r $T/run/a/fs/root/tree $out"

# Are all that should wait inside the kernel, for FUSE to answer?
all_parked() {
	local p n=0

	for p in "${READERS[@]}"; do
		[[ $(cat "/proc/$p/wchan" 2>/dev/null) != *request_wait* ]] || n=$((n + 1))
	done
	[ "$n" = "${#READERS[@]}" ]
}

say "the same daemon with much in it"
quiet=$MNT
MNT=$DIR/mnt2 RUN=$DIR/mnt2/run STORE=$DIR/store2
start_daemon --set prepare=0
new_sandbox a
"$BUILD/bench/bench-turns" --rounds 1 --ops 1000 --text true records "crucible=exec:$RUN/a" >/dev/null || fail "1000 commands did not run"
for ((i = 1; i < 64; i++)); do
	mkdir "$RUN/s$i"
done
echo 'sleep 60' >"$RUN/a/cmd"
for ((i = 0; i < 300; i++)); do
	cat "$RUN/a/wait" >/dev/null 2>&1 &
	READERS+=($!)
done
until_true "300 blocked readers" all_parked
pin "$DAEMON" "${fuse[0]}" $$
for op in stat list; do
	path=run/a/status
	[ $op = stat ] || path=run/a
	line cell grow.$op ns "$op of $path with 64 sandboxes, 1000 exec records and 300 blocked readers (crucible), and without (quiet)"
	turns --rounds "$PAIRS" --ops 50 grow.$op "crucible=$op:$MNT/$path" "quiet=$op:$quiet/$path"
	line at-most grow.$op crucible quiet 1.2
done
unpin $$
kill "${READERS[@]}" 2>/dev/null || :

bench_end
