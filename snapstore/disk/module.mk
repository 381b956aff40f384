# SPDX-License-Identifier: Apache-2.0

# Disks and the block server; whoever links this links the snapstore's library, too.
LIBS += snapdisk
snapdisk_SRCS := $(addprefix snapstore/disk/,layer.c spare.c record.c stack.c storelayer.c index.c disk.c disks.c join.c nbd.c nbd_conn.c nbd_hello.c \
	nbd_proto.c)

disk_UNIT := test_disk test_disk_model test_disk_fault test_nbd_proto test_nbd test_nbd_tools
UNIT += $(disk_UNIT)
$(foreach t,$(disk_UNIT),$(eval $(t)_SRCS := $(addprefix tests/unit/,$(t).c disk_dir.c fake_snap.c))\
	$(eval $(t)_LIBS := snapdisk base)$(eval $(t)_PKGS := json-c))
DISK_FAULTS := calloc malloc write pwrite64 pwritev64 pread64 ftruncate64 renameat linkat openat64
test_disk_fault_LDFLAGS := $(addprefix -Wl$(comma)--wrap=,$(DISK_FAULTS))
test_nbd_SRCS += tests/unit/nbd_rig.c
test_nbd_tools_SRCS += tests/unit/nbd_rig.c

disk_FUZZ := fuzz_nbd fuzz_disk_record
FUZZ += $(disk_FUZZ)
$(foreach f,$(disk_FUZZ),$(eval $(f)_SRCS := tests/fuzz/$(f).c $(addprefix tests/unit/,disk_dir.c fake_snap.c))\
	$(eval $(f)_LIBS := snapdisk base)$(eval $(f)_PKGS := json-c))
