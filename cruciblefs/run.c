/* SPDX-License-Identifier: Apache-2.0 */
/* run/, run/<id>/ and run/<id>/limits/. */
#include <stdio.h>
#include <string.h>
#include "base/fd.h"
#include "cruciblefs/guestfs.h"
#include "cruciblefs/may.h"
#include "cruciblefs/snapshot.h"
#include "cruciblefs/tables.h"

/* -- what files show and take -------------------------------------------------------------------- */

static int bind_latest(struct cfs_about *a)
{
	a->bound = sandbox_latest_exec(a->sbx);
	cfs_about_changed(a);
	return 0;
}

static int bind_latest_done(struct cfs_about *a)
{
	bind_latest(a);
	return cfs_bind_done(a);
}

static int bind_wait(struct cfs_about *a)
{
	bind_latest(a);
	return a->bound ? 0 : -ENOENT;
}

static int show_status(const struct cfs_about *a, struct buf *out)
{
	return buf_addf(out, "%s\n", sandbox_status_name(sandbox_status(a->sbx)));
}

static int show_error(const struct cfs_about *a, struct buf *out)
{
	const char *words = sandbox_error(a->sbx);

	return words[0] ? buf_addf(out, "%s\n", words) : 0;
}

static int show_uuid(const struct cfs_about *a, struct buf *out)
{
	return buf_addf(out, "%s\n", sandbox_uuid(a->sbx));
}

static int show_info(const struct cfs_about *a, struct buf *out)
{
	return sandbox_info_json(a->sbx, out);
}

static int show_usage(const struct cfs_about *a, struct buf *out)
{
	return sandbox_usage_json(a->sbx, out);
}

static int show_verbs(const struct cfs_about *a, struct buf *out)
{
	(void)a;
	return buf_adds(out, sandbox_ctl_verbs);
}

static int store_ctl(const struct cfs_about *a, const struct cfs_who *who, const char *text, size_t len, struct err *e)
{
	(void)len;
	return sandbox_ctl(a->sbx, text, who, e);
}

static int show_attr(const struct cfs_about *a, struct buf *out)
{
	return sandbox_attr_show(a->sbx, (enum sandbox_attr)a->entry->arg, out);
}

static int store_attr(const struct cfs_about *a, const struct cfs_who *who, const char *text, size_t len, struct err *e)
{
	return sandbox_attr_store(a->sbx, (enum sandbox_attr)a->entry->arg, text, len, who, e);
}

static int show_snapshot(const struct cfs_about *a, struct buf *out)
{
	const char *name = sandbox_latest_snapshot(a->sbx);

	return name[0] ? buf_addf(out, "%s\n", name) : 0;
}

static int begin_snapshot(const struct cfs_about *a, const struct cfs_who *who, const char *order,
			  struct snapshot_job **ret, struct err *e)
{
	return sandbox_snapshot(a->sbx, order, who, ret, e);
}

static int show_fs_link(const struct cfs_about *a, struct buf *out)
{
	(void)a;
	return buf_adds(out, ".fs");
}

static int log_open(const struct cfs_about *a, const struct cfs_who *who, int *ret_fd)
{
	return journal_open_log(cfs_tree_registry(a->tree), sandbox_uuid(a->sbx), who, ret_fd);
}

static uint64_t log_size(const struct cfs_about *a)
{
	int fd = -1;

	return log_open(a, &a->owner, &fd) < 0 ? 0 : cfs_fd_size(fd);
}

static int console_open(const struct cfs_about *a, const struct cfs_who *who, int *ret_fd)
{
	(void)who;
	return sandbox_console_open(a->sbx, ret_fd);
}

static uint64_t console_size(const struct cfs_about *a)
{
	int fd = -1;

	return sandbox_console_open(a->sbx, &fd) < 0 ? 0 : cfs_fd_size(fd);
}

static const struct cfs_stream_ops log_stream = { .open = log_open, .size = log_size, .queue = cfs_journal_queue };
static const struct cfs_stream_ops console_stream = { .open = console_open,
						      .size = console_size,
						      .queue = cfs_sandbox_queue };

/* -- `.fs`: what is below is guestfs.c's ------------------------------------------------------------ */

static void guest_lookup(struct cfs_req *r, const struct cfs_about *a, uint64_t ino)
{
	struct cfs_node *n;
	struct stat st;
	int code = cfs_may(a, cfs_req_who(r), POLICY_FILES);

	(void)ino;
	if (code < 0) {
		cfs_reply_err(r, code);
		return;
	}
	code = guestfs_root(cfs_req_session(r), a->sbx, &n, &st);
	if (code < 0) {
		cfs_reply_err(r, code);
		return;
	}
	cfs_reply_entry(r, n, &st, 0, 0);
	cfs_node_unref(n);
}

