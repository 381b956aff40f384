/* SPDX-License-Identifier: Apache-2.0 */
/* logs/<uuid>.jsonl: activity logs, which outlive their sandboxes; logs/by-name/: for each name the newest log that the
 * caller may read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "cruciblefs/tables.h"

#define SUFFIX ".jsonl"

/* -- logs/<uuid>.jsonl ------------------------------------------------------------------------------ */

static int log_open(const struct cfs_about *a, const struct cfs_who *who, int *ret_fd)
{
	return journal_open_log(cfs_tree_registry(a->tree), a->name, who, ret_fd);
}

static uint64_t log_size(const struct cfs_about *a)
{
	int fd = -1;

	return log_open(a, &a->owner, &fd) < 0 ? 0 : cfs_fd_size(fd);
}

static const struct cfs_stream_ops log_stream = { .open = log_open, .size = log_size, .queue = cfs_journal_queue };
static const struct cfs_entry log_file = { .kind = &cfs_kind_stream, .mode = 0400, .stream = &log_stream };

static bool about_log(struct cfs_about *c, const char *uuid, uid_t owner, uint64_t changed_ns)
{
	c->entry = &log_file;
	c->owner = (struct cfs_who){ .uid = owner };
	c->changed_ns = changed_ns;
	return (size_t)snprintf(c->name, sizeof(c->name), "%s", uuid) < sizeof(c->name);
}

struct log_search {
	const char *name;
	size_t len; /* of the uuid in it */
	struct cfs_about *c;
	bool found;
};

static bool match_uuid(void *arg, const char *uuid, uid_t owner, const char *name, uint64_t changed_ns)
{
	struct log_search *s = arg;

	(void)name;
	if (strlen(uuid) != s->len || memcmp(uuid, s->name, s->len) != 0)
		return true;
	s->found = about_log(s->c, uuid, owner, changed_ns);
	return false;
}

static int logs_child(struct cfs_about *c, const char *name)
{
	size_t len = strlen(name);
	struct log_search s = { .name = name, .len = len - (sizeof(SUFFIX) - 1), .c = c };

	if (len <= sizeof(SUFFIX) - 1 || strcmp(name + s.len, SUFFIX) != 0)
		return -ENOENT;
	journal_each_log(cfs_tree_registry(c->tree), &c->viewer, match_uuid, &s);
	return s.found ? 0 : -ENOENT;
}

struct log_listing {
	struct cfs_about c;
	cfs_list_fn *fn;
	void *arg;
	uint64_t stamp;
};

static bool list_one(void *arg, const char *uuid, uid_t owner, const char *name, uint64_t changed_ns)
{
	struct log_listing *l = arg;
	char file[CFS_NAME_MAX + sizeof(SUFFIX)];

	(void)name;
	if (!about_log(&l->c, uuid, owner, changed_ns))
		return true;
	snprintf(file, sizeof(file), "%s" SUFFIX, uuid);
	return l->fn(l->arg, file, &l->c);
}

static void logs_list(const struct cfs_about *dir, cfs_list_fn *fn, void *arg)
{
	struct log_listing l = { .c = *dir, .fn = fn, .arg = arg };

	journal_each_log(cfs_tree_registry(dir->tree), &dir->viewer, list_one, &l);
}

static bool stamp_one(void *arg, const char *uuid, uid_t owner, const char *name, uint64_t changed_ns)
{
	struct log_listing *l = arg;

	(void)owner, (void)name, (void)changed_ns;
	l->stamp = l->stamp * 31 + cfs_ino(uuid, NULL);
	return true;
}

static uint64_t logs_stamp(const struct cfs_about *dir)
{
	/* The directory is one for all callers. */
	struct cfs_who all = { .view = dir->view };
	struct log_listing l = { 0 };

	journal_each_log(cfs_tree_registry(dir->tree), &all, stamp_one, &l);
	return l.stamp;
}

static const struct cfs_entry logs_entries[] = {
	{ .name = "by-name", .kind = &cfs_kind_dir, .mode = 0755, .flags = CFS_LASTING, .dir = &cfs_by_name_table },
};

