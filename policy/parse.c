/* SPDX-License-Identifier: Apache-2.0 */
/* A document becomes a policy, or a list of all its faults.
 *
 * How this works: base/json.h says whether it is JSON at all; whatever is wrong there is the only fault, for nothing
 * behind it can be understood. Then each field is read by itself, and goes on behind a fault. A policy with a fault is
 * thrown away whole. json-c keeps the last of two fields with one name, so that a reader and we could mean different
 * ones: keys are looked for in the text once more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/name.h"
#include "policy/policy_priv.h"

#define SHOWN 60 /* characters of the document in words */

struct reading {
	struct policy *p;
	const struct net_reach *reach;
	struct buf *faults; /* may be NULL */
	int code;	    /* 0, -EINVAL after a fault, -ENOMEM */
};

/* -- faults -----------------------------------------------------------------------------------------------------------
 */

static void no_memory(struct reading *r)
{
	r->code = -ENOMEM;
}

__attribute__((format(printf, 2, 3))) static void fault(struct reading *r, const char *fmt, ...)
{
	char words[512];
	struct err line = { 0 };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	err_set(&line, -EINVAL, "%s", words); /* one line, whatever the document holds */
	if (r->code == 0)
		r->code = -EINVAL;
	if (r->faults && buf_addf(r->faults, "%s\n", line.msg) == -ENOMEM)
		no_memory(r);
}

/* -- lists ------------------------------------------------------------------------------------------------------------
 */

static const char *type_words(struct json_object *v)
{
	switch (json_object_get_type(v)) {
	case json_type_null:
		return "null";
	case json_type_boolean:
		return "true or false";
	case json_type_double:
	case json_type_int:
		return "a number";
	case json_type_object:
		return "an object";
	case json_type_array:
		return "an array";
	case json_type_string:
		return "a text";
	}
	return "something else";
}

/* How many entries to look at. @what: what belongs in it, for words. */
static size_t list_len(struct reading *r, const char *field, struct json_object *v, const char *what)
{
	size_t n;

	if (!json_object_is_type(v, json_type_array)) {
		fault(r, "%s: %s, not a list; an array of %s", field, type_words(v), what);
		return 0;
	}
	n = json_object_array_length(v);
	if (n > POLICY_LIST_MAX) {
		fault(r, "%s: %zu entries; at most %u", field, n, POLICY_LIST_MAX);
		n = POLICY_LIST_MAX;
	}
	return n;
}

/* NULL: it is no text, and that was said. */
static const char *entry(struct reading *r, const char *field, struct json_object *v, size_t i, const char *what)
{
	struct json_object *at = json_object_array_get_idx(v, i);
	const char *text;

	if (!json_object_is_type(at, json_type_string)) {
		fault(r, "%s: entry %zu is %s; an array of %s", field, i + 1, type_words(at), what);
		return NULL;
	}
	text = json_object_get_string(at);
	if (strlen(text) != (size_t)json_object_get_string_len(at)) {
		fault(r, "%s: entry %zu holds a NUL; an array of %s", field, i + 1, what);
		return NULL;
	}
	return text;
}

static const char *ops_in_words(char out[128])
{
	size_t len = 0;

	for (unsigned i = 0; i < POLICY_OP_COUNT; i++)
		len += (size_t)snprintf(out + len, 128 - len, "%s%s", i ? " " : "", policy_op_name(1u << i));
	return out;
}

static void take_operations(struct reading *r, const char *field, struct json_object *v)
{
	static const char what[] = "names of operations";
	size_t n = list_len(r, field, v, what);
	char all[128];

	r->p->ops = 0;
	for (size_t i = 0; i < n; i++) {
		const char *name = entry(r, field, v, i, what);
		unsigned op = 1;

		if (!name)
			continue;
		while (op & POLICY_OPS_ALL && strcmp(policy_op_name(op), name) != 0)
			op <<= 1;
		if (!(op & POLICY_OPS_ALL))
			fault(r, "%s: \"%.*s\" is no operation; there are %s", field, SHOWN, name, ops_in_words(all));
		else if (r->p->ops & op)
			fault(r, "%s: \"%s\" stands there twice; each at most once", field, name);
		else
			r->p->ops |= op;
	}
}