const struct cfs_kind cfs_kind_guest = { .name = "guest", .type = S_IFDIR, .lookup = guest_lookup };

/* -- limits/ ----------------------------------------------------------------------------------------- */

/* clang-format off */
#define LIMIT(file, attr) \
	{ .name = (file), .kind = &cfs_kind_control, .mode = 0600, .op = POLICY_CREATE, .arg = (attr), .show = show_attr, .store = store_attr }
static const struct cfs_entry limits_entries[] = {
	LIMIT("vcpus", ATTR_VCPUS),
	LIMIT("memory_mib", ATTR_MEMORY_MIB),
	LIMIT("disk_mib", ATTR_DISK_MIB),
	LIMIT("cpu_percent", ATTR_CPU_PERCENT),
	LIMIT("io_mbps", ATTR_IO_MBPS),
	LIMIT("timeout_s", ATTR_TIMEOUT_S),
	LIMIT("exec_timeout_s", ATTR_EXEC_TIMEOUT_S),
	LIMIT("output_mib", ATTR_OUTPUT_MIB),
	LIMIT("spool_mib", ATTR_SPOOL_MIB),
	LIMIT("pids", ATTR_PIDS),
};
/* clang-format on */

const struct cfs_table cfs_limits_table = {
	.path = "run/<id>/limits",
	.entries = limits_entries,
	.count = ARRAY_LEN(limits_entries),
	.user_may_hide = true,
	.scratch = true,
};

/* -- run/<id>/ ----------------------------------------------------------------------------------------- */

/* An entry is a row. */
/* clang-format off */
static const struct cfs_entry sandbox_entries[] = {
	{ .name = "cmd", .kind = &cfs_kind_upload, .mode = 0600, .op = POLICY_EXEC, .arg = UPLOAD_CMD, .bind = bind_latest, .show = cfs_show_command },
	{ .name = "stdin", .kind = &cfs_kind_upload, .mode = 0600, .flags = CFS_ALWAYS, .op = POLICY_EXEC, .arg = UPLOAD_STDIN },
	{ .name = "stdout", .kind = &cfs_kind_stream, .mode = 0400, .arg = 1, .bind = bind_latest, .stream = &cfs_output },
	{ .name = "stderr", .kind = &cfs_kind_stream, .mode = 0400, .arg = 2, .bind = bind_latest, .stream = &cfs_output },
	{ .name = "result.json", .kind = &cfs_kind_text, .mode = 0400, .bind = bind_latest_done, .show = cfs_show_record },
	{ .name = "status", .kind = &cfs_kind_text, .mode = 0444, .flags = CFS_ALWAYS, .show = show_status },
	{ .name = "wait", .kind = &cfs_kind_link, .mode = 0777, .show = cfs_show_wait_link },
	{ .name = ".wait", .kind = &cfs_kind_wait, .mode = 0400, .flags = CFS_UNLISTED, .bind = bind_wait, .show = cfs_show_record },
	{ .name = "error", .kind = &cfs_kind_text, .mode = 0400, .flags = CFS_ALWAYS, .show = show_error },
	{ .name = "ctl", .kind = &cfs_kind_control, .mode = 0600, .op = POLICY_EXEC, .show = show_verbs, .store = store_ctl },
	{ .name = "info.json", .kind = &cfs_kind_text, .mode = 0400, .show = show_info },
	{ .name = "uuid", .kind = &cfs_kind_text, .mode = 0400, .flags = CFS_ALWAYS, .show = show_uuid },
	{ .name = "from", .kind = &cfs_kind_control, .mode = 0600, .op = POLICY_CREATE, .arg = ATTR_FROM, .show = show_attr, .store = store_attr },
	{ .name = "limits", .kind = &cfs_kind_dir, .mode = 0700, .dir = &cfs_limits_table },
	{ .name = "env", .kind = &cfs_kind_control, .mode = 0600, .flags = CFS_LIST, .op = POLICY_CREATE, .arg = ATTR_ENV, .show = show_attr, .store = store_attr },
	{ .name = "net", .kind = &cfs_kind_dir, .mode = 0700, .dir = &cfs_net_table },
	{ .name = "exec", .kind = &cfs_kind_dir, .mode = 0700, .dir = &cfs_execs_table },
	{ .name = "lease", .kind = &cfs_kind_lease, .mode = 0600, .flags = CFS_ALWAYS, .op = POLICY_DELETE },
	{ .name = "import", .kind = &cfs_kind_upload, .mode = 0600, .flags = CFS_ALWAYS, .op = POLICY_FILES, .arg = UPLOAD_IMPORT },
	{ .name = "snapshot", .kind = &cfs_kind_job, .mode = 0600, .op = POLICY_SNAPSHOT, .show = show_snapshot, .begin = begin_snapshot },
	{ .name = "snapshots", .kind = &cfs_kind_dir, .mode = 0500, .dir = &cfs_taken_table },
	{ .name = "inherited", .kind = &cfs_kind_dir, .mode = 0500, .dir = &cfs_inherited_table },
	{ .name = "fs", .kind = &cfs_kind_link, .mode = 0777, .show = show_fs_link },
	{ .name = ".fs", .kind = &cfs_kind_guest, .mode = 0700, .flags = CFS_UNLISTED },
	{ .name = "log.jsonl", .kind = &cfs_kind_stream, .mode = 0400, .stream = &log_stream },
	{ .name = "console.log", .kind = &cfs_kind_stream, .mode = 0400, .stream = &console_stream },
	{ .name = "usage.json", .kind = &cfs_kind_text, .mode = 0400, .show = show_usage },
};
/* clang-format on */

