# SPDX-License-Identifier: Apache-2.0

# What a sandbox may reach. Linked by the daemon (addresses, rules) and by netd (all of it).
LIBS += netpolicy
netpolicy_SRCS := $(addprefix netpolicy/,addr.c)

net_UNIT := test_net_addr
UNIT += $(net_UNIT)
$(foreach t,$(net_UNIT),$(eval $(t)_SRCS := tests/unit/$(t).c)$(eval $(t)_LIBS := netpolicy base))

netpolicy_SRCS += $(addprefix netpolicy/,pump.c relay.c relay_conn.c relay_hello.c relay_in.c)

relay_UNIT := test_net_relay test_net_relay_in test_net_relay_tls
UNIT += $(relay_UNIT)
$(foreach t,$(relay_UNIT),$(eval $(t)_SRCS := $(addprefix tests/unit/,$(t).c relay_rig.c))\
	$(eval $(t)_LIBS := netpolicy base)$(eval $(t)_PKGS := json-c libcrypto))
