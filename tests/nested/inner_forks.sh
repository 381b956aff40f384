#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs inside the nested machine, as root: snapshots and forks of the real tree under KVM, then starts by restore.
# shellcheck source=tests/nested/inner_begin.sh
. "$(dirname "$0")/inner_begin.sh"

out_of() { # SANDBOX SCRIPT: what it printed, or the record of its failure
	local record
	record=$(run "$1" "$2")
	case $record in *'"exit_code":0'*) cat "$R/$1/stdout" ;; *) echo "$record" ;; esac
}
# shellcheck disable=SC2317
take() { # SANDBOX SNAPSHOT
	echo "$2" > "$R/$1/snapshot" || { cat "$R/$1/error"; return 1; }
}
# shellcheck disable=SC2317
fork() { # SNAPSHOT NAME-OR-NUMBER
	echo "$2" > "$S/$1/fork" || { cat "$S/$1/error"; return 1; }
}
# shellcheck disable=SC2317
clock_fits() { # SANDBOX: its second lies between ours before and after; on a busy host it is late by as long as the greeting took
	local t0 guest t1
	t0=$(date +%s)
	guest=$(out_of "$1" 'date +%s')
	t1=$(date +%s)
	[[ $guest =~ ^[0-9]+$ && $guest -ge $((t0 - 5)) && $guest -le $t1 ]] || { echo "   it says $guest between $t0 and $t1"; return 1; }
}

# -- snapshots and forks, while a process draws random values and notes whose guest it was in, before and after

# shellcheck disable=SC2016 # for the guest's shell
draw='mark() { m=-; [ ! -e /run/crucible/fork ] || read -r m </run/crucible/fork; }
while sleep 0.2; do
	mark; before=$m; read -r u </proc/sys/kernel/random/uuid; mark
	[ "$before" != "$m" ] || echo "$u $m"
done >/dev/shm/drawn &
echo one >/root/generation; dmesg -c >/dev/null'
out_of a "$draw"
drawn() { cat "$R/$1/fs/dev/shm/drawn"; }
own() { # SANDBOX: the values that nobody else may have
	if [ "$1" = a ]; then drawn a | tail -n "+$((shared + 1))"; else drawn "$1" | grep -F "$(cat "$R/$1/uuid")"; fi
}
# shellcheck disable=SC2317
has_own() { [ "$(own "$1" | wc -l)" -ge 3 ]; }
shared=0
check "a process draws" in_time has_own a
check "a snapshot" take a one
shared=$(drawn a | wc -l)
grep -o '"pause_ms":[0-9.]*' $S/one/info.json
check "its fingerprint names the processor" has "$(grep -o '"fingerprint":"[^"]*"' $S/one/info.json)" \
	" $(awk '/^vendor_id/ { print $3; exit }' /proc/cpuinfo) "
check "two forks" fork one 2
check "their names" is "$(tr '\n' ' ' < $S/one/fork)" "one-1 one-2 "
out_of one-1 'echo two >>/root/generation'
check "a snapshot of a fork" take one-1 two
check "a fork of a fork" fork two child
out_of child 'echo three >>/root/generation'
check "a snapshot of that" take child three
check "the third generation" fork three grandchild
check "what its fathers wrote is in it" is "$(out_of grandchild 'hostname; cat /root/generation' | xargs)" "grandchild one two three"
check "and not in them" is "$(for f in a one-1 one-2; do out_of "$f" 'hostname; cat /root/generation'; done | xargs)" "a one one-1 one two one-2 one"
family='a one-1 one-2 child grandchild late'
for f in $family; do
	[ "$f" != late ] || check "a fork much later" fork one late
	check "the process in $f goes on" in_time has_own "$f"
	check "the clock of $f" clock_fits "$f"
	check "the kernel of $f has no complaint" is \
		"$(out_of "$f" "dmesg | grep -iE 'BUG:|stall|lockup|clocksource.*(unstable|skew)|Call Trace' || echo none")" none
	drawn=$(own "$f")
	drawn=$(cut -d' ' -f1 <<<"$drawn"; out_of "$f" 'cat /etc/machine-id /proc/sys/kernel/random/uuid; head -c 16 /dev/urandom | md5sum')
	all+="$drawn"$'\n'
done
# Of each three values drawn, a machine-id, a uuid and a digest, at least.
check "values of all" test "$(grep -cE '^[0-9a-f-]{32}' <<<"$all")" -ge 36
check "none is in two" is "$(grep . <<<"$all" | sort | uniq -d)" ""
check "the clocksource is KVM's" is "$(out_of late 'cat /sys/devices/system/clocksource/clocksource0/current_clocksource')" kvm-clock
# shellcheck disable=SC2317
stored() { ! cat "$S"/*/status | grep -qv ready; }
check "all are stored" in_time stored
for f in $family; do rmdir "$R/$f"; done
rmdir $S/one $S/two $S/three
stop_daemon "the daemon ends in order"

# -- starts that go on from a prepared snapshot, in machines that wait

start_daemon "the second daemon has KVM" --set pool_size=1 --set warm_size=1
new cold
check "the first boots" is "$(out_of cold '[ -e /run/crucible/fork ] || echo cold')" cold
# shellcheck disable=SC2317
full() { case $(cat /crucible/health.json) in *'"ready":1,'*'"warm_ready":1,'*) return 0 ;; esac; return 1; }
check "its profile is prepared" in_time grep -q event=prepared daemon.log
new restored
check "a start goes on from that" is "$(out_of restored '[ ! -e /run/crucible/fork ] || echo restored')" restored
check "the pool is filled" in_time full # with what was wanted last
new warm
new generic
for f in warm generic; do echo 'cat /etc/machine-id; hostname' > "$R/$f"/cmd; done
for f in warm generic; do
	cat "$R/$f"/wait > /dev/null
	check "$f is itself" is "$(xargs < "$R/$f"/stdout)" "$(tr -d - < "$R/$f"/uuid) $f"
	check "the clock of $f" clock_fits "$f"
done
starts=$(grep ^crucible_pool_starts_total /crucible/metrics)
check "one was warm" has "$starts" 'kind="warm",found="yes"} 1'
check "one was restored" has "$starts" 'kind="generic",found="yes"} 1'
check "all differ" is "$(for f in cold restored warm generic; do out_of "$f" 'cat /etc/machine-id /proc/sys/kernel/random/uuid'; done | sort | uniq -d)" ""
rmdir $R/cold $R/restored $R/warm $R/generic
stop_daemon "the second daemon ends in order"
finish
