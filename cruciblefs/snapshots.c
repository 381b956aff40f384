/* SPDX-License-Identifier: Apache-2.0 */
/* snapshots/, snapshots/<id>/, snapshots/<id>/forks/; run/<id>/snapshots/ and run/<id>/inherited/; store/. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "cruciblefs/snapshot.h"
#include "cruciblefs/tables.h"
#include "policy/policy.h"

/* A file of a snapshot knows it by uuid: a name can be used again. */
static struct snapshot *snap_of(const struct cfs_about *a)
{
	return registry_snapshot_by_uuid(cfs_tree_registry(a->tree), a->name);
}

/* -- what files show and take ------------------------------------------------------------------------ */

static int bind_snapshot(struct cfs_about *a)
{
	struct snapshot *p = snap_of(a);

	if (!p)
		return -ENOENT;
	a->changed_ns = snapshot_changed_ns(p);
	return 0;
}

static int bind_diff(struct cfs_about *a)
{
	struct snapshot *p = snap_of(a);

	if (!p || strcmp(snapshot_diff_state(p), "done") != 0)
		return -ENOENT;
	return bind_snapshot(a);
}

static int show_uuid(const struct cfs_about *a, struct buf *out)
{
	struct snapshot *p = snap_of(a);

	return p ? buf_addf(out, "%s\n", snapshot_uuid(p)) : -ENOENT;
}

static int show_info(const struct cfs_about *a, struct buf *out)
{
	struct snapshot *p = snap_of(a);

	return p ? snapshot_info_json(p, out) : -ENOENT;
}

static int show_parent(const struct cfs_about *a, struct buf *out)
{
	struct snapshot *p = snap_of(a);

	return p ? buf_addf(out, "%s\n", snapshot_parent(p)) : -ENOENT;
}

static int show_status(const struct cfs_about *a, struct buf *out)
{
	struct snapshot *p = snap_of(a);

	return p ? buf_addf(out, "%s\n", snapshot_status_name(snapshot_status(p))) : -ENOENT;
}

static int show_error(const struct cfs_about *a, struct buf *out)
{
	struct snapshot *p = snap_of(a);
	const char *words = p ? snapshot_error(p) : "";

	return words[0] ? buf_addf(out, "%s\n", words) : 0;
}

static int show_batch(const struct cfs_about *a, struct buf *out)
{
	struct snapshot *p = snap_of(a);

	return p ? snapshot_last_batch(p, out) : -ENOENT;
}

static void fail(const struct cfs_about *a, const struct cfs_who *who, struct err *e)
{
	struct snapshot *p = snap_of(a);

	if (p)
		snapshot_fail(p, who, e);
}

static int begin_fork(const struct cfs_about *a, const struct cfs_who *who, const char *order,
		      struct snapshot_job **ret, struct err *e)
{
	static const char disk_only[] = "--disk-only";
	struct snapshot *p = snap_of(a);
	size_t n = sizeof(disk_only) - 1;
	bool only = !strncmp(order, disk_only, n) && strchr(" \t\n", order[n]);

	if (!p)
		return -ESTALE;
	if (only)
		order += n + strspn(order + n, " \t\n");
	return snapshot_fork(p, only && !order[0] ? "1" : order, only, who, ret, e);
}

static int show_verify(const struct cfs_about *a, struct buf *out)
{
	struct snapshot *p = snap_of(a);

	return p ? snapshot_verify_json(p, out) : -ENOENT;
}

static int store_verify(const struct cfs_about *a, const struct cfs_who *who, const char *text, size_t len,
			struct err *e)
{
	struct snapshot *p = snap_of(a);
	int r = p ? snapshot_verify(p, who, e) : -ESTALE;

	(void)text;
	(void)len;
	if (r < 0)
		cfs_fail(a, who, e);
	return r;
}

static int show_diff(const struct cfs_about *a, struct buf *out)
{
	struct snapshot *p = snap_of(a);

	return p ? buf_addf(out, "%s\n", snapshot_diff_state(p)) : -ENOENT;
}

