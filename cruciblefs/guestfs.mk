# SPDX-License-Identifier: Apache-2.0
# `.fs`: the guest's files. Included by module.mk.
LIBS += cfsguest
cfsguest_SRCS := $(addprefix cruciblefs/,guestfs.c guestcall.c guestattr.c guestname.c guestopen.c guestio.c guestdir.c guestxattr.c \
	guestpath.c guestlink.c guestreply.c)

UNIT += test_guestlink
test_guestlink_SRCS := tests/unit/test_guestlink.c
test_guestlink_LIBS := cfsguest agentproto base

UNIT += test_guestreply
test_guestreply_SRCS := tests/unit/test_guestreply.c
test_guestreply_LIBS := cfsguest agentproto base

UNIT += test_guestpath
test_guestpath_SRCS := tests/unit/test_guestpath.c
test_guestpath_LIBS := cfsguest cfsfuse agentproto base
test_guestpath_PKGS := fuse3

FUZZ += fuzz_guest_reply
fuzz_guest_reply_SRCS := tests/fuzz/fuzz_guest_reply.c
fuzz_guest_reply_LIBS := cfsguest agentproto base
