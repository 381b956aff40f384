/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/mcp/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "tools/crucible/fields.h"

#define PATH_CAP 160

struct json_object *schema_parse(const char *text)
{
	char *copy = strdup(text);
	struct json_object *o = NULL;

	if (!copy)
		return NULL;
	for (char *p = copy; *p; p++) {
		if (*p == '\'')
			*p = '"';
	}
	json_parse(copy, strlen(copy), &o, NULL);
	free(copy);
	return o;
}

static const struct {
	const char *name, *words;
	enum json_type type;
} types[] = {
	{ "string", "a text", json_type_string },   { "integer", "a whole number", json_type_int },
	{ "number", "a number", json_type_double }, { "boolean", "true or false", json_type_boolean },
	{ "array", "a list", json_type_array },	    { "object", "an object", json_type_object },
};

static int check_type(const char *want, struct json_object *v, const char *path, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		if (strcmp(types[i].name, want) != 0)
			continue;
		if (json_object_is_type(v, types[i].type) ||
		    (types[i].type == json_type_double && json_object_is_type(v, json_type_int)))
			return 0;
		return err_set(e, -EINVAL, "%s: must be %s", path, types[i].words);
	}
	return err_set(e, -EINVAL, "%s: of no known type", path);
}

static int check_enum(struct json_object *list, struct json_object *v, const char *path, struct err *e)
{
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		if (json_object_equal(json_object_array_get_idx(list, i), v))
			return 0;
	}
	return err_set(e, -EINVAL, "%s: must be one of %s", path, json_line(list));
}

static int check_range(struct json_object *schema, struct json_object *v, const char *path, struct err *e)
{
	struct json_object *limit;

	if (json_object_object_get_ex(schema, "minimum", &limit) &&
	    json_object_get_double(v) < json_object_get_double(limit))
		return err_set(e, -EINVAL, "%s: must be %s or more", path, json_line(limit));
	if (json_object_object_get_ex(schema, "maximum", &limit) &&
	    json_object_get_double(v) > json_object_get_double(limit))
		return err_set(e, -EINVAL, "%s: must be %s or less", path, json_line(limit));
	return 0;
}

static int check(struct json_object *schema, struct json_object *v, const char *path, struct err *e);

/* Recursion: as deep as our own schemas. */
static int check_members(struct json_object *schema, struct json_object *v, const char *path, struct err *e)
{
	struct json_object *properties = NULL, *required = NULL, *more = NULL;
	const char *dot = *path ? "." : "";
	char name[PATH_CAP];
	int r;

	json_object_object_get_ex(schema, "properties", &properties);
	json_object_object_get_ex(schema, "additionalProperties", &more);
	if (json_object_object_get_ex(schema, "required", &required)) {
		for (size_t i = 0; i < json_object_array_length(required); i++) {
			const char *key = json_object_get_string(json_object_array_get_idx(required, i));

			if (!json_object_object_get_ex(v, key, NULL))
				return err_set(e, -EINVAL, "%s%s%s: missing", path, dot, key);
		}
	}
	json_object_object_foreach(v, key, member) {
		struct json_object *of_member = NULL;

		snprintf(name, sizeof(name), "%s%s%s", path, dot, key);
		if (json_object_object_get_ex(properties, key, &of_member)) {
			r = check(of_member, member, name, e);
			if (r < 0)
				return r;
		} else if (more && !json_object_get_boolean(more)) {
			return err_set(e, -EINVAL, "%s: there is no such argument", name);
		}
	}
	return 0;
}

static int check(struct json_object *schema, struct json_object *v, const char *path, struct err *e)
{
	struct json_object *list, *items;
	const char *type = fields_text(schema, "type");
	char name[PATH_CAP];
	int r = type ? check_type(type, v, *path ? path : "arguments", e) : 0;

	if (r == 0 && json_object_object_get_ex(schema, "enum", &list))
		r = check_enum(list, v, path, e);
	if (r == 0 && (json_object_is_type(v, json_type_int) || json_object_is_type(v, json_type_double)))
		r = check_range(schema, v, path, e);
	if (r == 0 && json_object_is_type(v, json_type_object))
		r = check_members(schema, v, path, e);
	if (r == 0 && json_object_is_type(v, json_type_array) && json_object_object_get_ex(schema, "items", &items)) {
		for (size_t i = 0; r == 0 && i < json_object_array_length(v); i++) {
			snprintf(name, sizeof(name), "%s[%zu]", path, i);
			r = check(items, json_object_array_get_idx(v, i), name, e);
		}
	}
	return r;
}

int schema_check(struct json_object *schema, struct json_object *value, struct err *e)
{
	return check(schema, value, "", e);
}
