/* SPDX-License-Identifier: Apache-2.0 */
/* What changes the names of a directory.
 *
 *   mkdir     makes an object (a sandbox, a slot), or shows a hidden directory again
 *   rmdir     ends an object, "not empty" as it is; hides a directory of the tables
 *   unlink    hides a control file; removes a scratch file
 *   create    shows a hidden control file again; makes a scratch file
 *   rename    of an object: its new name. Of a scratch file over a control file: its content is written there, and the
 * errno of that write is the rename's. Of a control file to a free name (an editor's backup): a scratch file with its
 * text, and the control file is hidden until it is created again.
 *
 * Hiding is what makes `rm -rf run/x` work without surprise: rm unlinks what it listed, the names vanish, and the rmdir
 * of the sandbox at the end is what ends it. */
#include "cruciblefs/dirchange.h"

#include <stdio.h>
#include <string.h>

#include "cruciblefs/scratch.h"
#include "cruciblefs/tree_priv.h"

static const struct cfs_table *table_of(const struct cfs_tnode *d)
{
	return d->about.entry->dir;
}

static bool is_gone(const struct cfs_tnode *d)
{
	return d->about.sbx && sandbox_gone(d->about.sbx);
}

/* Is @name the name of a file of the tables, hidden or not, there now or not? */
static bool of_table(const struct cfs_tnode *d, const char *name, const struct cfs_who *who, struct cfs_about *ret,
		     bool *ret_hidden)
{
	const struct cfs_entry *e = cfs_entry_of(table_of(d), name);

	if (!e)
		return false;
	cfs_about_entry(&d->about, e, who, ret);
	*ret_hidden = place_hidden(ret->place, cfs_about_ino(ret));
	if (e->bind)
		e->bind(ret); /* what it binds to, if anything: its absence is the caller's question */
	return true;
}

/* What is there under @name and not hidden: of the tables or an object; no scratch file. */
static int find(struct cfs_req *r, const struct cfs_tnode *d, const char *name, struct cfs_about *ret)
{
	bool hidden = false;
	int code = cfs_resolve(&d->about, name, cfs_req_who(r), ret, &hidden);

	return !code && hidden ? -ENOENT : code;
}

static struct scratch *find_scratch(const struct cfs_tnode *d, const char *name)
{
	return table_of(d)->scratch ? scratch_find(d->about.place, d->ino, name) : NULL;
}

static int show_again(const struct cfs_about *a)
{
	return place_hide(a->place, cfs_about_ino(a), false);
}

/* -- mkdir, rmdir ------------------------------------------------------------------------------ */

void dir_mkdir(struct cfs_req *r, struct cfs_node *node, const char *name, mode_t mode)
{
	struct cfs_tnode *d = cfs_tnode_of(node);
	const struct cfs_table *t = table_of(d);
	const struct cfs_who *who = cfs_req_who(r);
	struct cfs_about a;
	struct err e = { 0 };
	bool hidden = false;
	int code;

	(void)mode;
	if (is_gone(d)) {
		code = -ENOENT;
	} else if (of_table(d, name, who, &a, &hidden)) {
		code = hidden && a.entry->dir ? show_again(&a) : -EEXIST;
	} else {
		code = t->mkdir ? cfs_may(&d->about, who, t->make) : -EPERM;
		if (!code)
			code = t->mkdir(&d->about, name, who, &e);
		if (!code)
			code = cfs_resolve(&d->about, name, who, &a, &hidden);
		if (!code && hidden)
			code = show_again(&a);
	}
	if (code < 0)
		cfs_reply_err(r, code);
	else
		cfs_dir_reply_child(r, d, &a);
}

static int hide(const struct cfs_table *t, const struct cfs_about *a)
{
	if (!a->entry->name || !t->user_may_hide || (a->entry->flags & CFS_UNLISTED))
		return -EPERM;
	return place_hide(a->place, cfs_about_ino(a), true);
}

static int remove_dir(struct cfs_req *r, struct cfs_tnode *d, const char *name)
{
	const struct cfs_table *t = table_of(d);
	struct cfs_about a;
	struct err e = { 0 };
	int code = find(r, d, name, &a);

	if (code < 0)
		return find_scratch(d, name) ? -ENOTDIR : code;
	if (a.entry->kind->type != S_IFDIR)
		return -ENOTDIR;
	if (a.entry->name || !t->rmdir)
		return hide(t, &a);
	code = cfs_may(&a, cfs_req_who(r), a.entry->op);
	return code < 0 ? code : t->rmdir(&a, cfs_req_who(r), &e);
}

void dir_rmdir(struct cfs_req *r, struct cfs_node *node, const char *name)
{
	cfs_reply_err(r, remove_dir(r, cfs_tnode_of(node), name));
}

/* -- unlink --------------------------------------------------------------------------------------- */

static int remove_file(struct cfs_req *r, struct cfs_tnode *d, const char *name)
{
	struct scratch *s = find_scratch(d, name);
	struct cfs_about a;
	int code;

	if (s) {
		scratch_unlink(s);
		return 0;
	}
	code = find(r, d, name, &a);
	if (code < 0)
		return code;
	return a.entry->kind->type == S_IFDIR ? -EISDIR : hide(table_of(d), &a);
}

