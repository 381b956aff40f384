/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a struct that are texts in arrays of their own, written to a JSON object and read back: ids and names,
 * each there or "". sandbox.json and snapshot.json are made of them. */
#ifndef CRUCIBLE_DOMAIN_MEMBERS_H
#define CRUCIBLE_DOMAIN_MEMBERS_H

#include <stddef.h>
#include <json-c/json.h>
#include "base/err.h"

struct member {
	const char *key;
	size_t at, cap;
};
/* Of the struct @type, under its own name. */
#define MEMBER(type, name)                                                \
	{                                                                 \
#name, offsetof(type, name), sizeof(((type *)NULL)->name) \
	}

void members_put(struct json_object *o, const void *of, const struct member *m, size_t n);
/* One that is missing is "". Errors: those of json_get_str; -EINVAL too long. */
int members_get(struct json_object *o, void *of, const struct member *m, size_t n, struct err *e);

#endif
