# SPDX-License-Identifier: Apache-2.0
# The benchmarks: programs that time, scripts that set things up. README.md tells what each measures and against what.
#
#   BENCH_PAIRS=N    pairs of each cell of exec and create (default: as README.md says)

BENCH_DIR   := tools/bench
BENCH_NAMES := fs exec create idle

# Built with everything else, so that a change elsewhere cannot break them unseen; not installed (neither bin nor libexec).
PROGS += bench-turns bench-report bench-savestate bench-deep_ll
bench-turns_SRCS := $(addprefix $(BENCH_DIR)/,turns.c op_file.c op_shell.c op_sandbox.c op_guestagent.c op_raw.c op_boot.c \
	op_restore.c op_fork.c op_snapshot.c bare.c tree.c memory.c)
bench-turns_LIBS := agentproto base
bench-turns_PKGS := json-c
bench-turns_DIR := bench
bench-savestate_SRCS := $(addprefix $(BENCH_DIR)/,savestate.c bare.c)
bench-savestate_LIBS := agentproto base
bench-savestate_PKGS := json-c
bench-savestate_DIR := bench
bench-report_SRCS := $(BENCH_DIR)/report.c
bench-report_LIBS := base
bench-report_PKGS := json-c
bench-report_DIR := bench
bench-deep_ll_SRCS := $(BENCH_DIR)/deep_ll.c
bench-deep_ll_PKGS := fuse3
bench-deep_ll_DIR := bench

.PHONY: bench
bench: $(addprefix bench-,$(BENCH_NAMES)) ## every benchmark, ours and the baselines in turn (root; ten minutes; results in build/bench/)

.PHONY: bench-fs
bench-fs: all bench-store ## benchmark: files of the mount and of a guest, against hello_ll, passthrough_ll, tmpfs
	$(Q)$(BENCH_DIR)/fs.sh $(CURDIR)/$(B)

.PHONY: bench-exec
bench-exec: all bench-store ## benchmark: commands and their output, against ssh, QEMU's guest agent, the bare channel
	$(Q)$(BENCH_DIR)/exec.sh $(CURDIR)/$(B)

.PHONY: bench-create
bench-create: all bench-store ## benchmark: from mkdir to the first result, against the bare boot
	$(Q)$(BENCH_DIR)/create.sh $(CURDIR)/$(B)

.PHONY: bench-idle
bench-idle: all bench-store ## benchmark: memory and wakeups of what is idle
	$(Q)$(BENCH_DIR)/idle.sh $(CURDIR)/$(B)

# In turn, also under -j: two at once would measure each other.
bench-exec: | $(if $(filter bench,$(MAKECMDGOALS)),bench-fs)
bench-create: | $(if $(filter bench,$(MAKECMDGOALS)),bench-exec)
bench-idle: | $(if $(filter bench,$(MAKECMDGOALS)),bench-create)

.PHONY: bench-store
bench-store: all ## build the profiles that the benchmarks boot (root; minutes, once)
	$(Q)$(BENCH_DIR)/store.sh $(CURDIR)/$(B)
