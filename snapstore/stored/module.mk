# SPDX-License-Identifier: Apache-2.0

# All of crucible-store but its main file: for the program and its tests.
LIBS += stored
stored_SRCS := $(addprefix snapstore/stored/,request.c ingest.c server.c)

PROGS += crucible-store
crucible-store_DIR := libexec
crucible-store_SRCS := snapstore/stored/main.c
crucible-store_LIBS := stored snapstore base
crucible-store_PKGS := $(snapstore_PKGS) libseccomp
$(eval $(call syscalls_rule,stored,snapstore/stored,snapstore/stored/main.c))

UNIT += test_stored
test_stored_SRCS := tests/unit/test_stored.c tests/unit/snap_rig.c
test_stored_LIBS := stored snapstore base
test_stored_PKGS := $(snapstore_PKGS) libseccomp
# It runs the program.
$(B)/unit/test_stored: | $(B)/libexec/crucible-store

FUZZ += fuzz_stored
fuzz_stored_SRCS := tests/fuzz/fuzz_stored.c
fuzz_stored_LIBS := stored snapstore base
fuzz_stored_PKGS := $(snapstore_PKGS)
