/* SPDX-License-Identifier: Apache-2.0 */
/* The part of JSON Schema that the tools' own schemas use: type, enum, minimum, maximum, items, properties, required,
 * additionalProperties false. So what tools/list says and what a call is checked by are one text. Thread: any. */
#ifndef CRUCIBLE_MCP_SCHEMA_H
#define CRUCIBLE_MCP_SCHEMA_H

#include "base/err.h"
#include "base/json.h"

/* Read a schema as it stands in our sources: JSON with ' for ", and none of the two in its texts. NULL: no memory (or
 * our own mistake, which a test finds). */
struct json_object *schema_parse(const char *text);

/* -EINVAL with words that begin with the field's name ("files[0].path: missing"). */
int schema_check(struct json_object *schema, struct json_object *value, struct err *e);

#endif
