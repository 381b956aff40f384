# SPDX-License-Identifier: Apache-2.0

# The engine, and the texts between daemon and box: the daemon links this, the box too.
LIBS += vmm
vmm_SRCS := $(addprefix vmm/,machine.c qemu_probe.c qemu.c qemu_state.c qemu_balloon.c qmp.c qmp_parse.c \
	trial.c trial_outcome.c preload/client.c) \
	$(addprefix vmm/box/,config.c request.c record.c)

# All of the box but its main file: for the program, its unit tests and its fuzz targets.
LIBS += box
box_SRCS := $(addprefix vmm/box/,message.c channel.c source.c guest.c guest_call.c guest_exec.c guest_freeze.c guest_json.c spool.c console.c \
	cmd.c queue.c queue_time.c session.c inherit.c box.c box_daemon.c box_early.c box_memory.c box_reclaim.c box_freeze.c box_load.c)

PROGS += crucible-box
crucible-box_DIR := libexec
crucible-box_SRCS := vmm/box/main.c
crucible-box_LIBS := box vmm agentproto base
crucible-box_PKGS := json-c libseccomp
$(eval $(call syscalls_rule,box,vmm/box,vmm/box/main.c))

vmm_UNIT := test_qmp test_machine test_qemu test_trial test_box_request test_box_record test_box_config test_box_spool test_box_exec \
	test_box_life test_box_daemon test_box_snapshot test_box_reclaim test_box_restore test_box_prog
UNIT += $(vmm_UNIT)
$(foreach t,$(vmm_UNIT),$(eval $(t)_SRCS := tests/unit/$(t).c)$(eval $(t)_LIBS := box vmm agentproto base)\
	$(eval $(t)_PKGS := json-c libseccomp))
$(foreach t,test_box_exec test_box_life test_box_daemon test_box_snapshot test_box_reclaim test_box_restore test_box_prog,\
	$(eval $(t)_SRCS += tests/unit/test_box_rig.c tests/unit/test_box_rig_agent.c tests/unit/test_box_rig_engine.c))
# It runs the program.
$(B)/unit/test_box_prog: | $(B)/libexec/crucible-box

vmm_FUZZ := fuzz_qmp fuzz_request fuzz_box_msg fuzz_box_frames
FUZZ += $(vmm_FUZZ)
$(foreach f,$(vmm_FUZZ),$(eval $(f)_SRCS := tests/fuzz/$(f).c)$(eval $(f)_LIBS := box vmm agentproto base)\
	$(eval $(f)_PKGS := json-c))
