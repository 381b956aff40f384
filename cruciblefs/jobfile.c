/* SPDX-License-Identifier: Apache-2.0 */
/* Files whose write makes something that takes a while, and returns when it is there: run/<id>/snapshot and
 * snapshots/<id>/fork. The one write is the whole order. Interrupted, the write returns EINTR and the work goes on;
 * with O_NONBLOCK it returns at once. What went wrong, the object's `error` says. */
#include <stdlib.h>
#include <string.h>
#include "cruciblefs/snapshot.h"
#include "cruciblefs/table.h"

#define ORDER_MAX (32u * 1024) /* bytes: 256 names of 63 characters */

struct waiting_job {
	struct snapshot_job *job;
	size_t size;
};

static void write_again(struct cfs_req *r, void *arg)
{
	struct waiting_job *w = cfs_req_data_get(r);
	int code = snapshot_job_result(w->job, NULL);

	(void)arg;
	if (code == -EAGAIN)
		return;
	snapshot_job_drop(w->job);
	if (code < 0)
		cfs_reply_err(r, code);
	else
		cfs_reply_write(r, w->size);
}

static void write_cancel(struct cfs_req *r, void *arg)
{
	struct waiting_job *w = cfs_req_data_get(r);

	(void)arg;
	snapshot_job_drop(w->job);
}

/* The order without the blanks around, with a NUL behind. NULL: no memory. */
static char *order_of(const char *data, size_t size)
{
	static const char blanks[] = " \t\r\n\v\f";

	while (size && memchr(blanks, *data, sizeof(blanks) - 1)) {
		data++;
		size--;
	}
	while (size && memchr(blanks, data[size - 1], sizeof(blanks) - 1))
		size--;
	return strndup(data, size);
}

static void wait_for(struct cfs_req *r, struct cfs_handle *h, struct snapshot_job *job, size_t size)
{
	struct waiting_job *w;
	int code = snapshot_job_result(job, NULL);

	if (code == -EAGAIN && !(h->flags & O_NONBLOCK)) {
		w = cfs_req_data(r, sizeof(*w));
		if (w) {
			*w = (struct waiting_job){ job, size };
			code = cfs_park(r, snapshot_job_waitq(job), write_again, write_cancel, NULL);
			if (!code)
				return;
		} else {
			code = -ENOMEM;
		}
	}
	snapshot_job_drop(job);
	if (code < 0 && code != -EAGAIN)
		cfs_reply_err(r, code);
	else
		cfs_reply_write(r, size);
}

static void job_write(struct cfs_req *r, struct cfs_node *node, struct cfs_handle *h, const void *data, size_t size,
		      uint64_t off)
{
	const struct cfs_about *a = &cfs_tnode_of(node)->about;
	const struct cfs_who *who = cfs_req_who(r);
	struct snapshot_job *job = NULL;
	struct err e = { 0 };
	char *order = NULL;
	int code = 0;

	(void)off;
	if (a->sbx && sandbox_gone(a->sbx))
		code = -ESTALE;
	else if (size > ORDER_MAX)
		code = err_set(&e, -EFBIG, "%s: a write of %zu bytes; at most %u", a->entry->name, size, ORDER_MAX);
	else if (memchr(data, '\0', size))
		code = err_set(&e, -EINVAL, "%s: a NUL byte", a->entry->name);
	else if (!(order = order_of(data, size)))
		code = -ENOMEM;
	if (code == 0 && order && order[0])
		code = a->entry->begin(a, who, order, &job, &e);
	free(order);
	if (code < 0) {
		cfs_fail(a, who, &e);
		cfs_reply_err(r, code);
	} else if (job) {
		wait_for(r, h, job, size);
	} else {
		cfs_reply_write(r, size);
	}
}

static int job_open(struct cfs_req *r, struct cfs_tnode *n, int flags, struct cfs_handle **ret,
		    unsigned *ret_open_flags)
{
	struct cfs_handle *h = calloc(1, sizeof(*h));
	int code = h ? cfs_tnode_handle(r, h, n, flags) : -ENOMEM;

	if (code < 0) {
		free(h);
		return code;
	}
	*ret = h;
	*ret_open_flags = cfs_wants_write(flags) ? CFS_OPEN_DIRECT : CFS_OPEN_KEEP;
	return 0;
}

static void job_read(struct cfs_req *r, struct cfs_node *node, struct cfs_handle *h, size_t size, uint64_t off)
{
	(void)h;
	cfs_reply_text(r, cfs_tnode_of(node)->text, size, off);
}

static void job_release(struct cfs_handle *h)
{
	free(h);
}

/* A rename over it would have to wait with the directory locked. */
static int job_apply(const struct cfs_about *a, const struct cfs_who *who, const char *data, size_t len, struct err *e)
{
	(void)data;
	(void)len;
	err_set(e, -EBUSY, "%s: cannot be replaced by a rename; write into it", a->entry->name);
	return cfs_fail(a, who, e);
}

static const struct cfs_node_ops job_ops = {
	.may = cfs_tnode_may,
	.free = cfs_tnode_free,
	.getattr = cfs_tnode_getattr,
	.setattr = cfs_tnode_setattr,
	.open = cfs_tnode_open,
	.read = job_read,
	.write = job_write,
	.release = job_release,
};

const struct cfs_kind cfs_kind_job = {
	.name = "job",
	.type = S_IFREG,
	.ops = &job_ops,
	.reuse = REUSE_NEVER,
	.writable = true,
	.open = job_open,
	.apply = job_apply,
};
