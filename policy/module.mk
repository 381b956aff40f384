# SPDX-License-Identifier: Apache-2.0

# What a caller may do at most. Linked by the daemon and by the command (`policy validate`).
LIBS += policy
policy_SRCS := $(addprefix policy/,policy.c parse.c set.c)

policy_UNIT := test_policy test_policy_set
UNIT += $(policy_UNIT)
$(foreach t,$(policy_UNIT),$(eval $(t)_SRCS := tests/unit/$(t).c)$(eval $(t)_LIBS := policy netpolicy base)\
	$(eval $(t)_PKGS := json-c))

UNIT += test_policy_fault
test_policy_fault_SRCS := $(addprefix tests/unit/,test_policy_fault.c fault.c)
test_policy_fault_LIBS := policy netpolicy base
test_policy_fault_PKGS := json-c
test_policy_fault_LDFLAGS = $(addprefix -Wl$(comma)--wrap=,$(FAULT_CALLS))

FUZZ += fuzz_policy
fuzz_policy_SRCS := tests/fuzz/fuzz_policy.c
fuzz_policy_LIBS := policy netpolicy base
fuzz_policy_PKGS := json-c
