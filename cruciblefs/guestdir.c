/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the guest's directories.
 *
 * The guest's cookies stay here: users see positions, 0 for ".", 1 for "..", then 2, 3, 4 … So a directory always ends
 * (positions are bounded, whatever the guest says), and 32-bit programs can seek. An open directory holds the last
 * batch of entries that the agent has sent, and for each batch before it a mark, its first position and cookie, for who
 * seeks back. Going back to 0 forgets all of it and asks anew. An entry with a bad name keeps its position and is not
 * shown. */
#include "cruciblefs/guestfs_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_BYTES (60u * 1024)
#define MARKS_MAX   65536u /* 40 million entries of an honest guest */
#define FETCHES_MAX 64u	   /* batches for one request */
#define FIRST_POS   2u	   /* of the guest's entries */

struct entry {
	uint32_t name; /* offset into names */
	uint32_t type;
	uint64_t ino;
	bool ok;
};

struct mark {
	uint64_t pos, cookie;
};

struct gdir {
	struct gfile f; /* first: gdir_release() */
	struct entry *entries;
	size_t nentries;
	struct buf names;   /* each with a NUL */
	uint64_t first;	    /* position of entries[0]; 0: no batch yet */
	bool end;	    /* nothing behind this batch */
	struct mark *marks; /* ascending; [0] is {FIRST_POS, 0} */
	size_t nmarks, marks_cap;
};

struct dir_op {
	struct gop op;
	struct gdir *d; /* pinned by the request */
	size_t size;
	uint64_t off;  /* the position asked for */
	uint64_t from; /* of the batch that is under way */
	unsigned fetches;
};

/* -- the batch -------------------------------------------------------------------------------- */

static void drop_batch(struct gdir *d)
{
	free(d->entries);
	d->entries = NULL;
	d->nentries = 0;
	buf_reset(&d->names);
	d->first = 0;
	d->end = false;
}

static int add_mark(struct gdir *d, uint64_t pos, uint64_t cookie)
{
	if (d->nmarks && d->marks[d->nmarks - 1].pos >= pos)
		return 0; /* known */
	if (d->nmarks == d->marks_cap) {
		size_t cap = d->marks_cap ? d->marks_cap * 2 : 4;
		struct mark *bigger;

		if (d->nmarks >= MARKS_MAX)
			return -EOVERFLOW;
		bigger = realloc(d->marks, cap * sizeof(*bigger));
		if (!bigger)
			return -ENOMEM;
		d->marks = bigger;
		d->marks_cap = cap;
	}
	d->marks[d->nmarks++] = (struct mark){ pos, cookie };
	return 0;
}

/* The last mark at or before @pos. */
static const struct mark *find_mark(const struct gdir *d, uint64_t pos)
{
	size_t lo = 0, hi = d->nmarks;

	while (hi - lo > 1) {
		size_t mid = lo + (hi - lo) / 2;

		if (d->marks[mid].pos <= pos)
			lo = mid;
		else
			hi = mid;
	}
	return &d->marks[lo];
}

/* Copy the answer's entries; @d holds no batch. */
static int fill_batch(struct gdir *d, struct wire_rd *r, uint64_t *ret_cookie)
{
	size_t cap = 0;
	struct gdirent e;
	int more;

	while ((more = greply_dir_next(r, &e)) > 0) {
		struct entry *en;
		int code;

		if (d->nentries == cap) {
			cap = cap ? cap * 2 : 64;
			en = realloc(d->entries, cap * sizeof(*en));
			if (!en)
				return -ENOMEM;
			d->entries = en;
		}
		en = &d->entries[d->nentries++];
		*en = (struct entry){
			.name = (uint32_t)d->names.len, .type = e.attr.type, .ino = e.attr.ino, .ok = e.ok
		};
		code = e.ok ? buf_add(&d->names, e.name, e.name_len) : 0;
		if (code == 0)
			code = buf_add(&d->names, "", 1);
		if (code < 0)
			return code;
		*ret_cookie = e.cookie;
	}
	return more;
}

static int take_batch(struct gdir *d, uint64_t first, struct wire_rd *r)
{
	uint64_t cookie = 0;
	bool end;
	int code;

	drop_batch(d);
	code = greply_dir_begin(r, &end);
	if (code == 0)
		code = fill_batch(d, r, &cookie);
	if (code == 0 && d->nentries == 0 && !end)
		code = -EIO; /* it would never end */
	if (code == 0 && !end)
		code = add_mark(d, first + d->nentries, cookie);
	if (code < 0) {
		drop_batch(d);
		return code;
	}
	d->first = first;
	d->end = end;
	return 0;
}

/* -- readdir ---------------------------------------------------------------------------------- */

static bool has_position(const struct gdir *d, uint64_t pos)
{
	return d->first && pos >= d->first && pos < d->first + d->nentries;
}

