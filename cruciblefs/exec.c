/* SPDX-License-Identifier: Apache-2.0 */
/* run/<id>/exec/: one directory for each command, and slots. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "cruciblefs/tables.h"
#include "policy/policy.h"

/* -- the files of one command -------------------------------------------------------------------- */

static struct execution *exec_of(const struct cfs_about *a)
{
	return a->bound ? sandbox_exec(a->sbx, a->bound) : NULL;
}

int cfs_bind_done(struct cfs_about *a)
{
	struct execution *x = exec_of(a);

	return x && exec_state(x) == EXEC_DONE ? 0 : -ENOENT;
}

int cfs_show_command(const struct cfs_about *a, struct buf *out)
{
	return a->bound ? sandbox_cmd_text(a->sbx, a->bound, out) : 0;
}

int cfs_show_record(const struct cfs_about *a, struct buf *out)
{
	struct execution *x = exec_of(a);

	return x ? exec_record(a->sbx, x, out) : -ENOENT;
}

int cfs_show_wait_link(const struct cfs_about *a, struct buf *out)
{
	(void)a;
	return buf_adds(out, ".wait");
}

static int output_open(const struct cfs_about *a, const struct cfs_who *who, int *ret_fd)
{
	struct execution *x = exec_of(a);

	(void)who;
	if (!a->bound)
		return 0; /* no command yet: nothing to read */
	return x ? exec_open_output(a->sbx, x, a->entry->arg, ret_fd) : -ENOENT;
}

static uint64_t output_size(const struct cfs_about *a)
{
	struct execution *x = exec_of(a);

	return x ? exec_output_bytes(a->sbx, x, a->entry->arg) : 0;
}

static bool output_ended(const struct cfs_about *a)
{
	struct execution *x = exec_of(a);

	return !x || exec_state(x) == EXEC_DONE;
}

struct waitq *cfs_sandbox_queue(const struct cfs_about *a)
{
	return sandbox_waitq(a->sbx);
}

const struct cfs_stream_ops cfs_output = {
	.open = output_open, .size = output_size, .ended = output_ended, .queue = cfs_sandbox_queue
};

static int show_status(const struct cfs_about *a, struct buf *out)
{
	struct execution *x = exec_of(a);

	return buf_addf(out, "%s\n", x ? exec_status_name(x) : "idle"); /* idle: a slot before its first command */
}

/* -- exec/<n>/ ------------------------------------------------------------------------------------- */

/* An entry is a row. */
/* clang-format off */
static const struct cfs_entry exec_entries[] = {
	/* A stream, though it does not grow: it may have 8 MiB, a thousand times, and a text is held in memory while it is known. */
	{ .name = "cmd", .kind = &cfs_kind_stream, .mode = 0400, .arg = 0, .stream = &cfs_output },
	{ .name = "stdout", .kind = &cfs_kind_stream, .mode = 0400, .arg = 1, .stream = &cfs_output },
	{ .name = "stderr", .kind = &cfs_kind_stream, .mode = 0400, .arg = 2, .stream = &cfs_output },
	{ .name = "result.json", .kind = &cfs_kind_text, .mode = 0400, .bind = cfs_bind_done, .show = cfs_show_record },
	{ .name = "wait", .kind = &cfs_kind_link, .mode = 0777, .show = cfs_show_wait_link },
	{ .name = ".wait", .kind = &cfs_kind_wait, .mode = 0400, .flags = CFS_UNLISTED, .show = cfs_show_record },
	{ .name = "status", .kind = &cfs_kind_text, .mode = 0400, .flags = CFS_ALWAYS, .show = show_status },
};
/* clang-format on */

const struct cfs_table cfs_exec_table = {
	.path = "run/<id>/exec/<n>",
	.entries = exec_entries,
	.count = ARRAY_LEN(exec_entries),
	.user_may_hide = true,
};

/* -- exec/NAME/: a slot ------------------------------------------------------------------------------ */

static int bind_slot(struct cfs_about *a)
{
	if (!slot_exists(a->sbx, a->name))
		return -ENOENT;
	a->bound = slot_latest_exec(a->sbx, a->name);
	cfs_about_changed(a);
	return 0;
}

static int bind_slot_done(struct cfs_about *a)
{
	int r = bind_slot(a);

	return r < 0 ? r : cfs_bind_done(a);
}

static int bind_slot_wait(struct cfs_about *a)
{
	int r = bind_slot(a);

	return r < 0 ? r : a->bound ? 0 : -ENOENT;
}

static int show_slot_verbs(const struct cfs_about *a, struct buf *out)
{
	(void)a;
	return buf_adds(out, "eof\nresize ROWS COLS\nsignal NAME\nkill\n");
}

static int store_slot_ctl(const struct cfs_about *a, const struct cfs_who *who, const char *text, size_t len,
			  struct err *e)
{
	(void)len;
	return slot_ctl(a->sbx, a->name, text, who, e);
}

