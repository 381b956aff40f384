#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs inside the nested machine, as root: crucible once more, under KVM and cgroup v2. Prints "ok NAME" or "FAIL NAME" a check.
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
libexec/crucibled --mount /crucible --store /root/nested/store --ready-fd 9 --set disk_floor_mib=64 --set memory_floor_mib=64 --set pool_size=0 --set warm_size=0 --set prepare=0 9> ready 2> daemon.log &
daemon=$!
if ! read -r _ < ready; then
	cat daemon.log
	echo "FAIL nested: the daemon did not come up"
	exit 1
fi

mkdir /crucible/run/a
echo profile:tiny > /crucible/run/a/from
echo 256 > /crucible/run/a/limits/memory_mib
echo 'echo hi; echo oops >&2; exit 3' > /crucible/run/a/cmd
record=$(cat /crucible/run/a/wait)
check "exit code" has "$record" '"exit_code":3'
check "both streams" has "$record" '"stdout":"hi\n","stderr":"oops\n"'
check "under KVM" has "$record" '"accel":"kvm"'
check "cgroup v2 enforces all that was asked" has "$record" '"unenforced":[]'
check "health says kvm" has "$(cat /crucible/health.json)" '"accel":"kvm"'
for i in 1 2 3 4 5; do
	echo "echo $i" > /crucible/run/a/cmd
	check "command $i in order" has "$(cat /crucible/run/a/wait)" "\"stdout\":\"$i\\n\""
done
echo from-the-host > /crucible/run/a/fs/root/f
echo 'cat /root/f' > /crucible/run/a/cmd
check "fs/" has "$(cat /crucible/run/a/wait)" '"stdout":"from-the-host\n"'
echo '{"script":"while :; do :; done","timeout_s":1}' > /crucible/run/a/cmd
check "timeout" has "$(cat /crucible/run/a/wait)" '"timed_out":true'
echo pause > /crucible/run/a/ctl
while [ "$(cat /crucible/run/a/status)" != paused ]; do sleep 0.1; done
echo resume > /crucible/run/a/ctl
while [ "$(cat /crucible/run/a/status)" = paused ]; do sleep 0.1; done
echo 'echo after' > /crucible/run/a/cmd
check "pause and resume" has "$(cat /crucible/run/a/wait)" '"stdout":"after\n"'
cat /crucible/run/a/info.json
mkdir /crucible/run/two
echo profile:tiny > /crucible/run/two/from
echo 2 > /crucible/run/two/limits/vcpus
echo 'grep -c ^processor /proc/cpuinfo' > /crucible/run/two/cmd
check "two vCPUs" has "$(cat /crucible/run/two/wait)" '"stdout":"2\n"'
rmdir /crucible/run/a /crucible/run/two
kill "$daemon"
wait "$daemon"
check "the daemon ends in order" test $? -eq 0
check "no mount is left" sh -c '! grep -q " /crucible " /proc/mounts'
check "no cgroup is left" sh -c '! find /sys/fs/cgroup/service -mindepth 1 -type d -name "*-*-*-*-*" | grep -q .'
grep -v level=info daemon.log | head -20
exit $failed
