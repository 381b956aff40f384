# SPDX-License-Identifier: Apache-2.0

# What a sandbox may reach. Linked by the daemon (addresses, rules) and by netd (all of it).
LIBS += netpolicy
netpolicy_SRCS := $(addprefix netpolicy/,addr.c rule.c policy.c ports.c names.c sniff.c)
netpolicy_SRCS += $(addprefix netpolicy/,resolver.c resolver_conf.c resolver_msg.c resolver_tcp.c resolver_up.c)
netpolicy_SRCS += $(addprefix netpolicy/,pump.c reserve.c relay.c relay_conn.c relay_hello.c relay_in.c)

net_UNIT := test_net_addr test_net_policy test_net_names test_net_sniff
UNIT += $(net_UNIT)
$(foreach t,$(net_UNIT),$(eval $(t)_SRCS := tests/unit/$(t).c)$(eval $(t)_LIBS := netpolicy base))
# Hellos as a real client says them.
test_net_sniff_PKGS := libssl libcrypto

net_FUZZ := fuzz_net_sniff fuzz_net_policy fuzz_net_dns
FUZZ += $(net_FUZZ)
$(foreach f,$(net_FUZZ),$(eval $(f)_SRCS := tests/fuzz/$(f).c)$(eval $(f)_LIBS := netpolicy base))
fuzz_net_dns_PKGS := ldns

relay_UNIT := test_net_relay $(addprefix test_net_relay_,tls in limits fault figures)
UNIT += $(relay_UNIT)
$(foreach t,$(relay_UNIT),$(eval $(t)_SRCS := $(addprefix tests/unit/,$(t).c relay_rig.c))\
	$(eval $(t)_LIBS := netpolicy base)$(eval $(t)_PKGS := libcrypto))
$(foreach t,test_net_relay $(addprefix test_net_relay_,tls in limits),$(eval $(t)_SRCS += tests/unit/relay_fix.c))
RELAY_FAULTS := malloc calloc realloc socket accept4 connect getsockname shutdown pipe2 epoll_ctl send recv splice
UNIT += test_net_relay_tproxy
test_net_relay_tproxy_SRCS := $(addprefix tests/unit/,test_net_relay_tproxy.c relay_rig.c net_guest.c)
test_net_relay_tproxy_LIBS := nettopology netpolicy base
test_net_relay_tproxy_PKGS := libcrypto libnl-3.0 libnl-route-3.0 libnftables
test_net_relay_fault_LDFLAGS := $(addprefix -Wl$(comma)--wrap=,$(RELAY_FAULTS))

# The resolver against servers that are the test; whoever links resolver.c needs libldns.
resolver_UNIT := test_net_resolver test_net_resolver_up test_net_resolver_tcp
UNIT += $(resolver_UNIT)
$(foreach t,$(resolver_UNIT),$(eval $(t)_SRCS := $(addprefix tests/unit/,$(t).c net_dns_rig.c))\
	$(eval $(t)_LIBS := netpolicy base)$(eval $(t)_PKGS := ldns))

include netpolicy/topology.mk
