/* SPDX-License-Identifier: Apache-2.0 */
/* crucible snapshot ls: what is in snapshots/, as a list or by what grew out of what. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/fd.h"
#include "tools/crucible/command.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/lineage.h"
#include "tools/crucible/tree.h"

#define LISTING_MAX (64u * 1024 * 1024)

struct listing {
	struct table table;
	struct json_object *all; /* -o json, else NULL */
	int64_t now;		 /* wall clock, seconds */
};

/* Of somebody else's there are a name and a status. */
static int add_json(struct listing *l, const char *name, const char *status, struct json_object *info)
{
	struct json_object *o = info ? json_object_get(info) : json_object_new_object();

	if (!o || (!info && fields_put(o, "id", json_object_new_string(name)) < 0) ||
	    fields_put(o, "status", json_object_new_string(status)) < 0 || json_object_array_add(l->all, o) != 0) {
		json_object_put(o);
		return -ENOMEM;
	}
	return 0;
}

static int add_one(void *arg, int parent, const char *name)
{
	struct listing *l = arg;
	struct json_object *sizes = NULL;
	AUTO_JSON *info = NULL;
	AUTO_FD dir = openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char status[32], age[24], size[24] = "", forks[24] = "", owner[16] = "";
	struct stat st;

	if (dir < 0 || tree_word(dir, "status", status, sizeof(status)) < 0)
		return 0; /* removed while we looked */
	tree_json(dir, "info.json", &info, NULL);
	if (l->all)
		return add_json(l, name, status, info);
	if (info) {
		json_get_obj(info, "sizes", json_type_object, &sizes, NULL);
		snprintf(forks, sizeof(forks), "%llu", (unsigned long long)fields_number(info, "forks"));
	}
	if (sizes)
		table_size(fields_number(sizes, "unique_bytes"), size);
	if (fstatat(dir, "", &st, AT_EMPTY_PATH) == 0)
		snprintf(owner, sizeof(owner), "%u", st.st_uid);
	return table_row(&l->table, (const char *[]){ name, status, fields_text(info, "source"),
						      fields_text(info, "parent"), forks, size, owner,
						      table_since(fields_text(info, "created"), l->now, age) });
}

static int list(struct cli *c, struct listing *l)
{
	int r = table_begin(&l->table, (const char *[]){ "ID", "STATUS", "SOURCE", "PARENT", "FORKS", "UNIQUE", "OWNER",
							 "AGE", NULL });

	if (r == 0)
		r = tree_list(c->mount.fd, "snapshots", add_one, l);
	return r < 0 ? err_set(&c->err, r, "snapshots: %s", strerror(-r)) : 0;
}

static int draw(struct cli *c, struct listing *l)
{
	struct lineage lineage;
	int r = lineage_read(c->mount.fd, &lineage, &c->err);

	if (r == 0 && c->json) {
		json_object_put(l->all);
		l->all = lineage_json(&lineage);
		r = l->all ? 0 : -ENOMEM;
	} else if (r == 0) {
		r = table_begin(&l->table, LINEAGE_HEAD);
		if (r == 0)
			r = lineage_table(&lineage, l->now, &l->table);
	}
	lineage_fini(&lineage);
	return r == -ENOMEM ? err_set(&c->err, r, "no memory") : r;
}

int cmd_snapshot_ls(struct cli *c)
{
	struct listing l = { .now = (int64_t)time(NULL), .all = c->json ? json_object_new_array() : NULL };
	struct buf text;
	int r;

	if (c->json && !l.all)
		return err_set(&c->err, -ENOMEM, "no memory");
	buf_init(&text, LISTING_MAX);
	r = c->args.given[OPT_TREE] ? draw(c, &l) : list(c, &l);
	if (r == 0 && c->json)
		r = print_json(c, json_object_get(l.all));
	else if (r == 0)
		r = table_format(&l.table, &text);
	if (r < 0 && !c->err.code)
		err_set(&c->err, r, "snapshots: %s", strerror(-r));
	else if (r == 0 && text.len)
		fwrite(text.data, 1, text.len, stdout);
	json_object_put(l.all);
	table_end(&l.table);
	buf_fini(&text);
	return r;
}
