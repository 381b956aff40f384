/* SPDX-License-Identifier: Apache-2.0 */
/* The root, defaults/ and profiles/. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "cruciblefs/tables.h"
#include "cruciblefs/tree_priv.h"
#include "policy/policy.h"

uint64_t cfs_fd_size(int fd)
{
	struct stat st;
	uint64_t size = fd >= 0 && fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;

	fd_close(&fd);
	return size;
}

/* -- what files show ------------------------------------------------------------------------------ */

static int show_readme(const struct cfs_about *a, struct buf *out)
{
	(void)a;
	return buf_adds(out, cfs_readme);
}

static int show_version(const struct cfs_about *a, struct buf *out)
{
	(void)a;
	return buf_adds(out, CRUCIBLE_VERSION "\n");
}

static int show_health(const struct cfs_about *a, struct buf *out)
{
	struct cfs_who all = { .view = a->view };

	return registry_health_json(cfs_tree_registry(a->tree), &all, out);
}

static int show_metrics(const struct cfs_about *a, struct buf *out)
{
	return registry_metrics(cfs_tree_registry(a->tree), &a->viewer, out);
}

static int show_policy(const struct cfs_about *a, struct buf *out)
{
	return registry_policy_json(cfs_tree_registry(a->tree), &a->viewer, out);
}

static int events_open(const struct cfs_about *a, const struct cfs_who *who, int *ret_fd)
{
	return journal_open_events(cfs_tree_registry(a->tree), who, ret_fd);
}

static uint64_t events_size(const struct cfs_about *a)
{
	int fd = -1;

	return events_open(a, &a->viewer, &fd) < 0 ? 0 : cfs_fd_size(fd);
}

struct waitq *cfs_journal_queue(const struct cfs_about *a)
{
	return journal_waitq(cfs_tree_registry(a->tree));
}

static const struct cfs_stream_ops events_stream = { .open = events_open,
						     .size = events_size,
						     .queue = cfs_journal_queue };

/* -- defaults/ -------------------------------------------------------------------------------------- */

static int show_default(const struct cfs_about *a, struct buf *out)
{
	return registry_default_show(cfs_tree_registry(a->tree), (enum sandbox_attr)a->entry->arg, out);
}

static int store_default(const struct cfs_about *a, const struct cfs_who *who, const char *text, size_t len,
			 struct err *e)
{
	return registry_default_store(cfs_tree_registry(a->tree), (enum sandbox_attr)a->entry->arg, text, len, who, e);
}

/* clang-format off */
#define DEFAULT(file, attr) \
	{ .name = (file), .kind = &cfs_kind_control, .mode = 0644, .flags = CFS_ALWAYS, .op = POLICY_ADMIN, .arg = (attr), .show = show_default, .store = store_default }
static const struct cfs_entry defaults_entries[] = {
	DEFAULT("from", ATTR_FROM),
	DEFAULT("vcpus", ATTR_VCPUS),
	DEFAULT("memory_mib", ATTR_MEMORY_MIB),
	DEFAULT("disk_mib", ATTR_DISK_MIB),
	DEFAULT("cpu_percent", ATTR_CPU_PERCENT),
	DEFAULT("io_mbps", ATTR_IO_MBPS),
	DEFAULT("timeout_s", ATTR_TIMEOUT_S),
	DEFAULT("exec_timeout_s", ATTR_EXEC_TIMEOUT_S),
	DEFAULT("output_mib", ATTR_OUTPUT_MIB),
	DEFAULT("spool_mib", ATTR_SPOOL_MIB),
	DEFAULT("pids", ATTR_PIDS),
};
/* clang-format on */

static const struct cfs_table defaults_table = {
	.path = "defaults",
	.entries = defaults_entries,
	.count = ARRAY_LEN(defaults_entries),
};

/* -- profiles/<name>/ --------------------------------------------------------------------------------- */

static int show_profile(const struct cfs_about *a, struct buf *out)
{
	uint64_t changed_ns;

	return profile_info_json(cfs_tree_registry(a->tree), a->name, out, &changed_ns);
}

static const struct cfs_entry profile_entries[] = {
	{ .name = "info.json", .kind = &cfs_kind_text, .mode = 0444, .flags = CFS_ALWAYS, .show = show_profile },
};

static const struct cfs_table profile_table = {
	.path = "profiles/<name>",
	.entries = profile_entries,
	.count = ARRAY_LEN(profile_entries),
};

static const struct cfs_entry profile_dir = { .kind = &cfs_kind_dir, .mode = 0755, .dir = &profile_table };

