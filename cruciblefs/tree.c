/* SPDX-License-Identifier: Apache-2.0 */
/* The tree's own memory: its root, the places of the sandboxes, the nodes that later look-ups find again. See table.h.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cruciblefs/root.h"
#include "cruciblefs/scratch.h"
#include "cruciblefs/tree_priv.h"
#include "cruciblefs/view.h"

#define BLOCK 512

/* -- places ------------------------------------------------------------------------------------- */

struct tree_place {
	struct tree_place *next;
	struct cfs_tree *tree;
	struct cfs_place *place;
	struct waiter w; /* on the sandbox's queue, until it is gone */
};

static struct tree_place **place_slot(struct cfs_tree *t, const struct sandbox *s)
{
	struct tree_place **at = &t->places[((uintptr_t)s >> 6) % PLACE_SLOTS];

	while (*at && (*at)->place->sbx != s)
		at = &(*at)->next;
	return at;
}

static void place_drop(struct tree_place *tp)
{
	waitq_del(&tp->w);
	scratch_drop_all(tp->place);
	place_unref(tp->place);
	free(tp);
}

static void drop_gone(void *arg)
{
	struct cfs_tree *t = arg;

	t->gone_id = 0;
	while (t->gone) {
		struct tree_place *tp = t->gone;

		t->gone = tp->next;
		place_drop(tp);
	}
}

/* Its last reference may be ours and the queue that is calling is in it: dropped in a call of its own. */
static void on_change(struct waiter *w)
{
	struct tree_place *tp = cfs_container(w, struct tree_place, w);
	struct cfs_tree *t = tp->tree;
	struct tree_place **at;

	if (!sandbox_gone(tp->place->sbx))
		return;
	at = place_slot(t, tp->place->sbx);
	*at = tp->next;
	waitq_del(w);
	tp->next = t->gone;
	t->gone = tp;
	if (!t->gone_id)
		loop_defer(cfs_session_loop(t->cs), drop_gone, t, &t->gone_id);
}

struct cfs_place *cfs_tree_place(struct cfs_tree *t, struct sandbox *s)
{
	struct tree_place **at, *tp;

	if (!s)
		return t->outside;
	at = place_slot(t, s);
	if (*at)
		return (*at)->place;
	tp = calloc(1, sizeof(*tp));
	if (!tp)
		return NULL;
	tp->tree = t;
	tp->place = place_new(s);
	if (!tp->place) {
		free(tp);
		return NULL;
	}
	tp->w.fn = on_change;
	waitq_add(sandbox_waitq(s), &tp->w);
	*at = tp;
	return tp->place;
}

/* -- numbers and names ---------------------------------------------------------------------------- */

uint64_t cfs_about_ino(const struct cfs_about *a)
{
	char n[24];

	snprintf(n, sizeof(n), "%" PRIu64, a->exec);
	/* Without a view the list ends before its uuid. */
	return cfs_ino(a->sbx ? sandbox_uuid(a->sbx) : "", a->in ? a->in->path : "",
		       a->entry->name ? a->entry->name : "", a->name, n, a->view ? view_uuid(a->view) : NULL, NULL);
}

const struct cfs_entry *cfs_entry_of(const struct cfs_table *t, const char *name)
{
	for (size_t i = 0; i < t->count; i++)
		if (!strcmp(t->entries[i].name, name))
			return &t->entries[i];
	return NULL;
}

void cfs_about_entry(const struct cfs_about *dir, const struct cfs_entry *e, const struct cfs_who *who,
		     struct cfs_about *ret)
{
	*ret = *dir;
	ret->in = dir->entry->dir;
	ret->entry = e;
	ret->bound = dir->exec;
	ret->viewer = e->flags & CFS_PER_CALLER ? *who : (struct cfs_who){ 0 };
	ret->caller = *who;
	cfs_about_changed(ret);
}

void cfs_about_changed(struct cfs_about *a)
{
	struct execution *x = a->sbx && a->bound ? sandbox_exec(a->sbx, a->bound) : NULL;

	if (x)
		a->changed_ns = exec_changed_ns(x);
	else if (a->sbx)
		a->changed_ns = sandbox_changed_ns(a->sbx);
}