/* result.json comes and goes. */
static uint64_t sandbox_stamp(const struct cfs_about *dir)
{
	uint64_t n = sandbox_latest_exec(dir->sbx);
	struct execution *x = n ? sandbox_exec(dir->sbx, n) : NULL;

	return x && exec_state(x) == EXEC_DONE;
}

const struct cfs_table cfs_sandbox_table = {
	.path = "run/<id>",
	.entries = sandbox_entries,
	.count = ARRAY_LEN(sandbox_entries),
	.stamp = sandbox_stamp,
	.user_may_hide = true,
	.scratch = true,
};

/* -- run/ ------------------------------------------------------------------------------------------------ */

static const struct cfs_entry sandbox_dir = {
	.kind = &cfs_kind_dir, .mode = 0755, .op = POLICY_DELETE, .dir = &cfs_sandbox_table
};

static void about_sandbox(struct cfs_about *c, struct sandbox *s)
{
	c->entry = &sandbox_dir;
	c->sbx = s;
	c->owner = sandbox_owner(s);
	c->changed_ns = sandbox_created_ns(s);
}

static int run_child(struct cfs_about *c, const char *name)
{
	struct sandbox *s = registry_find(cfs_tree_registry(c->tree), c->view, name);

	if (!s)
		return -ENOENT;
	c->place = cfs_tree_place(c->tree, s);
	if (!c->place)
		return -ENOMEM;
	about_sandbox(c, s);
	return 0;
}

static void run_list(const struct cfs_about *dir, cfs_list_fn *fn, void *arg)
{
	struct registry *reg = cfs_tree_registry(dir->tree);
	struct cfs_about c = *dir; /* with run's own place: listing makes nothing */

	for (struct sandbox *s = registry_next(reg, dir->view, NULL); s; s = registry_next(reg, dir->view, s)) {
		about_sandbox(&c, s);
		if (!fn(arg, sandbox_name(s), &c))
			return;
	}
}

static uint64_t run_stamp(const struct cfs_about *dir)
{
	struct registry *reg = cfs_tree_registry(dir->tree);
	uint64_t h = 0;

	for (struct sandbox *s = registry_next(reg, dir->view, NULL); s; s = registry_next(reg, dir->view, s))
		h = h * 31 + cfs_ino(sandbox_uuid(s), sandbox_name(s), NULL);
	return h;
}

static int run_mkdir(const struct cfs_about *dir, const char *name, const struct cfs_who *who, struct err *e)
{
	struct sandbox *s;

	return registry_create(cfs_tree_registry(dir->tree), name, who, &s, e);
}

static int run_rmdir(const struct cfs_about *c, const struct cfs_who *who, struct err *e)
{
	return registry_remove(cfs_tree_registry(c->tree), c->sbx, who, e);
}

static int run_rename(const struct cfs_about *c, const char *to, const struct cfs_who *who, struct err *e)
{
	return registry_rename(cfs_tree_registry(c->tree), c->sbx, to, who, e);
}

const struct cfs_table cfs_run_table = {
	.path = "run",
	.child = run_child,
	.list = run_list,
	.stamp = run_stamp,
	.mkdir = run_mkdir,
	.rmdir = run_rmdir,
	.rename = run_rename,
	.make = POLICY_CREATE,
	.move = POLICY_CREATE,
};
