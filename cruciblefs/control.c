/* SPDX-License-Identifier: Apache-2.0 */
/* Small files that act inside write(2), because shells ignore what close says.
 *
 * The offset of a write means nothing, O_TRUNC and O_APPEND are tolerated, blanks around a line are dropped, a write of
 * blanks alone does nothing, several lines act in order up to the first error, which is what write returns. With
 * CFS_DOCUMENT all lines of a write are one text, and act at once or not at all.
 *
 * Lists (CFS_LIST) are set as a whole: an open file gathers its lines; the first write replaces what was there (with
 * O_APPEND it begins from it), later ones add. A last line without its newline counts as a line, so that `printf A=1 >
 * env` works; but it may be the half of one that the next write completes, so it is kept apart, and when it cannot be a
 * whole line yet it is not tried before it is completed or the file is closed. Of a list with CFS_EDITED whose first
 * line is signed the lines change what was there, as with O_APPEND. */
#include <stdlib.h>
#include <string.h>
#include "cruciblefs/table.h"

#define LIST_MAX (128u * 1024) /* bytes of a list */
#define TAIL_MAX (64u * 1024)  /* of one line of it */

struct control {
	struct cfs_handle h;
	bool began;	 /* a list: a write was taken */
	struct buf list; /* a list: whole lines, each with its newline */
	struct buf tail; /* a list: the last line as far as it has come */
};

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\v' || c == '\f';
}

/* Drop the blanks around. */
static void trim(const char **p, size_t *len)
{
	while (*len && is_blank(**p)) {
		++*p;
		--*len;
	}
	while (*len && is_blank((*p)[*len - 1]))
		--*len;
}

/* With a NUL behind. */
static char *memdup0(const char *p, size_t len)
{
	char *copy = malloc(len + 1);

	if (copy) {
		memcpy(copy, p, len);
		copy[len] = '\0';
	}
	return copy;
}

/* -- lines that act ------------------------------------------------------------------------- */

static int store_text(const struct cfs_about *a, const struct cfs_who *who, const char *text, size_t len, struct err *e)
{
	char *copy = memdup0(text, len);
	int r;

	if (!copy)
		return -ENOMEM;
	r = a->entry->store(a, who, copy, len, e);
	free(copy);
	return r;
}

static int act(const struct cfs_about *a, const struct cfs_who *who, const char *data, size_t len, struct err *e)
{
	if (a->entry->flags & CFS_DOCUMENT) {
		const char *p = data;
		size_t n = len;

		/* With the blanks around: what is too long is so with them, and the kernel cuts a long write, whose
		 * first part must not pass for all of it. */
		trim(&p, &n);
		return n ? store_text(a, who, data, len, e) : 0;
	}
	for (const char *p = data, *end = data + len; p < end;) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		const char *line = p;
		size_t n = (size_t)((nl ? nl : end) - p);
		int r;

		p = nl ? nl + 1 : end;
		trim(&line, &n);
		if (!n)
			continue;
		r = store_text(a, who, line, n, e);
		if (r < 0)
			return r;
	}
	return 0;
}

/* -- lists ------------------------------------------------------------------------------------ */

/* Append @line and a newline, without the blanks around; blanks alone: nothing. */
static int list_line(struct buf *list, const char *line, size_t len)
{
	int r;

	trim(&line, &len);
	if (!len)
		return 0;
	r = buf_add(list, line, len);
	return r < 0 ? r : buf_add(list, "\n", 1);
}

static int list_set(const struct cfs_about *a, const struct cfs_who *who, struct buf *list, struct err *e)
{
	const char *text = list->len ? buf_str(list) : "";

	return text ? a->entry->store(a, who, text, list->len, e) : -ENOMEM;
}

/* The list was refused as a whole: let the lines before the bad one act. @list becomes what has acted. */
static int list_set_front(const struct cfs_about *a, const struct cfs_who *who, struct buf *list, size_t good,
			  struct err *e)
{
	struct buf front;
	int r = 0;

