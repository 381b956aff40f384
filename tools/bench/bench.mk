# SPDX-License-Identifier: Apache-2.0
# The benchmarks: programs that time, scripts that set things up. README.md tells what each measures and against what.
#
#   BENCH_PAIRS=N    pairs of each cell of exec and create (default: as README.md says)

BENCH_DIR   := tools/bench
BENCH_NAMES := fs exec create idle fork burst snapshot fault cold store net

# Built with everything else, so that a change elsewhere cannot break them unseen; not installed (neither bin nor libexec).
PROGS += bench-turns bench-report bench-savestate bench-snapstore bench-fault bench-deep_ll
bench-turns_SRCS := $(addprefix $(BENCH_DIR)/,turns.c op_file.c op_shell.c op_sandbox.c op_guestagent.c op_raw.c op_boot.c \
	op_restore.c op_fork.c op_snapshot.c bare.c tree.c memory.c)
bench-turns_LIBS := agentproto base
bench-turns_PKGS := json-c
bench-turns_DIR := bench
bench-savestate_SRCS := $(addprefix $(BENCH_DIR)/,savestate.c bare.c)
bench-savestate_LIBS := agentproto base
bench-savestate_PKGS := json-c
bench-savestate_DIR := bench
bench-snapstore_SRCS := $(BENCH_DIR)/snapstore.c
bench-snapstore_LIBS := snapstore base
bench-snapstore_PKGS := $(snapstore_PKGS)
bench-snapstore_DIR := bench
bench-fault_SRCS := $(BENCH_DIR)/fault.c tests/unit/pager_rig.c tests/unit/snap_rig.c
bench-fault_LIBS := $(test_pager_figures_LIBS)
bench-fault_PKGS := $(test_pager_figures_PKGS) cmocka
bench-fault_DIR := bench
bench-report_SRCS := $(BENCH_DIR)/report.c
bench-report_LIBS := base
bench-report_PKGS := json-c
bench-report_DIR := bench
bench-deep_ll_SRCS := $(BENCH_DIR)/deep_ll.c
bench-deep_ll_PKGS := fuse3
bench-deep_ll_DIR := bench

.PHONY: bench
bench: $(addprefix bench-,$(BENCH_NAMES)) ## every benchmark, ours and the baselines in turn (root; ten minutes; results in build/bench/)

.PHONY: bench-fs bench-exec bench-create bench-idle bench-fork bench-burst bench-snapshot bench-fault bench-cold bench-store bench-net
bench-fs: bench-ready ## benchmark: files of the mount and of a guest, against hello_ll, passthrough_ll, tmpfs
	$(Q)$(BENCH_DIR)/fs.sh $(CURDIR)/$(B)

bench-exec: bench-ready ## benchmark: commands and their output, against ssh, QEMU's guest agent, the bare channel
	$(Q)$(BENCH_DIR)/exec.sh $(CURDIR)/$(B)

bench-create: bench-ready ## benchmark: from mkdir to the first result, with and without pool, against a cold boot
	$(Q)$(BENCH_DIR)/create.sh $(CURDIR)/$(B)

bench-idle: bench-ready ## benchmark: memory and wakeups of what is idle
	$(Q)$(BENCH_DIR)/idle.sh $(CURDIR)/$(B)

bench-fork: bench-ready ## benchmark: a fork to its first reply and result, against QEMU's own ways from a saved state
	$(Q)$(BENCH_DIR)/fork.sh $(CURDIR)/$(B)

bench-burst: bench-ready ## benchmark: 1 to 64 forks at once, time and memory of each
	$(Q)$(BENCH_DIR)/burst.sh $(CURDIR)/$(B)

bench-snapshot: bench-ready ## benchmark: the pause of a snapshot and the time until it is stored, against QEMU's migration
	$(Q)$(BENCH_DIR)/snapshot.sh $(CURDIR)/$(B)

bench-fault: bench-ready ## benchmark: one page fault of a fork, against bare loops of the same kind
	$(Q)$(BENCH_DIR)/fault.sh $(CURDIR)/$(B)

bench-cold: bench-ready ## benchmark: the first fork when nothing is cached, against what the disk can do (fio)
	$(Q)$(BENCH_DIR)/cold.sh $(CURDIR)/$(B)

bench-store: bench-ready ## benchmark: eight snapshots in and out of the store, against casync, borg, restic, lz4, zstd
	$(Q)$(BENCH_DIR)/store.sh $(CURDIR)/$(B)

bench-net: bench-ready ## benchmark: a sandbox's network, against the same guest on a bridge; what a list adds to a fork
	$(Q)$(BENCH_DIR)/net.sh $(CURDIR)/$(B)

# In turn, also under -j: two at once would measure each other.
bench_last :=
$(foreach n,$(BENCH_NAMES),$(if $(bench_last),$(eval bench-$(n): | $(if $(filter bench,$(MAKECMDGOALS)),bench-$(bench_last))))\
	$(eval bench_last := $(n)))

.PHONY: bench-ready bench-profiles
bench-ready: all bench-profiles
	$(Q)tests/deps.sh install bench >/dev/null || echo "bench: not everything could be installed; what is missing is left out" >&2

bench-profiles: all ## build the profiles that the benchmarks boot (root; minutes, once)
	$(Q)$(BENCH_DIR)/profiles.sh $(CURDIR)/$(B)
