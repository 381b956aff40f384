/* SPDX-License-Identifier: Apache-2.0 */
#include "cruciblefs/scratch.h"

#include <assert.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cruciblefs/table.h"

struct scratch {
	struct cfs_node node; /* its name holds one reference */
	struct cfs_place *place;
	struct scratch *prev, *next; /* of the place, while it has a name */
	bool linked;
	uint64_t dir_ino, ino;
	char name[256];
	char *data;
	size_t len, cap;
	mode_t mode;
	struct cfs_who owner;
	struct timespec atime, mtime, ctime;
};

static const struct cfs_node_ops scratch_ops;

static struct scratch *scratch_of(struct cfs_node *n)
{
	return cfs_container(n, struct scratch, node);
}

static struct timespec wall(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return ts;
}

/* -- the list ---------------------------------------------------------------------------------- */

struct scratch *scratch_next(struct cfs_place *p, struct scratch *after)
{
	return after ? after->next : p->scratch;
}

struct scratch *scratch_find(struct cfs_place *p, uint64_t dir_ino, const char *name)
{
	for (struct scratch *s = p->scratch; s; s = s->next)
		if (s->dir_ino == dir_ino && !strcmp(s->name, name))
			return s;
	return NULL;
}

const char *scratch_name(const struct scratch *s)
{
	return s->name;
}

uint64_t scratch_dir(const struct scratch *s)
{
	return s->dir_ino;
}

void scratch_text(const struct scratch *s, const char **ret_data, size_t *ret_len)
{
	*ret_data = s->len ? s->data : "";
	*ret_len = s->len;
}

void scratch_stat(const struct scratch *s, struct stat *st)
{
	*st = (struct stat){
		.st_ino = s->ino,
		.st_mode = S_IFREG | s->mode,
		.st_nlink = s->linked ? 1 : 0,
		.st_uid = s->owner.uid,
		.st_gid = s->owner.gid,
		.st_size = (off_t)s->len,
		.st_blksize = 4096,
		.st_blocks = (blkcnt_t)((s->len + 511) / 512),
		.st_atim = s->atime,
		.st_mtim = s->mtime,
		.st_ctim = s->ctime,
	};
}

int scratch_new(struct cfs_session *cs, struct view *view, struct cfs_place *p, uint64_t dir_ino, const char *name,
		mode_t mode, const struct cfs_who *who, struct scratch **ret)
{
	static uint64_t count;
	struct scratch *s;
	char number[24];
	int r;

	assert(strlen(name) < sizeof(s->name));
	if (p->nscratch >= SCRATCH_FILES)
		return -EDQUOT;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	r = cfs_node_init(cs, &s->node, &scratch_ops, view);
	if (r < 0) {
		free(s);
		return r;
	}
	snprintf(number, sizeof(number), "%llu", (unsigned long long)++count);
	s->ino = cfs_ino("scratch", number, NULL);
	s->place = place_ref(p);
	p->nscratch++;
	s->mode = mode & 07777;
	s->owner = *who;
	s->atime = s->mtime = s->ctime = wall();
	snprintf(s->name, sizeof(s->name), "%s", name);
	s->dir_ino = dir_ino;
	s->linked = true;
	s->next = p->scratch;
	if (s->next)
		s->next->prev = s;
	p->scratch = s;
	p->serial++;
	*ret = s;
	return 0;
}

void scratch_unlink(struct scratch *s)
{
	struct cfs_place *p = s->place;

	if (!s->linked)
		return;
	*(s->prev ? &s->prev->next : &p->scratch) = s->next;
	if (s->next)
		s->next->prev = s->prev;
	s->prev = s->next = NULL;
	s->linked = false;
	s->ctime = wall();
	p->serial++;
	cfs_node_unref(&s->node);
}

void scratch_rename(struct scratch *s, uint64_t dir_ino, const char *name)
{
	snprintf(s->name, sizeof(s->name), "%s", name);
	s->dir_ino = dir_ino;
	s->ctime = wall();
	s->place->serial++;
}

void scratch_drop_dir(struct cfs_place *p, uint64_t dir_ino)
{
	for (struct scratch *s = p->scratch, *next; s; s = next) {
		next = s->next;
		if (s->dir_ino == dir_ino)
			scratch_unlink(s);
	}
}

static void forget_text(struct scratch *s)
{
	s->place->scratch_bytes -= s->len;
	free(s->data);
	s->data = NULL;
	s->len = s->cap = 0;
}

void scratch_drop_all(struct cfs_place *p)
{
	while (p->scratch) {
		/* The node stays while somebody has it open, or the kernel remembers it; the text has no limit then. */
		forget_text(p->scratch);
		scratch_unlink(p->scratch);
	}
}

static void scratch_free(struct cfs_node *n)
{
	struct scratch *s = scratch_of(n);

	s->place->nscratch--;
	s->place->scratch_bytes -= s->len;
	place_unref(s->place);
	free(s->data);
	free(s);
}

/* -- content ------------------------------------------------------------------------------------- */

/* Make it @len bytes long; new bytes are zeros. */
static int set_len(struct scratch *s, uint64_t len)
{
	size_t others = s->place->scratch_bytes - s->len;

	if (s->place->sbx && sandbox_gone(s->place->sbx))
		return -ESTALE;
	if (len > CFS_SCRATCH_MAX - others)
		return -EDQUOT;
	if (len > s->cap) {
		size_t cap = s->cap ? s->cap : 4096;
		char *data;

		while (cap < len)
			cap *= 2;
		data = realloc(s->data, cap);
		if (!data)
			return -ENOMEM;
		s->data = data;
		s->cap = cap;
	}
	if (len > s->len)
		memset(s->data + s->len, 0, (size_t)len - s->len);
	s->place->scratch_bytes = others + (size_t)len;
	s->len = (size_t)len;
	return 0;
}

