/* SPDX-License-Identifier: Apache-2.0 */
/* crucible sandbox inspect, crucible snapshot inspect: everything that the tree says of one, as one record. */
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "tools/crucible/command.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/sbx.h"
#include "tools/crucible/snapshot.h"
#include "tools/crucible/tree.h"

/* A file with one number or word becomes a member of the same name. */
static int add_limit(void *arg, int parent, const char *name)
{
	char text[256], *end;
	unsigned long long v;
	int r = tree_word(parent, name, text, sizeof(text));

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	errno = 0;
	v = strtoull(text, &end, 10);
	if (end != text && !*end && !errno)
		return fields_put(arg, name, json_object_new_uint64(v));
	return fields_put(arg, name, json_object_new_string(text));
}

static int add_name(void *arg, int parent, const char *name)
{
	(void)parent;
	return json_object_array_add(arg, json_object_new_string(name)) == 0 ? 0 : -ENOMEM;
}

/* What is in the folder @path becomes the member @key: @list, filled by @fn; taken. */
static int add_folder(int dir, const char *path, int (*fn)(void *arg, int parent, const char *name),
		      struct json_object *o, const char *key, struct json_object *list)
{
	int r = fields_put(o, key, list);

	return r < 0 ? r : tree_list(dir, path, fn, list);
}

/* A record that may be absent, or empty. */
static int add_record(int dir, const char *path, struct json_object *o, const char *key)
{
	AUTO_JSON *record = NULL;

	if (tree_json(dir, path, &record, NULL) < 0)
		return 0;
	return fields_put(o, key, json_object_get(record));
}

static int add_of_sandbox(int dir, struct json_object *o)
{
	int r = add_folder(dir, "limits", add_limit, o, "limits", json_object_new_object());

	return r < 0 ? r : add_record(dir, "usage.json", o, "usage");
}

static int add_of_snapshot(int dir, struct json_object *o)
{
	/* How many there are stands in info.json; which, is what the directory says. */
	int r = add_folder(dir, "forks", add_name, o, "fork_names", json_object_new_array());

	return r < 0 ? r : add_record(dir, "verify", o, "verify"); /* empty before the first check */
}

static int gather(int dir, int (*add)(int dir, struct json_object *o), struct json_object **ret, struct err *e)
{
	static const char *const words[] = { "status", "error" };
	AUTO_JSON *o = NULL;
	char word[512];
	int r = tree_json(dir, "info.json", &o, e);

	if (r < 0)
		return r;
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(words); i++) {
		r = tree_word(dir, words[i], word, sizeof(word));
		if (r == 0)
			r = fields_put(o, words[i], json_object_new_string(word));
	}
	if (r == 0)
		r = add(dir, o);
	if (r < 0)
		return err_set(e, r, "%s", r == -ENOMEM ? "no memory" : strerror(-r));
	*ret = o;
	o = NULL;
	return 0;
}

/* @kind and @id are for words; @dir is the object's. */
static int inspect(struct cli *c, const char *kind, const char *id, int dir, int (*add)(int dir, struct json_object *o))
{
	AUTO_JSON *o = NULL;
	int r = gather(dir, add, &o, &c->err);

	if (r < 0)
		return err_wrap(&c->err, "%s \"%s\"", kind, id);
	if (c->json)
		return print_json(c, json_object_get(o));
	fields_show(o);
	return 0;
}

int cmd_sandbox_inspect(struct cli *c)
{
	struct sbx s;
	int r = sbx_open(c->mount.fd, c->args.words[0], &s, &c->err);

	if (r < 0)
		return r;
	r = inspect(c, "sandbox", s.id, s.dir, add_of_sandbox);
	sbx_close(&s);
	return r;
}

int cmd_snapshot_inspect(struct cli *c)
{
	struct snapshot s;
	int r = snapshot_open(c->mount.fd, c->args.words[0], &s, &c->err);

	if (r < 0)
		return r;
	r = inspect(c, "snapshot", s.id, s.dir, add_of_snapshot);
	snapshot_close(&s);
	return r;
}