	buf_init(&front, list->max);
	r = good ? buf_add(&front, list->data, good) : 0;
	while (!r && front.len < list->len) {
		const char *p = (const char *)list->data + front.len;
		const char *nl = memchr(p, '\n', list->len - front.len);

		good = front.len;
		r = buf_add(&front, p, (size_t)(nl - p) + 1);
		if (!r)
			r = list_set(a, who, &front, e);
	}
	list->len = r < 0 ? good : front.len;
	buf_fini(&front);
	return r;
}

/* Can a line that has no newline yet be one? What every list's lines have in common: KEY=VALUE needs its '='. */
static bool may_be_whole(const struct cfs_about *a, const struct buf *tail)
{
	return a->entry->arg != ATTR_ENV || memchr(tail->data, '=', tail->len);
}

static int list_try(struct control *c, const struct cfs_about *a, const struct cfs_who *who, size_t good, bool closing,
		    struct err *e)
{
	size_t whole = c->list.len;
	int r = 0;

	if (c->tail.len && (closing || may_be_whole(a, &c->tail)))
		r = list_line(&c->list, (const char *)c->tail.data, c->tail.len);
	else if (c->tail.len && whole == good)
		return 0; /* nothing but the beginning of a line: it waits for its end */
	if (!r)
		r = list_set(a, who, &c->list, e);
	if (r == -EINVAL && !(a->entry->flags & CFS_WHOLE))
		r = list_set_front(a, who, &c->list, good, e);
	if (r < 0) {
		if (a->entry->flags & CFS_WHOLE)
			c->list.len = good;
		buf_reset(&c->tail);
		return r;
	}
	c->list.len = whole; /* the tail stays apart */
	return 0;
}

static bool is_change(const struct cfs_about *a, const char *data, size_t len)
{
	trim(&data, &len);
	return (a->entry->flags & CFS_EDITED) == CFS_EDITED && len && (*data == '+' || *data == '-');
}

static int list_begin(struct control *c, const struct cfs_about *a, const struct cfs_who *who, const char *data,
		      size_t len)
{
	int r = cfs_charge(cfs_tree_session(a->tree), who->uid, LIST_MAX + TAIL_MAX);

	if (r < 0)
		return r;
	c->began = true;
	buf_init(&c->list, LIST_MAX);
	buf_init(&c->tail, TAIL_MAX);
	return c->h.flags & O_APPEND || is_change(a, data, len) ? a->entry->show(a, &c->list) : 0;
}

static void list_end(struct control *c, const struct cfs_about *a, const struct cfs_who *who)
{
	if (!c->began)
		return;
	buf_fini(&c->list);
	buf_fini(&c->tail);
	cfs_uncharge(cfs_tree_session(a->tree), who->uid, LIST_MAX + TAIL_MAX);
}

static int list_write(struct control *c, const struct cfs_about *a, const struct cfs_who *who, const char *data,
		      size_t len, struct err *e)
{
	size_t good;
	int r = c->began ? 0 : list_begin(c, a, who, data, len);

	if (r < 0) {
		err_set(e, r, "%s: too much of the tree is in use by this user; close some", a->entry->name);
		return cfs_fail(a, who, e);
	}
	good = c->list.len;
	while (!r && len) {
		const char *nl = memchr(data, '\n', len);
		size_t n = nl ? (size_t)(nl - data) : len;

		r = buf_add(&c->tail, data, n);
		if (!r && nl) {
			r = list_line(&c->list, (const char *)c->tail.data, c->tail.len);
			buf_reset(&c->tail);
			n++;
		}
		data += n;
		len -= n;
	}
	if (r < 0) {
		c->list.len = good;
		buf_reset(&c->tail);
		err_set(e, r, "%s: more than %u bytes", a->entry->name, LIST_MAX);
		return cfs_fail(a, who, e);
	}
	return list_try(c, a, who, good, false, e);
}

/* -- the kind ----------------------------------------------------------------------------------- */

static int check(const struct cfs_about *a, const char *data, size_t len, struct err *e)
{
	/* Of a document the words are the object's: they go into its own `error`. */
	if (a->entry->flags & CFS_DOCUMENT)
		return 0;
	if (len > CFS_CONTROL_MAX)
		return err_set(e, -EFBIG, "%s: a write of %zu bytes; at most %u", a->entry->name, len, CFS_CONTROL_MAX);
	if (memchr(data, '\0', len))
		return err_set(e, -EINVAL, "%s: a NUL byte", a->entry->name);
	return 0;
}