/* Rules are checked one by one, so that all faults are told, and then read as one list. */
static void take_net(struct reading *r, const char *field, struct json_object *v)
{
	static const struct net_reach any = { .any = true };
	static const char what[] = "rules as in net/allow, see netpolicy(5)";
	const struct net_reach *reach = r->reach ? r->reach : &any;
	size_t n = list_len(r, field, v, what);
	int code = 0;
	struct err e = { 0 };
	struct buf lines;

	buf_init(&lines, (size_t)POLICY_LIST_MAX * (NET_NAME_MAX + 32));
	for (size_t i = 0; i < n && code == 0; i++) {
		const char *rule = entry(r, field, v, i, what);
		char normal[NET_NAME_MAX + 32];

		if (!rule)
			continue;
		if (net_rule_normal(rule, strlen(rule), reach, normal, sizeof(normal), &e) < 0)
			fault(r, "%s: %s", field, e.msg);
		else
			code = buf_addf(&lines, "%s\n", normal);
	}
	if (code == 0)
		code = net_policy_parse((const char *)lines.data, lines.len, reach, &r->p->net, &e);
	if (code == -ENOMEM)
		no_memory(r);
	else if (code < 0)
		fault(r, "%s: %s", field, e.msg);
	buf_fini(&lines);
}

static bool says(char *const *of, size_t n, const char *text)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(of[i], text) == 0)
			return true;
	return false;
}

static void take_list(struct reading *r, const char *field, struct json_object *v, struct policy_list *list,
		      const char *what, const char *(*trouble)(const char *text))
{
	size_t n = list_len(r, field, v, what);
	char **of = calloc(n ? n : 1, sizeof(*of));

	if (!of) {
		no_memory(r);
		return;
	}
	*list = (struct policy_list){ .given = true, .of = of };
	for (size_t i = 0; i < n; i++) {
		const char *text = entry(r, field, v, i, what), *why = text ? trouble(text) : NULL;
		char *copy;

		if (!text)
			continue;
		if (why) {
			fault(r, "%s: \"%.*s\": %s", field, SHOWN, text, why);
			continue;
		}
		if (says(of, list->n, text)) {
			fault(r, "%s: \"%.*s\" stands there twice; each at most once", field, SHOWN, text);
			continue;
		}
		copy = strdup(text);
		if (!copy) {
			no_memory(r);
			return;
		}
		of[list->n++] = copy;
	}
}

static const char *profile_trouble(const char *text)
{
	return name_check(text) < 0 ? "no name of a profile; " NAME_RULE : NULL;
}

static void take_profiles(struct reading *r, const char *field, struct json_object *v)
{
	take_list(r, field, v, &r->p->profiles, "names of profiles", profile_trouble);
}

static const char *image_trouble(const char *text)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@+[]";
	size_t n = strlen(text), good = strspn(text, allowed);

	if (n == 0)
		return "empty; a reference, or how it begins and a '*'";
	if (n > POLICY_IMAGE_MAX)
		return "too long; at most 511 characters";
	if (text[good] == '*' && text[good + 1])
		return "a '*' stands at the end only: registry.example/team/*";
	if (text[good] && text[good] != '*')
		return "no reference of an image; letters, digits, \"._-/:@+[]\", and '*' at the end";
	return NULL;
}
_Static_assert(POLICY_IMAGE_MAX == 511, "image_trouble() says so");

static void take_images(struct reading *r, const char *field, struct json_object *v)
{
	take_list(r, field, v, &r->p->images, "references of images", image_trouble);
}

/* -- numbers
 * ------------------------------------------------------------------------------------------------------------ */

static void take_max(struct reading *r, enum policy_max which, struct json_object *v)
{
	unsigned long long most = policy_max_most(which);
	const char *name = policy_max_name(which);
	uint64_t n = 0;

	if (!json_object_is_type(v, json_type_int)) {
		const char *text = json_object_is_type(v, json_type_double) ? json_object_get_string(v) : type_words(v);

		fault(r, "%s: %.*s is no whole number; 1 to %llu, without the field there is no limit", name, SHOWN,
		      text ? text : "it", most);
		return;
	}
	if (json_object_get_int64(v) > 0)
		n = json_object_get_uint64(v);
	if (n < 1 || n > most) {
		const char *text = json_line(v);

		fault(r, "%s: %.*s is out of range; 1 to %llu, without the field there is no limit", name, SHOWN,
		      text ? text : "it", most);
		return;
	}
	r->p->max[which] = n;
}

/* -- the document
 * ------------------------------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	void (*take)(struct reading *r, const char *field, struct json_object *v);
} lists[] = {
	{ "operations", take_operations },
	{ "net_allow_max", take_net },
	{ "allow_profiles", take_profiles },
	{ "allow_images", take_images },
};
#define FIELD_COUNT (ARRAY_LEN(lists) + POLICY_MAX_COUNT)
static const char *field_name(size_t i)
{
	return i < ARRAY_LEN(lists) ? lists[i].name : policy_max_name((enum policy_max)(i - ARRAY_LEN(lists)));
}

/* FIELD_COUNT: none of that name. */
static size_t field_of(const char *key)
{
	size_t i = 0;

	while (i < FIELD_COUNT && strcmp(field_name(i), key) != 0)
		i++;
	return i;
}

