# SPDX-License-Identifier: Apache-2.0

# All of the pager but its main file: for the program, its unit tests and its fuzz target.
LIBS += pagercore
pagercore_SRCS := $(addprefix snapstore/pager/,bits.c message.c template.c look.c fill.c ahead.c fault.c machine.c \
	capture.c workset.c evict.c stat.c client.c request.c request_wait.c \
	request_memory.c request_capture.c request_adopt.c disks.c core.c)

PROGS += crucible-pager
crucible-pager_DIR := libexec
crucible-pager_SRCS := snapstore/pager/main.c
crucible-pager_LIBS := pagercore snapdisk snapstore base
crucible-pager_PKGS := $(snapstore_PKGS) libseccomp
$(eval $(call syscalls_rule,pager,snapstore/pager,snapstore/pager/main.c))

pager_UNIT := test_pager_fault test_pager_capture test_pager_prog test_pager_figures
UNIT += $(pager_UNIT)
$(foreach t,$(pager_UNIT),$(eval $(t)_SRCS := tests/unit/$(t).c tests/unit/pager_rig.c tests/unit/snap_rig.c)\
	$(eval $(t)_LIBS := pagercore snapdisk snapstore base)$(eval $(t)_PKGS := $(snapstore_PKGS) libseccomp))
# It runs the program.
$(B)/unit/test_pager_prog: | $(B)/libexec/crucible-pager

UNIT += test_pager_request
test_pager_request_SRCS := tests/unit/test_pager_request.c
test_pager_request_LIBS := pagercore snapdisk snapstore base
test_pager_request_PKGS := $(snapstore_PKGS) libseccomp

FUZZ += fuzz_pager_msg
fuzz_pager_msg_SRCS := tests/fuzz/fuzz_pager_msg.c
fuzz_pager_msg_LIBS := pagercore base
test_pager_prog_SRCS += tests/unit/nbd_rig.c tests/unit/disk_dir.c
