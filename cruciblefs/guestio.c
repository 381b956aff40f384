/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing open files of the guest, by handle. What the kernel asks for at once (up to 1 MiB) is cut into
 * pieces of AG_FS_IO_MAX that travel together; each is answered on its own, in any order. */
#include "cruciblefs/guestfs_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct io_op {
	struct gop op;
	struct gfile *f; /* pinned by the request */
	uint64_t off;
	size_t size;
	size_t got[GOP_CALLS_MAX]; /* bytes, of each piece that was answered well */
	unsigned pieces, answers;  /* answers: still to come */
	int error;		   /* of write: the first one */
	bool one_by_one;
	unsigned turn;	/* with one_by_one: the piece that is out */
	uint8_t data[]; /* read: what has come; write: what is still to go */
};

static size_t piece_len(const struct io_op *o, unsigned i)
{
	size_t at = (size_t)i * AG_FS_IO_MAX;

	return o->size - at < AG_FS_IO_MAX ? o->size - at : AG_FS_IO_MAX;
}

/* Bytes without a gap from the start: up to the first piece that is short. */
static size_t contiguous(const struct io_op *o)
{
	size_t sum = 0;

	for (unsigned i = 0; i < o->pieces; i++) {
		sum += o->got[i];
		if (o->got[i] < piece_len(o, i))
			break;
	}
	return sum;
}

static struct io_op *io_op(struct cfs_req *r, struct cfs_handle *h, size_t room, size_t size, uint64_t off,
			   gop_send_fn *send, gop_done_fn *done)
{
	struct gfile *f = gfile_of(h);
	int code = gfile_check(f);
	struct io_op *o;

	if (code == 0 && (size > (size_t)GOP_CALLS_MAX * AG_FS_IO_MAX || off > INT64_MAX))
		code = -EINVAL;
	if (code < 0) {
		cfs_reply_err(r, code);
		return NULL;
	}
	o = gop_new(r, f->n->fs, sizeof(*o) + room, send, done);
	if (!o)
		return NULL;
	o->op.retried = true; /* by handle: no rename can overtake it */
	o->f = f;
	o->off = off;
	o->size = size;
	o->pieces = (unsigned)((size + AG_FS_IO_MAX - 1) / AG_FS_IO_MAX);
	return o;
}

/* -- read ------------------------------------------------------------------------------------- */

static int send_reads(struct gop *op)
{
	struct io_op *o = (struct io_op *)op;
	int r = 0;

	o->answers = o->pieces;
	for (unsigned i = 0; i < o->pieces && r == 0; i++) {
		struct buf *b = gop_msg(op);

		r = wire_put_u32(b, o->f->handle);
		if (r == 0)
			r = wire_put_u64(b, o->off + (uint64_t)i * AG_FS_IO_MAX);
		if (r == 0)
			r = wire_put_u32(b, (uint32_t)piece_len(o, i));
		if (r == 0)
			r = gop_call(op, i, AG_FS_READ);
	}
	return r;
}

static void read_done(struct gop *op, unsigned i, int code, struct wire_rd *r)
{
	struct io_op *o = (struct io_op *)op;
	const uint8_t *data;

	if (code == 0)
		code = greply_read(r, piece_len(o, i), &data, &o->got[i]);
	/* Never a short count for an error: the kernel would take it for the end of the file. */
	if (code != 0) {
		gop_fail(op, code);
		return;
	}
	if (o->pieces == 1) {
		cfs_reply_buf(op->r, data, o->got[0]);
		return;
	}
	memcpy(o->data + (size_t)i * AG_FS_IO_MAX, data, o->got[i]);
	if (--o->answers == 0)
		cfs_reply_buf(op->r, o->data, contiguous(o));
}

void guest_read(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h, size_t size, uint64_t off)
{
	struct io_op *o;

	(void)n;
	if (gfile_of(h)->kind == GFILE_EMPTY || size == 0) {
		cfs_reply_buf(r, NULL, 0);
		return;
	}
	o = io_op(r, h, size > AG_FS_IO_MAX ? size : 0, size, off, send_reads, read_done);
	if (o)
		gop_start(&o->op);
}

/* -- write ------------------------------------------------------------------------------------ */

static int send_piece(struct io_op *o, const uint8_t *data, unsigned i)
{
	struct buf *b = gop_msg(&o->op);
	int r = wire_put_u32(b, o->f->handle);

	if (r == 0)
		r = wire_put_u64(b, o->off + (uint64_t)i * AG_FS_IO_MAX);
	if (r == 0)
		r = wire_put_bytes(b, data + (size_t)i * AG_FS_IO_MAX, piece_len(o, i));
	return r < 0 ? r : gop_call(&o->op, i, AG_FS_WRITE);
}

/* Appended bytes must arrive in their order: each piece waits for the one before. */
static int send_writes(struct gop *op)
{
	struct io_op *o = (struct io_op *)op;
	int r = 0;

	if (o->one_by_one)
		return send_piece(o, o->data, o->turn);
	o->answers = o->pieces;
	for (unsigned i = 0; i < o->pieces && r == 0; i++)
		r = send_piece(o, o->data, i);
	return r;
}

/* What was written before an error is told first; the error comes with the next write, as on a local disk. */
static void end_write(struct io_op *o)
{
	size_t n = contiguous(o);

	gop_drop_calls(&o->op);
	if (n > 0 || o->error == 0)
		cfs_reply_write(o->op.r, n);
	else
		cfs_reply_err(o->op.r, o->error);
}

