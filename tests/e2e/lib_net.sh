# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# For scripts about the network, after lib.sh: a world of the test's own. Two network namespaces: one in which the daemon lives (it takes it for
# the host's), one with servers (net_world.py), joined by a veth. Nothing of the machine's own network is seen or touched.
#
#   net_world           make it; start_daemon then runs inside, with net_upstream=192.0.2.2
#   $WORLD              its folder: dns.log, http.log, udp.log, ca.pem
#   in_host COMMAND…    run in the daemon's namespace; in_world COMMAND…: beside the servers
#   dns_count REGEX     questions that reached the upstream          http_count REGEX, udp_count REGEX
need ip nsenter unshare openssl

WORLD=$DIR/world
NET_HOST_PID=
NET_WORLD_PID=

net_certificate() {
	local san="DNS:allowed.test,DNS:v4.test,DNS:v6.test,DNS:denied.test,DNS:other.test,DNS:third.test,DNS:*.wild.test,DNS:good-cname.test,DNS:rebind.test,DNS:mixed.test"

	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=crucible test" -addext "subjectAltName=$san" \
		-addext basicConstraints=critical,CA:TRUE -keyout "$WORLD/key.pem" -out "$WORLD/cert.pem" 2>/dev/null
	cp "$WORLD/cert.pem" "$WORLD/ca.pem"
}

# A process that holds a namespace; its pid into NET_HELD.
net_hold() {
	unshare --net -- sleep infinity </dev/null >/dev/null 2>&1 &
	NET_HELD=$!
	wait_for "a network namespace" net_is_other "$NET_HELD"
}

net_is_other() { # PID
	[ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ]
}

in_host() {
	nsenter --net="/proc/$NET_HOST_PID/ns/net" -- "$@"
}

in_world() {
	nsenter --net="/proc/$NET_WORLD_HOLD/ns/net" -- "$@"
}

net_world() {
	local a

	mkdir -p "$WORLD"
	net_certificate
	net_hold && NET_HOST_PID=$NET_HELD
	net_hold && NET_WORLD_HOLD=$NET_HELD
	in_host ip link set lo up
	in_world ip link set lo up
	in_host ip link add up0 type veth peer name up1 netns "$NET_WORLD_HOLD"
	in_host ip addr add 192.0.2.1/30 dev up0
	in_host ip -6 addr add 2001:470::1/64 dev up0 nodad
	in_host ip link set up0 up
	in_world ip addr add 192.0.2.2/30 dev up1
	in_world ip -6 addr add 2001:470::2/64 dev up1 nodad
	in_world ip link set up1 up
	in_host ip route add default via 192.0.2.2
	in_host ip -6 route add default via 2001:470::2
	for a in 93.184.216.34 93.184.216.35 93.184.216.36 10.0.0.1 169.254.169.254; do
		in_world ip addr add "$a/32" dev lo
	done
	for a in 2606:2800:220::34 fd00::1; do
		in_world ip -6 addr add "$a/128" dev lo nodad
	done
	nsenter --net="/proc/$NET_WORLD_HOLD/ns/net" -- "$PYTHON" -IS "$E2E/net_world.py" "$WORLD" </dev/null >"$WORLD/log" 2>&1 &
	NET_WORLD_PID=$!
	wait_for "the servers of the world" test -e "$WORLD/ready"
	# shellcheck disable=SC2034 # both are lib.sh's
	{
		IN_NET=(nsenter --net="/proc/$NET_HOST_PID/ns/net" --)
		DAEMON_OPTIONS=(--set net_upstream=192.0.2.2)
	}
	AT_EXIT+=(net_end)
}

net_end() {
	kill "$NET_WORLD_PID" "$NET_HOST_PID" "$NET_WORLD_HOLD" 2>/dev/null || :
	wait "$NET_WORLD_PID" "$NET_HOST_PID" "$NET_WORLD_HOLD" 2>/dev/null || :
}

net_count() { # LOG REGEX
	grep -cE -- "$2" "$WORLD/$1.log" || :
}

dns_count() { net_count dns "$1"; }
http_count() { net_count http "$1"; }
udp_count() { net_count udp "$1"; }

# Lines of net/log.jsonl of SANDBOX in which each KEY has VALUE.
net_log_count() { # SANDBOX KEY VALUE [KEY VALUE]…
	local box=$1 filter=. i

	shift
	for ((i = 1; i < $#; i += 2)); do
		filter+=" | select((.${!i} | tostring) | test(\"$(eval "printf %s \"\${$((i + 1))}\"")\"))"
	done
	jq -c "$filter" "$RUN/$box/net/log.jsonl" | wc -l
}

net_logged() { # SANDBOX KEY VALUE…
	[ "$(net_log_count "$@")" -gt 0 ]
}