static void control_write(struct cfs_req *r, struct cfs_node *node, struct cfs_handle *h, const void *data, size_t size,
			  uint64_t off)
{
	const struct cfs_about *a = &cfs_tnode_of(node)->about;
	struct control *c = cfs_container(h, struct control, h);
	const struct cfs_who *who = cfs_req_who(r);
	struct err e = { 0 };
	const char *p = data;
	size_t n = size;
	int code;

	(void)off;
	if (a->sbx && sandbox_gone(a->sbx)) {
		cfs_reply_err(r, -ESTALE);
		return;
	}
	code = check(a, data, size, &e);
	trim(&p, &n);
	if (code < 0)
		cfs_fail(a, who, &e);
	else if (a->entry->flags & CFS_LIST)
		code = n || c->tail.len ? list_write(c, a, who, data, size, &e) : 0;
	else
		code = act(a, who, data, size, &e);
	if (code < 0)
		cfs_reply_err(r, code);
	else
		cfs_reply_write(r, size);
}

static int control_open(struct cfs_req *r, struct cfs_tnode *n, int flags, struct cfs_handle **ret,
			unsigned *ret_open_flags)
{
	struct control *c = calloc(1, sizeof(*c));
	int code;

	if (!c)
		return -ENOMEM;
	code = cfs_tnode_handle(r, &c->h, n, flags);
	if (code < 0) {
		free(c);
		return code;
	}
	*ret = &c->h;
	*ret_open_flags = cfs_wants_write(flags) ? CFS_OPEN_DIRECT : CFS_OPEN_KEEP;
	return 0;
}

static void control_read(struct cfs_req *r, struct cfs_node *node, struct cfs_handle *h, size_t size, uint64_t off)
{
	(void)h;
	cfs_reply_text(r, cfs_tnode_of(node)->text, size, off);
}

static void control_release(struct cfs_handle *h)
{
	struct control *c = cfs_container(h, struct control, h);
	const struct cfs_about *a = &cfs_tnode_of(h->node)->about;
	struct err e = { 0 };

	/* A line that never got its newline and was not tried: now it must be one. What is wrong with it, `error` says.
	 */
	if (c->tail.len && !may_be_whole(a, &c->tail) && !(a->sbx && sandbox_gone(a->sbx)) &&
	    cfs_may_use(a, &h->who, CFS_ACCESS_WRITE) == 0)
		list_try(c, a, &h->who, c->list.len, true, &e);
	list_end(c, a, &h->who);
	free(c);
}

static int control_apply(const struct cfs_about *a, const struct cfs_who *who, const char *data, size_t len,
			 struct err *e)
{
	struct control c = { 0 };
	int r = check(a, data, len, e);

	if (r < 0)
		return cfs_fail(a, who, e);
	if (!(a->entry->flags & CFS_LIST))
		return act(a, who, data, len, e);
	/* An empty file makes an empty list. */
	r = list_begin(&c, a, who, data, len);
	if (!r)
		r = len ? list_write(&c, a, who, data, len, e) : list_set(a, who, &c.list, e);
	if (!r && c.tail.len && !may_be_whole(a, &c.tail))
		r = list_try(&c, a, who, c.list.len, true, e);
	list_end(&c, a, who);
	return r;
}

static const struct cfs_node_ops control_ops = {
	.may = cfs_tnode_may,
	.free = cfs_tnode_free,
	.getattr = cfs_tnode_getattr,
	.setattr = cfs_tnode_setattr,
	.open = cfs_tnode_open,
	.read = control_read,
	.write = control_write,
	.release = control_release,
};

const struct cfs_kind cfs_kind_control = {
	.name = "control",
	.type = S_IFREG,
	.ops = &control_ops,
	.reuse = REUSE_NEVER,
	.writable = true,
	.open = control_open,
	.apply = control_apply,
};
