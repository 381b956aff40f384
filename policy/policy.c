/* SPDX-License-Identifier: Apache-2.0 */
/* A policy's life, its names and its text. What it permits is set.c's: one policy is a set of one. */
#include "policy/policy.h"

#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "policy/policy_priv.h"

static const char *const op_names[] = { "create", "exec",  "snapshot", "fork",	 "delete",
					"read",	  "files", "network",  "images", "admin" };
_Static_assert(ARRAY_LEN(op_names) == POLICY_OP_COUNT, "every operation has its name");
_Static_assert(POLICY_ADMIN == 1u << (POLICY_OP_COUNT - 1), "operations are bits without a gap");

/* The bounds are beyond any host: what a number may be here does not depend on where the document is read. */
static const struct {
	const char *name;
	uint64_t most;
} maxima[] = {
	[POLICY_MAX_SANDBOXES] = { "max_sandboxes", 65536 },
	[POLICY_MAX_FORK] = { "max_fork", 65536 },
	[POLICY_MAX_TIMEOUT_S] = { "max_timeout_s", 31536000 }, /* a year, as limits/timeout_s */
	[POLICY_MAX_VCPUS] = { "max_vcpus", 4096 },
	[POLICY_MAX_MEMORY_MIB] = { "max_memory_mib", 1u << 24 },
	[POLICY_MAX_DISK_MIB] = { "max_disk_mib", 1u << 24 },
	[POLICY_MAX_SNAPSHOTS] = { "max_snapshots", 65536 },
};
_Static_assert(ARRAY_LEN(maxima) == POLICY_MAX_COUNT, "every maximum has its row");

const char *policy_op_name(enum policy_op op)
{
	for (unsigned i = 0; i < POLICY_OP_COUNT; i++)
		if ((unsigned)op == 1u << i)
			return op_names[i];
	return NULL;
}

const char *policy_max_name(enum policy_max which)
{
	return maxima[which].name;
}

uint64_t policy_max_most(enum policy_max which)
{
	return maxima[which].most;
}

struct policy *policy_ref(struct policy *p)
{
	if (p)
		atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
	return p;
}

static void list_fini(struct policy_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->of[i]);
	free(l->of);
}

struct policy *policy_unref(struct policy *p)
{
	if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
		return NULL;
	net_policy_unref(p->net);
	list_fini(&p->profiles);
	list_fini(&p->images);
	free(p);
	return NULL;
}

int policy_text(const struct policy *p, struct buf *out)
{
	const struct policy_set one = { .of = { p }, .n = 1 };
	AUTO_JSON *o = json_object_new_object();
	const char *before = "{\n  ";
	int r = o ? policy_set_json(&one, o) : -ENOMEM;

	if (r < 0)
		return r;
	json_object_object_foreach(o, key, v) {
		const char *text =
			json_object_to_json_string_ext(v, JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE);

		r = text ? buf_addf(out, "%s\"%s\": %s", before, key, text) : -ENOMEM;
		if (r < 0)
			return r;
		before = ",\n  ";
	}
	return buf_adds(out, "\n}\n");
}
