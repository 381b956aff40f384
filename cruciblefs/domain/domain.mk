# SPDX-License-Identifier: Apache-2.0
# Included by cruciblefs/module.mk.
LIBS += cfsdomain
cfsdomain_SRCS := $(addprefix cruciblefs/domain/,ask.c attr.c boxlink.c capture.c config.c diff.c exec.c fscall.c health.c host.c journal.c \
	down.c fork.c ingest.c lifecycle.c machine.c peer.c persist.c pool.c prepare.c profile.c registry.c relink.c removal.c \
	restore.c revive.c sandbox.c slot.c snapshot.c snapshot_file.c snapshot_info.c start.c strays.c trial_run.c upload.c warm.c whole.c worker.c)

UNIT += test_pool test_waitq test_config test_domain test_domain_fault
test_pool_SRCS := tests/unit/test_pool.c
test_pool_LIBS := base
test_waitq_SRCS := tests/unit/test_waitq.c
test_waitq_LIBS := base
test_config_SRCS := tests/unit/test_config.c cruciblefs/domain/config.c
test_config_LIBS := base
# The fake's launcher_call() is there before the archive's is looked for.
test_domain_SRCS := tests/unit/test_domain.c tests/unit/domain_world.c tests/unit/fake_launcher.c
test_domain_LIBS := cfsdomain launch vmm agentproto base
test_domain_PKGS := json-c

# tests/unit/fault.c stands in for these calls of everything that is linked.
FAULT_CALLS := malloc calloc realloc strdup write mkdirat renameat fsync fchmod fchmodat socketpair pipe2 openat64
test_domain_fault_SRCS := $(addprefix tests/unit/,test_domain_fault.c domain_world.c fake_launcher.c fault.c)
test_domain_fault_LIBS := cfsdomain launch vmm agentproto base
test_domain_fault_PKGS := json-c
test_domain_fault_LDFLAGS := $(addprefix -Wl$(comma)--wrap=,$(FAULT_CALLS))
