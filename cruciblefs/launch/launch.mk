# SPDX-License-Identifier: Apache-2.0
# Included by cruciblefs/module.mk. The archive is crucibled's half, the program the other.
LIBS += launch
launch_SRCS := $(addprefix cruciblefs/launch/,proto.c client.c)

PROGS += crucible-launch
crucible-launch_SRCS := $(addprefix cruciblefs/launch/,main.c mount.c slots.c root.c spawn.c given.c sandbox.c net.c)
crucible-launch_LIBS := launch nettopology base
crucible-launch_PKGS := libseccomp $(nettopology_PKGS)
crucible-launch_DIR := libexec
$(eval $(call syscalls_rule,crucible_launch,cruciblefs/launch,cruciblefs/launch/main.c))

UNIT += test_launch test_launch_net test_launch_pager test_launch_proto test_slots
test_launch_SRCS := $(addprefix tests/unit/,test_launch.c launch_fix.c launch_probe.c)
test_launch_LIBS := launch base
test_launch_net_SRCS := $(addprefix tests/unit/,test_launch_net.c launch_fix.c launch_probe.c)
test_launch_net_LIBS := launch base
test_launch_net_PKGS := libseccomp
test_launch_pager_SRCS := $(addprefix tests/unit/,test_launch_pager.c launch_fix.c launch_probe.c) \
	$(addprefix cruciblefs/domain/,peer.c peersock.c)
test_launch_pager_LIBS := launch base
test_launch_pager_PKGS := libseccomp json-c
test_launch_proto_SRCS := tests/unit/test_launch_proto.c
test_launch_proto_LIBS := launch base
test_slots_SRCS := tests/unit/test_slots.c cruciblefs/launch/slots.c
test_slots_LIBS := base
$(B)/unit/test_launch $(B)/unit/test_launch_net $(B)/unit/test_launch_pager: | $(B)/libexec/crucible-launch

FUZZ += fuzz_launch
fuzz_launch_SRCS := tests/fuzz/fuzz_launch.c
fuzz_launch_LIBS := launch base