int cfs_resolve(const struct cfs_about *dir, const char *name, const struct cfs_who *who, struct cfs_about *ret,
		bool *ret_hidden)
{
	const struct cfs_table *table = dir->entry->dir;
	const struct cfs_entry *e = cfs_entry_of(table, name);
	int r = 0;

	if (dir->sbx && sandbox_gone(dir->sbx))
		return -ENOENT;
	if (e) {
		cfs_about_entry(dir, e, who, ret);
		r = e->bind ? e->bind(ret) : 0;
	} else if (table->child) {
		*ret = *dir;
		ret->in = table;
		ret->viewer = ret->caller = *who;
		r = table->child(ret, name);
		if (!r && !(ret->entry->flags & CFS_PER_CALLER))
			ret->viewer = (struct cfs_who){ 0 }; /* one node for all callers */
	} else {
		r = -ENOENT;
	}
	if (r < 0)
		return r;
	*ret_hidden = place_hidden(ret->place, cfs_about_ino(ret));
	return 0;
}

int cfs_fail(const struct cfs_about *a, const struct cfs_who *who, struct err *e)
{
	if (a->entry->fail)
		a->entry->fail(a, who, e);
	else if (a->sbx && !sandbox_gone(a->sbx))
		sandbox_fail(a->sbx, who, e);
	return e->code;
}

/* -- nodes ------------------------------------------------------------------------------------------ */

static struct cfs_tnode **node_slot(struct cfs_tree *t, uint64_t ino)
{
	return &t->nodes[ino % NODE_SLOTS];
}

static struct cfs_tnode *find_current(const struct cfs_about *a, uint64_t ino)
{
	struct cfs_tnode *n = *node_slot(a->tree, ino);

	/* One that was forgotten in this very batch lies there until the batch's end, without an id: it cannot be told
	 * again. */
	while (n && (!n->node.id || n->ino != ino || n->about.place != a->place || n->about.view != a->view ||
		     n->about.bound != a->bound || n->about.viewer.uid != a->viewer.uid))
		n = n->next;
	return n;
}

static void not_current(struct cfs_tnode *n)
{
	struct cfs_tnode **at = node_slot(n->about.tree, n->ino);

	if (!n->current)
		return;
	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	n->current = false;
}

static void make_current(struct cfs_tnode *n)
{
	struct cfs_tnode **at = node_slot(n->about.tree, n->ino);

	n->next = *at;
	*at = n;
	n->current = true;
}

int cfs_tnode_new(const struct cfs_about *a, uint64_t ino, struct cfs_text *text, struct cfs_tnode **ret)
{
	struct cfs_tnode *n = calloc(1, sizeof(*n));
	int r;

	if (!n)
		return -ENOMEM;
	r = cfs_node_init(a->tree->cs, &n->node, a->entry->kind->ops, a->view);
	if (r < 0) {
		free(n);
		return r;
	}
	n->about = *a;
	place_ref(a->place);
	n->ino = ino;
	n->text = cfs_text_ref(text);
	n->mtime_ns = text ? place_mtime(a->place, ino, place_hash(text->data, text->len), a->changed_ns)
			   : a->changed_ns;
	*ret = n;
	return 0;
}

void cfs_tnode_free(struct cfs_node *node)
{
	struct cfs_tnode *n = cfs_tnode_of(node);

	not_current(n);
	cfs_text_unref(n->text);
	place_unref(n->about.place);
	free(n);
}

/* The text of @a as it is now; @old itself when that is the same. */
static int render(const struct cfs_about *a, struct cfs_text *old, struct cfs_text **ret)
{
	struct buf b;
	int r;

	buf_init(&b, CFS_TEXT_MAX);
	r = a->entry->show(a, &b);
	if (!r) {
		if (old && old->len == b.len && (!b.len || !memcmp(old->data, b.data, b.len)))
			*ret = cfs_text_ref(old);
		else
			r = cfs_text_new(a->tree->cs, a->caller.uid, b.data, b.len, ret);
	}
	buf_fini(&b);
	return r;
}

