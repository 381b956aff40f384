/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/watch.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/tree.h"

void watch_begin(int root, struct watch *w)
{
	*w = (struct watch){ .events = openat(root, "events.jsonl", O_RDONLY | O_CLOEXEC), .percent = ~0u };
	progress_begin(&w->progress);
	if (w->events >= 0)
		lseek(w->events, 0, SEEK_END); /* what was before is nothing to wait for */
}

int watch_wait(struct watch *w, struct err *e)
{
	struct pollfd p = { .fd = w->events, .events = POLLIN };
	char rest[4096];
	int r = follow_wait(&w->follow, &p, 1, 1, w->moved);

	w->moved = false;
	while (w->events >= 0 && read(w->events, rest, sizeof(rest)) > 0)
		w->moved = true;
	if (follow_is_cancelled())
		return err_set(e, -EINTR, "interrupted");
	return r < 0 ? err_set(e, r, "poll: %s", strerror(-r)) : 0;
}

void watch_end(struct watch *w)
{
	progress_end(&w->progress);
	fd_close(&w->events);
}

void watch_show(struct watch *w, struct json_object *o, const char *what)
{
	uint64_t total = 0, finished = 0;
	unsigned percent;
	char line[160];

	json_get_u64(o, "total", 0, UINT64_MAX, &total, NULL);
	json_get_u64(o, "done", 0, UINT64_MAX, &finished, NULL);
	if (finished > total)
		finished = total;
	percent = total ? (unsigned)((double)finished * 100.0 / (double)total) : 0;
	if (percent == w->percent)
		return;
	w->percent = percent;
	snprintf(line, sizeof(line), "progress %u %s", percent, what);
	progress_line(&w->progress, line);
}

/* *ret stays NULL when the file says nothing yet. */
static int read_outcome(int dir, const char *path, struct json_object **ret, struct err *e)
{
	AUTO_FREE char *text = NULL;
	int r = tree_read(dir, path, &text, NULL);

	if (r < 0)
		return tree_explain(dir, r, e, "%s", path);
	return text[strspn(text, " \n")] ? tree_json(dir, path, ret, e) : 0;
}

/* One that is under way already is as good as ours. */
static bool runs(int dir, const char *path)
{
	AUTO_JSON *o = NULL;
	const char *status = NULL;

	return read_outcome(dir, path, &o, NULL) == 0 && o && json_get_str(o, "status", &status, NULL) == 0 && status &&
	       !strcmp(status, "running");
}

static int begin(int dir, const char *path, struct err *e)
{
	int r = tree_write(dir, path, "start\n", 6);

	if (r == -EBUSY && runs(dir, path))
		return 0;

	/* Its mode is what the kernel judges by: no words are left behind. */
	if (r == -EACCES || r == -EPERM)
		return err_set(e, r, "%s: only root, or the owner, may start this", path);
	return r < 0 ? tree_explain(dir, r, e, "%s", path) : 0;
}

int watch_outcome(int root, int dir, const char *path, const char *what, struct json_object **ret, struct err *e)
{
	struct watch w;
	int r;

	watch_begin(root, &w);
	r = begin(dir, path, e);
	while (r == 0) {
		AUTO_JSON *o = NULL;
		const char *status = NULL;

		r = read_outcome(dir, path, &o, e);
		if (r == 0 && o)
			r = json_get_str(o, "status", &status, e);
		if (r == 0 && o && !status)
			r = err_set(e, -EIO, "%s: it tells no status", path);
		if (r < 0)
			break;
		if (status && strcmp(status, "running") != 0) {
			*ret = o;
			o = NULL;
			break;
		}
		if (o)
			watch_show(&w, o, what);
		r = watch_wait(&w, e);
	}
	watch_end(&w);
	return r;
}
