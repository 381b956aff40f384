/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * One descriptor speaks FUSE; the loop says when it is readable; up to BATCH requests are read and dispatched, then the
 * interrupts that came among them are carried out, then nodes that nobody knows any more are freed. The descriptor is
 * O_NONBLOCK: a request that vanishes between epoll and read (its caller was killed) gives EAGAIN, not a stuck daemon.
 *
 * All reading and writing goes through our own functions (fuse_session_custom_io), for /dev/fuse too: so a socket of a
 * test is the same to everything above, and the answer to INIT can be mended. libfuse 3.14.0 negotiates
 * FUSE_PARALLEL_DIROPS and then forgets to tell the kernel, which would make each look-up in a guest's directory wait
 * for the one before it, in D state. */
#include "cruciblefs/session_priv.h"

#include <assert.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fd.h"

#define DIRECT_IO_ALLOW_MMAP_2 (1u << 4) /* FUSE_DIRECT_IO_ALLOW_MMAP of Linux 6.6, as it stands in flags2 */
#define BATCH		       128	 /* requests read before other sources of the loop get their turn */

/* -- the descriptor --------------------------------------------------------------------------- */

static ssize_t io_read(int fd, void *buf, size_t len, void *userdata)
{
	struct cfs_session *cs = userdata;
	ssize_t n;

	if (!cs->socket)
		return read(fd, buf, len);
	n = recv(fd, buf, len, MSG_DONTWAIT);
	if (n == 0) { /* the other end has closed: as the kernel says it */
		errno = ENODEV;
		return -1;
	}
	return n;
}

/* Flags that libfuse 3.14 does not tell: what it forgets, and what it does not know yet (a kernel that does not either
 * ignores it). */
static void mend_init(struct cfs_session *cs, struct iovec *iov, int count)
{
	struct fuse_init_out *out;

	cs->init_answer = false;
	if (count != 2 || iov[1].iov_len < sizeof(*out))
		return;
	out = iov[1].iov_base;
	if (cs->parallel_dirops)
		out->flags |= FUSE_PARALLEL_DIROPS;
	/* A stream can be mapped for reading like any file. */
	out->flags |= FUSE_INIT_EXT;
	out->flags2 |= DIRECT_IO_ALLOW_MMAP_2;
}

static ssize_t io_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct cfs_session *cs = userdata;

	if (cs->init_answer)
		mend_init(cs, iov, count);
	return writev(fd, iov, count);
}

static const struct fuse_custom_io custom_io = { .read = io_read, .writev = io_writev };

/* -- the loop's side --------------------------------------------------------------------------- */

static bool receive(struct cfs_session *cs)
{
	for (int i = 0; i < BATCH; i++) {
		int n = fuse_session_receive_buf(cs->se, &cs->in);

		if (n == -EINTR)
			continue;
		if (n == -EAGAIN)
			return true;
		if (n <= 0)
			return false;
		fuse_session_process_buf(cs->se, &cs->in);
		if (fuse_session_exited(cs->se))
			return false;
	}
	return true;
}

static void on_readable(void *arg, uint32_t events)
{
	struct cfs_session *cs = arg;
	bool lives;

	(void)events;
	cs->in_batch = true;
	lives = receive(cs);
	cs->in_batch = false;
	if (cs->interrupts)
		req_run_interrupts(cs);
	node_reap(cs);
	if (lives)
		return;
	loop_del(cs->loop, &cs->io_id);
	cs->ended = true;
	cfs_session_stop(cs);
	if (cs->on_end)
		cs->on_end(cs->on_end_arg); /* may free cs */
}

/* -- life --------------------------------------------------------------------------------------- */