static int store_diff(const struct cfs_about *a, const struct cfs_who *who, const char *text, size_t len, struct err *e)
{
	struct snapshot *p = snap_of(a);
	int r = p ? snapshot_diff(p, who, e) : -ESTALE;

	(void)text;
	(void)len;
	if (r < 0)
		cfs_fail(a, who, e);
	return r;
}

static int show_diff_json(const struct cfs_about *a, struct buf *out)
{
	struct snapshot *p = snap_of(a);

	return p ? snapshot_diff_json(p, out) : -ENOENT;
}

/* -- snapshots/<id>/forks/: links to what lives ----------------------------------------------------------- */

static int show_fork_link(const struct cfs_about *a, struct buf *out)
{
	return buf_addf(out, "../../../run/%s", a->name);
}

static const struct cfs_entry fork_link = { .kind = &cfs_kind_link, .mode = 0777, .show = show_fork_link };

static int forks_child(struct cfs_about *c, const char *name)
{
	struct snapshot *p = snap_of(c);

	for (struct sandbox *s = p ? snapshot_next_fork(p, NULL) : NULL; s; s = snapshot_next_fork(p, s)) {
		if (strcmp(sandbox_name(s), name) != 0)
			continue;
		c->entry = &fork_link;
		snprintf(c->name, sizeof(c->name), "%s", name);
		return 0;
	}
	return -ENOENT;
}

static void forks_list(const struct cfs_about *dir, cfs_list_fn *fn, void *arg)
{
	struct snapshot *p = snap_of(dir);
	struct cfs_about c = *dir;

	c.entry = &fork_link;
	for (struct sandbox *s = p ? snapshot_next_fork(p, NULL) : NULL; s; s = snapshot_next_fork(p, s)) {
		snprintf(c.name, sizeof(c.name), "%s", sandbox_name(s));
		if (!fn(arg, sandbox_name(s), &c))
			return;
	}
}

static uint64_t forks_stamp(const struct cfs_about *dir)
{
	struct snapshot *p = snap_of(dir);
	uint64_t h = 0;

	for (struct sandbox *s = p ? snapshot_next_fork(p, NULL) : NULL; s; s = snapshot_next_fork(p, s))
		h = h * 31 + cfs_ino(sandbox_uuid(s), sandbox_name(s), NULL);
	return h;
}

static const struct cfs_table forks_table = {
	.path = "snapshots/<id>/forks",
	.child = forks_child,
	.list = forks_list,
	.stamp = forks_stamp,
};

/* -- snapshots/<id>/ -------------------------------------------------------------------------------------- */

/* An entry is a row. */
/* clang-format off */
static const struct cfs_entry snapshot_entries[] = {
	{ .name = "info.json", .kind = &cfs_kind_text, .mode = 0400, .bind = bind_snapshot, .show = show_info },
	{ .name = "uuid", .kind = &cfs_kind_text, .mode = 0400, .flags = CFS_ALWAYS, .bind = bind_snapshot, .show = show_uuid },
	{ .name = "parent", .kind = &cfs_kind_text, .mode = 0400, .bind = bind_snapshot, .show = show_parent },
	{ .name = "status", .kind = &cfs_kind_text, .mode = 0444, .flags = CFS_ALWAYS, .bind = bind_snapshot, .show = show_status },
	{ .name = "error", .kind = &cfs_kind_text, .mode = 0400, .flags = CFS_ALWAYS, .bind = bind_snapshot, .show = show_error },
	{ .name = "fork", .kind = &cfs_kind_job, .mode = 0600, .op = POLICY_FORK, .bind = bind_snapshot, .show = show_batch, .begin = begin_fork, .fail = fail },
	{ .name = "forks", .kind = &cfs_kind_dir, .mode = 0500, .bind = bind_snapshot, .dir = &forks_table },
	{ .name = "diff", .kind = &cfs_kind_control, .mode = 0600, .op = POLICY_READ, .bind = bind_snapshot, .show = show_diff, .store = store_diff, .fail = fail },
	{ .name = "diff.json", .kind = &cfs_kind_text, .mode = 0400, .bind = bind_diff, .show = show_diff_json },
	{ .name = "verify", .kind = &cfs_kind_control, .mode = 0600, .op = POLICY_READ, .bind = bind_snapshot, .show = show_verify, .store = store_verify, .fail = fail },
};
/* clang-format on */

