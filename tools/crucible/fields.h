/* SPDX-License-Identifier: Apache-2.0 */
/* Members of records: put together, taken out, shown to people. Thread: any. Nothing blocks. */
#ifndef CRUCIBLE_TOOLS_FIELDS_H
#define CRUCIBLE_TOOLS_FIELDS_H

#include "base/json.h"

/* Takes @v; NULL is -ENOMEM. */
int fields_put(struct json_object *o, const char *key, struct json_object *v);
/* The text of @key; NULL: not there, or no text, or @o is NULL. Borrowed from @o. */
const char *fields_text(struct json_object *o, const char *key);
/* The number of @key of @o, which may be NULL; 0 when it is not there or is none. */
uint64_t fields_number(struct json_object *o, const char *key);

/* To standard output: "key   value" lines, members of members with a dot between. Control characters are replaced. */
void fields_show(struct json_object *o);

#endif