void dir_unlink(struct cfs_req *r, struct cfs_node *node, const char *name)
{
	cfs_reply_err(r, remove_file(r, cfs_tnode_of(node), name));
}

/* -- create, mknod, symlink ------------------------------------------------------------------------ */

static int new_scratch(struct cfs_req *r, struct cfs_tnode *d, const char *name, mode_t mode, struct scratch **ret)
{
	struct err e = { 0 };
	int code;

	if (is_gone(d))
		return -ENOENT;
	if (!table_of(d)->scratch)
		return -EPERM;
	code = cfs_may(&d->about, cfs_req_who(r), table_of(d)->make);
	if (code < 0)
		return code;
	code = scratch_new(cfs_req_session(r), d->about.view, d->about.place, d->ino, name, mode & ~cfs_req_umask(r),
			   cfs_req_who(r), ret);
	if (code == -EDQUOT && d->about.sbx) {
		err_set(&e, code, "sandbox %s: %.64s: %u scratch files are there; remove some",
			sandbox_name(d->about.sbx), name, SCRATCH_FILES);
		cfs_fail(&d->about, cfs_req_who(r), &e);
	}
	return code;
}

/* An entry that is created again, or was there all the time (two creators raced): opened as it would be. */
static void create_entry(struct cfs_req *r, const struct cfs_about *a, bool hidden, int flags)
{
	unsigned access = cfs_wants_write(flags) ? CFS_ACCESS_WRITE : 0;
	struct cfs_tnode *n = NULL;
	struct cfs_handle *h = NULL;
	unsigned open_flags = 0;
	struct stat st;
	int code;

	if ((flags & O_ACCMODE) != O_WRONLY)
		access |= CFS_ACCESS_READ;
	code = cfs_may_use(a, cfs_req_who(r), access);
	if (!code && hidden)
		code = show_again(a);
	else if (!code && (flags & O_EXCL))
		code = -EEXIST;
	if (!code && !a->entry->kind->writable)
		code = a->entry->kind->type == S_IFDIR ? -EISDIR : -EPERM;
	if (!code)
		code = cfs_enter(a, &n);
	if (!code)
		code = a->entry->kind->open(r, n, flags, &h, &open_flags);
	if (code < 0) {
		cfs_reply_err(r, code);
	} else {
		cfs_tnode_stat(n, &st);
		cfs_reply_create(r, &n->node, &st, 0, 0, h, open_flags);
	}
	if (n)
		cfs_node_unref(&n->node);
}

void dir_create(struct cfs_req *r, struct cfs_node *node, const char *name, mode_t mode, int flags)
{
	struct cfs_tnode *d = cfs_tnode_of(node);
	struct scratch *s = NULL;
	struct cfs_about a;
	bool hidden;
	int code = 0;

	if (!is_gone(d) && of_table(d, name, cfs_req_who(r), &a, &hidden)) {
		create_entry(r, &a, hidden, flags);
		return;
	}
	s = find_scratch(d, name);
	if (s && (flags & O_EXCL))
		code = -EEXIST;
	else if (!s)
		code = new_scratch(r, d, name, mode, &s);
	if (code < 0)
		cfs_reply_err(r, code);
	else
		scratch_reply_create(r, s, flags);
}

void dir_mknod(struct cfs_req *r, struct cfs_node *node, const char *name, mode_t mode, dev_t rdev)
{
	struct cfs_tnode *d = cfs_tnode_of(node);
	struct scratch *s;
	struct cfs_about a;
	bool hidden = false;
	int code;

	(void)rdev;
	if (is_gone(d))
		code = -ENOENT;
	else if (of_table(d, name, cfs_req_who(r), &a, &hidden))
		code = !hidden ? -EEXIST : a.entry->kind->type == S_IFREG && S_ISREG(mode) ? show_again(&a) : -EPERM;
	else if (find_scratch(d, name))
		code = -EEXIST;
	else if (!S_ISREG(mode))
		code = -EPERM;
	else if ((code = new_scratch(r, d, name, mode, &s)) == 0) {
		scratch_reply_entry(r, s);
		return;
	}
	if (code < 0)
		cfs_reply_err(r, code);
	else
		cfs_dir_reply_child(r, d, &a);
}

/* Only a hidden link of the tables can be made, and only as it was. */
static int remake_link(struct cfs_req *r, struct cfs_tnode *d, const char *name, const char *target,
		       struct cfs_tnode **ret)
{
	struct cfs_about a;
	bool hidden = false;
	int code;

	if (is_gone(d))
		return -ENOENT;
	if (!of_table(d, name, cfs_req_who(r), &a, &hidden))
		return -EPERM;
	if (!hidden)
		return -EEXIST;
	if (a.entry->kind->type != S_IFLNK)
		return -EPERM;
	code = cfs_enter(&a, ret);
	if (code < 0)
		return code;
	if (strlen(target) != (*ret)->text->len || memcmp(target, (*ret)->text->data, (*ret)->text->len) != 0)
		return -EPERM;
	return show_again(&a);
}

