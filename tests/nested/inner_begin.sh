# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by each inner_*.sh, inside the nested machine, as root: what they share, then engines by themselves, then the main path in
# sandbox `a` of a daemon without machines that wait. Prints "ok NAME" or "FAIL NAME" a check.
#
# No guest spins here but for one second, and what waits sleeps: the more guests run, the likelier it is that the emulation of the
# extension goes wrong (docs/OPEN.md 11a). (And nothing is written by `sh -c 'echo x > file'`: dash calls each refusal an I/O error.)
set -u
cd /root/nested || exit 1
failed=0
check() { # check NAME COMMAND...: passes when the command does
	local name=$1
	shift
	if "$@"; then echo "ok nested: $name"; else echo "FAIL nested: $name"; failed=1; fi
}
# shellcheck disable=SC2317 # called through check
has() { case $1 in *"$2"*) return 0 ;; esac; echo "   wanted: $2"; echo "   got: $1"; return 1; }
# shellcheck disable=SC2317
is() { [ "$1" = "$2" ] || { echo "   wanted: $2"; echo "   got: $1"; return 1; }; }
# shellcheck disable=SC2317
in_time() { # COMMAND...: until it passes, for two minutes
	local end=$((SECONDS + 120))
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || { echo "   in vain: $*"; return 1; }
		sleep 0.2
	done
}

R=/crucible/run
# shellcheck disable=SC2034 # by the scripts that source this
S=/crucible/snapshots
launch() { # OPTION...: a daemon that is up
	libexec/crucibled --mount /crucible --store /root/nested/store --ready-fd 9 --set disk_floor_mib=64 --set memory_floor_mib=64 "$@" \
		9> ready 2>> daemon.log &
	daemon=$!
	read -r _ < ready && return
	cat daemon.log
	echo "FAIL nested: the daemon did not come up"
	exit 1
}
# shellcheck disable=SC2317
tried() { ! grep -q '"accel":"trying"' /crucible/health.json; }
too_slow() { grep -q '"accel_reason":"[^"]*nothing was heard of it for' /crucible/health.json; }
# A daemon that found KVM: else all that follows would be emulation of emulation. The trial's patience is that of a real processor; on a
# busy host a guest in here may take longer to boot, and then the trial is made again, by a new daemon, up to five times.
start_daemon() { # NAME-OF-CHECK OPTION...
	local name=$1 again
	shift
	for again in 5 4 3 2 1 0; do
		launch "$@"
		in_time tried
		if [ $again = 0 ] || ! too_slow; then break; fi
		echo "nested: the trial's guest was not up in time; once more"
		kill "$daemon"
		wait "$daemon"
		rm -f store/state/trial.json # else its outcome is remembered
	done
	check "$name" has "$(cat /crucible/health.json)" '"accel":"kvm"'
	grep -q '"accel":"kvm"' /crucible/health.json || exit 1
}
stop_daemon() { # NAME-OF-CHECK
	kill "$daemon"
	wait "$daemon"
	check "$1" test $? -eq 0
}
new() { # SANDBOX
	mkdir "$R/$1"
	echo profile:tiny > "$R/$1/from"
	echo 256 > "$R/$1/limits/memory_mib"
}
run() { # SANDBOX SCRIPT: the record
	printf '%s\n' "$2" > "$R/$1/cmd"
	cat "$R/$1/wait"
}
# The last of each script: what a daemon that has ended may not leave, and its warnings.
finish() {
	check "no mount is left" sh -c '! grep -q " /crucible " /proc/mounts'
	check "no cgroup is left" sh -c '! find /sys/fs/cgroup/service -mindepth 1 -type d -name "*-*-*-*-*" | grep -q .'
	grep -v level=info daemon.log | head -20
	[ "$failed" = 0 ] || { dmesg | tail -n 20; tail -n 60 daemon.log; }
	exit $failed
}

modprobe fuse
modprobe tun
modprobe kvm_amd || { echo "FAIL nested: kvm_amd does not load"; exit 1; }
check "the processor has the extension and /dev/kvm is there" test -c /dev/kvm

# Snapshots and forks of bare engines, three generations deep, with and without privileges, whole and page by page.
chmod 0666 /dev/kvm # the launcher would make a node of the engine's own, and show it the library
chmod 0711 /root
check "engines under KVM" env LD_LIBRARY_PATH=lib CRUCIBLE_BUILD="$PWD" CRUCIBLE_TEST_STORE="$PWD/store" CRUCIBLE_TEST_ACCEL=kvm \
	CRUCIBLE_MUST_RUN=1 TMPDIR="$PWD" timeout 400 unit/test_engine

# A place of our own in the version 2 hierarchy, as systemd's Delegate= would give it.
mkdir -p /sys/fs/cgroup/service/shell
echo $$ > /sys/fs/cgroup/service/shell/cgroup.procs
echo "+cpu +memory +pids +io" > /sys/fs/cgroup/cgroup.subtree_control

mkdir -p /crucible
mkfifo ready
start_daemon "the trial finds KVM" --set pool_size=0 --set warm_size=0 --set prepare=0
new a
record=$(run a 'echo hi; echo oops >&2; exit 3')
check "exit code" has "$record" '"exit_code":3'
check "both streams" has "$record" '"stdout":"hi\n","stderr":"oops\n"'
check "under KVM" has "$record" '"accel":"kvm"'
check "cgroup v2 enforces all that was asked" has "$record" '"unenforced":[]'
for i in 1 2 3 4 5; do
	check "command $i in order" has "$(run a "echo $i")" "\"stdout\":\"$i\\n\""
done
echo from-the-host > $R/a/fs/root/f
check "fs/" has "$(run a 'cat /root/f')" '"stdout":"from-the-host\n"'
check "timeout" has "$(run a '{"script":"while :; do :; done","timeout_s":1}')" '"timed_out":true'
echo pause > $R/a/ctl
in_time grep -qx paused $R/a/status
echo resume > $R/a/ctl
in_time sh -c "! grep -qx paused $R/a/status"
check "pause and resume" has "$(run a 'echo after')" '"stdout":"after\n"'
cat $R/a/info.json
new two
echo 2 > $R/two/limits/vcpus
check "two vCPUs" has "$(run two 'grep -c ^processor /proc/cpuinfo')" '"stdout":"2\n"'
rmdir $R/two
