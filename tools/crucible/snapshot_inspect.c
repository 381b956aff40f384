/* SPDX-License-Identifier: Apache-2.0 */
/* crucible snapshot inspect: everything that the tree says of a snapshot, as one record. */
#include <string.h>

#include "tools/crucible/command.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/snapshot.h"
#include "tools/crucible/tree.h"

static int add_name(void *arg, int parent, const char *name)
{
	(void)parent;
	return json_object_array_add(arg, json_object_new_string(name)) == 0 ? 0 : -ENOMEM;
}

static int gather(struct snapshot *s, struct json_object **ret, struct err *e)
{
	static const char *const words[] = { "status", "error" };
	AUTO_JSON *o = NULL;
	AUTO_JSON *verify = NULL;
	struct json_object *forks = json_object_new_array();
	char word[512];
	int r = tree_json(s->dir, "info.json", &o, e);

	if (r < 0) {
		json_object_put(forks);
		return err_wrap(e, "snapshot \"%s\"", s->id);
	}
	for (size_t i = 0; r == 0 && i < 2; i++) {
		r = tree_word(s->dir, words[i], word, sizeof(word));
		if (r == 0)
			r = fields_put(o, words[i], json_object_new_string(word));
	}
	/* How many there are stands in info.json; which, is what the directory says. */
	if (r == 0)
		r = tree_list(s->dir, "forks", add_name, forks);
	if (r == 0)
		r = fields_put(o, "fork_names", json_object_get(forks));
	json_object_put(forks);
	/* Empty before the first check. */
	if (r == 0 && tree_json(s->dir, "verify", &verify, NULL) == 0)
		r = fields_put(o, "verify", json_object_get(verify));
	if (r < 0)
		return snapshot_explain(r, s->id, e);
	*ret = o;
	o = NULL;
	return 0;
}

int cmd_snapshot_inspect(struct cli *c)
{
	AUTO_JSON *o = NULL;
	struct snapshot s;
	int r = snapshot_open(c->mount.fd, c->args.words[0], &s, &c->err);

	if (r < 0)
		return r;
	r = gather(&s, &o, &c->err);
	snapshot_close(&s);
	if (r < 0)
		return r;
	if (c->json)
		return print_json(c, json_object_get(o));
	fields_show(o);
	return 0;
}