static int put(struct scratch *s, const void *data, size_t size, uint64_t off)
{
	uint64_t end;
	int r = 0;

	if (__builtin_add_overflow(off, size, &end))
		return -EFBIG;
	if (end > s->len)
		r = set_len(s, end);
	if (r < 0)
		return r;
	if (size)
		memcpy(s->data + off, data, size);
	s->mtime = s->ctime = wall();
	return 0;
}

int scratch_fill(struct scratch *s, const void *data, size_t len)
{
	return put(s, data, len, 0);
}

/* -- the node -------------------------------------------------------------------------------------- */

static void scratch_getattr(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h)
{
	struct stat st;

	(void)h;
	scratch_stat(scratch_of(n), &st);
	cfs_reply_attr(r, &st, 0);
}

static void scratch_setattr(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h, const struct stat *st,
			    int valid)
{
	struct scratch *s = scratch_of(n);
	int code = 0;

	if ((valid & FUSE_SET_ATTR_SIZE) && st->st_size < 0)
		code = -EINVAL;
	else if (valid & FUSE_SET_ATTR_SIZE)
		code = set_len(s, (uint64_t)st->st_size);
	if (code < 0) {
		cfs_reply_err(r, code);
		return;
	}
	s->ctime = wall();
	if (valid & FUSE_SET_ATTR_SIZE)
		s->mtime = s->ctime;
	if (valid & FUSE_SET_ATTR_MODE)
		s->mode = st->st_mode & 07777;
	if (valid & FUSE_SET_ATTR_UID)
		s->owner.uid = st->st_uid;
	if (valid & FUSE_SET_ATTR_GID)
		s->owner.gid = st->st_gid;
	if (valid & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW))
		s->atime = valid & FUSE_SET_ATTR_ATIME_NOW ? s->ctime : st->st_atim;
	if (valid & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW))
		s->mtime = valid & FUSE_SET_ATTR_MTIME_NOW ? s->ctime : st->st_mtim;
	scratch_getattr(r, n, h);
}

static void scratch_open(struct cfs_req *r, struct cfs_node *n, int flags)
{
	struct cfs_handle *h = calloc(1, sizeof(*h));
	int code = h ? cfs_handle_open(r, h, n, flags) : -ENOMEM;

	if (code < 0) {
		free(h);
		cfs_reply_err(r, code);
		return;
	}
	if (flags & O_TRUNC)
		set_len(scratch_of(n), 0);
	cfs_reply_open(r, h, CFS_OPEN_KEEP);
}

static void scratch_read(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h, size_t size, uint64_t off)
{
	struct scratch *s = scratch_of(n);
	size_t left = off < s->len ? s->len - (size_t)off : 0;

	(void)h;
	cfs_reply_buf(r, left ? s->data + off : "", size < left ? size : left);
}

static void scratch_write(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h, const void *data, size_t size,
			  uint64_t off)
{
	struct scratch *s = scratch_of(n);
	struct err e = { 0 };
	int code = put(s, data, size, off);

	(void)h;
	if (code == -EDQUOT && s->place->sbx && !sandbox_gone(s->place->sbx)) {
		err_set(&e, code, "sandbox %s: %.64s: scratch files hold at most %u bytes together",
			sandbox_name(s->place->sbx), s->name, CFS_SCRATCH_MAX);
		sandbox_fail(s->place->sbx, cfs_req_who(r), &e);
	}
	if (code < 0)
		cfs_reply_err(r, code);
	else
		cfs_reply_write(r, size);
}

static void scratch_fallocate(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h, int mode, uint64_t off,
			      uint64_t len)
{
	struct scratch *s = scratch_of(n);
	uint64_t end;
	int code = 0;

	(void)h;
	if (mode & ~FALLOC_FL_KEEP_SIZE)
		code = -EOPNOTSUPP;
	else if (__builtin_add_overflow(off, len, &end) || end > CFS_SCRATCH_MAX)
		code = -EDQUOT;
	else if (!mode && end > s->len)
		code = set_len(s, end);
	cfs_reply_err(r, code);
}

static void scratch_release(struct cfs_handle *h)
{
	free(h);
}

static const struct cfs_node_ops scratch_ops = {
	.free = scratch_free,
	.getattr = scratch_getattr,
	.setattr = scratch_setattr,
	.open = scratch_open,
	.read = scratch_read,
	.write = scratch_write,
	.fallocate = scratch_fallocate,
	.release = scratch_release,
};

void scratch_reply_entry(struct cfs_req *r, struct scratch *s)
{
	struct stat st;

	scratch_stat(s, &st);
	cfs_reply_entry(r, &s->node, &st, 0, 0);
}

void scratch_reply_create(struct cfs_req *r, struct scratch *s, int flags)
{
	struct cfs_handle *h = calloc(1, sizeof(*h));
	int code = h ? cfs_handle_open(r, h, &s->node, flags) : -ENOMEM;
	struct stat st;

	if (code < 0) {
		free(h);
		cfs_reply_err(r, code);
		return;
	}
	scratch_stat(s, &st);
	cfs_reply_create(r, &s->node, &st, 0, 0, h, CFS_OPEN_KEEP);
}