void dir_symlink(struct cfs_req *r, struct cfs_node *node, const char *name, const char *target)
{
	struct cfs_tnode *n = NULL;
	int code = remake_link(r, cfs_tnode_of(node), name, target, &n);

	if (code < 0)
		cfs_reply_err(r, code);
	else
		cfs_tnode_reply_entry(r, n);
	if (n)
		cfs_node_unref(&n->node);
}

/* -- rename ------------------------------------------------------------------------------------------ */

/* Write @data to the control file @to, which is shown again if it was hidden. */
static int write_over(const struct cfs_about *to, const struct cfs_who *who, const char *data, size_t len)
{
	const struct cfs_kind *kind = to->entry->kind;
	struct err e = { 0 };
	int code;

	if (!kind->apply)
		return -EPERM;
	code = cfs_may_use(to, who, CFS_ACCESS_WRITE);
	if (!code)
		code = kind->apply(to, who, data, len, &e);
	return code < 0 ? code : show_again(to);
}

/* A scratch file gets the name @newname of the directory @d. */
static int rename_scratch(struct cfs_req *r, struct cfs_tnode *d, struct scratch *s, const char *newname)
{
	struct cfs_about to;
	struct scratch *old;
	const char *data;
	size_t len;
	bool hidden;
	int code;

	if (of_table(d, newname, cfs_req_who(r), &to, &hidden)) {
		scratch_text(s, &data, &len);
		code = write_over(&to, cfs_req_who(r), data, len);
		if (!code)
			scratch_unlink(s);
		return code;
	}
	old = find_scratch(d, newname);
	if (old == s)
		return 0;
	if (old)
		scratch_unlink(old);
	scratch_rename(s, d->ino, newname);
	return 0;
}

/* A control file is moved aside: a scratch file with its text takes the new name, the control file is hidden. */
static int rename_control(struct cfs_req *r, struct cfs_tnode *d, const struct cfs_about *from, const char *newname)
{
	struct cfs_tnode *n;
	struct cfs_about to;
	struct scratch *s;
	bool hidden;
	int code;

	if (!from->entry->kind->apply || !table_of(d)->scratch || of_table(d, newname, cfs_req_who(r), &to, &hidden))
		return -EPERM;
	/* Its text is then to be had by another name. */
	code = cfs_may_use(from, cfs_req_who(r), CFS_ACCESS_READ);
	if (code < 0)
		return code;
	code = cfs_enter(from, &n);
	if (code < 0)
		return code;
	s = find_scratch(d, newname);
	if (s)
		scratch_unlink(s);
	code = scratch_new(cfs_req_session(r), d->about.view, d->about.place, d->ino, newname, from->entry->mode,
			   &from->owner, &s);
	if (!code) {
		code = n->text ? scratch_fill(s, n->text->data, n->text->len) : 0;
		if (!code)
			code = place_hide(from->place, cfs_about_ino(from), true);
		if (code < 0)
			scratch_unlink(s);
	}
	cfs_node_unref(&n->node);
	return code;
}

static int rename_inside(struct cfs_req *r, struct cfs_tnode *d, const char *name, const char *newname, unsigned flags)
{
	const struct cfs_table *t = table_of(d);
	struct scratch *s = find_scratch(d, name);
	struct cfs_about from, to;
	struct err e = { 0 };
	int code;

	if ((flags & RENAME_NOREPLACE) && (find_scratch(d, newname) || find(r, d, newname, &to) == 0))
		return -EEXIST;
	if (s)
		return rename_scratch(r, d, s, newname);
	code = find(r, d, name, &from);
	if (code < 0)
		return code;
	if (!from.entry->name) {
		code = t->rename ? cfs_may(&from, cfs_req_who(r), t->move) : -EPERM;
		return code < 0 ? code : t->rename(&from, newname, cfs_req_who(r), &e);
	}
	return t->user_may_hide && strcmp(name, newname) != 0 ? rename_control(r, d, &from, newname) : -EPERM;
}

void dir_rename(struct cfs_req *r, struct cfs_node *node, const char *name, struct cfs_node *newnode,
		const char *newname, unsigned flags)
{
	struct cfs_tnode *d = cfs_tnode_of(node), *nd = cfs_tnode_of(newnode);
	struct cfs_about a;
	int code;

	if (is_gone(d) || is_gone(nd)) {
		code = -ENOENT;
	} else if (flags & ~(unsigned)RENAME_NOREPLACE) {
		code = -EINVAL;
	} else if (d == nd) {
		code = rename_inside(r, d, name, newname, flags);
	} else {
		/* mv then copies a file, which is what the other directory needs: a write. It must not try that with a
		 * sandbox. */
		code = find(r, d, name, &a) == 0 && a.entry->kind->type == S_IFDIR ? -EPERM : -EXDEV;
	}
	cfs_reply_err(r, code);
}
