/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/snapshot.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/sbx.h"
#include "tools/crucible/tree.h"
#include "tools/crucible/watch.h"

int snapshot_id_check(const char *id, struct err *e)
{
	int r = sbx_id_check(id, e);

	if (r == 0 && strlen(id) > SNAPSHOT_ID_MAX)
		return err_set(e, -ENAMETOOLONG, "\"%s\" is longer than %d characters", id, SNAPSHOT_ID_MAX);
	return r;
}

int snapshot_explain(int code, const char *id, struct err *e)
{
	switch (code) {
	case -ENOENT:
	case -ESTALE:
		return err_set(e, -ENOENT, "no snapshot \"%s\" (crucible snapshot ls lists them)", id);
	case -EACCES:
	case -EPERM:
		return err_set(e, code, "snapshot \"%s\" belongs to somebody else", id);
	case -EEXIST:
		return err_set(e, code,
			       "there is a snapshot \"%s\" already: choose another name, or crucible snapshot rm %s",
			       id, id);
	default:
		return err_set(e, code, "snapshot \"%s\": %s", id, strerror(-code));
	}
}

int snapshot_open(int root, const char *id, struct snapshot *ret, struct err *e)
{
	struct snapshot s = SNAPSHOT_NONE;
	AUTO_FD all = -1;
	int r = snapshot_id_check(id, e);

	if (r < 0)
		return r;
	all = openat(root, "snapshots", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (all < 0)
		return err_set(e, -errno, "snapshots: %s", strerror(errno));
	s.dir = openat(all, id, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (s.dir < 0)
		return snapshot_explain(errno == ENOTDIR ? -ENOENT : -errno, id, e);
	/* Everybody may enter, to see the status; what one comes for is the owner's. */
	if (faccessat(s.dir, "fork", W_OK, AT_EACCESS) < 0 && errno == EACCES) {
		snapshot_close(&s);
		return snapshot_explain(-EACCES, id, e);
	}
	memcpy(s.id, id, strlen(id) + 1);
	*ret = s;
	return 0;
}

void snapshot_close(struct snapshot *s)
{
	fd_close(&s->dir);
}

/* On a terminal alone: to a script its end is what counts. */
static void show_storing(struct watch *w, const struct snapshot *s)
{
	AUTO_JSON *info = NULL;
	struct json_object *progress = NULL;
	char what[SNAPSHOT_ID_MAX + 16];

	if (!w->progress.bar || tree_json(s->dir, "info.json", &info, NULL) < 0)
		return;
	json_get_obj(info, "progress", json_type_object, &progress, NULL);
	snprintf(what, sizeof(what), "storing %s", s->id);
	if (progress)
		watch_show(w, progress, what);
}

int snapshot_await_ready(int root, struct snapshot *s, struct err *e)
{
	struct watch w;
	char status[32];
	int r;

	watch_begin(root, &w);
	for (;;) {
		r = tree_word(s->dir, "status", status, sizeof(status));
		if (r < 0) {
			snapshot_explain(r, s->id, e);
			break;
		}
		if (!strcmp(status, "ready"))
			break;
		if (!strcmp(status, "damaged")) {
			r = tree_explain(s->dir, -EBADMSG, e, "snapshot \"%s\" is damaged", s->id);
			break;
		}
		show_storing(&w, s);
		r = watch_wait(&w, e);
		if (r < 0)
			break;
	}
	watch_end(&w);
	return r;
}
