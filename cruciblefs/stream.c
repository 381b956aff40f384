/* SPDX-License-Identifier: Apache-2.0 */
/* Files that grow: output, logs, the console. Each open has a descriptor of its own of the file in the store. The page
 * cache is not used, so that a read sees what is there now; at or past the end it gives 0 bytes. poll(2): readable when
 * there is more than the last read of this open file reached, or when no more will come. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "cruciblefs/table.h"

#define READ_MAX (1024u * 1024)

struct stream {
	struct cfs_handle h;
	int fd;	      /* -1: nothing to read */
	uint64_t pos; /* the end of the last read, not behind the end of the file then */
};

static int stream_open(struct cfs_req *r, struct cfs_tnode *n, int flags, struct cfs_handle **ret,
		       unsigned *ret_open_flags)
{
	const struct cfs_about *a = &n->about;
	AUTO_FD fd = -1;
	struct stream *s;
	int code;

	if (cfs_wants_write(flags))
		return -EPERM;
	if (a->sbx && sandbox_gone(a->sbx))
		return -ENOENT;
	code = a->entry->stream->open(a, cfs_req_who(r), &fd);
	if (code < 0)
		return code;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	code = cfs_tnode_handle(r, &s->h, n, flags);
	if (code < 0) {
		free(s);
		return code;
	}
	s->fd = take_fd(&fd);
	*ret = &s->h;
	*ret_open_flags = CFS_OPEN_DIRECT;
	return 0;
}

static uint64_t held(const struct stream *s)
{
	struct stat st;

	return s->fd >= 0 && fstat(s->fd, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static void stream_read(struct cfs_req *r, struct cfs_node *node, struct cfs_handle *h, size_t size, uint64_t off)
{
	struct stream *s = cfs_container(h, struct stream, h);
	ssize_t got = 0;
	char *buf;

	(void)node;
	if (size > READ_MAX)
		size = READ_MAX;
	buf = malloc(size ? size : 1);
	if (!buf) {
		cfs_reply_err(r, -ENOMEM);
		return;
	}
	if (s->fd >= 0)
		got = pread(s->fd, buf, size, (off_t)off);
	if (got < 0) {
		cfs_reply_err(r, -errno);
	} else {
		/* A read far behind the end is one at the end: what grows next is news to its reader. */
		s->pos = got ? off + (uint64_t)got : off < held(s) ? off : held(s);
		cfs_reply_buf(r, buf, (size_t)got);
	}
	free(buf);
}

static unsigned stream_poll(struct cfs_handle *h)
{
	struct stream *s = cfs_container(h, struct stream, h);
	const struct cfs_about *a = &cfs_tnode_of(h->node)->about;

	if (held(s) > s->pos)
		return POLLIN;
	if (a->sbx && sandbox_gone(a->sbx))
		return POLLIN | POLLHUP;
	return a->entry->stream->ended && a->entry->stream->ended(a) ? POLLIN : 0;
}

static struct waitq *stream_queue(struct cfs_handle *h)
{
	const struct cfs_about *a = &cfs_tnode_of(h->node)->about;

	return a->entry->stream->queue(a);
}

static void stream_release(struct cfs_handle *h)
{
	struct stream *s = cfs_container(h, struct stream, h);

	fd_close(&s->fd);
	free(s);
}

static const struct cfs_node_ops stream_ops = {
	.may = cfs_tnode_may,
	.free = cfs_tnode_free,
	.getattr = cfs_tnode_getattr,
	.setattr = cfs_tnode_setattr,
	.open = cfs_tnode_open,
	.read = stream_read,
	.release = stream_release,
	.poll = stream_poll,
	.poll_queue = stream_queue,
};

const struct cfs_kind cfs_kind_stream = {
	.name = "stream",
	.type = S_IFREG,
	.ops = &stream_ops,
	.reuse = REUSE_ALWAYS,
	.open = stream_open,
};
