# SPDX-License-Identifier: Apache-2.0
include cruciblefs/launch/launch.mk
-include cruciblefs/tree_fuse.mk
-include cruciblefs/guestfs.mk

include cruciblefs/domain/domain.mk

PROGS += crucibled
crucibled_DIR := libexec
crucibled_SRCS := cruciblefs/main.c
crucibled_LIBS := cfsfuse cfsguest cfsdomain policy netpolicy launch vmm agentproto base
crucibled_PKGS := fuse3 json-c libseccomp libcap
$(eval $(call syscalls_rule,crucibled,cruciblefs,cruciblefs/main.c))
