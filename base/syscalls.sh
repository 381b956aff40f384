#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Make a C table of a list of system calls:  base/syscalls.sh NAME <folder>/syscalls.txt > gen/NAME_syscalls.h
#
# One call a line and, behind a '#', why it is needed: a line without a reason is refused. Lines that begin with '#', and
# empty ones, are for readers. "!name" is answered with ENOSYS instead of the end of the process: for what a program tries
# and can do without. The table is called NAME_syscalls ('-' becomes '_'), for confine_seccomp().
set -eu

if [ $# -ne 2 ]; then
	echo "usage: base/syscalls.sh NAME FILE" >&2
	exit 2
fi
exec awk -v name="$1" -v file="$2" '
function refuse(why) { printf "%s:%d: %s\n", file, FNR, why > "/dev/stderr"; bad = 1; exit 1 }
BEGIN {
	gsub(/-/, "_", name)
	printf "/* Made by base/syscalls.sh from %s: do not edit. */\n", file
	printf "static const char *const %s_syscalls[] = {\n", name
}
/^[ \t]*(#|$)/ { next }
{
	if ($1 !~ /^!?[a-z0-9_]+$/) refuse("not the name of a system call: " $1)
	if ($2 !~ /^#/ || $0 !~ /#[ \t]*[^ \t]/) refuse("no reason behind " $1)
	bare = $1
	sub(/^!/, "", bare)
	if (seen[bare]++) refuse("twice: " bare)
	printf "\t\"%s\",\n", $1
	n++
}
END {
	if (bad) exit 1
	if (!n) refuse("no system call in it")
	print "};"
}' "$2"
