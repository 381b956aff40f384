/* SPDX-License-Identifier: Apache-2.0 */
/* What of the file system changed since the parent: both snapshots are forked, hidden, and each lists its files; the
 * two lists, sorted by path, are merged. The guest's view is the true one: what lies in its page cache counts too.
 * Guest text is read line by line and bounded; it decides nothing. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "cruciblefs/domain/view_priv.h"
#include "cruciblefs/domain/worker.h"

#define PATHS_MAX 20000u /* of each kind; more: "truncated" */
#define LINE_MAX  16384u

static const char list_command[] = "{\"argv\":[\"//list\"],\"timeout_s\":120,\"output_mib\":256}";

struct diff {
	struct registry *reg;
	struct diff *next;	     /* in the registry; the first one runs, the others wait for it */
	struct snapshot *p, *parent; /* references; parent NULL: nothing to compare with */
	struct worker *worker[2];    /* of the parent, of @p */
	FILE *list[2];
	unsigned at;
};

static void on_turn(void *arg);

static void end(struct diff *d, bool ok, const char *words)
{
	struct registry *r = d->reg;
	struct snapshot *p = d->p;
	struct diff **at = &r->diffs;
	struct err e = { 0 };

	while (*at != d)
		at = &(*at)->next;
	*at = d->next;
	p->diff = ok ? DIFF_DONE : DIFF_FAILED;
	if (!ok) {
		err_set(&e, -EIO, "snapshot %s: diff: %s", p->name, words);
		snapshot_fail(p, &p->owner, &e);
	}
	snapshot_changed(p);
	for (int i = 0; i < 2; i++) {
		worker_free(d->worker[i]);
		if (d->list[i])
			fclose(d->list[i]);
	}
	snapshot_unref(d->parent);
	snapshot_unref(p);
	free(d);
	snapshots_sweep(r);
	if (r->diffs && !r->diffs_timer)
		loop_defer(r->loop, on_turn, r, &r->diffs_timer);
}

/* -- merging
 * ----------------------------------------------------------------------------------------------------------- */

struct line {
	char *text;
	size_t cap;
	bool there;
	char *path; /* malloc'd, as long as the text: the name itself, with nothing escaped */
	size_t len;
};

/* The listing has a newline as "\n", and a backslash, and in links a ">", behind a backslash. Its order is that of the
 * names themselves. */
static int take_path(struct line *l, const char *at)
{
	const char *end = l->text[0] == 'l' ? strstr(at, " -> ") : NULL;
	char *path = realloc(l->path, strlen(at) + 1);

	if (!path)
		return -ENOMEM;
	l->path = path;
	for (l->len = 0; *at && at != end; at++) {
		bool escaped = at[0] == '\\' && at[1];

		at += escaped;
		l->path[l->len++] = escaped && *at == 'n' ? '\n' : *at;
	}
	return 0;
}

/* "<type> <mode> <uid> <gid> <size> <mtime> <path>": the path is behind the sixth blank, and a link's target with it.
 */
static void next_line(FILE *f, struct line *l)
{
	ssize_t n;

	l->there = false;
	while ((n = getline(&l->text, &l->cap, f)) > 0) {
		char *at = l->text;

		if (n > LINE_MAX)
			continue;
		if (l->text[n - 1] == '\n')
			l->text[n - 1] = '\0';
		for (int i = 0; at && i < 6; i++) {
			at = strchr(at, ' ');
			at = at ? at + 1 : NULL;
		}
		if (!at || take_path(l, at) < 0)
			continue;
		l->there = true;
		return;
	}
}

static int compare(const struct line *a, const struct line *b)
{
	int r = memcmp(a->path, b->path, a->len < b->len ? a->len : b->len);

	return r ? r : a->len < b->len ? -1 : a->len > b->len;
}

static void add(struct json_object *list, const struct line *l, bool *truncated)
{
	if (json_object_array_length(list) >= PATHS_MAX)
		*truncated = true;
	else
		json_object_array_add(list, json_text(l->path, l->len));
}

static struct json_object *merge(struct diff *d)
{
	struct json_object *o = json_object_new_object(), *added = json_object_new_array(),
			   *changed = json_object_new_array(), *deleted = json_object_new_array();
	struct line old = { 0 }, new = { 0 };
	bool truncated = false;

	if (!o || !added || !changed || !deleted)
		goto out;
	next_line(d->list[0], &old);
	next_line(d->list[1], &new);
	while (old.there || new.there) {
		int c = !old.there ? 1 : !new.there ? -1 : compare(&old, &new);

		if (c < 0)
			add(deleted, &old, &truncated);
		else if (c > 0)
			add(added, &new, &truncated);
		else if (strcmp(old.text, new.text) != 0 && new.text[0] != 'd')
			add(changed, &new, &truncated);
		if (c <= 0)
			next_line(d->list[0], &old);
		if (c >= 0)
			next_line(d->list[1], &new);
	}
	json_object_object_add(o, "snapshot", json_object_new_string(d->p->name));
	json_object_object_add(o, "parent", json_object_new_string(d->p->parent));
	json_object_object_add(o, "added", added);
	json_object_object_add(o, "changed", changed);
	json_object_object_add(o, "deleted", deleted);
	json_object_object_add(o, "truncated", json_object_new_boolean(truncated));
	added = changed = deleted = NULL;
out:
	free(old.text);
	free(old.path);
	free(new.text);
	free(new.path);
	json_object_put(added);
	json_object_put(changed);
	json_object_put(deleted);
	return o;
}