int cfs_enter(const struct cfs_about *a, struct cfs_tnode **ret)
{
	const struct cfs_kind *kind = a->entry->kind;
	uint64_t ino = cfs_about_ino(a);
	struct cfs_tnode *old = find_current(a, ino);
	struct cfs_text *text = NULL;
	int r = 0;

	if (old && kind->reuse == REUSE_ALWAYS) {
		*ret = cfs_tnode_of(cfs_node_ref(&old->node));
		return 0;
	}
	if (a->entry->show)
		r = render(a, old ? old->text : NULL, &text);
	if (r < 0)
		return r;
	if (old && text && old->text == text && kind->reuse == REUSE_SAME_TEXT) {
		cfs_text_unref(text);
		*ret = cfs_tnode_of(cfs_node_ref(&old->node));
		return 0;
	}
	r = cfs_tnode_new(a, ino, text, ret);
	cfs_text_unref(text);
	if (r < 0)
		return r;
	if (old)
		not_current(old);
	make_current(*ret);
	return 0;
}

/* -- attributes --------------------------------------------------------------------------------------- */

void cfs_stat_times(struct stat *st, uint64_t ns)
{
	st->st_mtim = (struct timespec){ .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };
	st->st_atim = st->st_ctim = st->st_mtim;
}

void cfs_tnode_stat(struct cfs_tnode *n, struct stat *st)
{
	const struct cfs_about *a = &n->about;
	bool gone = a->sbx && sandbox_gone(a->sbx);
	uint64_t mtime_ns = n->mtime_ns;

	*st = (struct stat){
		.st_ino = n->ino,
		.st_mode = a->entry->kind->type | a->entry->mode,
		.st_nlink = gone ? 0 : 1, /* of a directory too: "do not count my subdirectories", as on btrfs */
		.st_uid = a->owner.uid,
		.st_gid = a->owner.gid,
		.st_blksize = 4096,
	};
	if (n->text) {
		st->st_size = (off_t)n->text->len;
	} else if (!gone && a->entry->stream) {
		st->st_size = (off_t)a->entry->stream->size(a);
		mtime_ns = place_mtime(a->place, n->ino, (uint64_t)st->st_size ^ a->bound << 40, a->changed_ns);
	} else if (!gone && a->entry->dir) {
		uint64_t stamp = a->entry->dir->stamp ? a->entry->dir->stamp(a) : 0;

		if (a->entry->dir->user_may_hide)
			stamp ^= a->place->serial << 32;
		mtime_ns = place_mtime(a->place, n->ino, stamp, a->changed_ns);
	}
	st->st_blocks = (st->st_size + BLOCK - 1) / BLOCK;
	cfs_stat_times(st, mtime_ns);
}

static bool is_lasting(const struct cfs_tnode *n)
{
	return n->about.entry->flags & CFS_LASTING;
}

static double attr_timeout(const struct cfs_tnode *n)
{
	return is_lasting(n) ? LASTING_ATTR_S : n->about.entry->kind->attr_timeout;
}

void cfs_tnode_reply_entry(struct cfs_req *r, struct cfs_tnode *n)
{
	struct stat st;

	cfs_tnode_stat(n, &st);
	cfs_reply_entry(r, &n->node, &st, is_lasting(n) ? LASTING_NAME_S : 0, attr_timeout(n));
}

void cfs_tnode_getattr(struct cfs_req *r, struct cfs_node *node, struct cfs_handle *h)
{
	struct cfs_tnode *n = cfs_tnode_of(node);
	struct stat st;

	(void)h;
	cfs_tnode_stat(n, &st);
	cfs_reply_attr(r, &st, attr_timeout(n));
}

static int give(struct cfs_req *r, struct cfs_tnode *n, uid_t uid, gid_t gid)
{
	struct err e = { 0 };

	return n->about.entry->chown(&n->about, uid, gid, cfs_req_who(r), &n->about.owner, &e);
}

