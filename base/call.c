/* SPDX-License-Identifier: Apache-2.0 */
#include "base/call.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define ERRNO_MAX 4095

struct call {
	struct call *next;
	uint32_t id;
	call_fn *fn;
	void *arg;
};

void calls_init(struct calls *c, const char *peer)
{
	*c = (struct calls){ .peer = peer };
	c->end = &c->first;
}

static struct call *take(struct calls *c, struct call **at)
{
	struct call *k = *at;

	*at = k->next;
	if (!*at)
		c->end = at;
	c->n--;
	return k;
}

int calls_send(struct calls *c, struct msgconn *conn, uint16_t type, const void *data, size_t len, const int *fds,
	       size_t nfds, call_fn *fn, void *arg, uint32_t *ret_id)
{
	struct call *k;
	int r;

	if (c->n >= CALLS_MAX)
		return -ENOBUFS;
	k = malloc(sizeof(*k));
	if (!k)
		return -ENOMEM;
	if (++c->last_id == 0)
		c->last_id = 1;
	*k = (struct call){ .id = c->last_id, .fn = fn, .arg = arg };
	r = msgconn_send(conn, type, k->id, data, len, fds, nfds);
	if (r < 0) {
		free(k);
		return r;
	}
	/* At the end: replies come in about the order of the calls, so the search is short. */
	*c->end = k;
	c->end = &k->next;
	c->n++;
	if (ret_id)
		*ret_id = k->id;
	return 0;
}

int call_parse(struct wire_rd *r, int *ret_code, char words[CALLS_WORDS_MAX])
{
	int code = (int)wire_u32(r);

	wire_str(r, words, CALLS_WORDS_MAX);
	if (r->bad || code > 0 || code < -ERRNO_MAX)
		return -EBADMSG;
	*ret_code = code;
	return 0;
}

void calls_reply(struct calls *c, struct msg *m)
{
	struct call **at = &c->first, *k;
	char words[CALLS_WORDS_MAX];
	struct wire_rd r;
	int code;

	while (*at && (*at)->id != m->id)
		at = &(*at)->next;
	if (!*at)
		return;
	k = take(c, at);
	wire_rd_init(&r, m->data, m->len);
	if (call_parse(&r, &code, words) < 0) {
		code = -EBADMSG;
		snprintf(words, sizeof(words), "%s: malformed reply", c->peer);
		wire_rd_init(&r, NULL, 0);
	}
	if (k->fn)
		k->fn(k->arg, code, words, &r, m);
	free(k);
}

bool calls_end(struct calls *c, int code, const char *words)
{
	bool *outer = c->dropped, dropped = false;

	/* It is put back below, or calls_drop() has done away with it. */
	/* cppcheck-suppress autoVariables */
	c->dropped = &dropped;
	while (!dropped && c->first) {
		struct call *k = take(c, &c->first);
		struct msg none = { 0 };
		struct wire_rd r;

		wire_rd_init(&r, NULL, 0);
		if (k->fn)
			k->fn(k->arg, code, words, &r, &none);
		free(k);
	}
	if (!dropped)
		c->dropped = outer;
	else if (outer)
		*outer = true;
	return !dropped;
}

void calls_drop(struct calls *c)
{
	while (c->first)
		free(take(c, &c->first));
	if (c->dropped)
		*c->dropped = true;
	c->dropped = NULL;
}
