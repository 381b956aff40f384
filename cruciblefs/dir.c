/* SPDX-License-Identifier: Apache-2.0 */
/* Directories of the tables: looking up and listing. What changes them is in dirchange.c.
 *
 * A listing is taken whole when it is read from its beginning (again after rewinddir) and kept in the handle; cookies
 * are places in it. So it is complete and without repetitions whatever is made or removed meanwhile, and `rm -rf`
 * deletes as it reads. Listing looks at nothing but names: it never blocks, renders or makes anything. */
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "cruciblefs/dirchange.h"
#include "cruciblefs/scratch.h"
#include "cruciblefs/tree_priv.h"

#define DIR_ATTR_S \
	0.001 /* for the walk that looked it up: else the kernel asks again for each permission check on the way */

struct listed {
	uint64_t ino;
	size_t name; /* in names */
	mode_t type;
};

struct dir {
	struct cfs_handle h;
	struct listed *list;
	size_t n, cap;
	struct buf names; /* each with its NUL */
	size_t charged;	  /* bytes counted for who opened it */
	int code;	  /* -ENOMEM: the list is not whole */
};

/* -- looking up -------------------------------------------------------------------------------- */

void cfs_dir_reply_child(struct cfs_req *r, struct cfs_tnode *dir, const struct cfs_about *a)
{
	const struct cfs_kind *kind = a->entry->kind;
	struct cfs_tnode *n;
	int code;

	if (kind->lookup) {
		kind->lookup(r, a, cfs_about_ino(a));
		return;
	}
	code = cfs_enter(a, &n);
	if (code < 0) {
		cfs_reply_err(r, code);
		return;
	}
	n->up_ino = dir->ino;
	cfs_tnode_reply_entry(r, n);
	cfs_node_unref(&n->node);
}

static void dir_lookup(struct cfs_req *r, struct cfs_node *node, const char *name)
{
	struct cfs_tnode *d = cfs_tnode_of(node);
	struct scratch *s;
	struct cfs_about a;
	bool hidden = false;
	int code = cfs_resolve(&d->about, name, cfs_req_who(r), &a, &hidden);

	if (!code && !hidden) {
		cfs_dir_reply_child(r, d, &a);
		return;
	}
	s = d->about.entry->dir->scratch ? scratch_find(d->about.place, d->ino, name) : NULL;
	if (s)
		scratch_reply_entry(r, s);
	else
		cfs_reply_err(r, code ? code : -ENOENT);
}

/* -- listing ------------------------------------------------------------------------------------- */

static bool list_add(struct dir *d, const char *name, mode_t type, uint64_t ino)
{
	size_t at = d->names.len;

	if (d->n == d->cap) {
		size_t cap = d->cap ? d->cap * 2 : 64;
		struct listed *list = realloc(d->list, cap * sizeof(*list));

		if (!list) {
			d->code = -ENOMEM;
			return false;
		}
		d->list = list;
		d->cap = cap;
	}
	d->code = buf_add(&d->names, name, strlen(name) + 1);
	if (d->code < 0)
		return false;
	d->list[d->n++] = (struct listed){ .ino = ino, .name = at, .type = type };
	return true;
}

static bool list_child(void *arg, const char *name, const struct cfs_about *child)
{
	uint64_t ino = cfs_about_ino(child);

	return place_hidden(child->place, ino) || list_add(arg, name, child->entry->kind->type, ino);
}

static void drop_list(struct dir *d)
{
	free(d->list);
	buf_fini(&d->names);
	cfs_uncharge(d->h.node->session, d->h.who.uid, d->charged);
	d->list = NULL;
	d->n = d->cap = d->charged = 0;
}

