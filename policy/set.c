/* SPDX-License-Identifier: Apache-2.0 */
/* Several policies at once: what all of them permit. */
#include <string.h>

#include "base/fd.h"
#include "policy/policy_priv.h"

/* -- operations and numbers -------------------------------------------------------------------------------------- */

static unsigned ops_of(const struct policy_set *set)
{
	unsigned ops = set->n ? POLICY_OPS_ALL : POLICY_OPS_DEFAULT;

	for (size_t i = 0; i < set->n; i++)
		ops &= set->of[i]->ops;
	return ops;
}

bool policy_set_allows(const struct policy_set *set, enum policy_op op)
{
	return policy_op_name(op) && (ops_of(set) & (unsigned)op);
}

bool policy_set_names_admin(const struct policy_set *set)
{
	return policy_set_allows(set, POLICY_ADMIN);
}

uint64_t policy_set_max(const struct policy_set *set, enum policy_max which)
{
	uint64_t least = 0;

	for (size_t i = 0; i < set->n; i++) {
		uint64_t max = set->of[i]->max[which];

		if (max && (!least || max < least))
			least = max;
	}
	return least;
}

/* -- profiles and images ------------------------------------------------------------------------------------------ */

/* Which of a policy's lists, and how an entry permits a text. */
struct kind {
	size_t at; /* of struct policy_list in struct policy */
	bool (*covers)(const char *entry, const char *text);
};

static bool same(const char *entry, const char *text)
{
	return strcmp(entry, text) == 0;
}

bool policy_image_covers(const char *entry, const char *ref)
{
	size_t n = strlen(entry);

	if (n > 0 && entry[n - 1] == '*')
		return strncmp(entry, ref, n - 1) == 0;
	return strcmp(entry, ref) == 0;
}

static const struct kind profiles = { offsetof(struct policy, profiles), same };
static const struct kind images = { offsetof(struct policy, images), policy_image_covers };

static const struct policy_list *list_of(const struct policy *p, const struct kind *k)
{
	return (const struct policy_list *)((const char *)p + k->at);
}

static bool list_has(const struct policy_list *l, const struct kind *k, const char *text)
{
	for (size_t i = 0; i < l->n; i++)
		if (k->covers(l->of[i], text))
			return true;
	return false;
}

static bool all_have(const struct policy_set *set, const struct kind *k, const char *text)
{
	for (size_t i = 0; i < set->n; i++) {
		const struct policy_list *l = list_of(set->of[i], k);

		if (l->given && !list_has(l, k, text))
			return false;
	}
	return true;
}

bool policy_set_allows_profile(const struct policy_set *set, const char *name)
{
	return all_have(set, &profiles, name);
}

bool policy_set_allows_image(const struct policy_set *set, const char *ref)
{
	return all_have(set, &images, ref);
}

const char *policy_set_first_profile(const struct policy_set *set)
{
	const struct policy_list *least = NULL;

	for (size_t i = 0; i < set->n; i++) {
		const struct policy_list *l = &set->of[i]->profiles;

		if (l->given && (!least || l->n < least->n))
			least = l;
	}
	if (!least)
		return NULL;
	for (size_t i = 0; i < least->n; i++)
		if (all_have(set, &profiles, least->of[i]))
			return least->of[i];
	return "";
}

/* -- network --------------------------------------------------------------------------------------------------------
 */

bool policy_set_net_limited(const struct policy_set *set)
{
	for (size_t i = 0; i < set->n; i++)
		if (set->of[i]->net)
			return true;
	return false;
}

int policy_set_net_check(const struct policy_set *set, const struct net_policy *wanted, struct err *e)
{
	if (net_policy_empty(wanted))
		return 0;
	/* First what cannot be helped by another rule. */
	for (size_t i = 0; i < set->n; i++)
		if (set->of[i]->net && net_policy_empty(set->of[i]->net))
			return err_set(e, -EPERM, "the policy permits no network (net_allow_max is empty)");
	for (size_t i = 0; i < set->n; i++) {
		struct err why = { 0 };

		if (set->of[i]->net && !net_policy_within(wanted, set->of[i]->net, &why))
			return err_set(e, -EDQUOT, "beyond the policy's net_allow_max, which policy.json shows: %s",
				       why.msg);
	}
	return 0;
}