/* What chmod, touch, cp -p, install -m, rsync --inplace and `> file` ask for. Times, modes and lengths are accepted and
 * stay what they are, so that these tools work on files that can be written; nothing gets another owner, but what says
 * how (.chown). */
void cfs_tnode_setattr(struct cfs_req *r, struct cfs_node *node, struct cfs_handle *h, const struct stat *st, int valid)
{
	struct cfs_tnode *n = cfs_tnode_of(node);
	const struct cfs_kind *kind = n->about.entry->kind;
	struct stat now;
	bool owner, mode;
	int code;

	cfs_tnode_stat(n, &now);
	if ((valid & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) && n->about.entry->chown) {
		code = give(r, n, valid & FUSE_SET_ATTR_UID ? st->st_uid : now.st_uid,
			    valid & FUSE_SET_ATTR_GID ? st->st_gid : now.st_gid);
		if (code < 0) {
			cfs_reply_err(r, code);
			return;
		}
		valid &= ~(FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID);
		cfs_tnode_stat(n, &now);
	}
	owner = ((valid & FUSE_SET_ATTR_UID) && st->st_uid != now.st_uid) ||
		((valid & FUSE_SET_ATTR_GID) && st->st_gid != now.st_gid);
	mode = (valid & FUSE_SET_ATTR_MODE) && (st->st_mode & 07777) != (now.st_mode & 07777);
	if (owner || (!kind->writable && (mode || (valid & FUSE_SET_ATTR_SIZE))))
		cfs_reply_err(r, -EPERM);
	else if ((valid & FUSE_SET_ATTR_SIZE) && st->st_size != 0 && !h)
		cfs_reply_err(r, -EINVAL); /* truncate -s 5 means something that cannot be had */
	else
		cfs_reply_attr(r, &now, 0);
}

/* -- life ---------------------------------------------------------------------------------------------- */

struct cfs_session *cfs_tree_session(struct cfs_tree *t)
{
	return t->cs;
}

struct registry *cfs_tree_registry(struct cfs_tree *t)
{
	return cfs_session_registry(t->cs);
}

uint64_t cfs_tree_started_ns(struct cfs_tree *t)
{
	return t->started_ns;
}

/* The session ends: what holds nodes (scratch files are held by their names) lets go. */
static void root_closing(struct cfs_node *node)
{
	struct cfs_tree *t = cfs_tnode_of(node)->about.tree;

	loop_del(cfs_session_loop(t->cs), &t->gone_id);
	drop_gone(t);
	scratch_drop_all(t->outside); /* of views/<name>/ */
	for (size_t i = 0; i < PLACE_SLOTS; i++) {
		while (t->places[i]) {
			struct tree_place *tp = t->places[i];

			t->places[i] = tp->next;
			place_drop(tp);
		}
	}
}

static void root_free(struct cfs_node *node)
{
	struct cfs_tree *t = cfs_tnode_of(node)->about.tree;

	place_unref(t->outside);
	promises_fini(&t->promises);
	free(t);
}

int cfs_root_install(struct cfs_session *cs, struct err *e)
{
	struct cfs_tree *t = calloc(1, sizeof(*t));
	struct cfs_tnode *root;

	if (!t)
		return err_set(e, -ENOMEM, "tree: no memory");
	t->outside = place_new(NULL);
	if (!t->outside) {
		free(t);
		return err_set(e, -ENOMEM, "tree: no memory");
	}
	t->cs = cs;
	t->started_ns = wall_ns();
	/* A directory like any other, but for its end. */
	t->root_ops = *cfs_kind_dir.ops;
	t->root_ops.free = root_free;
	root = &t->root;
	root->about = (struct cfs_about){
		.tree = t, .entry = &cfs_root_entry, .place = t->outside, .changed_ns = t->started_ns
	};
	root->ino = root->up_ino = 1;
	cfs_session_set_root(cs, &root->node, &t->root_ops, root_closing);
	return 0;
}