static bool is_end(const struct gdir *d, uint64_t pos)
{
	return d->first && d->end && pos >= d->first + d->nentries;
}

static uint64_t ino_of(const struct gnode *n)
{
	return n->parent ? gstat_ino(n->parent, n->name, n->type, n->ino) : n->fs->salt;
}

/* Add the entry at @pos, which is "." or "..", or in the batch. False: it did not fit. */
static bool add_position(struct cfs_dirbuf *b, const struct gdir *d, uint64_t pos)
{
	const struct gnode *n = d->f.n;
	struct stat st = { .st_mode = S_IFDIR };
	const struct entry *e;
	const char *name;

	if (pos < FIRST_POS) {
		st.st_ino = ino_of(pos == 1 && n->parent ? n->parent : n);
		return cfs_dirbuf_add(b, pos ? ".." : ".", &st, pos + 1, NULL);
	}
	e = &d->entries[pos - d->first];
	if (!e->ok)
		return true;
	name = (const char *)d->names.data + e->name;
	st.st_mode = e->type ? e->type : S_IFREG;
	st.st_ino = gstat_ino(n, name, e->type, e->ino);
	return cfs_dirbuf_add(b, name, &st, pos + 1, NULL);
}

/* Is there something to answer with? Steps over entries that are not shown; false: the guest must be asked for what is
 * at o->off. */
static bool find_here(struct dir_op *o)
{
	const struct gdir *d = o->d;

	while (has_position(d, o->off) && !d->entries[o->off - d->first].ok)
		o->off++;
	return has_position(d, o->off) || is_end(d, o->off) || (d->first && o->off < FIRST_POS);
}

static void answer_here(struct dir_op *o)
{
	struct cfs_dirbuf b;
	uint64_t pos = o->off;

	cfs_dirbuf_init(&b, o->op.r, o->size);
	while ((pos < FIRST_POS || has_position(o->d, pos)) && add_position(&b, o->d, pos))
		pos++;
	cfs_dirbuf_reply(&b);
}

static int send_readdir(struct gop *op)
{
	struct dir_op *o = (struct dir_op *)op;
	const struct mark *m = find_mark(o->d, o->off);
	struct buf *b = gop_msg(op);
	int r = gmsg_path(b, o->d->f.n, NULL);

	o->from = m->pos;
	if (r == -ESTALE)
		r = -ENOENT; /* removed: as on a local disk */
	if (r == 0)
		r = wire_put_u64(b, m->cookie);
	if (r == 0)
		r = wire_put_u32(b, BATCH_BYTES);
	return r < 0 ? r : gop_call(op, 0, AG_FS_READDIR);
}

static void readdir_done(struct gop *op, unsigned i, int code, struct wire_rd *r)
{
	struct dir_op *o = (struct dir_op *)op;

	(void)i;
	if (code == 0)
		code = take_batch(o->d, o->from, r);
	if (code == 0 && find_here(o)) {
		answer_here(o);
		return;
	}
	/* It is behind this batch: all of it was dropped, or the directory has shrunk since a seek. */
	if (code == 0)
		code = ++o->fetches < FETCHES_MAX ? send_readdir(op) : -EIO;
	if (code < 0)
		gop_fail(op, code);
}

void guest_readdir(struct cfs_req *r, struct cfs_node *dir, struct cfs_handle *h, size_t size, uint64_t off)
{
	struct gdir *d = cfs_container(gfile_of(h), struct gdir, f);
	struct dir_op *o;

	if (off == 0) {
		drop_batch(d);
		d->nmarks = 1;
	}
	o = gop_new(r, gnode_of(dir)->fs, sizeof(*o), send_readdir, readdir_done);
	if (!o)
		return;
	o->d = d;
	o->size = size;
	o->off = off;
	if (find_here(o))
		answer_here(o);
	else
		gop_start(&o->op);
}

/* -- open and close --------------------------------------------------------------------------- */

void guest_opendir(struct cfs_req *r, struct cfs_node *dir, int flags)
{
	struct gdir *d = calloc(1, sizeof(*d));
	int code = d ? add_mark(d, FIRST_POS, 0) : -ENOMEM;

	if (code == 0) {
		buf_init(&d->names, AG_PAYLOAD_MAX);
		code = cfs_handle_open(r, &d->f.h, dir, flags);
	}
	if (code < 0) {
		if (d)
			free(d->marks);
		free(d);
		cfs_reply_err(r, code);
		return;
	}
	d->f.kind = GFILE_DIR;
	d->f.n = gnode_of(dir);
	cfs_reply_open(r, &d->f.h, 0);
}

void gdir_release(struct gfile *f)
{
	struct gdir *d = cfs_container(f, struct gdir, f);

	free(d->entries);
	free(d->marks);
	buf_fini(&d->names);
	free(d);
}