/* An entry is a row. */
/* clang-format off */
static const struct cfs_entry slot_entries[] = {
	{ .name = "cmd", .kind = &cfs_kind_upload, .mode = 0600, .op = POLICY_EXEC, .arg = UPLOAD_CMD, .bind = bind_slot, .show = cfs_show_command },
	{ .name = "stdin", .kind = &cfs_kind_livein, .mode = 0600, .flags = CFS_ALWAYS, .op = POLICY_EXEC, .bind = bind_slot },
	{ .name = ".stdin", .kind = &cfs_kind_livein, .mode = 0600, .flags = CFS_ALWAYS | CFS_UNLISTED, .op = POLICY_EXEC, .arg = LIVEIN_WHOLE, .bind = bind_slot },
	{ .name = "stdout", .kind = &cfs_kind_stream, .mode = 0400, .arg = 1, .bind = bind_slot, .stream = &cfs_output },
	{ .name = "stderr", .kind = &cfs_kind_stream, .mode = 0400, .arg = 2, .bind = bind_slot, .stream = &cfs_output },
	{ .name = "result.json", .kind = &cfs_kind_text, .mode = 0400, .bind = bind_slot_done, .show = cfs_show_record },
	{ .name = "wait", .kind = &cfs_kind_link, .mode = 0777, .show = cfs_show_wait_link },
	{ .name = ".wait", .kind = &cfs_kind_wait, .mode = 0400, .flags = CFS_UNLISTED, .bind = bind_slot_wait, .show = cfs_show_record },
	{ .name = "status", .kind = &cfs_kind_text, .mode = 0400, .flags = CFS_ALWAYS, .bind = bind_slot, .show = show_status },
	{ .name = "ctl", .kind = &cfs_kind_control, .mode = 0600, .op = POLICY_EXEC, .bind = bind_slot, .show = show_slot_verbs, .store = store_slot_ctl },
};
/* clang-format on */

const struct cfs_table cfs_slot_table = {
	.path = "run/<id>/exec/<slot>",
	.entries = slot_entries,
	.count = ARRAY_LEN(slot_entries),
	.user_may_hide = true,
	.scratch = true,
};

/* -- exec/ --------------------------------------------------------------------------------------------- */

static int bind_latest(struct cfs_about *a)
{
	a->bound = sandbox_latest_exec(a->sbx);
	cfs_about_changed(a);
	return a->bound ? 0 : -ENOENT;
}

static int show_latest(const struct cfs_about *a, struct buf *out)
{
	return buf_addf(out, "%" PRIu64, a->bound);
}

static const struct cfs_entry execs_entries[] = {
	{ .name = "latest", .kind = &cfs_kind_link, .mode = 0777, .bind = bind_latest, .show = show_latest },
};
static const struct cfs_entry exec_dir = { .kind = &cfs_kind_dir, .mode = 0700, .dir = &cfs_exec_table };
static const struct cfs_entry slot_dir = {
	.kind = &cfs_kind_dir, .mode = 0700, .op = POLICY_EXEC, .dir = &cfs_slot_table
};

/* "17", as it is listed: no sign, no zeros in front. 0: not a number. */
static uint64_t exec_number_of(const char *name)
{
	size_t len = strlen(name);

	if (!len || len > 19 || name[0] == '0' || name[strspn(name, "0123456789")])
		return 0;
	return strtoull(name, NULL, 10);
}

static void about_exec(struct cfs_about *c, uint64_t n)
{
	c->entry = &exec_dir;
	c->exec = c->bound = n;
	c->name[0] = '\0';
	cfs_about_changed(c);
}

static void about_slot(struct cfs_about *c, const char *name)
{
	c->entry = &slot_dir;
	c->exec = c->bound = 0;
	snprintf(c->name, sizeof(c->name), "%s", name);
	c->changed_ns = sandbox_changed_ns(c->sbx);
}

static int execs_child(struct cfs_about *c, const char *name)
{
	uint64_t n = exec_number_of(name);

	if (n && sandbox_exec(c->sbx, n))
		about_exec(c, n);
	else if (!n && slot_exists(c->sbx, name))
		about_slot(c, name);
	else
		return -ENOENT;
	return 0;
}

static void execs_list(const struct cfs_about *dir, cfs_list_fn *fn, void *arg)
{
	struct cfs_about c = *dir;
	char number[24];

	for (struct execution *x = sandbox_exec_next(dir->sbx, NULL); x; x = sandbox_exec_next(dir->sbx, x)) {
		snprintf(number, sizeof(number), "%" PRIu64, exec_number(x));
		about_exec(&c, exec_number(x));
		if (!fn(arg, number, &c))
			return;
	}
	for (const char *s = slot_next(dir->sbx, NULL); s; s = slot_next(dir->sbx, s)) {
		about_slot(&c, s);
		if (!fn(arg, s, &c))
			return;
	}
}

static uint64_t execs_stamp(const struct cfs_about *dir)
{
	uint64_t h = 0;

	for (struct execution *x = sandbox_exec_next(dir->sbx, NULL); x; x = sandbox_exec_next(dir->sbx, x))
		h = h * 31 + exec_number(x);
	for (const char *s = slot_next(dir->sbx, NULL); s; s = slot_next(dir->sbx, s))
		h = h * 31 + cfs_ino(s, NULL);
	return h;
}

static int execs_mkdir(const struct cfs_about *dir, const char *name, const struct cfs_who *who, struct err *e)
{
	return slot_create(dir->sbx, name, who, e);
}

/* A command's directory can only be put out of sight: what happened, happened. */
static int execs_rmdir(const struct cfs_about *c, const struct cfs_who *who, struct err *e)
{
	return c->exec ? place_hide(c->place, cfs_about_ino(c), true) : slot_remove(c->sbx, c->name, who, e);
}

const struct cfs_table cfs_execs_table = {
	.path = "run/<id>/exec",
	.entries = execs_entries,
	.count = ARRAY_LEN(execs_entries),
	.child = execs_child,
	.list = execs_list,
	.stamp = execs_stamp,
	.mkdir = execs_mkdir,
	.rmdir = execs_rmdir,
	.make = POLICY_EXEC,
	.user_may_hide = true,
};
