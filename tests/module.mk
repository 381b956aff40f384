# SPDX-License-Identifier: Apache-2.0
# The tests: what runs them is tests/run.sh, what they print ends with `N passed, N failed, N skipped`.
#
#   E2E='01_hello 2*'         only these scripts of tests/e2e (names or patterns without .sh)
#   CRUCIBLE_MUST_RUN=1       a skip is a failure
#   CRUCIBLE_TEST_PYTHON=1    the scripts that need python build that profile (it takes minutes, once)
#   JOBS=N                    tests at once (1)

JOBS      ?= 1
TESTSTORE := build/teststore
RUNNER    := tests/run.sh -j $(JOBS)
# Downloaded packages outlive `make clean`.
export CRUCIBLE_DEB_CACHE ?= $(CURDIR)/cache/debs

# This list is read last, so UNIT and FUZZ are whole.
TEST_UNIT := $(addprefix $(B)/unit/,$(UNIT))
TEST_FUZZ := $(addprefix $(B)/fuzz/,$(FUZZ))
FUZZ_SPECS := $(foreach f,$(FUZZ),$(B)/fuzz/$(f)::tests/fuzz/corpus/$(f))
E2E_ALL   := $(sort $(wildcard tests/e2e/[0-9]*.sh))
E2E_SPECS := $(if $(E2E),$(sort $(foreach e,$(E2E),$(wildcard tests/e2e/$(e).sh))),$(E2E_ALL))
# Those that need no guest come first: what is broken shows early.
E2E_SAN   := 01_hello 02_reading 05_names 06_control 07_one_command 08_waiting 10_owners 11_daemon 14_restart 25_slots 40_files

# -- the profiles that tests boot: one store for all, read only; each test links what it needs into its own -----------------

TEST_PROFILES := tiny $(if $(filter 1,$(CRUCIBLE_TEST_PYTHON)),base python)
TEST_AGENT := build/release/libexec/crucible-agent

.PHONY: teststore
teststore: $(addprefix $(TESTSTORE)/.built-,$(TEST_PROFILES)) ## build the profiles that the tests boot (root)

