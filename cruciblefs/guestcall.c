/* SPDX-License-Identifier: Apache-2.0 */
/* A request that waits for the guest: one or more calls, their answers, what ends them early.
 *
 * The order is: park, then send, so that an answer always finds a parked request. Whatever ends the request (an answer,
 * an interrupt, the session's end) first drops the calls that are still outstanding; sandbox_fs() sees to what they may
 * leave behind in the guest (the handle of a late OPEN). So nothing here outlives its request. */
#include "cruciblefs/guestfs_priv.h"

#include <errno.h>

/* After a call that timed out, calls that begin within this time end at once, unless the guest has answered something
 * meanwhile. The kernel makes many waits of one: it asks a second time when a revalidation fails, and lets all who look
 * up the same name wait, uninterruptible, for the first; each of them would begin another 5 s. */
#define SILENCE_NS (200u * 1000000ull)
/* A signal that is merely handled (SIGCHLD of make, SIGURG of Go) interrupts too, and EINTR from stat(2) is what no
 * local disk gives. The guest's answer takes a millisecond, so only who is really kept waiting is let go, still within
 * 100 ms. A guest that has left something unanswered for longer than that gets no grace: those who wait for the same
 * name are let go one after the other. */
#define GRACE_MS 50u

static void forget_call(struct gcall *c)
{
	struct guestfs *fs = c->op->fs;

	c->call = NULL;
	fs->ncalls--;
	fs->nbytes -= c->bytes;
}

void gop_drop_calls(struct gop *op)
{
	for (unsigned i = 0; i < GOP_CALLS_MAX; i++) {
		struct fs_call *call = op->call[i].call;

		if (!call)
			continue;
		forget_call(&op->call[i]);
		fs_call_cancel(call);
	}
}

void gop_fail(struct gop *op, int code)
{
	gop_drop_calls(op);
	cfs_reply_err(op->r, code);
}

static void on_cancel(struct cfs_req *r, void *arg)
{
	struct gop *op = arg;

	(void)r;
	gop_drop_calls(op);
	if (op->interrupted)
		op->interrupted(op);
}

static int send_calls(struct gop *op)
{
	op->renames = op->fs->table.renames;
	return op->send(op);
}

/* Did the guest not find the path because a rename was done between our building it and its looking? On a local disk
 * the rename would not have been seen, for the kernel holds the directory itself and not its path. */
static bool overtaken(const struct gop *op, int code)
{
	return (code == -ENOENT || code == -ENOTDIR || code == -ESTALE) && !op->retried &&
	       op->renames != op->fs->table.renames;
}

static void on_done(void *arg, int code, struct wire_rd *r)
{
	struct gcall *c = arg;
	struct gop *op = c->op;

	forget_call(c);
	op->fs->silent_until_ns = code == -ETIMEDOUT ? now_ns() + SILENCE_NS : 0;
	if (code != -ETIMEDOUT)
		op->fs->unanswered_since_ns = 0;
	code = greply_code(code);
	if (overtaken(op, code)) {
		op->retried = true;
		gop_drop_calls(op);
		code = send_calls(op);
		if (code < 0)
			gop_fail(op, code);
		return;
	}
	op->done(op, (unsigned)(c - op->call), code, r);
}

void *gop_new(struct cfs_req *r, struct guestfs *fs, size_t size, gop_send_fn *send, gop_done_fn *done)
{
	struct gop *op = cfs_req_data(r, size);

	if (!op) {
		cfs_reply_err(r, -ENOMEM);
		return NULL;
	}
	op->r = r;
	op->fs = fs;
	op->send = send;
	op->done = done;
	for (unsigned i = 0; i < GOP_CALLS_MAX; i++)
		op->call[i].op = op;
	return op;
}

void gop_start(struct gop *op)
{
	struct guestfs *fs = op->fs;
	uint64_t now = now_ns();
	int r = now < fs->silent_until_ns ? -ETIMEDOUT : 0;

	if (r == 0)
		r = cfs_park(op->r, NULL, NULL, on_cancel, op);
	if (r == 0 && (!fs->unanswered_since_ns || now - fs->unanswered_since_ns < GRACE_MS * 1000000ull))
		cfs_park_grace(op->r, GRACE_MS);
	if (r == 0)
		r = send_calls(op);
	if (r < 0)
		gop_fail(op, r);
}

struct buf *gop_msg(struct gop *op)
{
	op->fs->msg.len = 0;
	return &op->fs->msg;
}

int gop_call(struct gop *op, unsigned i, uint8_t ag_op)
{
	struct guestfs *fs = op->fs;
	struct gcall *c = &op->call[i];
	int r;

	if (fs->ncalls >= GFS_CALLS_MAX || fs->nbytes + fs->msg.len > GFS_BYTES_MAX)
		return -EBUSY;
	r = sandbox_fs(fs->s, ag_op, fs->msg.data, fs->msg.len, cfs_req_who(op->r), on_done, c, &c->call);
	if (r < 0) {
		c->call = NULL;
		return r;
	}
	if (!fs->unanswered_since_ns)
		fs->unanswered_since_ns = now_ns();
	c->bytes = fs->msg.len;
	fs->ncalls++;
	fs->nbytes += c->bytes;
	return 0;
}

int gmsg_path(struct buf *b, const struct gnode *n, const char *name)
{
	char path[AG_PATH_MAX + 1];
	size_t len;
	int r = gnode_path(n, name, path, &len);

	/* Names in a directory that is gone: as on a local disk. */
	if (r == -ESTALE && name)
		r = -ENOENT;
	return r < 0 ? r : wire_put_bytes(b, path, len);
}
