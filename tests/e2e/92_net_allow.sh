#!/bin/bash
# What is named is reached, over HTTP and TLS, and nothing else; each refusal is in net/log.jsonl with its reason, and each has a twin that shows
# that the target could be reached.
. "$(dirname "$0")/lib.sh"
. "$E2E/lib_net.sh"
need_profile base
net_world
start_daemon
mkdir "$RUN/a"
echo profile:base >"$RUN/a/from"
printf '%s\n' allowed.test '*.wild.test' >"$RUN/a/net/allow"
assert_file "$RUN/a/net/allow" $'allowed.test\n*.wild.test'
run a 'cat /etc/resolv.conf; ip -4 -o addr show dev eth0 2>/dev/null | grep -c 10.77.0.2 || hostname -I'
assert_rec exit_code 0 stdout '=~nameserver 10.77.0.1'
assert_rec isolation.network '"filtered"' isolation.unenforced '[]'
bounded cp "$WORLD/ca.pem" "$RUN/a/fs/root/ca.pem"

reaches() { # SANDBOX URL [CURL_OPTION…]
	local box=$1 url=$2

	shift 2
	run "$box" "curl -sS --max-time 20 --cacert /root/ca.pem $* '$url'"
	assert_rec exit_code 0 stdout '=~^hello from '
}

refused() { # SANDBOX URL [CURL_OPTION…]
	local box=$1 url=$2

	shift 2
	run "$box" "curl -sS --max-time 5 --cacert /root/ca.pem $* '$url'"
	assert_rec exit_code '!0' stdout '""'
}

reaches a https://allowed.test/hello
reaches a http://allowed.test/hello
reaches a https://allowed.test:8443/hello
reaches a http://ALLOWED.test./hello
reaches a http://a.wild.test/hello
wait_for "a log of what was reached" net_logged a event connection verdict ended name '^allowed.test$'
wait_for "a log of the question" net_logged a event question verdict answered name '^allowed.test$'

# -- denied names never leave the host ------------------------------------------------------------------------------

refused a https://denied.test/hello
refused a http://wild.test/hello
assert_eq "$(dns_count 'denied.test|^wild.test')" 0 "questions for denied names that reached the upstream"
wait_for "a log of a denied question" net_logged a event question verdict denied name '^denied.test$'
assert_match "$(in_host curl -s http://93.184.216.35/hello)" '^hello' "the twin of denied.test"

# -- addresses, without a name or with one of their own -----------------------------------------------------------------

for to in 93.184.216.35 169.254.169.254 192.0.2.1 192.0.2.2 10.0.0.1 127.0.0.2 10.77.0.1; do
	refused a "http://$to/hello"
done
for to in '[::1]' '[::ffff:10.0.0.1]' '[fd00::1]' '[64:ff9b::a00:1]'; do
	refused a "http://$to/hello" -g
done
wait_for "a log of the metadata server" net_logged a event connection verdict refused address '^169.254.169.254$' reason 'link-local'
wait_for "a log of a private address" net_logged a event connection verdict refused address '^10.0.0.1$' reason private
assert_match "$(in_host curl -s http://169.254.169.254/hello)" '^hello' "the twin of the metadata server"
assert_eq "$(http_count '^(169|10.0|93.184.216.35)')" 2 "requests that reached what is forbidden: the twins"

# -- an allowed address with another name in the hello --------------------------------------------------------------------

refused a https://other.test/hello --connect-to other.test:443:allowed.test:443
wait_for "a log of another name in the hello" net_logged a event connection verdict refused reason 'other.test'
run a 'curl -sS --max-time 5 -k https://93.184.216.34/hello' # a hello without a name
assert_rec exit_code '!0' stdout '""'
wait_for "a log of a hello without a name" net_logged a event connection verdict refused reason 'name'

# -- datagrams: no QUIC -----------------------------------------------------------------------------------------------------

run a 'bash -c "echo hello >/dev/udp/93.184.216.34/443; echo hello >/dev/udp/93.184.216.34/123"'
assert_rec exit_code 0
wait_for "a log of a datagram" net_logged a event datagram port '^443$' verdict refused
assert_eq "$(udp_count .)" 0 "datagrams that reached the world"

# -- answers that are filtered ------------------------------------------------------------------------------------------------

printf '%s\n' private.test cname.test metadata.test mapped.test nat64.test loop.test private6.test mixed.test rebind.test good-cname.test big.test >>"$RUN/a/net/allow"
for name in private cname metadata mapped nat64 loop private6; do
	refused a "http://$name.test/hello"
	wait_for "a log of the filtered answer for $name.test" net_logged a event question verdict filtered name "^$name.test\$"
done
reaches a http://mixed.test/hello
reaches a http://good-cname.test/hello
run a 'getent ahosts big.test | sort -u | grep -c STREAM'
assert_rec exit_code 0 stdout '"120\n"'
# A name whose answer turns private later.
reaches a http://rebind.test/hello
refused a http://rebind.test/hello
assert_ge() { [ "$1" -ge "$2" ] || fail "$3: $1, less than $2"; }
assert_ge "$(dns_count '^rebind.test A ')" 2 "questions for rebind.test that reached the upstream"

# -- live ----------------------------------------------------------------------------------------------------------------------

echo third.test >"$RUN/a/net/allow"
refused a http://allowed.test/hello
reaches a http://third.test/hello
echo +allowed.test:80 >"$RUN/a/net/allow"
reaches a http://allowed.test/hello
refused a https://allowed.test/hello
echo -third.test >"$RUN/a/net/allow"
refused a http://third.test/hello
reaches a http://allowed.test/hello
echo '#' >"$RUN/a/net/allow"
assert_file "$RUN/a/net/allow" ''
refused a http://allowed.test/hello

# A change ends the connections that it forbids, and no others.
printf '%s\n' allowed.test third.test >"$RUN/a/net/allow"
echo 'curl -sS --max-time 60 http://allowed.test/slow; echo $?' >"$RUN/a/cmd"
wait_for "a connection" eval '[ "$(http_count "GET /slow")" -eq 1 ]'
echo third.test >"$RUN/a/net/allow"
assert_match "$(bounded cat "$RUN/a/wait")" '"exit_code":0'
wait_for "its end" eval '[ "$(http_count "(END|RESET) /slow")" -eq 1 ]'

# -- bad lists: words, and the old one stays in force ------------------------------------------------------------------------------

for bad in '*' 'a.*.test' '*.com' 'x_y..test' "$(printf 'a%.0s' {1..64}).test" '10.0.0.0/8' '169.254.169.254' 'allowed.test:0' 'allowed.test:70000' '@nobody' 'http://allowed.test'; do
	assert_errno EINVAL write "$RUN/a/net/allow" "$bad"
	assert_match "$(cat "$RUN/a/error")" 'net/allow' "the error of $bad"
	assert_file "$RUN/a/net/allow" third.test
done
reaches a http://third.test/hello

# -- numbers ------------------------------------------------------------------------------------------------------------------------

has_numbers() { assert_json "$(cat "$RUN/a/usage.json")" net_bytes_in '>100' net_bytes_out '>100' net_refused '>10' net_questions_denied '>1'; }
wait_for "numbers, which are asked for behind each reading" eval '(CRUCIBLE_TEST_GO_ON=; trap - ERR; has_numbers)'
assert_match "$(cat "$MNT/metrics")" 'crucible_net'