ifeq ($(CONFIG),release)
$(TESTSTORE)/.built-%: $(TEST_AGENT) $(wildcard tools/profile/*.sh tools/profile/profiles/*.profile) tools/profile/crucible-profile
	$(say) PROFILE $*
	$(Q)mkdir -p $(@D)
	$(Q)if [ "$$(id -u)" = 0 ]; then tools/profile/crucible-profile build $* --store $(TESTSTORE) --agent $(TEST_AGENT) && touch $@; \
		else echo "teststore: only root can build it; the end-to-end tests will skip"; fi
else
$(TESTSTORE)/.built-%: FORCE
	$(Q)$(MAKE) --no-print-directory CONFIG=release $@
endif

# -- for people --------------------------------------------------------------------------------------------------------------

.PHONY: check
check: all $(TEST_UNIT) $(TEST_FUZZ) teststore ## all tests: unit, fuzz corpora, end to end (root, or those skip)
	$(Q)$(RUNNER) -t 300 $(TEST_UNIT) $(FUZZ_SPECS) $(E2E_ALL)

.PHONY: check-unit
check-unit: $(TEST_UNIT) $(TEST_FUZZ) all ## unit tests, and the fuzz targets over their corpora
	$(Q)$(RUNNER) $(TEST_UNIT) $(FUZZ_SPECS)

.PHONY: check-e2e
check-e2e: all teststore $(B)/unit/fakefs ## end to end: the daemon, the mount and guests; E2E='01_hello 2*' takes some
	$(Q)$(RUNNER) -t 300 $(E2E_SPECS)

NET_UNIT := $(filter test_net% test_domain_net% test_launch_net test_agent_net,$(UNIT))
NET_FUZZ := $(filter fuzz_net%,$(FUZZ))
# The official SDK and the inspector's command line, as the lock says; a test that needs them skips where they are not there.
MCP_SDK := tests/mcp/node_modules/.package-lock.json
.PHONY: mcp-sdk
mcp-sdk: $(MCP_SDK) ## fetch the clients that tests/mcp speaks with (node 18 or later, npm; 40 MB)
$(MCP_SDK): tests/mcp/package.json tests/mcp/package-lock.json
	$(Q)cd tests/mcp && npm ci --ignore-scripts --no-audit --no-fund

.PHONY: check-mcp
check-mcp: check-mcp-clients $(B)/unit/test_crucible_mcp $(B)/unit/test_crucible_mcp_policy $(B)/fuzz/fuzz_mcp_rpc ## the MCP server alone: units, corpus, end to end, clients of others, what it costs
	$(Q)$(RUNNER) -t 300 $(B)/unit/test_crucible_mcp $(B)/unit/test_crucible_mcp_policy $(B)/fuzz/fuzz_mcp_rpc::tests/fuzz/corpus/fuzz_mcp_rpc \
		tests/e2e/86_mcp.sh tests/e2e/87_setup.sh tests/e2e/88_agent_files.sh

# Of that, what `check` has not.
.PHONY: check-mcp-clients
check-mcp-clients: export COST_OUT := $(CURDIR)/build/mcp-cost
check-mcp-clients: all teststore mcp-sdk ## the MCP server with the official SDK's client and the inspector's command line, and what it costs
	$(Q)$(RUNNER) -t 600 tests/mcp/sdk.sh tests/mcp/cost.sh
	$(Q)cat $(COST_OUT)

.PHONY: check-net
check-net: all teststore $(addprefix $(B)/unit/,$(NET_UNIT)) $(addprefix $(B)/fuzz/,$(NET_FUZZ)) ## the network alone: units, corpora, and guests in namespaces that the tests make
	$(Q)$(RUNNER) -t 300 $(addprefix $(B)/unit/,$(NET_UNIT)) $(foreach f,$(NET_FUZZ),$(B)/fuzz/$(f)::tests/fuzz/corpus/$(f)) \
		$(wildcard tests/e2e/9[0-9]_net_*.sh)

# Leaks count in the unit tests. Not end to end: the leak checker stops its process with ptrace from a helper, which a confined process
# without /proc cannot allow; what daemon and box would leak, their unit tests show.
SAN_ENV = ASAN_OPTIONS=detect_leaks=$(1):abort_on_error=0:disable_coredump=1:handle_abort=1 \
	UBSAN_OPTIONS=print_stacktrace=1 LSAN_OPTIONS=report_objects=0 CRUCIBLE_BUILD=$(CURDIR)/build/san

.PHONY: check-san
check-san: teststore ## the same under address and undefined-behaviour sanitizers: unit, fuzz corpora, some end to end
	$(Q)$(MAKE) --no-print-directory CONFIG=san san-programs
	$(Q)$(call SAN_ENV,1) $(RUNNER) -l san -t 600 $(patsubst $(B)/%,build/san/%,$(TEST_UNIT) $(FUZZ_SPECS))
	$(Q)$(call SAN_ENV,0) $(RUNNER) -l san -t 600 $(foreach e,$(if $(E2E),$(E2E),$(E2E_SAN)),$(wildcard tests/e2e/$(e).sh))

.PHONY: san-programs
san-programs: all $(TEST_UNIT) $(TEST_FUZZ)

TSAN_UNIT := $(filter test_loop test_pool test_waitq test_log test_stored test_nbd test_pager_fault test_pager_capture test_pager_prog,$(UNIT))
.PHONY: check-tsan
check-tsan: ## what threads share (loop, pool, log, pager, block server, store) under the thread sanitizer
	$(Q)$(MAKE) --no-print-directory CONFIG=tsan $(addprefix build/tsan/unit/,$(TSAN_UNIT))
	$(Q)TSAN_OPTIONS=halt_on_error=1 $(RUNNER) -l tsan $(addprefix build/tsan/unit/,$(TSAN_UNIT))

FUZZ_SECONDS ?= 20
# One word a target, its arguments behind "::", as tests/run.sh takes them. New inputs go to a folder of the run, which comes first.
smoke_args = -max_total_time=$(FUZZ_SECONDS) -timeout=10 -error_exitcode=1 -max_len=65536 -create_missing_dirs=1 -print_final_stats=1 \
	-artifact_prefix=$(CURDIR)/build/test-logs/$(1)- found tests/fuzz/corpus/$(1)
smoke_spec = $(subst $(space),::,$(strip build/fuzz/fuzz/$(1) $(smoke_args)))
.PHONY: fuzz-smoke
fuzz-smoke: ## each fuzz target under libFuzzer for FUZZ_SECONDS (20), from its corpus (clang)
	$(Q)$(MAKE) --no-print-directory CONFIG=fuzz $(addprefix build/fuzz/fuzz/,$(FUZZ))
	$(Q)mkdir -p build/test-logs
	$(Q)$(RUNNER) -l smoke -t $$(($(FUZZ_SECONDS) + 60)) $(foreach f,$(FUZZ),$(call smoke_spec,$(f)))

.PHONY: lint
lint: compile_commands.json $(GEN_HEADERS) ## formatters and analysers; each skips when its tool is absent
	$(Q)$(RUNNER) -t 900 $(sort $(wildcard tests/lint/*.sh))

# One object a source file, as clang-tidy wants it; without a tool of its own.
compile_commands.json: $(B)/flags Makefile $(wildcard */module.mk */*/*.mk tests/module.mk)
	$(Q){ echo '['; for f in $(sort $(foreach t,$(LIBS) $(PROGS) $(UNIT) $(FUZZ),$(filter %.c,$($(t)_SRCS)))); do \
		printf '%s{"directory":"%s","file":"%s","command":"clang %s -c %s"}' "$$c" '$(CURDIR)' "$$f" \
		"$$(printf %s '$(subst ','\'',$(CSTD) $(WARN) $(DEFS) $(INCLUDES) $(PKG_CFLAGS))' | sed 's/\\/\\\\/g; s/"/\\"/g')" "$$f"; \
		c=','; echo; done; echo ']'; } > $@
