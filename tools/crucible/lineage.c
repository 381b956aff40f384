/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * Nodes are an array; a parent is an index into it. First come all snapshots, then all sandboxes, sorted by name as
 * tree_list() gives them. Then each is hung up by what its info.json says of its parent: by uuid, because names are
 * used again; by name where no uuid is told. Profiles, and snapshots that are gone, become nodes when somebody names
 * them. A parent is always a node whose own chain does not lead back here: a loop in what the tree says (which it never
 * should) is cut, so every walk ends. */
#include "tools/crucible/lineage.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/tree.h"

static const char *const kind_words[] = { "profile", "snapshot", "sandbox", "removed" };
static_assert(ARRAY_LEN(kind_words) == LINEAGE_GONE + 1, "a kind without a word");

/* Takes a reference of @info. */
static int add_node(struct lineage *l, int kind, const char *name, const char *status, const char *uuid,
		    struct json_object *info)
{
	struct lineage_node *grown = reallocarray(l->nodes, l->n + 1, sizeof(*grown));
	struct lineage_node *x;

	if (!grown)
		return -ENOMEM;
	l->nodes = grown;
	x = &l->nodes[l->n++];
	*x = (struct lineage_node){ .kind = kind,
				    .name = strdup(name),
				    .status = strdup(status),
				    .uuid = strdup(uuid ?: ""),
				    .info = json_object_get(info),
				    .parent = LINEAGE_NONE };
	return x->name && x->status && x->uuid ? 0 : -ENOMEM;
}

struct reading {
	struct lineage *l;
	int kind;
};

static int read_one(void *arg, int parent, const char *name)
{
	struct reading *rd = arg;
	AUTO_JSON *info = NULL;
	AUTO_FD dir = openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char status[32];

	if (dir < 0 || tree_word(dir, "status", status, sizeof(status)) < 0)
		return 0; /* removed while we looked */
	tree_json(dir, "info.json", &info, NULL);
	return add_node(rd->l, rd->kind, name, status, fields_text(info, "uuid"), info);
}

static size_t find(const struct lineage *l, bool snapshot, const char *name, const char *uuid)
{
	for (size_t i = 0; i < l->n; i++) {
		const struct lineage_node *x = &l->nodes[i];

		if (snapshot != (x->kind == LINEAGE_SNAPSHOT || x->kind == LINEAGE_GONE) || x->kind == LINEAGE_SANDBOX)
			continue;
		if (*uuid ? !strcmp(x->uuid, uuid) : !strcmp(x->name, name))
			return i;
	}
	return LINEAGE_NONE;
}

/* "profile:base", "snapshot:s1", "s1" -> the name behind it. */
static const char *parse_origin(const char *origin, bool *ret_snapshot)
{
	static const char profile[] = "profile:";
	const char *colon = strchr(origin, ':');

	*ret_snapshot = strncmp(origin, profile, sizeof(profile) - 1) != 0;
	return colon ? colon + 1 : origin;
}

static bool leads_to(const struct lineage *l, size_t from, size_t to)
{
	for (size_t i = from; i != LINEAGE_NONE; i = l->nodes[i].parent) {
		if (i == to)
			return true;
	}
	return false;
}

static int hang_up(struct lineage *l, size_t i)
{
	struct json_object *info = l->nodes[i].info;
	const char *origin = fields_text(info, "parent"), *uuid = fields_text(info, "parent_uuid") ?: "", *name;
	size_t parent;
	bool snapshot;

	/* A sandbox that has not been snapshotted has an origin only. */
	if (!origin || !*origin)
		origin = fields_text(info, "from");
	if (!origin || !*origin)
		return 0;
	name = parse_origin(origin, &snapshot);
	if (!snapshot)
		uuid = "";
	parent = find(l, snapshot, name, uuid);
	if (parent == LINEAGE_NONE) {
		int r = add_node(l, snapshot ? LINEAGE_GONE : LINEAGE_PROFILE, name, "", uuid, NULL);

		if (r < 0)
			return r;
		parent = l->n - 1;
	}
	if (!leads_to(l, parent, i))
		l->nodes[i].parent = parent;
	return 0;
}

