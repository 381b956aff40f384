/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/view.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/tree.h"

#define NAME_TRIES 8
#define ENDED	   "view \"%s\": its time is over; add --ttl TIME, which gives it more"

static int explain(int code, const char *id, struct err *e)
{
	switch (code) {
	case -ENOENT:
		return err_set(e, code, "no view \"%s\" (ls views lists them; --policy makes one)", id);
	case -EEXIST:
		return err_set(e, code,
			       "there is a view \"%s\" already: take another --name, or leave --policy out to "
			       "mount it once more",
			       id);
	case -EACCES:
	case -EPERM:
		return err_set(e, code, "view \"%s\": you may not; views are root's", id);
	case -EDQUOT:
		return err_set(e, code, "there are as many views as the daemon permits; remove one: rmdir views/NAME");
	case -ENOSPC:
		return err_set(e, code, "the daemon's store is nearly full (crucible doctor shows it)");
	default:
		return err_set(e, code, "view \"%s\": %s", id, strerror(-code));
	}
}

static int open_all(int root, struct err *e)
{
	int fd = openat(root, "views", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		return err_set(e, -ENOENT,
			       "this mount has no views: it is one itself; name the daemon's own mount: --mount DIR");
	return fd < 0 ? err_set(e, -errno, "views: %s", strerror(errno)) : fd;
}

static int open_dir(struct view *v)
{
	v->dir = openat(v->all, v->id, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return v->dir < 0 ? -errno : 0;
}

int view_open(int root, const char *id, struct view *ret, struct err *e)
{
	struct view v = VIEW_NONE;
	int r = sbx_id_check(id, e);

	if (r < 0)
		return r;
	v.all = open_all(root, e);
	if (v.all < 0)
		return v.all;
	memcpy(v.id, id, strlen(id) + 1);
	r = open_dir(&v);
	if (r < 0) {
		view_close(&v);
		return explain(r, id, e);
	}
	*ret = v;
	return 0;
}

int view_make(int root, const char *id, struct view *ret, struct err *e)
{
	struct view v = VIEW_NONE;
	int r = id ? sbx_id_check(id, e) : 0;

	if (r < 0)
		return r;
	v.all = open_all(root, e);
	if (v.all < 0)
		return v.all;
	for (int tries = 0; tries < NAME_TRIES; tries++) {
		if (id)
			memcpy(v.id, id, strlen(id) + 1);
		else
			sbx_fresh_name("view-", v.id);
		r = mkdirat(v.all, v.id, 0700) < 0 ? -errno : 0;
		if (r != -EEXIST || id)
			break;
	}
	if (r == 0) {
		r = open_dir(&v);
		if (r < 0)
			unlinkat(v.all, v.id, AT_REMOVEDIR);
	}
	if (r < 0) {
		view_close(&v);
		return explain(r, v.id, e);
	}
	*ret = v;
	return 0;
}

int view_set_ttl(struct view *v, uint64_t ms, struct err *e)
{
	char text[24];
	int r;

	snprintf(text, sizeof(text), "%llu", (unsigned long long)(ms + 999) / 1000);
	r = tree_set(v->dir, "ttl", text, e);
	if (r < 0)
		err_wrap(e, "view \"%s\"", v->id);
	return r;
}

int view_set_policy(struct view *v, const char *text, size_t len, struct buf *faults, struct err *e)
{
	AUTO_FREE char *words = NULL;
	int r = tree_write(v->dir, "policy", text, len);

	if (r == 0)
		return 0;
	/* All the faults at once may be longer than any line of ours. */
	if (r == -EINVAL && tree_read(v->dir, "error", &words, NULL) == 0)
		buf_adds(faults, words);
	return tree_explain(v->dir, r, e, "view \"%s\": policy", v->id);
}

int view_set_owner(struct view *v, uid_t uid, gid_t gid, struct err *e)
{
	if (fchownat(v->all, v->id, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
		return err_set(e, -errno, "view \"%s\": owner %u: %s", v->id, uid, strerror(errno));
	return 0;
}

int view_open_tree(struct view *v, struct err *e)
{
	char status[24];
	int fd;

	/* The kernel may still know the directory of a view that has ended, and would mount it. */
	if (tree_word(v->dir, "status", status, sizeof(status)) == 0 && !strcmp(status, "expired"))
		return err_set(e, -ESTALE, ENDED, v->id);
	fd = openat(v->dir, "tree", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0)
		return fd;
	if (errno == ENOENT)
		return err_set(e, -ENOENT, "view \"%s\" has no policy yet: write one into views/%s/policy", v->id,
			       v->id);
	if (errno == ESTALE)
		return err_set(e, -ESTALE, ENDED, v->id);
	return err_set(e, -errno, "view \"%s\": tree: %s", v->id, strerror(errno));
}

int view_remove(struct view *v, struct err *e)
{
	if (unlinkat(v->all, v->id, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return explain(-errno, v->id, e);
	return 0;
}

void view_close(struct view *v)
{
	fd_close(&v->dir);
	fd_close(&v->all);
}
