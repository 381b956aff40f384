# SPDX-License-Identifier: Apache-2.0

# The wire between box and agent: used by both sides.
LIBS += agentproto
agentproto_SRCS := agent/proto.c

# All of the agent but its main file: for the program, its unit tests and its fuzz targets.
LIBS += agentcore
agentcore_SRCS := $(addprefix agent/,guest.c conn.c limits.c users.c paths.c files.c files_name.c files_io.c request.c \
	pty.c stream.c child.c import.c fsserver.c exec.c exec_start.c exec_epoch.c freeze.c list.c record.c identity.c syncer.c spare.c reap.c session.c shutdown.c \
	mounts.c devices.c net.c netreset.c)
agentcore_PKGS := libnl-3.0

PROGS += crucible-agent
crucible-agent_SRCS := agent/main.c
crucible-agent_LIBS := agentcore agentproto base
crucible-agent_DIR := libexec
# It must run in an initramfs, alone. A sanitizer's run-time library cannot be linked statically.
ifneq ($(filter san tsan fuzz,$(CONFIG)),)
crucible-agent_PKGS := json-c libarchive libnl-3.0
else
crucible-agent_STATIC := yes
crucible-agent_PKGS := json-c libnl-3.0
# libnl could look names up, which a static glibc warns of; nothing here does.
crucible-agent_LDFLAGS := -Wl,--strip-debug -Wl,--no-warnings
# Of what pkg-config names for a static libarchive, tar and gzip need these two.
$(B)/libexec/crucible-agent: private LDFLAGS += -larchive -lacl -lz
endif

# These drive the agent that was built, as the host would, over two sockets.
AGENT_DRIVERS := test_agent_exec test_agent_stream test_agent_fs test_agent_import test_agent_freeze test_agent_clone test_agent_identity test_agent_list
$(foreach t,$(AGENT_DRIVERS),$(eval UNIT += $(t))\
	$(eval $(t)_SRCS := tests/unit/$(t).c tests/unit/test_agent_harness.c tests/unit/test_agent_harness_files.c)\
	$(eval $(t)_LIBS := agentproto base)$(eval $(t)_PKGS := json-c)\
	$(eval $(B)/unit/$(t): | $(B)/libexec/crucible-agent))

# This one calls identity.c itself.
test_agent_identity_LIBS := agentcore agentproto base
test_agent_identity_PKGS := json-c libarchive libnl-3.0

UNIT += test_agent_proto test_agent_parse test_agent_net
test_agent_net_SRCS := tests/unit/test_agent_net.c
test_agent_net_LDFLAGS := -Wl,--wrap=nanosleep
test_agent_net_LIBS := agentcore agentproto base
test_agent_net_PKGS := json-c libarchive libnl-3.0
test_agent_proto_SRCS := tests/unit/test_agent_proto.c
test_agent_proto_LIBS := agentproto base
test_agent_proto_PKGS := json-c
test_agent_parse_SRCS := tests/unit/test_agent_parse.c
test_agent_parse_LIBS := agentcore agentproto base
test_agent_parse_PKGS := json-c libarchive libnl-3.0

FUZZ += fuzz_agent_frame fuzz_agent_fs
fuzz_agent_frame_SRCS := tests/fuzz/fuzz_agent_frame.c
fuzz_agent_fs_SRCS := tests/fuzz/fuzz_agent_fs.c
$(foreach f,fuzz_agent_frame fuzz_agent_fs,$(eval $(f)_LIBS := agentcore agentproto base)$(eval $(f)_PKGS := json-c libarchive libnl-3.0))