int lineage_read(int root, struct lineage *ret, struct err *e)
{
	struct reading rd = { .l = ret, .kind = LINEAGE_SNAPSHOT };
	const char *where = "snapshots";
	size_t n;
	int r;

	*ret = (struct lineage){ 0 };
	r = tree_list(root, where, read_one, &rd);
	if (r == 0) {
		where = "run";
		rd.kind = LINEAGE_SANDBOX;
		r = tree_list(root, where, read_one, &rd);
	}
	n = ret->n; /* what is added from here on has no parent that is known */
	for (size_t i = 0; r == 0 && i < n; i++)
		r = hang_up(ret, i);
	return r < 0 ? err_set(e, r, "%s: %s", where, strerror(-r)) : 0;
}

void lineage_fini(struct lineage *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->nodes[i].name);
		free(l->nodes[i].status);
		free(l->nodes[i].uuid);
		json_object_put(l->nodes[i].info);
	}
	free(l->nodes);
	*l = (struct lineage){ 0 };
}

static size_t next_child(const struct lineage *l, size_t parent, size_t from)
{
	for (size_t i = from; i < l->n; i++) {
		if (l->nodes[i].parent == parent)
			return i;
	}
	return LINEAGE_NONE;
}

/* -- for people ------------------------------------------------------------------------------------------------------
 */

struct drawing {
	const struct lineage *l;
	struct table *t;
	int64_t now;
};

static int draw_node(const struct drawing *d, const struct lineage_node *x, const char *lines, const char *branch)
{
	struct json_object *sizes = NULL;
	char age[24], size[24] = "";
	char *name = NULL;
	int r;

	if (x->info)
		json_get_obj(x->info, "sizes", json_type_object, &sizes, NULL);
	if (sizes)
		table_size(fields_number(sizes, "unique_bytes"), size);
	if (asprintf(&name, "%s%s%s", lines, branch, x->name) < 0)
		return -ENOMEM;
	r = table_row(d->t, (const char *[]){ name, kind_words[x->kind], x->status, size,
					      table_since(fields_text(x->info, "created"), d->now, age) });
	free(name);
	return r;
}

/* @lines: what stands left of the branches of @parent's children. Recursion: as deep as the lineage. */
static int draw_children(const struct drawing *d, size_t parent, const char *lines)
{
	size_t i = next_child(d->l, parent, 0);
	int r = 0;

	while (r == 0 && i != LINEAGE_NONE) {
		size_t next = next_child(d->l, parent, i + 1);
		bool top = parent == LINEAGE_NONE, last = next == LINEAGE_NONE;
		char *below = NULL;

		r = draw_node(d, &d->l->nodes[i], lines, top ? "" : last ? "└─ " : "├─ ");
		if (r == 0 && asprintf(&below, "%s%s", lines, top ? "" : last ? "   " : "│  ") < 0) {
			below = NULL;
			r = -ENOMEM;
		}
		if (r == 0)
			r = draw_children(d, i, below);
		free(below);
		i = next;
	}
	return r;
}

int lineage_table(const struct lineage *l, int64_t now, struct table *t)
{
	const struct drawing d = { .l = l, .t = t, .now = now };

	return draw_children(&d, LINEAGE_NONE, "");
}

/* -- for programs ----------------------------------------------------------------------------------------------------
 */

static struct json_object *children_json(const struct lineage *l, size_t parent)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = next_child(l, parent, 0); list && i != LINEAGE_NONE; i = next_child(l, parent, i + 1)) {
		const struct lineage_node *x = &l->nodes[i];
		struct json_object *o = json_object_new_object();

		if (!o || fields_put(o, "name", json_object_new_string(x->name)) < 0 ||
		    fields_put(o, "kind", json_object_new_string(kind_words[x->kind])) < 0 ||
		    fields_put(o, "status", json_object_new_string(x->status)) < 0 ||
		    fields_put(o, "uuid", json_object_new_string(x->uuid)) < 0 ||
		    fields_put(o, "children", children_json(l, i)) < 0 || json_object_array_add(list, o) != 0) {
			json_object_put(o);
			json_object_put(list);
			return NULL;
		}
	}
	return list;
}

struct json_object *lineage_json(const struct lineage *l)
{
	return children_json(l, LINEAGE_NONE);
}
