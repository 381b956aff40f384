# SPDX-License-Identifier: Apache-2.0

# All of the pager but its main file: for the program, its unit tests and its fuzz target.
LIBS += pagercore
pagercore_SRCS := $(addprefix snapstore/pager/,bits.c message.c template.c look.c fill.c ahead.c fault.c machine.c scan.c \
	capture.c workset.c evict.c stat.c client.c request.c disks.c core.c)

PROGS += crucible-pager
crucible-pager_DIR := libexec
crucible-pager_SRCS := snapstore/pager/main.c
crucible-pager_LIBS := pagercore disk snapstore base
crucible-pager_PKGS := json-c libseccomp liblz4 libcrypto
$(eval $(call syscalls_rule,pager,snapstore/pager,snapstore/pager/main.c))