static const char *fields_in_words(char out[256])
{
	size_t len = 0;

	for (size_t i = 0; i < FIELD_COUNT; i++)
		len += (size_t)snprintf(out + len, 256 - len, "%s%s", i ? " " : "", field_name(i));
	return out;
}

static void take_fields(struct reading *r, struct json_object *o)
{
	char all[256];

	json_object_object_foreach(o, key, v) {
		size_t i = field_of(key);

		if (i == FIELD_COUNT)
			fault(r, "%.*s: no field of a policy; there are %s", SHOWN, key, fields_in_words(all));
		else if (i < ARRAY_LEN(lists))
			lists[i].take(r, lists[i].name, v);
		else
			take_max(r, (enum policy_max)(i - ARRAY_LEN(lists)), v);
	}
}

/* Bytes of the JSON string at @p, with its quotes. The text is known to be JSON. */
static size_t string_len(const char *p, size_t left)
{
	size_t i = 1;

	while (i < left && p[i] != '"')
		i += p[i] == '\\' ? 2 : 1;
	return i + 1 < left ? i + 1 : left;
}

/* What json-c hides: a key given twice, and a NUL that cuts one. */
static void check_keys(struct reading *r, const char *text, size_t len)
{
	bool seen[FIELD_COUNT] = { false }, key = true;
	unsigned depth = 0;

	for (size_t i = 0; i < len; i++) {
		char c = text[i];

		if (c == '{' || c == '[') {
			depth++;
		} else if (c == '}' || c == ']') {
			depth--;
		} else if (c == ',' || c == ':') {
			key = c == ',';
		} else if (c == '"') {
			size_t n = string_len(text + i, len - i), f = FIELD_COUNT;
			AUTO_JSON *name = NULL;

			/* A key may be written with escapes. */
			if (depth == 1 && key && json_parse(text + i, n, &name, NULL) == 0) {
				const char *s = json_object_get_string(name);

				f = field_of(s);
				if (strlen(s) != (size_t)json_object_get_string_len(name))
					fault(r, "%.*s: a NUL in the name of a field; no field has one", SHOWN, s);
			}
			if (f < FIELD_COUNT && seen[f])
				fault(r, "%s: given twice; each field at most once", field_name(f));
			else if (f < FIELD_COUNT)
				seen[f] = true;
			i += n - 1;
		}
	}
}

/* Whoever keeps a policy keeps its one form, which may be longer than what was read, and must be able to read it. */
static void check_form(struct reading *r)
{
	struct buf form;
	int code;

	buf_init(&form, SIZE_MAX);
	code = policy_text(r->p, &form);
	if (code < 0) {
		r->code = code;
	} else if (form.len > POLICY_TEXT_MAX) {
		fault(r, "policy: written in full, as `crucible policy validate` does, it has %zu bytes; at most %u",
		      form.len, POLICY_TEXT_MAX);
		r->code = r->code == -ENOMEM ? -ENOMEM : -EFBIG;
	}
	buf_fini(&form);
}

int policy_parse(const char *text, size_t len, const struct net_reach *reach, struct policy **ret, struct buf *faults)
{
	struct reading r = { .reach = reach, .faults = faults };
	AUTO_JSON *o = NULL;
	struct err e = { 0 };
	char all[256];
	int code;

	if (len > POLICY_TEXT_MAX) {
		fault(&r, "policy: too long; at most %u bytes", POLICY_TEXT_MAX);
		return r.code == -EINVAL ? -EFBIG : r.code;
	}
	code = json_parse(text, len, &o, &e);
	if (code == -ENOMEM)
		return code;
	if (code < 0) {
		fault(&r, "policy: %s; one JSON object, nothing before or behind it", e.msg);
		return r.code;
	}
	if (!json_object_is_type(o, json_type_object)) {
		fault(&r, "policy: %s; one JSON object with any of %s", type_words(o), fields_in_words(all));
		return r.code;
	}
	r.p = calloc(1, sizeof(*r.p));
	if (!r.p)
		return -ENOMEM;
	atomic_init(&r.p->refs, 1);
	r.p->ops = POLICY_OPS_DEFAULT;
	check_keys(&r, text, len);
	take_fields(&r, o);
	if (r.code == 0)
		check_form(&r);
	if (r.code < 0)
		policy_unref(r.p);
	else
		*ret = r.p;
	return r.code;
}