static void write_interrupted(struct gop *op)
{
	struct io_op *o = (struct io_op *)op;
	size_t n = contiguous(o);

	if (n > 0)
		cfs_reply_write(op->r, n);
}

static void write_done(struct gop *op, unsigned i, int code, struct wire_rd *r)
{
	struct io_op *o = (struct io_op *)op;

	if (code == 0)
		code = greply_write(r, piece_len(o, i), &o->got[i]);
	if (code < 0 && o->error == 0)
		o->error = code;
	if (o->one_by_one && o->got[i] == piece_len(o, i) && ++o->turn < o->pieces) {
		o->error = send_writes(op);
		if (o->error == 0)
			return;
	}
	if (o->one_by_one || --o->answers == 0)
		end_write(o);
}

void guest_write(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h, const void *data, size_t size,
		 uint64_t off)
{
	struct io_op *o;

	(void)n;
	if (gfile_of(h)->kind != GFILE_FILE) {
		cfs_reply_err(r, -EPERM);
		return;
	}
	if (size == 0) {
		cfs_reply_write(r, 0);
		return;
	}
	o = io_op(r, h, size, size, off, send_writes, write_done);
	if (!o)
		return;
	memcpy(o->data, data, size);
	o->one_by_one = o->f->append && o->pieces > 1;
	o->op.interrupted = write_interrupted;
	gop_start(&o->op);
}

/* -- fsync, fallocate, lseek ------------------------------------------------------------------- */

struct handle_op {
	struct gop op;
	struct gfile *f;
	uint8_t datasync;
	int whence;
	uint32_t mode;
	uint64_t off, len;
};

static struct handle_op *handle_op(struct cfs_req *r, struct cfs_handle *h, gop_send_fn *send, gop_done_fn *done)
{
	struct gfile *f = gfile_of(h);
	struct handle_op *o = NULL;
	int code = gfile_check(f);

	if (code < 0)
		cfs_reply_err(r, code);
	else
		o = gop_new(r, f->n->fs, sizeof(*o), send, done);
	if (o) {
		o->f = f;
		o->op.retried = true; /* by handle: no rename can overtake it */
	}
	return o;
}

static void empty_done(struct gop *op, unsigned i, int code, struct wire_rd *r)
{
	(void)i;
	if (code == 0)
		code = greply_empty(r);
	cfs_reply_err(op->r, code);
}

static int send_fsync(struct gop *op)
{
	struct handle_op *o = (struct handle_op *)op;
	struct buf *b = gop_msg(op);
	int r = wire_put_u32(b, o->f->handle);

	if (r == 0)
		r = wire_put_u8(b, o->datasync);
	return r < 0 ? r : gop_call(op, 0, AG_FS_FSYNC);
}

void guest_fsync(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h, bool datasync)
{
	struct handle_op *o;

	(void)n;
	if (gfile_of(h)->kind != GFILE_FILE) {
		cfs_reply_err(r, 0);
		return;
	}
	o = handle_op(r, h, send_fsync, empty_done);
	if (!o)
		return;
	o->datasync = datasync;
	gop_start(&o->op);
}

static int send_fallocate(struct gop *op)
{
	struct handle_op *o = (struct handle_op *)op;
	struct buf *b = gop_msg(op);
	int r = wire_put_u32(b, o->f->handle);

	if (r == 0)
		r = wire_put_u32(b, o->mode);
	if (r == 0)
		r = wire_put_u64(b, o->off);
	if (r == 0)
		r = wire_put_u64(b, o->len);
	return r < 0 ? r : gop_call(op, 0, AG_FS_FALLOCATE);
}

void guest_fallocate(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h, int mode, uint64_t off, uint64_t len)
{
	struct handle_op *o;

	(void)n;
	if (gfile_of(h)->kind != GFILE_FILE) {
		cfs_reply_err(r, -EPERM);
		return;
	}
	o = handle_op(r, h, send_fallocate, empty_done);
	if (!o)
		return;
	o->mode = (uint32_t)mode;
	o->off = off;
	o->len = len;
	gop_start(&o->op);
}

static int send_lseek(struct gop *op)
{
	struct handle_op *o = (struct handle_op *)op;
	int r = wire_put_u32(gop_msg(op), o->f->handle);

	return r < 0 ? r : gop_call(op, 0, AG_FS_FGETATTR);
}

/* SEEK_DATA and SEEK_HOLE of a file without holes, which every file may claim to be: data up to the size, a hole behind
 * it. */
static void lseek_done(struct gop *op, unsigned i, int code, struct wire_rd *r)
{
	struct handle_op *o = (struct handle_op *)op;
	struct gattr a;

	(void)i;
	if (code == 0)
		code = greply_attr(r, &a);
	if (code == 0 && o->off >= a.size)
		code = -ENXIO;
	if (code != 0)
		gop_fail(op, code);
	else
		cfs_reply_lseek(op->r, o->whence == SEEK_DATA ? o->off : a.size);
}

void guest_lseek(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h, uint64_t off, int whence)
{
	struct handle_op *o;

	(void)n;
	if (gfile_of(h)->kind != GFILE_FILE || (whence != SEEK_DATA && whence != SEEK_HOLE)) {
		cfs_reply_err(r, whence == SEEK_DATA || whence == SEEK_HOLE ? -ENXIO : -EINVAL);
		return;
	}
	o = handle_op(r, h, send_lseek, lseek_done);
	if (!o)
		return;
	o->off = off;
	o->whence = whence;
	gop_start(&o->op);
}