static void finish(struct diff *d)
{
	AUTO_JSON *o = merge(d);
	char path[LAUNCH_UUID_LEN + 32];
	const char *line = o ? json_line(o) : "";
	int r;

	snprintf(path, sizeof(path), "%s/diff.json", d->p->uuid);
	r = o ? fd_replace(d->reg->snapshots_fd, path, line, strlen(line), 0640, false) : -ENOMEM;
	end(d, r == 0, r < 0 ? strerror(-r) : "");
}

/* -- listing
 * ------------------------------------------------------------------------------------------------------------ */

static void next(struct diff *d);

static void on_listed(void *arg, struct worker *k, int code, const char *words)
{
	struct diff *d = arg;
	struct sandbox *s = worker_sandbox(k);
	struct execution *x = sandbox_exec(s, worker_command(k));
	int fd = -1;

	if (code == 0 && x)
		code = exec_open_output(s, x, 1, &fd);
	d->list[d->at] = fd < 0 ? NULL : fdopen(fd, "r");
	if (code < 0 || !d->list[d->at]) {
		if (fd >= 0 && !d->list[d->at])
			fd_close(&fd);
		end(d, false, code < 0 && words[0] ? words : "its files could not be listed");
		return;
	}
	d->worker[d->at] = worker_free(d->worker[d->at]);
	d->at++;
	next(d);
}

static void next(struct diff *d)
{
	struct snapshot *p = d->at == 0 ? d->parent : d->p;
	struct err e = { 0 };

	if (d->at == 2) {
		finish(d);
		return;
	}
	if (worker_new(d->reg, "diff", &p->attrs, p, list_command, on_listed, d, &d->worker[d->at], &e) < 0)
		end(d, false, e.msg);
}

/* Two machines at once would be twice the memory: one diff at a time. */
static void on_turn(void *arg)
{
	struct registry *r = arg;

	r->diffs_timer = 0;
	if (r->diffs && !r->diffs->worker[0] && !r->diffs->worker[1] && r->diffs->at == 0)
		next(r->diffs);
}

void diffs_end_dead(struct registry *r)
{
	struct diff *next;

	for (struct diff *d = r->diffs; d; d = next) {
		const struct view *v = d->p->owner.view;

		next = d->next;
		if (v && view_dead(v))
			end(d, false, "its view has ended");
	}
}

void diffs_end(struct registry *r)
{
	loop_del(r->loop, &r->diffs_timer);
	while (r->diffs)
		end(r->diffs, false, "the daemon ends");
	loop_del(r->loop, &r->diffs_timer);
}

static struct snapshot *parent_of(struct snapshot *p)
{
	struct snapshot *parent = snapshot_by_uuid(p->reg, p->parent_uuid);

	return parent && !parent->removing ? parent : NULL;
}

int snapshot_diff(struct snapshot *p, const struct cfs_who *who, struct err *e)
{
	struct registry *r = p->reg;
	struct snapshot *parent = parent_of(p);
	struct diff *d, **at = &r->diffs;
	int k = snapshot_permits(p, who, POLICY_READ, "diff", e);

	if (k < 0)
		return k;
	if (p->diff == DIFF_RUNNING)
		return err_set(e, -EBUSY, "snapshot %s: diff: runs already", p->name);
	if (!parent)
		return err_set(
			e, -ENOENT,
			"snapshot %s: diff: there is nothing to compare with: %s was booted cold, and no snapshot of "
			"it is kept",
			p->name, p->parent);
	k = snapshot_usable(p, e);
	if (!k)
		k = snapshot_usable(parent, e);
	if (k < 0)
		return k;
	d = calloc(1, sizeof(*d));
	if (!d)
		return err_set(e, -ENOMEM, "snapshot %s: diff: no memory", p->name);
	d->reg = r;
	d->p = snapshot_ref(p);
	d->parent = snapshot_ref(parent);
	p->diff = DIFF_RUNNING;
	snapshot_changed(p);
	while (*at)
		at = &(*at)->next;
	*at = d;
	if (r->diffs == d)
		next(d);
	return 0;
}

const char *snapshot_diff_state(struct snapshot *p)
{
	static const char *const words[] = { "none", "running", "done", "failed" };

	return words[p->diff];
}

int snapshot_diff_json(struct snapshot *p, struct buf *out)
{
	AUTO_FREE char *text = NULL;
	char path[LAUNCH_UUID_LEN + 32];
	size_t len = 0;
	int r;

	snprintf(path, sizeof(path), "%s/diff.json", p->uuid);
	r = fd_slurp(p->reg->snapshots_fd, path, 8u << 20, &text, &len);
	if (!r)
		r = buf_add(out, text, len);
	return r ? r : buf_adds(out, "\n");
}
