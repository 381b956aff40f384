# SPDX-License-Identifier: Apache-2.0
LIBS += base
base_SRCS := $(addprefix base/,err.c fd.c buf.c wire.c loop.c msg.c log.c json.c name.c waitq.c pool.c proc.c confine.c \
	peer_main.c call.c base64.c cgroup.c cgroup_find.c cgroup_limit.c pagemap.c)

# $(eval $(call syscalls_rule,NAME,FOLDER,SOURCES)): the list FOLDER/syscalls.txt becomes the table NAME_syscalls of
# gen/NAME_syscalls.h, before SOURCES, which include it, are compiled. For a program's module.mk; see base/README.md.
define syscalls_rule
GEN_HEADERS += $(B)/gen/$(1)_syscalls.h
$(B)/gen/$(1)_syscalls.h: $(2)/syscalls.txt base/syscalls.sh
	$$(say) GEN $$@
	$$(Q)mkdir -p $$(@D)
	$$(Q)base/syscalls.sh $(1) $$< > $$@
$(patsubst %.c,$(B)/obj/%.o,$(3)): $(B)/gen/$(1)_syscalls.h
endef

base_UNIT := err buf base64 wire loop msg call fd json name log proc confine peer_main cgroup pagemap
UNIT += $(addprefix test_,$(base_UNIT))
$(foreach t,$(base_UNIT),$(eval test_$(t)_SRCS := tests/unit/test_$(t).c)$(eval test_$(t)_LIBS := base)\
	$(eval test_$(t)_PKGS := json-c libseccomp))
