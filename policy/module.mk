# SPDX-License-Identifier: Apache-2.0

# What a caller may do at most. Linked by the daemon and by the command (`policy validate`).
LIBS += policy
policy_SRCS := $(addprefix policy/,policy.c parse.c set.c)

policy_UNIT := test_policy test_policy_set
UNIT += $(policy_UNIT)
$(foreach t,$(policy_UNIT),$(eval $(t)_SRCS := tests/unit/$(t).c)$(eval $(t)_LIBS := policy netpolicy base)\
	$(eval $(t)_PKGS := json-c))

FUZZ += fuzz_policy
fuzz_policy_SRCS := tests/fuzz/fuzz_policy.c
fuzz_policy_LIBS := policy netpolicy base
fuzz_policy_PKGS := json-c
