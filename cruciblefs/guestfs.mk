# SPDX-License-Identifier: Apache-2.0
# `.fs`: the guest's files. Included by module.mk.
LIBS += cfsguest
cfsguest_SRCS := $(addprefix cruciblefs/, \
	guestfs.c guestcall.c guestattr.c guestname.c guestopen.c guestio.c guestdir.c guestxattr.c \
	guestpath.c guestlink.c guestreply.c)

# The pure parts.
UNIT += test_guestlink test_guestreply test_guestpath
test_guestlink_SRCS := tests/unit/test_guestlink.c
test_guestlink_LIBS := cfsguest agentproto base
test_guestreply_SRCS := tests/unit/test_guestreply.c
test_guestreply_LIBS := cfsguest agentproto base
test_guestpath_SRCS := $(addprefix tests/unit/,test_guestpath.c fake_view.c)
test_guestpath_LIBS := cfsguest cfsfuse agentproto policy netpolicy base
test_guestpath_PKGS := fuse3 json-c

# The whole over a fake guest, which the agent's own code for file operations serves: request by request, and on a real mount.
cfsguest_WIRE := test_guestfs test_guestdir test_guestio test_guest_view
UNIT += $(cfsguest_WIRE) test_guest_mount
$(foreach t,$(cfsguest_WIRE),$(eval $(t)_SRCS := $(addprefix tests/unit/,$(t).c guestwire.c fusewire.c fuseall.c fake_guest.c \
	fake_view.c)))
test_guest_mount_SRCS := $(addprefix tests/unit/,test_guest_mount.c fake_guest.c fake_view.c)
$(foreach t,$(cfsguest_WIRE) test_guest_mount,$(eval $(t)_LIBS := cfsguest cfsfuse agentcore agentproto policy netpolicy base) \
	$(eval $(t)_PKGS := fuse3 json-c))

FUZZ += fuzz_guest_reply
fuzz_guest_reply_SRCS := tests/fuzz/fuzz_guest_reply.c
fuzz_guest_reply_LIBS := cfsguest agentproto base
