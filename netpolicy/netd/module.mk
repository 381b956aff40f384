# SPDX-License-Identifier: Apache-2.0

# All of crucible-netd but its main file: for the program and its tests.
LIBS += netd
netd_SRCS := $(addprefix netpolicy/netd/,request.c reach.c udp.c log.c bygone.c sandbox.c server.c)
netd_PKGS := ldns json-c libseccomp

PROGS += crucible-netd
crucible-netd_DIR := libexec
crucible-netd_SRCS := netpolicy/netd/main.c
crucible-netd_LIBS := netd netpolicy base
crucible-netd_PKGS := $(netd_PKGS)
$(eval $(call syscalls_rule,netd,netpolicy/netd,netpolicy/netd/main.c))

# They run the program. test_netd_guest: with the real topology, and a guest with the kernel's own stack.
netd_UNIT := test_netd test_netd_guest
UNIT += $(netd_UNIT)
$(foreach t,$(netd_UNIT),$(eval $(t)_SRCS := $(addprefix tests/unit/,$(t).c netd_rig.c netd_dns.c))\
	$(eval $(t)_LIBS := netpolicy base)$(eval $(t)_PKGS := $(netd_PKGS) libssl libcrypto))
$(addprefix $(B)/unit/,$(netd_UNIT)): | $(B)/libexec/crucible-netd
test_netd_guest_SRCS += tests/unit/net_guest.c
test_netd_guest_LIBS := nettopology netpolicy base
test_netd_guest_PKGS += $(nettopology_PKGS)

# In its own process, with a clock that is moved.
UNIT += test_netd_time
test_netd_time_SRCS := tests/unit/test_netd_time.c tests/unit/netd_rig.c
test_netd_time_LIBS := netd netpolicy base
test_netd_time_PKGS := $(netd_PKGS)
test_netd_time_LDFLAGS := -Wl,--wrap=now_ns

FUZZ += fuzz_netd
fuzz_netd_SRCS := tests/fuzz/fuzz_netd.c
fuzz_netd_LIBS := netd netpolicy base
fuzz_netd_PKGS := $(netd_PKGS)