const struct cfs_table cfs_logs_table = {
	.path = "logs",
	.entries = logs_entries,
	.count = ARRAY_LEN(logs_entries),
	.child = logs_child,
	.list = logs_list,
	.stamp = logs_stamp,
};

/* -- logs/by-name/<name> -> ../<uuid>.jsonl ----------------------------------------------------------- */

struct named_log {
	char name[CFS_NAME_MAX + 1], uuid[CFS_NAME_MAX + 1];
	uint64_t changed_ns;
};

struct named_logs {
	const struct cfs_who *viewer;
	const char *only; /* NULL: all names */
	struct named_log *list;
	size_t n, cap;
};

static bool collect(void *arg, const char *uuid, uid_t owner, const char *name, uint64_t changed_ns)
{
	struct named_logs *l = arg;
	struct named_log *at;

	if ((l->viewer->uid && l->viewer->uid != owner) || cfs_name_check(name) < 0 ||
	    (l->only && strcmp(l->only, name) != 0) || strlen(uuid) > CFS_NAME_MAX)
		return true;
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 16;

		at = realloc(l->list, cap * sizeof(*at));
		if (!at)
			return false; /* what fits is shown */
		l->list = at;
		l->cap = cap;
	}
	at = &l->list[l->n++];
	snprintf(at->name, sizeof(at->name), "%s", name);
	snprintf(at->uuid, sizeof(at->uuid), "%s", uuid);
	at->changed_ns = changed_ns;
	return true;
}

/* By name, the newest first. */
static int compare(const void *x, const void *y)
{
	const struct named_log *a = x, *b = y;
	int by_name = strcmp(a->name, b->name);

	return by_name			       ? by_name
	       : a->changed_ns < b->changed_ns ? 1
	       : a->changed_ns > b->changed_ns ? -1
					       : strcmp(a->uuid, b->uuid);
}

/* The caller frees ret->list. */
static void collect_all(const struct cfs_about *a, const char *only, struct named_logs *ret)
{
	*ret = (struct named_logs){ .viewer = &a->viewer, .only = only };
	journal_each_log(cfs_tree_registry(a->tree), &a->viewer, collect, ret);
	if (ret->n)
		qsort(ret->list, ret->n, sizeof(*ret->list), compare);
}

static int show_target(const struct cfs_about *a, struct buf *out)
{
	struct named_logs l;
	int r = -ENOENT;

	collect_all(a, a->name, &l);
	if (l.n)
		r = buf_addf(out, "../%s" SUFFIX, l.list[0].uuid);
	free(l.list);
	return r;
}

static const struct cfs_entry name_link = {
	.kind = &cfs_kind_link, .mode = 0777, .flags = CFS_PER_CALLER, .show = show_target
};

static int by_name_child(struct cfs_about *c, const char *name)
{
	struct named_logs l;
	int r = -ENOENT;

	if (cfs_name_check(name) < 0)
		return -ENOENT;
	collect_all(c, name, &l);
	if (l.n) {
		c->entry = &name_link;
		c->changed_ns = l.list[0].changed_ns;
		snprintf(c->name, sizeof(c->name), "%s", name);
		r = 0;
	}
	free(l.list);
	return r;
}

static void by_name_list(const struct cfs_about *dir, cfs_list_fn *fn, void *arg)
{
	struct cfs_about c = *dir;
	struct named_logs l;

	collect_all(dir, NULL, &l);
	c.entry = &name_link;
	for (size_t i = 0; i < l.n; i++) {
		if (i && !strcmp(l.list[i].name, l.list[i - 1].name))
			continue;
		snprintf(c.name, sizeof(c.name), "%s", l.list[i].name);
		if (!fn(arg, c.name, &c))
			break;
	}
	free(l.list);
}

const struct cfs_table cfs_by_name_table = {
	.path = "logs/by-name",
	.child = by_name_child,
	.list = by_name_list,
	.stamp = logs_stamp,
};
