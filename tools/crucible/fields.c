/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/fields.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/crucible/printable.h"

int fields_put(struct json_object *o, const char *key, struct json_object *v)
{
	if (v && json_object_object_add(o, key, v) == 0)
		return 0;
	json_object_put(v);
	return -ENOMEM;
}

const char *fields_text(struct json_object *o, const char *key)
{
	const char *text = NULL;

	if (o)
		json_get_str(o, key, &text, NULL);
	return text;
}

uint64_t fields_number(struct json_object *o, const char *key)
{
	uint64_t v = 0;

	if (o)
		json_get_u64(o, key, 0, UINT64_MAX, &v, NULL);
	return v;
}

static void show(const char *prefix, struct json_object *o)
{
	json_object_object_foreach(o, key, v) {
		char name[128];

		snprintf(name, sizeof(name), "%s%s%s", prefix, *prefix ? "." : "", key);
		if (json_object_is_type(v, json_type_object)) {
			show(name, v);
		} else {
			char *text = strdup(json_object_is_type(v, json_type_string) ? json_object_get_string(v)
										     : json_line(v));

			if (text)
				printf("%-28s %s\n", printable_line(name), *text ? printable_line(text) : "-");
			free(text);
		}
	}
}

void fields_show(struct json_object *o)
{
	show("", o);
}
