/* SPDX-License-Identifier: Apache-2.0 */
/* crucible sandbox ls: what is in run/. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/command.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/table.h"
#include "tools/crucible/tree.h"

struct listing {
	struct table table;
	struct json_object *all; /* -o json, else NULL */
	int64_t now;		 /* wall clock, seconds */
};

static int add_json(struct listing *l, const char *name, const char *status, struct json_object *info)
{
	struct json_object *o = info ? json_object_get(info) : json_object_new_object();

	/* Of somebody else's sandbox there are a name and a status. */
	if (!o || (!info && json_object_object_add(o, "id", json_object_new_string(name)) != 0) ||
	    json_object_object_add(o, "status", json_object_new_string(status)) != 0 ||
	    json_object_array_add(l->all, o) != 0) {
		json_object_put(o);
		return -ENOMEM;
	}
	return 0;
}

static int add_one(void *arg, int run, const char *name)
{
	struct listing *l = arg;
	AUTO_JSON *info = NULL;
	AUTO_FD dir = -1;
	char status[32], age[24], owner[16] = "";
	struct stat st;

	dir = openat(run, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0 || tree_word(dir, "status", status, sizeof(status)) < 0)
		return 0; /* removed while we looked */
	tree_json(dir, "info.json", &info, NULL);
	if (l->all)
		return add_json(l, name, status, info);
	if (fstatat(dir, "", &st, AT_EMPTY_PATH) == 0)
		snprintf(owner, sizeof(owner), "%u", st.st_uid);
	return table_row(&l->table, (const char *[]){ name, status, fields_text(info, "from"), owner,
						      table_since(fields_text(info, "created"), l->now, age) });
}

int cmd_sandbox_ls(struct cli *c)
{
	struct listing l = { .now = (int64_t)time(NULL), .all = c->json ? json_object_new_array() : NULL };
	struct buf text;
	int r;

	if (c->json && !l.all)
		return err_set(&c->err, -ENOMEM, "no memory");
	buf_init(&text, 64u * 1024 * 1024);
	r = table_begin(&l.table, (const char *[]){ "ID", "STATUS", "FROM", "OWNER", "AGE", NULL });
	if (r == 0)
		r = tree_list(c->mount.fd, "run", add_one, &l);
	if (r == 0 && !c->json)
		r = table_format(&l.table, &text);
	if (r < 0)
		err_set(&c->err, r, "run: %s", strerror(-r));
	else if (c->json)
		r = print_json(c, json_object_get(l.all));
	else
		fwrite(text.data, 1, text.len, stdout);
	json_object_put(l.all);
	table_end(&l.table);
	buf_fini(&text);
	return r;
}
