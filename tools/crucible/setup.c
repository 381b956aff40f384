/* SPDX-License-Identifier: Apache-2.0 */
/* crucible setup: one real command in a sandbox, then how each agent's program is told of `mcp serve`. */
#include "tools/crucible/setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/command.h"
#include "tools/crucible/doctor.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/printable.h"
#include "tools/crucible/tree.h"

#define PRETTY (JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE)

struct setup {
	struct cli *c;
	char command[PATH_MAX];	  /* this program */
	struct json_object *args; /* ["mcp","serve",…] */
	struct json_object *done; /* for -o json: a record each */
	bool failed;
};

static int find_ourselves(struct setup *s, struct err *e)
{
	ssize_t n = readlink("/proc/self/exe", s->command, sizeof(s->command) - 1);

	if (n < 0)
		return err_set(e, -errno, "/proc/self/exe: %s", strerror(errno));
	s->command[n] = '\0';
	return 0;
}

static int tell(struct setup *s, const struct setup_client *k, const char *path, struct json_object *block,
		bool written)
{
	struct json_object *o;

	if (!s->c->json) {
		if (written)
			printf("# %s: written to %s\n", k->title, path);
		else
			printf("# %s: %s\n%s\n\n", k->title, path, json_object_to_json_string_ext(block, PRETTY));
		return 0;
	}
	o = json_object_new_object();
	if (o && fields_put(o, "client", json_object_new_string(k->name)) == 0 &&
	    fields_put(o, "file", json_object_new_string(path)) == 0 &&
	    fields_put(o, "written", json_object_new_boolean(written)) == 0 &&
	    fields_put(o, "block", json_object_get(block)) == 0 && json_object_array_add(s->done, o) == 0)
		return 0;
	json_object_put(o);
	return err_set(&s->c->err, -ENOMEM, "no memory");
}

static int do_client(struct setup *s, const struct setup_client *k)
{
	AUTO_JSON *block = setup_block(k, s->command, s->args);
	bool write = s->c->args.given[OPT_WRITE];
	struct err words = { 0 };
	char path[PATH_MAX];
	int r;

	if (!block)
		return err_set(&s->c->err, -ENOMEM, "no memory");
	r = setup_path(k, path, &words);
	if (r == 0 && write)
		r = setup_merge(k, path, block, &words);
	if (r < 0) {
		fprintf(stderr, "crucible: %s\n", printable_line(words.msg));
		s->failed = true;
		write = false;
		snprintf(path, sizeof(path), "%s", k->file);
	}
	return tell(s, k, path, block, write);
}

/* What the daemon does less well than it could, in words. NULL: nothing. */
static struct json_object *degraded(struct cli *c)
{
	AUTO_JSON *health = NULL;
	struct json_object *list = NULL;

	if (tree_json(c->mount.fd, "health.json", &health, NULL) < 0 ||
	    json_get_obj(health, "degraded", json_type_array, &list, NULL) < 0 || !list ||
	    !json_object_array_length(list))
		return NULL;
	return json_object_get(list);
}

static int conclude(struct setup *s, const char *state, struct json_object *problems)
{
	struct json_object *o;

	if (!s->c->json) {
		for (size_t i = 0; problems && i < json_object_array_length(problems); i++) {
			char *line = strdup(json_object_get_string(json_object_array_get_idx(problems, i)) ?: "");

			printf("- %s\n", line ? printable_line(line) : "");
			free(line);
		}
		puts(state);
		return s->failed;
	}
	o = json_object_new_object();
	if (!o || fields_put(o, "state", json_object_new_string(state)) < 0 ||
	    fields_put(o, "clients", json_object_get(s->done)) < 0 ||
	    fields_put(o, "problems", problems ? json_object_get(problems) : json_object_new_array()) < 0) {
		json_object_put(o);
		o = NULL;
	}
	return print_json(s->c, o) ?: s->failed;
}

static int not_ready(struct setup *s, const char *words)
{
	AUTO_JSON *problems = json_object_new_array();

	if (problems)
		json_object_array_add(problems, json_text(words, strlen(words)));
	s->failed = true;
	return conclude(s, "not ready", problems);
}

static int do_clients(struct setup *s)
{
	const char *only = s->c->args.text[OPT_CLIENT];
	AUTO_JSON *problems = degraded(s->c);
	int r = find_ourselves(s, &s->c->err);

	if (r == 0)
		r = setup_args(s->c->mount.path, &s->args, &s->c->err);
	for (size_t i = 0; i < nsetup_clients && r == 0; i++) {
		if (!only || !strcmp(only, setup_clients[i].name))
			r = do_client(s, &setup_clients[i]);
	}
	return r < 0 ? r : conclude(s, problems ? "degraded" : "ready", problems);
}

int cmd_setup(struct cli *c)
{
	struct setup s = { .c = c, .done = json_object_new_array() };
	struct err words = { 0 };
	int r = s.done ? 0 : err_set(&c->err, -ENOMEM, "no memory");

	if (r == 0 && (mount_open(c->args.text[OPT_MOUNT], &c->mount, &words) < 0 || run_true(c->mount.fd, &words) < 0))
		r = not_ready(&s, words.msg);
	else if (r == 0)
		r = do_clients(&s);
	json_object_put(s.args);
	json_object_put(s.done);
	return r; /* main closes the mount */
}
