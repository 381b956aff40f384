# SPDX-License-Identifier: Apache-2.0
# The `crucible` command; the profile builder and the benchmarks bring their own files.

# Everything but main.c is an archive, so that the tests link what they test.
LIBS += cruciblecli
cruciblecli_SRCS := $(patsubst %,tools/crucible/%.c, \
	args printable mount tree follow sbx slot request record terminal outlet inlet attach execute table fields print progress snapshot watch lineage each \
	permits libexec guestpath libarchive pack unpack import commands help \
	run sandbox_create sandbox_ls inspect sandbox_exec sandbox_rm snapshot_create snapshot_ls \
	snapshot_diff snapshot_verify fork store cp logs policy document profile daemon version \
	view view_mount view_umount bind \
	setup setup_clients doctor doctor_host doctor_tools doctor_daemon)

LIBS += cruciblemcp
cruciblemcp_SRCS := $(patsubst %,tools/crucible/mcp/%.c, \
	rpc out worker answer schema guard tools exec sandbox files wait snapshot resources protocol server server_requests server_calls serve)

PROGS += crucible
crucible_SRCS := tools/crucible/main.c
crucible_LIBS := cruciblecli cruciblemcp agentproto policy netpolicy base
# libarchive is loaded when it is wanted (libarchive.h).
crucible_PKGS := json-c
crucible_DIR := bin

-include tools/profile/profile.mk
-include tools/bench/bench.mk

# -- tests --
TOOLS_TESTS := $(addprefix test_crucible_,args text record cp tree attach snapshot policy view docs mcp mcp_policy)
UNIT += $(TOOLS_TESTS)
define tools_test
$(1)_SRCS := tests/unit/$(1).c
$(1)_LIBS := cruciblecli cruciblemcp agentproto policy netpolicy base
$(1)_PKGS := json-c libarchive
endef
$(foreach t,$(TOOLS_TESTS),$(eval $(call tools_test,$(t))))

FUZZ += fuzz_crucible_guest
fuzz_crucible_guest_SRCS := tests/fuzz/fuzz_crucible_guest.c
fuzz_crucible_guest_LIBS := cruciblecli cruciblemcp agentproto policy netpolicy base
fuzz_crucible_guest_PKGS := json-c libarchive

FUZZ += fuzz_mcp_rpc
fuzz_mcp_rpc_SRCS := tests/fuzz/fuzz_mcp_rpc.c
fuzz_mcp_rpc_LIBS := cruciblecli cruciblemcp agentproto policy netpolicy base
fuzz_mcp_rpc_PKGS := json-c libarchive
