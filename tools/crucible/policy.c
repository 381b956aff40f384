/* SPDX-License-Identifier: Apache-2.0 */
/* crucible policy: checking a document before it is bound to anybody, and what holds for the caller of this mount. */
#include "policy/policy.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/command.h"
#include "tools/crucible/printable.h"
#include "tools/crucible/record.h"
#include "tools/crucible/tree.h"

/* -- validate
 * ---------------------------------------------------------------------------------------------------------- */

/* All of it, or one byte more than a policy may have. Pipes are fine: `crucible policy validate <(jq …)`. */
static int read_document(int fd, struct buf *text)
{
	for (;;) {
		uint8_t *to;
		ssize_t n;
		int r = buf_reserve(text, text->max - text->len, &to);

		if (r < 0)
			return r;
		n = read(fd, to, text->max - text->len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0;
		text->len += (size_t)n;
		if (text->len == text->max)
			return 0;
	}
}

static void tell_faults(const char *name, struct buf *faults)
{
	char *at = faults->len ? buf_str(faults) : NULL, *line;

	while (at && (line = strsep(&at, "\n")))
		if (*line)
			fprintf(stderr, "crucible: %s: %s\n", name, printable_line(line));
}

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

static int validate(struct cli *c, const char *name, const struct buf *text)
{
	struct policy *p = NULL;
	struct buf faults;
	int r;

	buf_init(&faults, 16u << 20); /* more than a document of that size can have */
	r = policy_parse((const char *)text->data, text->len, NULL, &p, &faults);
	if (r == -ENOMEM) {
		err_set(&c->err, r, "%s: no memory", name);
	} else if (r < 0) {
		tell_faults(name, &faults);
		r = EXIT_CRUCIBLE;
	} else {
		r = show_form(c, p);
	}
	policy_unref(p);
	buf_fini(&faults);
	return r;
}

int cmd_policy_validate(struct cli *c)
{
	const char *file = c->args.words[0];
	bool standard = !strcmp(file, "-");
	AUTO_FD own = standard ? -1 : open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	AUTO_FREE char *name = strdup(standard ? "standard input" : file);
	struct buf text;
	int r;

	if (!name)
		return err_set(&c->err, -ENOMEM, "no memory");
	printable_line(name);
	if (!standard && own < 0)
		return err_set(&c->err, -errno, "%s: %s", name, strerror(errno));
	buf_init(&text, POLICY_TEXT_MAX + 1);
	r = read_document(standard ? STDIN_FILENO : own, &text);
	if (r < 0)
		err_set(&c->err, r, "%s: %s", name, strerror(-r));
	else
		r = validate(c, name, &text);
	buf_fini(&text);
	return r;
}

/* -- show
 * -------------------------------------------------------------------------------------------------------------- */

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
