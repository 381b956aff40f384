/* SPDX-License-Identifier: Apache-2.0 */
/* views/ and views/<name>/. What is below views/<name>/tree is made of the same tables as the whole tree: only the view
 * in its `about` differs. The directory is its owner's, so that who owns it reaches `tree`; its files are root's. */
#include <stdio.h>
#include <string.h>
#include "base/fd.h"
#include "cruciblefs/scratch.h"
#include "cruciblefs/tables.h"
#include "cruciblefs/view.h"

/* A file of a view knows it by uuid: a name can be used again. NULL: it was removed. */
static struct view *view_of(const struct cfs_about *a)
{
	struct registry *reg = cfs_tree_registry(a->tree);
	struct view *v = registry_next_view(reg, NULL);

	while (v && strcmp(view_uuid(v), a->name) != 0)
		v = registry_next_view(reg, v);
	return v;
}

/* -- what files show and take ------------------------------------------------------------------------ */

static int bind_file(struct cfs_about *a)
{
	struct view *v = view_of(a);

	if (!v)
		return -ENOENT;
	a->owner = (struct cfs_who){ 0 };
	a->changed_ns = view_changed_ns(v);
	return 0;
}

/* Everything below is seen through the view. */
static int bind_tree(struct cfs_about *a)
{
	struct view *v = view_of(a);

	if (!v || view_status(v) == VIEW_NEW)
		return -ENOENT;
	a->owner = (struct cfs_who){ 0 };
	a->view = v;
	a->name[0] = '\0';
	a->changed_ns = view_created_ns(v);
	return 0;
}

static int show_policy(const struct cfs_about *a, struct buf *out)
{
	struct view *v = view_of(a);
	int r = v ? view_policy_show(v, out) : -ENOENT;

	return v && r == -ENOENT ? 0 : r; /* there to be written */
}

static int store_policy(const struct cfs_about *a, const struct cfs_who *who, const char *text, size_t len,
			struct err *e)
{
	struct view *v = view_of(a);

	return v ? view_policy_store(v, text, len, who, e) : -ESTALE;
}

static int show_ttl(const struct cfs_about *a, struct buf *out)
{
	struct view *v = view_of(a);

	return v ? view_ttl_show(v, out) : -ENOENT;
}

static int store_ttl(const struct cfs_about *a, const struct cfs_who *who, const char *text, size_t len, struct err *e)
{
	struct view *v = view_of(a);

	return v ? view_ttl_store(v, text, len, who, e) : -ESTALE;
}

static int show_status(const struct cfs_about *a, struct buf *out)
{
	struct view *v = view_of(a);

	return v ? buf_addf(out, "%s\n", view_status_name(view_status(v))) : -ENOENT;
}

static int show_error(const struct cfs_about *a, struct buf *out)
{
	struct view *v = view_of(a);
	const char *words = v ? view_error(v) : "";

	return words[0] ? buf_addf(out, "%s\n", words) : 0;
}

static int show_uuid(const struct cfs_about *a, struct buf *out)
{
	struct view *v = view_of(a);

	return v ? buf_addf(out, "%s\n", view_uuid(v)) : -ENOENT;
}

static int show_info(const struct cfs_about *a, struct buf *out)
{
	struct view *v = view_of(a);

	return v ? view_info_json(v, out) : -ENOENT;
}

/* -- views/<name>/ ------------------------------------------------------------------------------------ */

/* An entry is a row. */
/* clang-format off */
static const struct cfs_entry view_entries[] = {
	{ .name = "policy", .kind = &cfs_kind_control, .mode = 0644, .flags = CFS_DOCUMENT | CFS_ALWAYS, .op = POLICY_ADMIN, .bind = bind_file, .show = show_policy, .store = store_policy },
	{ .name = "ttl", .kind = &cfs_kind_control, .mode = 0644, .flags = CFS_ALWAYS, .op = POLICY_ADMIN, .bind = bind_file, .show = show_ttl, .store = store_ttl },
	{ .name = "status", .kind = &cfs_kind_text, .mode = 0444, .flags = CFS_ALWAYS, .bind = bind_file, .show = show_status },
	{ .name = "error", .kind = &cfs_kind_text, .mode = 0444, .flags = CFS_ALWAYS, .bind = bind_file, .show = show_error },
	{ .name = "uuid", .kind = &cfs_kind_text, .mode = 0444, .flags = CFS_ALWAYS, .bind = bind_file, .show = show_uuid },
	{ .name = "info.json", .kind = &cfs_kind_text, .mode = 0444, .flags = CFS_ALWAYS, .bind = bind_file, .show = show_info },
	{ .name = "tree", .kind = &cfs_kind_dir, .mode = 0755, .flags = CFS_UNLISTED, .bind = bind_tree, .dir = &cfs_view_root_table },
};
/* clang-format on */

