# SPDX-License-Identifier: Apache-2.0

# The store as a library: who reads it and who writes it.
LIBS += snapstore
snapstore_SRCS := $(addprefix snapstore/,digest.c frame.c index.c node.c blob.c pack.c packer.c store.c object.c batch.c edit.c map.c \
	manifest.c ring.c reader.c walk.c verify.c gc.c stat.c)
snapstore_PKGS := json-c liblz4 liburing libcrypto

snap_UNIT := test_snap_store test_snap_reader test_snap_gc test_snap_model
UNIT += $(snap_UNIT)
$(foreach t,$(snap_UNIT),$(eval $(t)_SRCS := tests/unit/$(t).c tests/unit/snap_rig.c)$(eval $(t)_LIBS := snapstore base)\
	$(eval $(t)_PKGS := $(snapstore_PKGS)))

# Calls that fail: the test's archives are linked with these in between.
SNAP_FAULTS := malloc calloc realloc strdup write mkdirat renameat fsync fchmod fchmodat socketpair pipe2 openat64 pwrite64 pread64 \
	mmap64 unlinkat
UNIT += test_snap_fault
test_snap_fault_SRCS := tests/unit/test_snap_fault.c tests/unit/snap_fault.c tests/unit/snap_rig.c
test_snap_fault_LIBS := snapstore base
test_snap_fault_PKGS := $(snapstore_PKGS)
test_snap_fault_LDFLAGS := $(addprefix -Wl$(comma)--wrap=,$(SNAP_FAULTS))

snap_FUZZ := fuzz_snap_frame fuzz_snap_index fuzz_snap_node fuzz_snap_manifest
FUZZ += $(snap_FUZZ)
$(foreach f,$(snap_FUZZ),$(eval $(f)_SRCS := tests/fuzz/$(f).c)$(eval $(f)_LIBS := snapstore base)$(eval $(f)_PKGS := $(snapstore_PKGS)))

# Which frame size: docs/STORE.md has its table. Not installed.
PROGS += bench-frames
bench-frames_DIR := bench
bench-frames_SRCS := snapstore/bench/frames.c
bench-frames_LIBS := snapstore base
bench-frames_PKGS := $(snapstore_PKGS)