/* What all lists permit. *ret: the caller's. */
static int net_of(const struct policy_set *set, struct net_policy **ret)
{
	struct net_policy *all = NULL;

	for (size_t i = 0; i < set->n; i++) {
		struct net_policy *both, *one = set->of[i]->net;
		int r;

		if (!one)
			continue;
		if (!all) {
			all = net_policy_ref(one);
			continue;
		}
		r = net_policy_both(all, one, &both);
		net_policy_unref(all);
		if (r < 0)
			return r;
		all = both;
	}
	*ret = all;
	return 0;
}

/* -- as JSON --------------------------------------------------------------------------------------------------------
 */

/* Takes @v; NULL is -ENOMEM. */
static int put(struct json_object *into, const char *key, struct json_object *v)
{
	if (v && json_object_object_add(into, key, v) == 0)
		return 0;
	json_object_put(v);
	return -ENOMEM;
}

static int append(struct json_object *array, const char *text, size_t len)
{
	struct json_object *v = json_object_new_string_len(text, (int)len);

	if (v && json_object_array_add(array, v) == 0)
		return 0;
	json_object_put(v);
	return -ENOMEM;
}

static int add_ops(const struct policy_set *set, struct json_object *into)
{
	struct json_object *array = json_object_new_array();
	unsigned ops = ops_of(set);
	int r = put(into, "operations", array);

	for (unsigned i = 0; i < POLICY_OP_COUNT && r == 0; i++) {
		const char *name = policy_op_name(1u << i);

		if (ops & 1u << i)
			r = append(array, name, strlen(name));
	}
	return r;
}

static int add_net(const struct policy_set *set, struct json_object *into)
{
	struct net_policy *all = NULL;
	struct json_object *array;
	struct buf text;
	int r = net_of(set, &all);

	if (r < 0 || !all)
		return r;
	buf_init(&text, (size_t)NET_RULES_MAX * (NET_NAME_MAX + 16));
	r = net_policy_text(all, &text);
	net_policy_unref(all);
	array = json_object_new_array();
	if (r == 0)
		r = put(into, "net_allow_max", array);
	else
		json_object_put(array);
	if (r == 0) {
		const char *at = (const char *)text.data, *line;
		size_t left = text.len, len;

		while (r == 0 && net_next_line(&at, &left, &line, &len))
			r = append(array, line, len);
	}
	buf_fini(&text);
	return r;
}

/* Does @array have all of @text already? Of two entries that name the same the first is kept. */
static bool shown(struct json_object *array, const struct kind *k, const char *text)
{
	for (size_t i = 0; i < json_object_array_length(array); i++)
		if (k->covers(json_object_get_string(json_object_array_get_idx(array, i)), text))
			return true;
	return false;
}

/* Entries of two lists are nested or apart, so what all lists have in common are those entries that all others cover.
 */
static int add_list(const struct policy_set *set, const struct kind *k, const char *key, struct json_object *into)
{
	struct json_object *array = NULL;
	int r = 0;

	for (size_t i = 0; i < set->n && r == 0; i++) {
		const struct policy_list *l = list_of(set->of[i], k);

		if (!l->given)
			continue;
		if (!array) {
			array = json_object_new_array();
			r = put(into, key, array);
		}
		for (size_t n = 0; n < l->n && r == 0; n++)
			if (all_have(set, k, l->of[n]) && (set->n == 1 || !shown(array, k, l->of[n])))
				r = append(array, l->of[n], strlen(l->of[n]));
	}
	return r;
}

int policy_set_json(const struct policy_set *set, struct json_object *into)
{
	int r = add_ops(set, into);

	if (r == 0)
		r = add_net(set, into);
	if (r == 0)
		r = add_list(set, &profiles, "allow_profiles", into);
	if (r == 0)
		r = add_list(set, &images, "allow_images", into);
	for (unsigned i = 0; i < POLICY_MAX_COUNT && r == 0; i++) {
		uint64_t max = policy_set_max(set, i);

		if (max)
			r = put(into, policy_max_name(i), json_object_new_uint64(max));
	}
	return r;
}
