/* SPDX-License-Identifier: Apache-2.0 */
/* crucible policy: checking a document before it is bound to anybody, and what holds for the caller of this mount. */
#include "policy/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "tools/crucible/command.h"
#include "tools/crucible/document.h"
#include "tools/crucible/printable.h"
#include "tools/crucible/tree.h"

/* -- validate --------------------------------------------------------------------------------------------------- */

static int show_form(struct cli *c, const struct policy *p)
{
	const struct policy_set one = { .of = { p }, .n = 1 };
	struct json_object *o;
	struct buf text;
	int r;

	if (c->json) {
		o = json_object_new_object();
		if (o && policy_set_json(&one, o) < 0) {
			json_object_put(o);
			o = NULL;
		}
		return print_json(c, o);
	}
	buf_init(&text, POLICY_TEXT_MAX);
	r = policy_text(p, &text);
	if (r == 0)
		fwrite(text.data, 1, text.len, stdout); /* main looks for errors of standard output */
	buf_fini(&text);
	return r < 0 ? err_set(&c->err, r, "no memory") : 0;
}

int cmd_policy_validate(struct cli *c)
{
	struct policy *p = NULL;
	struct buf text;
	int r;

	buf_init(&text, DOCUMENT_CAP);
	r = document_read(c->args.words[0], &text, &p, &c->err);
	if (r == 0)
		r = show_form(c, p);
	policy_unref(p);
	buf_fini(&text);
	return r;
}

/* -- show ------------------------------------------------------------------------------------------------------- */

/* One value, for people: entries of an array with blanks between them. */
static void show_value(const char *key, struct json_object *v, const char *absent)
{
	bool array = json_object_is_type(v, json_type_array);
	size_t n = array ? json_object_array_length(v) : 1;
	char *name = strdup(key);

	printf("%-16s", name ? printable_line(name) : "");
	free(name);
	if (!v || n == 0)
		printf(" %s", v ? "none" : absent);
	for (size_t i = 0; v && i < n; i++) {
		struct json_object *at = array ? json_object_array_get_idx(v, i) : v;
		const char *s = json_object_is_type(at, json_type_string) ? json_object_get_string(at) : json_line(at);
		char *text = s ? strdup(s) : NULL;

		printf(" %s", text ? printable_line(text) : "?");
		free(text);
	}
	putchar('\n');
}

static void show_table(struct json_object *o)
{
	static const char *const lists[] = { "operations", "net_allow_max", "allow_profiles", "allow_images" };
	struct json_object *v;

	for (size_t i = 0; i < ARRAY_LEN(lists) + POLICY_MAX_COUNT; i++) {
		bool list = i < ARRAY_LEN(lists);
		const char *key = list ? lists[i] : policy_max_name((enum policy_max)(i - ARRAY_LEN(lists)));

		v = NULL;
		json_object_object_get_ex(o, key, &v);
		show_value(key, v, list ? "any" : "no limit");
		json_object_object_del(o, key);
	}
	json_object_object_foreach(o, key, other) /* what a newer daemon says */
		show_value(key, other, "-");
}

int cmd_policy_show(struct cli *c)
{
	AUTO_JSON *o = NULL;
	int r = tree_json(c->mount.fd, "policy.json", &o, &c->err);

	if (r < 0)
		return r;
	if (c->json)
		return print_json(c, json_object_get(o));
	show_table(o);
	return 0;
}
