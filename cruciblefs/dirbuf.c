/* SPDX-License-Identifier: Apache-2.0 */
/* The answer to readdir and readdirplus. */
#include "cruciblefs/session_priv.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define DIRBUF_MAX (256u * 1024) /* of one answer, whatever the kernel would take */

void cfs_dirbuf_init(struct cfs_dirbuf *b, struct cfs_req *r, size_t size)
{
	*b = (struct cfs_dirbuf){ .r = r, .size = size < DIRBUF_MAX ? size : DIRBUF_MAX, .plus = r->plus };
	b->p = malloc(b->size ? b->size : 1);
}

static bool remember(struct cfs_dirbuf *b, struct cfs_node *n)
{
	if (b->ntold == b->told_cap) {
		size_t cap = b->told_cap ? b->told_cap * 2 : 32;
		struct cfs_node **told = realloc(b->told, cap * sizeof(struct cfs_node *));

		if (!told)
			return false;
		b->told = told;
		b->told_cap = cap;
	}
	b->told[b->ntold++] = n;
	return true;
}

bool cfs_dirbuf_add(struct cfs_dirbuf *b, const char *name, const struct stat *st, uint64_t next_off,
		    struct cfs_node *n)
{
	size_t room = b->size - b->len, len;

	if (!b->p)
		return false;
	if (!b->plus) {
		len = fuse_add_direntry(b->r->fr, b->p + b->len, room, name, st, (off_t)next_off);
	} else {
		/* Node id 0: the kernel takes the entry as a name alone. */
		struct fuse_entry_param e = { .ino = n ? n->id : 0, .generation = n ? 1 : 0, .attr = *st };

		len = fuse_add_direntry_plus(b->r->fr, b->p + b->len, room, name, &e, (off_t)next_off);
	}
	if (len > room)
		return false;
	if (b->plus && n) {
		if (!remember(b, n))
			return false;
		if (node_tell(n, b->r->who.uid) < 0) {
			b->ntold--;
			return false;
		}
	}
	b->len += len;
	return true;
}

static void finish(struct cfs_dirbuf *b, bool arrived)
{
	for (size_t i = 0; !arrived && i < b->ntold; i++)
		node_untold(b->told[i]);
	free(b->told);
	free(b->p);
	*b = (struct cfs_dirbuf){ 0 };
}

void cfs_dirbuf_reply(struct cfs_dirbuf *b)
{
	if (!b->p)
		cfs_dirbuf_drop(b, -ENOMEM);
	else
		finish(b, req_answer_buf(b->r, b->p, b->len) == 0);
}

void cfs_dirbuf_drop(struct cfs_dirbuf *b, int code)
{
	struct cfs_req *r = b->r;

	finish(b, false);
	cfs_reply_err(r, code);
}
