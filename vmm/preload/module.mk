# SPDX-License-Identifier: Apache-2.0

# One file, loaded into the engine by LD_PRELOAD. No sanitizer in any CONFIG: it runs in programs that have none.
PRELOAD := $(B)/libexec/crucible-preload.so
PLAIN_CFLAGS = $(CSTD) $(WARN) -O2 -g -fstack-protector-strong -D_FORTIFY_SOURCE=2 $(INCLUDES) -MMD -MP
$(PRELOAD): vmm/preload/preload.c $(B)/flags | deps-present
	$(say) SO $@
	$(Q)mkdir -p $(@D) $(B)/obj/vmm/preload
	$(Q)$(CC) $(PLAIN_CFLAGS) -fPIC -shared -pthread -Wl,-z,relro,-z,now,-z,defs -MF $(B)/obj/vmm/preload/preload.so.d -MT $@ -o $@ $<
DATA += $(PRELOAD)

# The program that it is tested in: as plain.
$(B)/unit/preload_subject: tests/unit/preload_subject.c $(B)/flags | deps-present
	$(say) LD $@
	$(Q)mkdir -p $(@D) $(B)/obj/vmm/preload
	$(Q)$(CC) $(PLAIN_CFLAGS) -fPIE -pie -MF $(B)/obj/vmm/preload/subject.d -MT $@ -o $@ $<

UNIT += test_preload test_engine
test_preload_SRCS := tests/unit/test_preload.c
# Real machines over the library.
test_engine_SRCS := tests/unit/test_engine.c tests/unit/engine_rig.c
$(foreach t,test_preload test_engine,$(eval $(t)_LIBS := vmm base)$(eval $(t)_PKGS := json-c libseccomp))
test_engine_LDFLAGS := -pthread
$(B)/unit/test_preload: | $(PRELOAD) $(B)/unit/preload_subject
$(B)/unit/test_engine: | $(PRELOAD)

FUZZ += fuzz_preload
fuzz_preload_SRCS := tests/fuzz/fuzz_preload.c
fuzz_preload_LIBS := vmm base