static const struct cfs_table snapshot_table = {
	.path = "snapshots/<id>",
	.entries = snapshot_entries,
	.count = ARRAY_LEN(snapshot_entries),
	.user_may_hide = true,
};

/* -- snapshots/ --------------------------------------------------------------------------------------------- */

static const struct cfs_entry snapshot_dir = {
	.kind = &cfs_kind_dir, .mode = 0755, .op = POLICY_DELETE, .dir = &snapshot_table
};

static void about_snapshot(struct cfs_about *c, struct snapshot *p)
{
	c->entry = &snapshot_dir;
	c->owner = snapshot_owner(p);
	c->changed_ns = snapshot_created_ns(p);
	snprintf(c->name, sizeof(c->name), "%s", snapshot_uuid(p));
}

static int snapshots_child(struct cfs_about *c, const char *name)
{
	struct snapshot *p = registry_find_snapshot(cfs_tree_registry(c->tree), c->view, name);

	if (!p)
		return -ENOENT;
	about_snapshot(c, p);
	return 0;
}

static void snapshots_list(const struct cfs_about *dir, cfs_list_fn *fn, void *arg)
{
	struct registry *reg = cfs_tree_registry(dir->tree);
	struct cfs_about c = *dir;

	for (struct snapshot *p = registry_next_snapshot(reg, dir->view, NULL); p;
	     p = registry_next_snapshot(reg, dir->view, p)) {
		about_snapshot(&c, p);
		if (!fn(arg, snapshot_name(p), &c))
			return;
	}
}

static uint64_t snapshots_stamp(const struct cfs_about *dir)
{
	struct registry *reg = cfs_tree_registry(dir->tree);
	uint64_t h = 0;

	for (struct snapshot *p = registry_next_snapshot(reg, dir->view, NULL); p;
	     p = registry_next_snapshot(reg, dir->view, p))
		h = h * 31 + cfs_ino(snapshot_uuid(p), NULL);
	return h;
}

static int snapshots_rmdir(const struct cfs_about *c, const struct cfs_who *who, struct err *e)
{
	struct snapshot *p = snap_of(c);

	return p ? snapshot_remove(p, who, e) : -ENOENT;
}

const struct cfs_table cfs_snapshots_table = {
	.path = "snapshots",
	.child = snapshots_child,
	.list = snapshots_list,
	.stamp = snapshots_stamp,
	.rmdir = snapshots_rmdir,
};

/* -- run/<id>/snapshots/ ------------------------------------------------------------------------------------ */

static int show_taken_link(const struct cfs_about *a, struct buf *out)
{
	return buf_addf(out, "../../../snapshots/%s", a->name);
}

static const struct cfs_entry taken_link = { .kind = &cfs_kind_link, .mode = 0777, .show = show_taken_link };

static struct snapshot *next_taken(const struct cfs_about *dir, struct snapshot *after)
{
	struct registry *reg = cfs_tree_registry(dir->tree);
	struct snapshot *p = registry_next_snapshot(reg, dir->view, after);

	while (p && strcmp(snapshot_source_uuid(p), sandbox_uuid(dir->sbx)) != 0)
		p = registry_next_snapshot(reg, dir->view, p);
	return p;
}

static int taken_child(struct cfs_about *c, const char *name)
{
	for (struct snapshot *p = next_taken(c, NULL); p; p = next_taken(c, p)) {
		if (strcmp(snapshot_name(p), name) != 0)
			continue;
		c->entry = &taken_link;
		snprintf(c->name, sizeof(c->name), "%s", name);
		return 0;
	}
	return -ENOENT;
}

static void taken_list(const struct cfs_about *dir, cfs_list_fn *fn, void *arg)
{
	struct cfs_about c = *dir;

	c.entry = &taken_link;
	for (struct snapshot *p = next_taken(dir, NULL); p; p = next_taken(dir, p)) {
		snprintf(c.name, sizeof(c.name), "%s", snapshot_name(p));
		if (!fn(arg, snapshot_name(p), &c))
			return;
	}
}

static uint64_t taken_stamp(const struct cfs_about *dir)
{
	uint64_t h = 0;

	for (struct snapshot *p = next_taken(dir, NULL); p; p = next_taken(dir, p))
		h = h * 31 + cfs_ino(snapshot_uuid(p), NULL);
	return h;
}

