/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/permits.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/fd.h"
#include "tools/crucible/tree.h"

static int take_operations(struct json_object *o, unsigned *ret, struct err *e)
{
	struct json_object *list = NULL;
	unsigned ops = 0;
	int r = json_get_obj(o, "operations", json_type_array, &list, e);

	if (r < 0)
		return r;
	if (!list)
		return err_set(e, -EINVAL, "operations: missing");
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		const char *name = json_object_get_string(json_object_array_get_idx(list, i)) ?: "";

		for (unsigned k = 0; k < POLICY_OP_COUNT; k++) {
			if (!strcmp(name, policy_op_name(1u << k)))
				ops |= 1u << k;
		}
	}
	*ret = ops;
	return 0;
}

/* ["a","b"] -> "a,b". Names hold no commas. */
static int take_profiles(struct json_object *o, char **ret, struct err *e)
{
	struct json_object *list = NULL;
	struct buf text;
	int r = json_get_obj(o, "allow_profiles", json_type_array, &list, e);

	if (r < 0 || !list)
		return r;
	buf_init(&text, POLICY_TEXT_MAX);
	for (size_t i = 0; i < json_object_array_length(list) && r == 0; i++)
		r = buf_addf(&text, "%s%s", i ? "," : "",
			     json_object_get_string(json_object_array_get_idx(list, i)) ?: "");
	if (r == 0) {
		*ret = strdup(buf_str(&text) ?: "");
		r = *ret ? 0 : -ENOMEM;
	}
	buf_fini(&text);
	return r < 0 ? err_set(e, r, "allow_profiles: %s", strerror(-r)) : 0;
}

int permits_parse(struct json_object *o, struct permits *ret, struct err *e)
{
	struct permits p = { 0 };
	struct json_object *net = NULL;
	int r = take_operations(o, &p.ops, e);

	for (unsigned i = 0; i < POLICY_MAX_COUNT && r == 0; i++)
		r = json_get_u64(o, policy_max_name(i), 0, UINT64_MAX, &p.max[i], e);
	if (r == 0)
		r = json_get_obj(o, "net_allow_max", json_type_array, &net, e);
	p.no_network = net && json_object_array_length(net) == 0;
	if (r == 0)
		r = take_profiles(o, &p.profiles, e);
	if (r == 0)
		*ret = p;
	return r;
}

int permits_read(int root, struct permits *ret, struct err *e)
{
	AUTO_JSON *o = NULL;
	int r = tree_json(root, "policy.json", &o, e);

	if (r < 0)
		return r;
	r = permits_parse(o, ret, e);
	if (r < 0)
		err_wrap(e, "policy.json");
	return r;
}

void permits_fini(struct permits *p)
{
	free(p->profiles);
	p->profiles = NULL;
}

bool permits_explain(int root, enum policy_op op, const char *what, struct err *e)
{
	struct permits p;
	bool refused;

	if (permits_read(root, &p, NULL) != 0)
		return false;
	refused = !(p.ops & op);
	if (refused)
		err_set(e, -EPERM,
			"%s: the policy of this mount does not permit \"%s\" (policy.json tells what it does)", what,
			policy_op_name(op));
	permits_fini(&p);
	return refused;
}