struct profile_walk {
	struct cfs_about c;
	const char *only; /* a name that is searched, or NULL */
	bool found;
	uint64_t stamp;
	cfs_list_fn *fn;
	void *arg;
};

static bool profile_one(void *arg, const char *name, uint64_t changed_ns)
{
	struct profile_walk *w = arg;

	if (cfs_name_check(name) < 0 || (w->only && strcmp(w->only, name) != 0))
		return true;
	w->found = true;
	w->stamp = w->stamp * 31 + cfs_ino(name, NULL);
	w->c.entry = &profile_dir;
	w->c.changed_ns = changed_ns;
	snprintf(w->c.name, sizeof(w->c.name), "%s", name);
	if (w->only)
		return false;
	return !w->fn || w->fn(w->arg, name, &w->c);
}

static int profiles_child(struct cfs_about *c, const char *name)
{
	struct profile_walk w = { .c = *c, .only = name };
	int r = profile_list(cfs_tree_registry(c->tree), profile_one, &w);

	if (r < 0)
		return r;
	*c = w.c;
	return w.found ? 0 : -ENOENT;
}

static void profiles_list(const struct cfs_about *dir, cfs_list_fn *fn, void *arg)
{
	struct profile_walk w = { .c = *dir, .fn = fn, .arg = arg };

	profile_list(cfs_tree_registry(dir->tree), profile_one, &w);
}

static uint64_t profiles_stamp(const struct cfs_about *dir)
{
	struct profile_walk w = { .c = *dir };

	profile_list(cfs_tree_registry(dir->tree), profile_one, &w);
	return w.stamp;
}

static const struct cfs_table profiles_table = {
	.path = "profiles",
	.child = profiles_child,
	.list = profiles_list,
	.stamp = profiles_stamp,
};

/* -- the root --------------------------------------------------------------------------------------------- */

/* An entry is a row. These are in the whole tree and in each view. */
/* clang-format off */
#define SHARED_ENTRIES \
	{ .name = "README.md", .kind = &cfs_kind_text, .mode = 0444, .flags = CFS_ALWAYS, .show = show_readme }, \
	{ .name = "version", .kind = &cfs_kind_text, .mode = 0444, .flags = CFS_ALWAYS, .show = show_version }, \
	{ .name = "health.json", .kind = &cfs_kind_text, .mode = 0444, .flags = CFS_ALWAYS, .show = show_health }, \
	{ .name = "metrics", .kind = &cfs_kind_text, .mode = 0444, .flags = CFS_PER_CALLER, .show = show_metrics }, \
	{ .name = "events.jsonl", .kind = &cfs_kind_stream, .mode = 0444, .flags = CFS_PER_CALLER, .stream = &events_stream }, \
	{ .name = "defaults", .kind = &cfs_kind_dir, .mode = 0755, .flags = CFS_LASTING, .dir = &defaults_table }, \
	{ .name = "profiles", .kind = &cfs_kind_dir, .mode = 0755, .flags = CFS_LASTING, .dir = &profiles_table }, \
	{ .name = "run", .kind = &cfs_kind_dir, .mode = 01777, .flags = CFS_LASTING, .dir = &cfs_run_table }, \
	{ .name = "snapshots", .kind = &cfs_kind_dir, .mode = 01777, .flags = CFS_LASTING, .dir = &cfs_snapshots_table }, \
	{ .name = "logs", .kind = &cfs_kind_dir, .mode = 0755, .flags = CFS_LASTING, .dir = &cfs_logs_table }, \
	{ .name = "policy.json", .kind = &cfs_kind_text, .mode = 0444, .flags = CFS_PER_CALLER | CFS_ALWAYS, .show = show_policy }

static const struct cfs_entry root_entries[] = {
	SHARED_ENTRIES,
	{ .name = "store", .kind = &cfs_kind_dir, .mode = 0755, .flags = CFS_LASTING, .dir = &cfs_store_table },
	{ .name = "views", .kind = &cfs_kind_dir, .mode = 01777, .flags = CFS_LASTING, .dir = &cfs_views_table },
};
static const struct cfs_entry view_root_entries[] = { SHARED_ENTRIES };
/* clang-format on */

const struct cfs_table cfs_root_table = {
	.path = "",
	.entries = root_entries,
	.count = ARRAY_LEN(root_entries),
};

const struct cfs_table cfs_view_root_table = {
	.path = "views/<name>/tree",
	.entries = view_root_entries,
	.count = ARRAY_LEN(view_root_entries),
};

const struct cfs_entry cfs_root_entry = {
	.name = "", .kind = &cfs_kind_dir, .mode = 0755, .flags = CFS_LASTING, .dir = &cfs_root_table
};
