/* SPDX-License-Identifier: Apache-2.0 */
/* What of the attributes policies permit: what a sandbox begins with is lowered to it, what is written beyond it is
 * refused. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/fd.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "cruciblefs/domain/view_priv.h"

/* The attributes that a maximum is about. */
static const struct capped {
	enum sandbox_attr a;
	enum policy_max max;
} capped[] = {
	{ ATTR_VCPUS, POLICY_MAX_VCPUS },
	{ ATTR_MEMORY_MIB, POLICY_MAX_MEMORY_MIB },
	{ ATTR_DISK_MIB, POLICY_MAX_DISK_MIB },
	{ ATTR_TIMEOUT_S, POLICY_MAX_TIMEOUT_S },
	{ ATTR_EXEC_TIMEOUT_S, POLICY_MAX_TIMEOUT_S },
};

static int shape_permitted(const struct attrs *a, struct registry *r, const struct cfs_who *who, struct err *e)
{
	int k = 0;

	for (size_t i = 0; !k && i < ARRAY_LEN(capped); i++) {
		if (capped[i].max == POLICY_MAX_TIMEOUT_S)
			continue;
		k = permit_amount(r, who, capped[i].max, a->num[capped[i].a], e);
		if (k < 0)
			err_wrap(e, "its %s", sandbox_attr_name(capped[i].a));
	}
	return k;
}

int attrs_lower(struct attrs *a, struct registry *r, const struct cfs_who *who, bool shape, struct err *e)
{
	int k = shape ? 0 : shape_permitted(a, r, who, e);

	for (size_t i = 0; !k && i < ARRAY_LEN(capped); i++) {
		uint32_t least, most;
		uint64_t max = permit_max(r, who, capped[i].max);
		uint32_t *at = &a->num[capped[i].a];
		bool endless = capped[i].max == POLICY_MAX_TIMEOUT_S && !*at;

		if (!max || (!endless && *at <= max))
			continue;
		attr_range(capped[i].a, &least, &most);
		if (max < least)
			return err_set(e, -EDQUOT,
				       "%s is %" PRIu64 " by the policy, and no sandbox has less %s than %" PRIu32,
				       policy_max_name(capped[i].max), max, sandbox_attr_name(capped[i].a), least);
		*at = (uint32_t)(max < most ? max : most);
	}
	return k;
}

static bool origin_permitted(const struct attrs *a, struct registry *r, const struct cfs_who *who)
{
	const struct snapshot *p;

	if (strncmp(a->from, attr_from_snapshot, strlen(attr_from_snapshot)) != 0)
		return permit_profile(r, who, a->from + strlen("profile:"), NULL) == 0;
	p = registry_find_snapshot(r, NULL, a->from + strlen(attr_from_snapshot));
	/* One that is gone is an error of its own. */
	return registry_may(r, who, POLICY_FORK, NULL) == 0 && (!p || shape_permitted(&p->attrs, r, who, NULL) == 0);
}

int attrs_choose_origin(struct attrs *a, struct registry *r, const struct cfs_who *who, struct err *e)
{
	struct policy_set set;
	struct attrs builtin;
	const char *name;

	if (origin_permitted(a, r, who))
		return 0;
	registry_policies(r, who, &set);
	name = policy_set_first_profile(&set);
	if (name && !name[0])
		return err_set(e, -EPERM, "the policy permits no profile (allow_profiles)");
	attrs_builtin(&builtin);
	if (name)
		snprintf(a->from, sizeof(a->from), "profile:%s", name);
	else
		memcpy(a->from, builtin.from, sizeof(a->from));
	return 0;
}

/* What was just written into @s. */
int attr_written_permitted(struct sandbox *s, enum sandbox_attr a, const struct cfs_who *who, struct err *e)
{
	bool of_snapshot = !strncmp(s->attrs.from, attr_from_snapshot, strlen(attr_from_snapshot));
	int k = 0;

	for (size_t i = 0; !k && i < ARRAY_LEN(capped); i++) {
		if (capped[i].a == a)
			k = permit_amount(s->reg, who, capped[i].max, s->attrs.num[a], e);
	}
	if (k < 0 || a != ATTR_FROM)
		return k;
	if (!of_snapshot)
		return permit_profile(s->reg, who, s->attrs.from + strlen("profile:"), e);
	k = registry_may(s->reg, who, POLICY_FORK, e);
	return k < 0 ? k : attrs_lower(&s->attrs, s->reg, who, false, e);
}
