# SPDX-License-Identifier: Apache-2.0

# What a sandbox may reach. Linked by the daemon (addresses, rules) and by netd (all of it).
LIBS += netpolicy
netpolicy_SRCS := $(addprefix netpolicy/,addr.c)

net_UNIT := test_net_addr
UNIT += $(net_UNIT)
$(foreach t,$(net_UNIT),$(eval $(t)_SRCS := tests/unit/$(t).c)$(eval $(t)_LIBS := netpolicy base))

include netpolicy/topology.mk
