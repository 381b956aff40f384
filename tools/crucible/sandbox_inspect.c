/* SPDX-License-Identifier: Apache-2.0 */
/* crucible sandbox inspect: everything that the tree says of a sandbox, as one record. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "tools/crucible/command.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/sbx.h"
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

static int gather(struct sbx *s, struct json_object **ret, struct err *e)
{
	AUTO_JSON *o = NULL;
	AUTO_JSON *usage = NULL;
	struct json_object *limits;
	char word[512];
	int r = tree_json(s->dir, "info.json", &o, e);

	if (r < 0)
		return err_wrap(e, "sandbox \"%s\"", s->id);
	r = tree_word(s->dir, "status", word, sizeof(word));
	if (r == 0)
		r = fields_put(o, "status", json_object_new_string(word));
	if (r == 0)
		r = tree_word(s->dir, "error", word, sizeof(word));
	if (r == 0)
		r = fields_put(o, "error", json_object_new_string(word));
	limits = json_object_new_object();
	if (r == 0)
		r = fields_put(o, "limits", limits);
	else
		json_object_put(limits);
	if (r == 0)
		r = tree_list(s->dir, "limits", add_limit, limits);
	if (r < 0)
		return err_set(e, r, "sandbox \"%s\": %s", s->id, strerror(-r));
	if (tree_json(s->dir, "usage.json", &usage, NULL) == 0)
		r = fields_put(o, "usage", json_object_get(usage));
	if (r < 0)
		return err_set(e, r, "no memory");
	*ret = o;
	o = NULL;
	return 0;
}

int cmd_sandbox_inspect(struct cli *c)
{
	AUTO_JSON *o = NULL;
	struct sbx s;
	int r = sbx_open(c->mount.fd, c->args.words[0], &s, &c->err);

	if (r < 0)
		return r;
	r = gather(&s, &o, &c->err);
	sbx_close(&s);
	if (r < 0)
		return r;
	if (c->json)
		return print_json(c, json_object_get(o));
	fields_show(o);
	return 0;
}
