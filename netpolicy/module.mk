# SPDX-License-Identifier: Apache-2.0

# What a sandbox may reach. Linked by the daemon (addresses, rules) and by netd (all of it).
LIBS += netpolicy
netpolicy_SRCS := $(addprefix netpolicy/,addr.c rule.c policy.c ports.c names.c sniff.c)
netpolicy_SRCS += $(addprefix netpolicy/,resolver.c resolver_conf.c resolver_msg.c resolver_tcp.c resolver_up.c)
netpolicy_SRCS += $(addprefix netpolicy/,pump.c relay.c relay_conn.c relay_hello.c relay_in.c)

net_UNIT := test_net_addr test_net_policy test_net_names test_net_sniff
UNIT += $(net_UNIT)
$(foreach t,$(net_UNIT),$(eval $(t)_SRCS := tests/unit/$(t).c)$(eval $(t)_LIBS := netpolicy base))
# Hellos as a real client says them.
test_net_sniff_PKGS := libssl libcrypto

net_FUZZ := fuzz_net_sniff fuzz_net_policy fuzz_net_dns
FUZZ += $(net_FUZZ)
$(foreach f,$(net_FUZZ),$(eval $(f)_SRCS := tests/fuzz/$(f).c)$(eval $(f)_LIBS := netpolicy base))
fuzz_net_dns_PKGS := ldns

relay_UNIT := test_net_relay test_net_relay_in test_net_relay_tls test_net_relay_figures
UNIT += $(relay_UNIT)
$(foreach t,$(relay_UNIT),$(eval $(t)_SRCS := $(addprefix tests/unit/,$(t).c relay_rig.c))\
	$(eval $(t)_LIBS := netpolicy base)$(eval $(t)_PKGS := libcrypto))

# The resolver against servers that are the test; whoever links resolver.c needs libldns.
resolver_UNIT := test_net_resolver test_net_resolver_up test_net_resolver_tcp
UNIT += $(resolver_UNIT)
$(foreach t,$(resolver_UNIT),$(eval $(t)_SRCS := $(addprefix tests/unit/,$(t).c net_dns_rig.c))\
	$(eval $(t)_LIBS := netpolicy base)$(eval $(t)_PKGS := ldns))

include netpolicy/topology.mk
