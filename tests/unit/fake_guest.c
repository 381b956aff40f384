/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_guest.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/files_priv.h"
#include "base/fd.h"
#include "base/wire.h"
#include "cruciblefs/guestfs.h"

struct fs_call {
	struct fs_call *next;
	struct sandbox *g;
	uint8_t op;
	uint8_t *payload;
	size_t len;
	fs_done_fn *fn; /* NULL: not wanted */
	void *arg;
};

static void die(const char *what)
{
	fprintf(stderr, "fake guest: %s: %s\n", what, strerror(errno));
	exit(2);
}

struct sandbox *fake_guest_new(struct loop *l, uid_t uid, gid_t gid)
{
	struct sandbox *g = calloc(1, sizeof(*g));

	if (!g)
		die("calloc");
	g->loop = l;
	g->owner = (struct cfs_who){ .uid = uid, .gid = gid };
	g->status = SBX_READY;
	g->epoch = 1;
	g->refs = 1;
	strcpy(g->root, "/tmp/fake_guest.XXXXXX");
	umask(0);
	if (!mkdtemp(g->root) || chmod(g->root, 0755) < 0)
		die("mkdtemp");
	g->root_fd = open(g->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	g->proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (g->root_fd < 0 || g->proc_fd < 0)
		die("open");
	if (files_new(g->root_fd, g->proc_fd, 1, &g->files) < 0)
		die("files_new");
	return g;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static struct fs_call *take_first(struct sandbox *g)
{
	struct fs_call *c = g->first;

	g->first = c->next;
	if (!g->first)
		g->last = NULL;
	return c;
}

static void call_free(struct fs_call *c)
{
	free(c->payload);
	free(c);
}

void fake_guest_free(struct sandbox *g)
{
	while (g->first)
		call_free(take_first(g));
	loop_del(g->loop, &g->deferred);
	files_free(g->files);
	close(g->root_fd);
	close(g->proc_fd);
	if (nftw(g->root, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0)
		perror(g->root);
	free(g);
}

unsigned fake_guest_open(const struct sandbox *g)
{
	unsigned n = 0;

	for (size_t i = 0; i < ARRAY_LEN(g->files->fds); i++)
		n += g->files->fds[i] >= 0;
	return n;
}

/* -- calls ------------------------------------------------------------------------------------ */

static void deliver(struct fs_call *c, const struct buf *answer)
{
	struct wire_rd r;
	int code;

	c->g->in_flight--;
	wire_rd_init(&r, answer->data, answer->len);
	code = (int)wire_u32(&r);
	if (c->fn) {
		c->fn(c->arg, code, &r);
	} else if (code == 0 && (c->op == AG_FS_OPEN || c->op == AG_FS_CREATE)) {
		uint32_t handle = wire_u32(&r);
		int *slot = handle_slot(c->g->files, handle);

		if (slot) {
			fd_close(slot);
			c->g->late_releases++;
		}
	}
}

static void serve(struct fs_call *c)
{
	struct sandbox *g = c->g;
	struct buf answer;

	buf_init(&answer, AG_PAYLOAD_MAX);
	files_handle(g->files, c->op, c->payload, c->len, &answer);
	if (g->twist)
		g->twist(g->twist_arg, c->op, c->payload, c->len, &answer);
	deliver(c, &answer);
	buf_fini(&answer);
	call_free(c);
}

#define BATCH 64 /* answers of one round of the loop: a test that reads them in the same thread must get its turn */

static void serve_some(void *arg)
{
	struct sandbox *g = arg;

	g->deferred = 0;
	for (int i = 0; i < BATCH && g->first && !g->hung && g->status != SBX_PAUSED; i++)
		serve(take_first(g));
	if (g->first && !g->hung && g->status != SBX_PAUSED && !g->deferred)
		loop_defer(g->loop, serve_some, g, &g->deferred);
}

void fake_guest_go_on(struct sandbox *g)
{
	g->hung = false;
	if (g->status == SBX_PAUSED)
		g->status = SBX_READY;
	if (!g->deferred)
		loop_defer(g->loop, serve_some, g, &g->deferred);
}

void fake_guest_fail(struct sandbox *g, int code, bool late)
{
	struct fs_call *c = g->first;

	g->first = g->last = NULL;
	while (c) {
		struct fs_call *next = c->next;
		struct wire_rd none;

		wire_rd_init(&none, NULL, 0);
		if (c->fn)
			c->fn(c->arg, code, &none);
		c->fn = NULL;
		if (late) {
			serve(c);
		} else {
			g->in_flight--;
			call_free(c);
		}
		c = next;
	}
}

void fake_guest_restart(struct sandbox *g)
{
	g->epoch++;
	files_reset(g->files, (uint16_t)g->epoch);
}

/* -- sandbox.h -------------------------------------------------------------------------------- */

struct sandbox *sandbox_ref(struct sandbox *s)
{
	s->refs++;
	return s;
}

struct sandbox *sandbox_unref(struct sandbox *s)
{
	s->refs--;
	return NULL;
}

const char *sandbox_name(const struct sandbox *s)
{
	(void)s;
	return "g";
}

const char *sandbox_error(const struct sandbox *s)
{
	return s->error;
}

void sandbox_fail(struct sandbox *s, const struct cfs_who *who, const struct err *e)
{
	(void)who;
	snprintf(s->error, sizeof(s->error), "%s", e->msg);
}

bool sandbox_gone(const struct sandbox *s)
{
	return s->gone;
}

const char *sandbox_uuid(const struct sandbox *s)
{
	return s->root;
}

struct cfs_who sandbox_owner(const struct sandbox *s)
{
	return s->owner;
}

enum sandbox_status sandbox_status(const struct sandbox *s)
{
	return s->status;
}

uint64_t sandbox_created_ns(const struct sandbox *s)
{
	(void)s;
	return 1700000000ull * 1000000000u;
}

uint64_t sandbox_fs_epoch(const struct sandbox *s)
{
	return s->epoch;
}

int sandbox_fs(struct sandbox *s, uint8_t op, const void *payload, size_t len, const struct cfs_who *who,
	       fs_done_fn *fn, void *arg, struct fs_call **ret)
{
	struct fs_call *c;

	(void)who;
	if (s->gone)
		return -ENOENT;
	if (s->status == SBX_PAUSED && op != AG_FS_RELEASE)
		return -EBUSY;
	if (s->status == SBX_STOPPED || s->status == SBX_FAILED)
		return -ENOTCONN;
	if (s->status == SBX_CONFIGURED) {
		s->started++;
		s->status = SBX_READY;
	}
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->g = s;
	c->op = op;
	c->payload = malloc(len ? len : 1);
	if (!c->payload) {
		free(c);
		return -ENOMEM;
	}
	if (len)
		memcpy(c->payload, payload, len);
	c->len = len;
	c->fn = fn;
	c->arg = arg;
	*(s->last ? &s->last->next : &s->first) = c;
	s->last = c;
	s->calls[op]++;
	if (++s->in_flight > s->most_in_flight)
		s->most_in_flight = s->in_flight;
	if (!s->deferred)
		loop_defer(s->loop, serve_some, s, &s->deferred);
	if (ret)
		*ret = c;
	return 0;
}

void fs_call_cancel(struct fs_call *c)
{
	if (c)
		c->fn = NULL;
}

/* -- a tree around it -------------------------------------------------------------------------- */

struct tree {
	struct cfs_node node;
	struct sandbox *g, *other;
};

static void tree_lookup(struct cfs_req *r, struct cfs_node *dir, const char *name)
{
	struct tree *t = cfs_container(dir, struct tree, node);
	struct sandbox *g = strcmp(name, "fs") == 0 ? t->g : strcmp(name, "other") == 0 ? t->other : NULL;
	struct cfs_node *n;
	struct stat st;
	int code = -ENOENT;

	if (g)
		code = guestfs_root(dir->session, g, &n, &st);
	if (code < 0) {
		cfs_reply_err(r, code);
		return;
	}
	cfs_reply_entry(r, n, &st, 0, 0);
	cfs_node_unref(n);
}

static void tree_getattr(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h)
{
	(void)n;
	(void)h;
	cfs_reply_attr(r, &(struct stat){ .st_ino = 1, .st_mode = S_IFDIR | 0755, .st_nlink = 1 }, 0);
}

static void tree_opendir(struct cfs_req *r, struct cfs_node *dir, int flags)
{
	struct cfs_handle *h = calloc(1, sizeof(*h));
	int code = h ? cfs_handle_open(r, h, dir, flags) : -ENOMEM;

	if (code == 0) {
		cfs_reply_open(r, h, 0);
		return;
	}
	free(h);
	cfs_reply_err(r, code);
}

static void tree_readdir(struct cfs_req *r, struct cfs_node *dir, struct cfs_handle *h, size_t size, uint64_t off)
{
	struct cfs_dirbuf b;

	(void)dir;
	(void)h;
	cfs_dirbuf_init(&b, r, size);
	if (off == 0)
		cfs_dirbuf_add(&b, "fs", &(struct stat){ .st_ino = 2, .st_mode = S_IFDIR }, 1, NULL);
	cfs_dirbuf_reply(&b);
}

static void tree_release(struct cfs_handle *h)
{
	free(h);
}

static void tree_free(struct cfs_node *n)
{
	free(cfs_container(n, struct tree, node));
}

static const struct cfs_node_ops tree_ops = {
	.free = tree_free,
	.lookup = tree_lookup,
	.getattr = tree_getattr,
	.opendir = tree_opendir,
	.readdir = tree_readdir,
	.release = tree_release,
};

void fake_guest_install(struct sandbox *g, struct sandbox *other, struct cfs_session *cs)
{
	struct tree *t = calloc(1, sizeof(*t));

	if (!t)
		die("calloc");
	t->g = g;
	t->other = other;
	cfs_session_set_root(cs, &t->node, &tree_ops, NULL);
}