const struct cfs_table cfs_taken_table = {
	.path = "run/<id>/snapshots",
	.child = taken_child,
	.list = taken_list,
	.stamp = taken_stamp,
};

/* -- run/<id>/inherited/ ------------------------------------------------------------------------------------ */

static uint64_t inherited_number(const struct cfs_about *a)
{
	return strtoull(a->name, NULL, 10);
}

static int inherited_open(const struct cfs_about *a, const struct cfs_who *who, int *ret_fd)
{
	(void)who;
	return sandbox_inherited_open(a->sbx, inherited_number(a), ret_fd);
}

static uint64_t inherited_size(const struct cfs_about *a)
{
	int fd = -1;

	return sandbox_inherited_open(a->sbx, inherited_number(a), &fd) < 0 ? 0 : cfs_fd_size(fd);
}

static const struct cfs_stream_ops inherited_stream = { .open = inherited_open,
							.size = inherited_size,
							.queue = cfs_sandbox_queue };
static const struct cfs_entry inherited_file = { .kind = &cfs_kind_stream, .mode = 0400, .stream = &inherited_stream };

static void inherited_name(char out[32], uint64_t n)
{
	snprintf(out, 32, "%" PRIu64 ".out", n);
}

static int inherited_child(struct cfs_about *c, const char *name)
{
	char own[32];

	for (uint64_t n = sandbox_inherited_next(c->sbx, 0); n; n = sandbox_inherited_next(c->sbx, n)) {
		inherited_name(own, n);
		if (strcmp(own, name) != 0)
			continue;
		c->entry = &inherited_file;
		snprintf(c->name, sizeof(c->name), "%" PRIu64, n);
		return 0;
	}
	return -ENOENT;
}

static void inherited_list(const struct cfs_about *dir, cfs_list_fn *fn, void *arg)
{
	struct cfs_about c = *dir;
	char own[32];

	c.entry = &inherited_file;
	for (uint64_t n = sandbox_inherited_next(dir->sbx, 0); n; n = sandbox_inherited_next(dir->sbx, n)) {
		inherited_name(own, n);
		snprintf(c.name, sizeof(c.name), "%" PRIu64, n);
		if (!fn(arg, own, &c))
			return;
	}
}

static uint64_t inherited_stamp(const struct cfs_about *dir)
{
	uint64_t h = 0;

	for (uint64_t n = sandbox_inherited_next(dir->sbx, 0); n; n = sandbox_inherited_next(dir->sbx, n))
		h = h * 31 + n;
	return h;
}

const struct cfs_table cfs_inherited_table = {
	.path = "run/<id>/inherited",
	.child = inherited_child,
	.list = inherited_list,
	.stamp = inherited_stamp,
};

/* -- store/ ---------------------------------------------------------------------------------------------------- */

static int show_stat(const struct cfs_about *a, struct buf *out)
{
	return registry_store_json(cfs_tree_registry(a->tree), out);
}

static int show_outcome(const struct cfs_about *a, struct buf *out)
{
	return registry_store_outcome(cfs_tree_registry(a->tree), a->entry->name, out);
}

static int store_start(const struct cfs_about *a, const struct cfs_who *who, const char *text, size_t len,
		       struct err *e)
{
	(void)text;
	(void)len;
	return registry_store_start(cfs_tree_registry(a->tree), a->entry->name, who, e);
}

/* An entry is a row. */
/* clang-format off */
static const struct cfs_entry store_entries[] = {
	{ .name = "stat.json", .kind = &cfs_kind_text, .mode = 0444, .show = show_stat },
	{ .name = "gc", .kind = &cfs_kind_control, .mode = 0644, .op = POLICY_ADMIN, .show = show_outcome, .store = store_start },
	{ .name = "verify", .kind = &cfs_kind_control, .mode = 0644, .op = POLICY_ADMIN, .show = show_outcome, .store = store_start },
};
/* clang-format on */

const struct cfs_table cfs_store_table = {
	.path = "store",
	.entries = store_entries,
	.count = ARRAY_LEN(store_entries),
};
