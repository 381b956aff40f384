/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake: a client says which export it wants, and hears nothing of those that are not its. */
#include "snapstore/disk/disk_priv.h"
#include "snapstore/disk/nbd_priv.h"

#include <string.h>

void nbd_conn_drop_input(struct nbd_conn *c, size_t n)
{
	c->in_len -= n;
	memmove(c->in, c->in + n, c->in_len);
}

void nbd_conn_leave_waiting(struct nbd_conn *c)
{
	if (c->state != CONN_READY)
		c->n->nwaiting--;
	loop_del(c->n->loop, &c->timer);
}

static void put_answer(struct nbd_conn *c, uint32_t option, uint32_t answer)
{
	c->out_sent = 0;
	c->out_len = nbd_answer_put(c->out, option, answer, 0);
}

static uint16_t flags_of(const struct nbd_export *x)
{
	return NBD_F_HAS_FLAGS | NBD_F_SEND_FLUSH | NBD_F_SEND_FUA | NBD_F_SEND_TRIM | NBD_F_SEND_WRITE_ZEROES |
	       (x->disk->stack->frozen ? NBD_F_READ_ONLY : 0);
}

/* NULL, too, when it is somebody else's: which there are is nobody's business. */
static struct nbd_export *find(const struct nbd_conn *c, const struct nbd_option_go *go)
{
	struct nbd_export *x = nbd_export_find(c->n, go->name);

	return x && x->uid == c->uid ? x : NULL;
}

static void enter(struct nbd_conn *c, struct nbd_export *x)
{
	nbd_conn_leave_waiting(c);
	c->state = CONN_READY;
	if (x->conn)
		nbd_conn_end(x->conn);
	x->conn = c;
	c->ex = x;
}

static int do_export_name(struct nbd_conn *c, const uint8_t *data, size_t len)
{
	struct nbd_option_go go;
	struct nbd_export *x = nbd_option_name_parse(data, len, &go) == 0 ? find(c, &go) : NULL;

	if (!x)
		return -ENOENT;
	c->out_sent = 0;
	c->out_len = nbd_export_put(c->out, disk_bytes(x->disk), flags_of(x), c->no_zeroes);
	enter(c, x);
	return 0;
}

static void do_go(struct nbd_conn *c, uint32_t option, const uint8_t *data, size_t len)
{
	struct nbd_option_go go;
	struct nbd_export *x;

	if (nbd_option_go_parse(data, len, &go) < 0) {
		put_answer(c, option, NBD_REP_ERR_INVALID);
		return;
	}
	x = find(c, &go);
	if (!x) {
		put_answer(c, option, NBD_REP_ERR_UNKNOWN);
		return;
	}
	c->out_sent = 0;
	c->out_len = nbd_infos_put(c->out, option, disk_bytes(x->disk), flags_of(x));
	c->out_len += nbd_answer_put(c->out + c->out_len, option, NBD_REP_ACK, 0);
	if (option == NBD_OPT_GO)
		enter(c, x);
}

static int do_option(struct nbd_conn *c, const struct nbd_option_head *o, const uint8_t *data)
{
	switch (o->option) {
	case NBD_OPT_EXPORT_NAME:
		return do_export_name(c, data, o->bytes);
	case NBD_OPT_GO:
	case NBD_OPT_INFO:
		do_go(c, o->option, data, o->bytes);
		return 0;
	case NBD_OPT_ABORT:
		put_answer(c, o->option, NBD_REP_ACK);
		c->last = true;
		return 0;
	case NBD_OPT_LIST:
		put_answer(c, o->option, NBD_REP_ERR_POLICY);
		return 0;
	default:
		put_answer(c, o->option, NBD_REP_ERR_UNSUP);
		return 0;
	}
}

int nbd_hello_step_client(struct nbd_conn *c)
{
	int r;

	if (c->in_len < NBD_CLIENT_BYTES)
		return 0;
	r = nbd_client_parse(c->in, &c->no_zeroes);
	if (r < 0)
		return r;
	nbd_conn_drop_input(c, NBD_CLIENT_BYTES);
	c->state = CONN_OPTIONS;
	return 1;
}

int nbd_hello_step_option(struct nbd_conn *c)
{
	struct nbd_option_head o;
	int r;

	if (c->skip > 0) {
		size_t n = c->skip < c->in_len ? (size_t)c->skip : c->in_len;

		nbd_conn_drop_input(c, n);
		c->skip -= n;
		return n > 0;
	}
	if (c->in_len < NBD_OPTION_BYTES)
		return 0;
	r = nbd_option_head_parse(c->in, &o);
	if (r < 0)
		return r;
	if (o.bytes > NBD_OPTION_MAX) {
		if (o.option == NBD_OPT_EXPORT_NAME)
			return -EBADMSG;
		nbd_conn_drop_input(c, NBD_OPTION_BYTES);
		c->skip = o.bytes;
		put_answer(c, o.option, NBD_REP_ERR_TOO_BIG);
		return 1;
	}
	if (c->in_len < NBD_OPTION_BYTES + o.bytes)
		return 0;
	r = do_option(c, &o, c->in + NBD_OPTION_BYTES);
	if (r < 0)
		return r;
	nbd_conn_drop_input(c, NBD_OPTION_BYTES + o.bytes);
	return 1;
}