int cfs_session_new(const struct cfs_session_opts *o, struct cfs_session **ret, struct err *e)
{
	char *argv[] = { (char *)"cruciblefs", NULL };
	struct fuse_args args = FUSE_ARGS_INIT(1, argv);
	struct cfs_session *cs = calloc(1, sizeof(*cs));
	int r;

	if (!cs)
		return err_set(e, -ENOMEM, "fuse session: no memory");
	cs->loop = o->loop;
	cs->registry = o->registry;
	cs->fd = o->fd;
	cs->socket = o->socket;
	cs->limits = o->limits;
	cs->on_end = o->ended;
	cs->on_end_arg = o->arg;
	cs->se = fuse_session_new(&args, &cfs_lowlevel_ops, sizeof(cfs_lowlevel_ops), cs);
	fuse_opt_free_args(&args);
	if (!cs->se) {
		r = err_set(e, -EIO, "fuse session: libfuse refuses");
		goto fail;
	}
	r = o->socket ? 0 : fd_set_nonblock(o->fd, true);
	if (r < 0) {
		err_set(e, r, "fuse session: descriptor %d", o->fd);
		goto fail;
	}
	r = loop_add(cs->loop, o->fd, EPOLLIN, on_readable, cs, &cs->io_id);
	if (r < 0) {
		err_set(e, r, "fuse session: watching descriptor %d", o->fd);
		goto fail;
	}
	/* Last: from here on the descriptor is closed by fuse_session_destroy(). */
	r = fuse_session_custom_io(cs->se, &custom_io, o->fd);
	if (r < 0) {
		err_set(e, r, "fuse session: libfuse refuses descriptor %d", o->fd);
		goto fail;
	}
	*ret = cs;
	return 0;
fail:
	loop_del(cs->loop, &cs->io_id);
	if (cs->se)
		fuse_session_destroy(cs->se);
	free(cs);
	return r;
}

void cfs_session_set_root(struct cfs_session *cs, struct cfs_node *root, const struct cfs_node_ops *ops,
			  void (*closing)(struct cfs_node *root))
{
	assert(!cs->root);
	*root = (struct cfs_node){ .ops = ops, .session = cs, .id = FUSE_ROOT_ID, .refs = 1 };
	cs->root = root;
	cs->root_closing = closing;
}

void cfs_session_stop(struct cfs_session *cs)
{
	cs->stopping = true;
	req_cancel_all(cs, -ENOTCONN);
}

/* Children hold their parents, so counts fall in rounds; a node that is still held after all handles are gone was
 * leaked. */
static void free_nodes(struct cfs_session *cs)
{
	struct cfs_node *n;
	uint32_t at = 0;

	while ((n = idtable_each(&cs->nodes, &at)))
		node_forget(cs, n->id, n->lookups);
	node_reap(cs);
	assert(cs->nodes.count == 0);
	if (cs->root)
		cs->root->ops->free(cs->root);
}

struct cfs_session *cfs_session_free(struct cfs_session *cs)
{
	struct cfs_handle *h;
	uint32_t at = 0;

	if (!cs)
		return NULL;
	cs->freeing = true;
	cfs_session_stop(cs);
	while ((h = idtable_each(&cs->handles, &at)))
		cfs_handle_close(cs, h);
	loop_del(cs->loop, &cs->io_id);
	loop_del(cs->loop, &cs->intr_id);
	if (cs->root_closing)
		cs->root_closing(cs->root);
	loop_del(cs->loop, &cs->reap_id);
	free_nodes(cs);
	fuse_session_destroy(cs->se); /* closes the descriptor */
	idtable_fini(&cs->handles);
	idtable_fini(&cs->nodes);
	free(cs->uids);
	free(cs->in.mem);
	free(cs);
	return NULL;
}

struct loop *cfs_session_loop(struct cfs_session *cs)
{
	return cs->loop;
}

struct registry *cfs_session_registry(struct cfs_session *cs)
{
	return cs->registry;
}

struct cfs_node *cfs_session_root(struct cfs_session *cs)
{
	return cs->root;
}

bool cfs_session_stopping(struct cfs_session *cs)
{
	return cs->stopping;
}

bool cfs_session_freeing(struct cfs_session *cs)
{
	return cs->freeing;
}

size_t cfs_session_parked(struct cfs_session *cs)
{
	return cs->nparked;
}

size_t cfs_session_open(struct cfs_session *cs)
{
	return cs->handles.count;
}
