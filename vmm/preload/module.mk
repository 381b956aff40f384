# SPDX-License-Identifier: Apache-2.0

# One file, loaded into the engine by LD_PRELOAD. No sanitizer in any CONFIG: it runs in programs that have none.
PRELOAD := $(B)/libexec/crucible-preload.so
PLAIN_CFLAGS = $(CSTD) $(WARN) -O2 -g -fstack-protector-strong -D_FORTIFY_SOURCE=2 $(INCLUDES) -MMD -MP
$(PRELOAD): vmm/preload/preload.c $(B)/flags | deps-present
	$(say) SO $@
	$(Q)mkdir -p $(@D) $(B)/obj/vmm/preload
	$(Q)$(CC) $(PLAIN_CFLAGS) -fPIC -shared -pthread -Wl,-z,relro,-z,now,-z,defs -MF $(B)/obj/vmm/preload/preload.so.d -MT $@ -o $@ $<
DATA += $(PRELOAD)
