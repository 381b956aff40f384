# shellcheck shell=bash
# Messages, and how every tool is run.
#
# A tool runs in a process and a mount namespace of its own and dies with this script, however that ends: so an interrupted
# build leaves neither processes nor mounts, and the work directory can always be removed. What it prints goes to $LOG, which
# lives outside the store (a full store must still be able to say so).

WORK=	# private directory inside the store, removed at the end
LOG=/dev/null
CHILD=	# the tool that runs now
ON_LINE=
SAID=	# a message was printed
FAILED_AT=

progress() { # PERCENT WORDS
	printf 'progress %d %s\n' "$1" "$2"
}

warn() {
	printf 'crucible-profile: %s\n' "$*" >&3
}

fail() { # one line: what is wrong, and what mends it
	SAID=1
	warn "$*"
	exit 1
}

# The line of the log that says best why a tool failed, fit to be shown.
log_reason() {
	{
		grep -aE 'No space left|^E: |[Ee]rror|cannot|[Ff]ailed|not found|Could not|Unable' "$LOG" |
			grep -avE '^E: (mmdebstrap failed to run|setup failed|Some index files)|received signal' || cat "$LOG"
	} 2>/dev/null |
		tail -n 1 | tr -d '\000-\010\013-\037\177' | cut -c1-300
}

store_free_mib() {
	df -Pk "$STORE" 2>/dev/null | awk 'NR == 2 { print int($4 / 1024) }'
}

# fail_if_full WORDS: something failed while it was WORDS; was it for want of space?
fail_if_full() {
	local free

	free=$(store_free_mib)
	if [ "${free:-1}" -lt 1 ] || grep -qa 'No space left' "$LOG"; then
		fail "no space left in $STORE while $1: free some room there (${free:-?} MiB are free), or give another --store DIR"
	fi
}

# fail_step WORDS: a tool failed while it was WORDS.
fail_step() {
	local reason

	fail_if_full "$1"
	reason=$(log_reason)
	fail "$1 failed: ${reason:-no reason was given} (all output: add --verbose)"
}

# run COMMAND...: its status; stdin is the file $STDIN, each line of output is also given to the function $ON_LINE.
run() {
	local line rc=0

	: >"$LOG" # so that a reason is always the last tool's
	rm -f "$LOG.pipe"
	mkfifo -m 0600 "$LOG.pipe"
	setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc -- "$@" \
		<"${STDIN:-/dev/null}" >"$LOG.pipe" 2>&1 3>&- 9>&- &
	CHILD=$!
	while IFS= read -r line || [ -n "$line" ]; do
		printf '%s\n' "$line" >>"$LOG"
		[ -z "${VERBOSE-}" ] || printf '%s\n' "$line" >&3
		[ -z "$ON_LINE" ] || "$ON_LINE" "$line"
	done <"$LOG.pipe"
	wait "$CHILD" || rc=$?
	CHILD=
	return "$rc"
}

on_signal() { # NUMBER
	trap '' INT TERM HUP PIPE
	SAID=1
	[ "$1" = 13 ] || warn "interrupted: nothing was left behind"
	exit $((128 + $1))
}

on_exit() {
	local rc=$? n

	trap '' INT TERM HUP PIPE
	trap - EXIT ERR
	set +eE
	if [ -n "$CHILD" ]; then
		kill -KILL "$CHILD" 2>/dev/null
		wait "$CHILD" 2>/dev/null
	fi
	if [ "$rc" != 0 ] && [ -z "$SAID" ]; then
		(fail_step "working (at $FAILED_AT)")
	fi
	if [ -n "$WORK" ]; then
		# The last processes of a killed namespace may still be ending.
		for ((n = 0; n < 100; n++)); do
			rm -rf --one-file-system -- "$WORK" 2>/dev/null && break
			sleep 0.1
		done
		[ ! -e "$WORK" ] || warn "cannot remove $WORK: rm -rf $WORK"
	fi
	[ "$LOG" = /dev/null ] || rm -f -- "$LOG" "$LOG.pipe"
	exit "$rc"
}

# A command of its own for each missing tool would be tiresome: name all, once.
need_tools() { # TOOL:PACKAGE...
	local t tools='' packages=''

	for t; do
		command -v "${t%%:*}" >/dev/null && continue
		tools+=" ${t%%:*}"
		[[ " $packages " == *" ${t#*:} "* ]] || packages+=" ${t#*:}"
	done
	[ -z "$tools" ] || fail "not installed:$tools: apt-get install$packages"
}
