# SPDX-License-Identifier: Apache-2.0

# What a sandbox may reach. Linked by the daemon (addresses, rules) and by netd (all of it).
LIBS += netpolicy
netpolicy_SRCS := $(addprefix netpolicy/,addr.c resolver.c resolver_conf.c resolver_msg.c resolver_tcp.c resolver_up.c)

net_UNIT := test_net_addr
UNIT += $(net_UNIT)
$(foreach t,$(net_UNIT),$(eval $(t)_SRCS := tests/unit/$(t).c)$(eval $(t)_LIBS := netpolicy base))

# The resolver against servers that are the test; whoever links resolver.c needs libldns.
resolver_UNIT := test_net_resolver test_net_resolver_up test_net_resolver_tcp
UNIT += $(resolver_UNIT)
$(foreach t,$(resolver_UNIT),$(eval $(t)_SRCS := $(addprefix tests/unit/,$(t).c net_dns_rig.c))\
	$(eval $(t)_LIBS := netpolicy base)$(eval $(t)_PKGS := ldns))

net_FUZZ := fuzz_net_dns
FUZZ += $(net_FUZZ)
$(foreach f,$(net_FUZZ),$(eval $(f)_SRCS := tests/fuzz/$(f).c)$(eval $(f)_LIBS := netpolicy base)$(eval $(f)_PKGS := ldns))
