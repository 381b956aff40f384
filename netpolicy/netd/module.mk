# SPDX-License-Identifier: Apache-2.0

# All of crucible-netd but its main file: for the program and its tests.
LIBS += netd
netd_SRCS := $(addprefix netpolicy/netd/,request.c reach.c udp.c log.c sandbox.c server.c)
netd_PKGS := ldns json-c libseccomp

PROGS += crucible-netd
crucible-netd_DIR := libexec
crucible-netd_SRCS := netpolicy/netd/main.c
crucible-netd_LIBS := netd netpolicy base
crucible-netd_PKGS := $(netd_PKGS)
$(eval $(call syscalls_rule,netd,netpolicy/netd,netpolicy/netd/main.c))