static void fill_list(struct dir *d, const struct cfs_who *who)
{
	struct cfs_tnode *n = cfs_tnode_of(d->h.node);
	const struct cfs_table *t = n->about.entry->dir;
	struct cfs_about a;

	if (!list_add(d, ".", S_IFDIR, n->ino) || !list_add(d, "..", S_IFDIR, n->up_ino))
		return;
	if (n->about.sbx && sandbox_gone(n->about.sbx))
		return;
	for (size_t i = 0; i < t->count; i++) {
		const struct cfs_entry *e = &t->entries[i];

		if (e->flags & CFS_UNLISTED)
			continue;
		cfs_about_entry(&n->about, e, who, &a);
		if (e->bind && e->bind(&a) < 0)
			continue;
		if (!list_child(d, e->name, &a))
			return;
	}
	for (struct scratch *s = t->scratch ? scratch_next(n->about.place, NULL) : NULL; s;
	     s = scratch_next(n->about.place, s)) {
		struct stat st;

		scratch_stat(s, &st);
		if (scratch_dir(s) == n->ino && !list_add(d, scratch_name(s), S_IFREG, st.st_ino))
			return;
	}
	if (!t->list)
		return;
	a = n->about;
	a.in = t;
	a.viewer = *who;
	t->list(&a, list_child, d);
}

static void take_list(struct dir *d, const struct cfs_who *who)
{
	size_t bytes;

	drop_list(d);
	d->code = 0;
	fill_list(d, who);
	bytes = d->cap * sizeof(*d->list) + d->names.cap;
	if (d->code == 0)
		d->code = cfs_charge(d->h.node->session, d->h.who.uid, bytes);
	if (d->code == 0)
		d->charged = bytes;
	else
		drop_list(d);
}

static void dir_opendir(struct cfs_req *r, struct cfs_node *node, int flags)
{
	struct cfs_tnode *n = cfs_tnode_of(node);
	struct dir *d;
	int code;

	if (n->about.sbx && sandbox_gone(n->about.sbx)) {
		cfs_reply_err(r, -ENOENT);
		return;
	}
	d = calloc(1, sizeof(*d));
	code = d ? cfs_tnode_handle(r, &d->h, n, flags) : -ENOMEM;
	if (code < 0) {
		free(d);
		cfs_reply_err(r, code);
		return;
	}
	buf_init(&d->names, 16u * 1024 * 1024);
	cfs_reply_open(r, &d->h, 0);
}

static void dir_readdir(struct cfs_req *r, struct cfs_node *node, struct cfs_handle *h, size_t size, uint64_t off)
{
	struct dir *d = cfs_container(h, struct dir, h);
	struct cfs_dirbuf b;

	(void)node;
	if (off == 0)
		take_list(d, cfs_req_who(r));
	if (d->code < 0) {
		cfs_reply_err(r, d->code);
		return;
	}
	cfs_dirbuf_init(&b, r, size);
	for (uint64_t i = off; i < d->n; i++) {
		const struct listed *l = &d->list[i];
		struct stat st = { .st_ino = l->ino, .st_mode = l->type };

		if (!cfs_dirbuf_add(&b, (const char *)d->names.data + l->name, &st, i + 1, NULL))
			break;
	}
	cfs_dirbuf_reply(&b);
}

static void dir_release(struct cfs_handle *h)
{
	struct dir *d = cfs_container(h, struct dir, h);

	drop_list(d);
	free(d);
}

static const struct cfs_node_ops dir_ops = {
	.may = cfs_tnode_may,
	.free = cfs_tnode_free,
	.lookup = dir_lookup,
	.getattr = cfs_tnode_getattr,
	.setattr = cfs_tnode_setattr,
	.mknod = dir_mknod,
	.mkdir = dir_mkdir,
	.symlink = dir_symlink,
	.unlink = dir_unlink,
	.rmdir = dir_rmdir,
	.rename = dir_rename,
	.create = dir_create,
	.opendir = dir_opendir,
	.readdir = dir_readdir,
	.release = dir_release,
};

const struct cfs_kind cfs_kind_dir = {
	.name = "directory",
	.type = S_IFDIR,
	.ops = &dir_ops,
	.reuse = REUSE_ALWAYS,
	.attr_timeout = DIR_ATTR_S,
};
