# SPDX-License-Identifier: Apache-2.0
# Included by netpolicy/module.mk. Linked by the launcher alone, which makes namespaces.
LIBS += nettopology
nettopology_SRCS := $(addprefix netpolicy/,topology.c topology_links.c topology_rules.c)
nettopology_PKGS := libnl-3.0 libnl-route-3.0 libnftables

UNIT += test_net_topology
test_net_topology_SRCS := $(addprefix tests/unit/,test_net_topology.c net_guest.c)
test_net_topology_LIBS := nettopology base
test_net_topology_PKGS := $(nettopology_PKGS)