/* `tree` comes with the policy. While the view's time is over it can be found (and all of it is ESTALE), and is not
 * listed: find and grep -r over the mount would stumble over it. */
static bool is_listed(const struct view *v)
{
	return v && !view_dead(v);
}

static void view_list(const struct cfs_about *dir, cfs_list_fn *fn, void *arg)
{
	struct cfs_about c = *dir;

	c.entry = &view_entries[ARRAY_LEN(view_entries) - 1];
	if (bind_tree(&c) == 0 && is_listed(c.view))
		fn(arg, c.entry->name, &c);
}

static uint64_t view_stamp(const struct cfs_about *dir)
{
	return is_listed(view_of(dir));
}

static const struct cfs_table view_table = {
	.path = "views/<name>",
	.entries = view_entries,
	.count = ARRAY_LEN(view_entries),
	.list = view_list,
	.stamp = view_stamp,
	.make = POLICY_ADMIN,
	.scratch = true,
};

static int give_view(const struct cfs_about *a, uid_t uid, gid_t gid, const struct cfs_who *who, struct cfs_who *ret,
		     struct err *e)
{
	struct view *v = view_of(a);
	int r = v ? view_chown(v, uid, gid, who, e) : -ESTALE;

	if (!r)
		*ret = view_owner(v);
	return r;
}

/* -- views/ ------------------------------------------------------------------------------------------- */

static const struct cfs_entry view_dir = {
	.kind = &cfs_kind_dir, .mode = 0700, .chown = give_view, .dir = &view_table
};

static void about_view(struct cfs_about *c, struct view *v)
{
	c->entry = &view_dir;
	c->owner = view_owner(v);
	c->changed_ns = view_created_ns(v);
	snprintf(c->name, sizeof(c->name), "%s", view_uuid(v));
}

/* Whoever asks: a name that led somewhere for one user and nowhere for another would make the kernel throw it away each
 * time that the other one asks. The directory is 0700. */
static int views_child(struct cfs_about *c, const char *name)
{
	struct view *v = registry_find_view(cfs_tree_registry(c->tree), name);

	if (!v)
		return -ENOENT;
	about_view(c, v);
	return 0;
}

static void views_list(const struct cfs_about *dir, cfs_list_fn *fn, void *arg)
{
	struct registry *reg = cfs_tree_registry(dir->tree);
	struct cfs_about c = *dir;

	for (struct view *v = registry_next_view(reg, NULL); v; v = registry_next_view(reg, v)) {
		about_view(&c, v);
		if (dir->viewer.uid && dir->viewer.uid != c.owner.uid)
			continue;
		if (!fn(arg, view_name(v), &c))
			return;
	}
}

static uint64_t views_stamp(const struct cfs_about *dir)
{
	struct registry *reg = cfs_tree_registry(dir->tree);
	uint64_t h = 0;

	for (struct view *v = registry_next_view(reg, NULL); v; v = registry_next_view(reg, v))
		h = h * 31 + cfs_ino(view_uuid(v), NULL);
	return h;
}

/* Who may, the domain says: root without any policy may, too. */
static int views_mkdir(const struct cfs_about *dir, const char *name, const struct cfs_who *who, struct err *e)
{
	struct view *v;

	return registry_create_view(cfs_tree_registry(dir->tree), name, who, &v, e);
}

static int views_rmdir(const struct cfs_about *c, const struct cfs_who *who, struct err *e)
{
	struct view *v = view_of(c);
	int r = v ? registry_remove_view(cfs_tree_registry(c->tree), v, who, e) : -ENOENT;

	if (!r)
		scratch_drop_dir(c->place, cfs_about_ino(c));
	return r;
}

const struct cfs_table cfs_views_table = {
	.path = "views",
	.child = views_child,
	.list = views_list,
	.stamp = views_stamp,
	.mkdir = views_mkdir,
	.rmdir = views_rmdir,
};
