# SPDX-License-Identifier: Apache-2.0
# Included by cruciblefs/module.mk.
LIBS += cfsdomain
cfsdomain_SRCS := $(addprefix cruciblefs/domain/,ask.c attr.c attr_permit.c boxlink.c capture.c config.c config_policy.c diff.c exec.c fscall.c health.c host.c journal.c \
	net.c netearly.c netlist.c netpeer.c netports.c netstep.c \
	down.c fork.c ingest.c lifecycle.c machine.c members.c peer.c peersock.c permit.c persist.c pool.c prepare.c profile.c registry.c relink.c removal.c \
	restore.c revive.c sandbox.c slot.c snapshot.c snapshot_file.c snapshot_info.c start.c storework.c strays.c trial_run.c upload.c usage.c view.c view_end.c view_file.c warm.c whole.c worker.c workset.c)

UNIT += test_pool test_waitq test_config test_domain test_domain_start test_domain_fault test_domain_review
test_pool_SRCS := tests/unit/test_pool.c
test_pool_LIBS := base
test_waitq_SRCS := tests/unit/test_waitq.c
test_waitq_LIBS := base
test_config_SRCS := tests/unit/test_config.c $(addprefix cruciblefs/domain/,config.c config_policy.c)
test_config_LIBS := policy netpolicy base
test_config_PKGS := json-c
# The fakes' launcher_call() and peer_call() are there before the archive's are looked for. now_ns() is the test's own, so
# that delays are there but need not be waited for.
domain_WORLD := $(addprefix tests/unit/,domain_world.c fake_launcher.c fakes.c fake_peers.c fake_box.c)
domain_WRAP := -Wl$(comma)--wrap=now_ns
domain_NEW := test_domain_snapshot test_domain_restore test_domain_pool test_domain_warm test_domain_fork test_domain_relink test_domain_net test_domain_netd \
	test_domain_view test_domain_policy
domain_TESTS := test_domain test_domain_start test_domain_review $(domain_NEW)
UNIT += $(domain_NEW)
$(foreach t,$(domain_TESTS),$(eval $(t)_SRCS := tests/unit/$(t).c $(domain_WORLD) $(if $(filter $(domain_NEW),$(t)),tests/unit/snapshot_fix.c)\
	$(if $(filter test_domain_net% test_domain_policy,$(t)),tests/unit/net_fix.c) $(if $(filter test_domain_view test_domain_policy,$(t)),tests/unit/view_fix.c))\
	$(eval $(t)_LIBS := cfsdomain policy netpolicy launch vmm agentproto base)$(eval $(t)_PKGS := json-c)$(eval $(t)_LDFLAGS := $(domain_WRAP)))

UNIT += test_peer
test_peer_SRCS := $(addprefix tests/unit/,test_peer.c peer_fix.c) $(addprefix cruciblefs/domain/,peer.c peersock.c)
test_peer_LIBS := launch base
test_peer_LDFLAGS := $(domain_WRAP)

# tests/unit/fault.c stands in for these calls of everything that is linked.
FAULT_CALLS := malloc calloc realloc strdup write mkdirat renameat fsync fchmod fchmodat socketpair pipe2 openat64
test_domain_fault_SRCS := $(domain_WORLD) $(addprefix tests/unit/,test_domain_fault.c fault.c)
test_domain_fault_LIBS := cfsdomain policy netpolicy launch vmm agentproto base
test_domain_fault_PKGS := json-c
test_domain_fault_LDFLAGS := $(domain_WRAP) $(addprefix -Wl$(comma)--wrap=,$(FAULT_CALLS))
