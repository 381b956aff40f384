/* SPDX-License-Identifier: Apache-2.0 */
/* cruciblefs/domain/peer.h without processes: a pager and a store that are found at once and answer from the loop. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "cruciblefs/domain/peer.h"
#include "tests/unit/fakes.h"

#define STRINGS_MAX 3u
#define PORTS_EACH  8u

struct peer {
	enum fake_who who;
	struct loop *loop;
	struct peer_ops ops;
	void *arg;
	bool up, quit, came; /* came: it was up once */
	bool fresh;
	loop_id timer;
};

static struct question {
	bool used, sent; /* sent: its answer is on the loop */
	bool canceled;
	struct peer *peer;
	uint32_t id;
	int type;
	char text[STRINGS_MAX][2048];
	size_t nfds;
	char port[PORTS_EACH][64]; /* of NETD_PORTS */
	bool port_new[PORTS_EACH];
	uint32_t nports;
	call_fn *fn;
	void *arg;
	loop_id deferred;
} questions[64];
static struct peer *peers[FAKE_PEERS];
static bool known[FAKE_PEERS]; /* it lives, though no daemon may */
static uint32_t last_id;

/* -- answers ----------------------------------------------------------------------------------------------- */

static int refuse(struct buf *b, int code, const char *words)
{
	b->len = 0; /* its memory is not of the heap */
	wire_put_str(b, words);
	return code;
}

static void give(struct msg *m, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		m->fds[m->nfds++] = fakes_fd();
}

static int pager_answers(struct question *q, struct buf *b, struct msg *m)
{
	const char *a = q->text[0], *second = q->text[1];

	switch (q->type) {
	case PAGER_TEMPLATE:
		if (!fakes_have(FAKE_TEMPLATES, a) && !fakes_have(FAKE_STORED, a))
			return refuse(b, -ENOENT, "no such snapshot");
		fakes_put(FAKE_TEMPLATES, a);
		wire_put_u32(b, 1);
		wire_put_u64(b, 0);
		wire_put_u64(b, 65536);
		give(m, 1);
		return 0;
	case PAGER_CAPTURE_BEGIN:
		if (fakes_have(FAKE_TEMPLATES, a))
			return refuse(b, -EEXIST, "it is there");
		fakes_put(FAKE_TEMPLATES, a);
		give(m, 1);
		return 0;
	case PAGER_CAPTURE:
		if (!fakes_have(FAKE_MACHINES, a) || !fakes_have(FAKE_TEMPLATES, second))
			return refuse(b, -ENOENT, "no such machine or template");
		fakes_put(FAKE_CAPTURED, second);
		wire_put_u64(b, 77);
		wire_put_u64(b, 1000);
		wire_put_u32(b, 0);
		give(m, 1);
		return 0;
	case PAGER_CAPTURED:
		if (!fakes_have(FAKE_CAPTURED, a))
			return refuse(b, -ENOENT, "not captured");
		wire_put_u64(b, 256u << 20);
		wire_put_u32(b, 0);
		give(m, 2);
		return 0;
	case PAGER_WORKSET:
		give(m, 1);
		return write(m->fds[0], "\1\0\0\0\2\0\0\0", 8) == 8 ? 0 : -EIO;
	case PAGER_ADOPT:
		fakes_put(FAKE_TEMPLATES, a);
		return 0;
	case PAGER_STORED:
		fakes_drop(FAKE_CAPTURED, a);
		return 0;
	case PAGER_DISK_EXPORT:
		if (!fakes_have(FAKE_DISKS, second))
			return refuse(b, -ENOENT, "no such disk");
		return 0;
	case PAGER_DISK_STAT:
		if (!fakes_have(FAKE_DISKS, a))
			return refuse(b, -ENOENT, "no such disk");
		wire_put_u64(b, 12345);
		wire_put_u32(b, 3);
		return 0;
	case PAGER_DISK_FILES:
		wire_put_u32(b, 1);
		give(m, 2);
		return 0;
	default:
		return 0;
	}
}

static int store_answers(struct question *q, struct buf *b, struct msg *m)
{
	const char *uuid = q->text[0];

	switch (q->type) {
	case STORE_INGEST: {
		const char *at = strstr(uuid, "\"uuid\":\"");
		char own[LAUNCH_UUID_LEN + 1];

		assert(at);
		snprintf(own, sizeof(own), "%.36s", at + strlen("\"uuid\":\""));
		if (fakes_have(FAKE_STORED, own))
			return refuse(b, -EEXIST, "it is there");
		fakes_put(FAKE_STORED, own);
		wire_put_str(b, "{\"pages_new\":5,\"bytes_stored\":4096,\"shared_with_parent\":7}");
		return 0;
	}
	case STORE_MANIFEST:
		if (!fakes_have(FAKE_STORED, uuid))
			return refuse(b, -ENOENT, "no such snapshot");
		wire_put_str(b, "{}");
		return 0;
	case STORE_STATE:
		if (!fakes_have(FAKE_STORED, uuid))
			return refuse(b, -ENOENT, "no such snapshot");
		give(m, 1);
		return 0;
	case STORE_VERIFY:
		wire_put_str(b, "{\"pages\":5,\"damaged\":0,\"bytes_read\":4096}");
		return 0;
	case STORE_GC:
	case STORE_STAT:
		wire_put_str(b, "{\"packs\":1}");
		return 0;
	default:
		return 0;
	}
}

static bool has_port(const char *text)
{
	for (size_t i = 0; i < fakes.nnet_ports; i++) {
		if (!strcmp(fakes.net_ports[i], text))
			return true;
	}
	return false;
}

static int take_ports(const struct question *q, struct buf *b)
{
	for (size_t i = 0; i < q->nports; i++) {
		if (!q->port_new[i] && !has_port(q->port[i]))
			return refuse(b, -ENOENT, "that port is not there");
	}
	memcpy(fakes.net_ports, q->port, sizeof(fakes.net_ports));
	fakes.nnet_ports = q->nports;
	return 0;
}

static int netd_answers(struct question *q, struct buf *b)
{
	const char *uuid = q->text[0];

	switch (q->type) {
	case NETD_OPEN:
		if (q->nfds)
			return 0;
		if (!fakes_have(FAKE_NETS, uuid))
			return refuse(b, -ENOENT, "no such sandbox");
		wire_put_u8(b, 1);
		wire_put_u32(b, (uint32_t)fakes.nnet_ports);
		for (size_t i = 0; i < fakes.nnet_ports; i++)
			wire_put_str(b, fakes.net_ports[i]);
		return 0;
	case NETD_ALLOW:
	case NETD_PORTS:
		if (!fakes_have(FAKE_NETS, uuid))
			return refuse(b, -ENOENT, "no such sandbox");
		if (q->type == NETD_PORTS)
			return take_ports(q, b);
		snprintf(fakes.net_allow, sizeof(fakes.net_allow), "%.500s", q->text[1]);
		return 0;
	case NETD_LIST:
		wire_put_u32(b, (uint32_t)fakes.nset[FAKE_NETS]);
		for (size_t i = 0; i < fakes.nset[FAKE_NETS]; i++)
			wire_put_str(b, fakes.set[FAKE_NETS][i]);
		return 0;
	case NETD_STAT:
		for (uint64_t i = 1; i <= 7; i++)
			wire_put_u64(b, i * 11);
		wire_put_u32(b, 2);
		return 0;
	default:
		return 0;
	}
}

static void end_question(struct question *q, int code, const char *words, struct buf *b, struct msg *m)
{
	call_fn *fn = q->fn;
	void *arg = q->arg;
	struct wire_rd r;

	loop_del(q->peer->loop, &q->deferred);
	q->used = false;
	wire_rd_init(&r, b ? b->data : NULL, b ? b->len : 0);
	fn(arg, code, words, &r, m);
	msg_close_fds(m);
}

static void answer(void *arg)
{
	struct question *q = arg;
	static uint8_t room[8192];
	struct buf b = { .data = room, .cap = sizeof(room) - 1, .max = sizeof(room) - 1 };
	struct msg m = { 0 };
	int code = q->canceled ? -ECANCELED : fakes.refuse[q->peer->who][q->type];
	char words[64] = "refused by the test";

	q->deferred = 0;
	if (!code) {
		code = q->peer->who == FAKE_PAGER   ? pager_answers(q, &b, &m)
		       : q->peer->who == FAKE_STORE ? store_answers(q, &b, &m)
						    : netd_answers(q, &b);
		if (code < 0) {
			struct wire_rd r;

			wire_rd_init(&r, b.data, b.len);
			wire_str(&r, words, sizeof(words));
			b.len = 0;
		}
	}
	end_question(q, code, code < 0 ? words : "", &b, &m);
}

static void read_for_netd(struct question *q, struct wire_rd *r)
{
	if (q->type == NETD_ALLOW)
		wire_str(r, q->text[1], sizeof(q->text[1]));
	if (q->type == NETD_CONFIG)
		snprintf(fakes.net_config, sizeof(fakes.net_config), "%.250s", q->text[0]);
	if (q->type != NETD_PORTS)
		return;
	q->nports = wire_u32(r);
	assert(q->nports <= PORTS_EACH);
	for (size_t i = 0; i < q->nports; i++) {
		wire_str(r, q->port[i], sizeof(q->port[i]));
		q->port_new[i] = wire_u8(r);
	}
	assert(wire_done(r) == 0);
}

static void read_strings(struct question *q, const void *data, size_t len)
{
	struct wire_rd r;

	wire_rd_init(&r, data, len);
	wire_str(&r, q->text[0], sizeof(q->text[0]));
	if (q->peer->who == FAKE_STORE) {
		if (q->type == STORE_INGEST)
			snprintf(fakes.last_json, sizeof(fakes.last_json), "%s", q->text[0]);
		return;
	}
	if (q->peer->who == FAKE_NETD) {
		read_for_netd(q, &r);
		return;
	}
	if (q->type == PAGER_CONFIG) {
		wire_rd_init(&r, data, len);
		fakes.last_budget = wire_u64(&r);
		return;
	}
	if (q->type == PAGER_CAPTURE_BEGIN || q->type == PAGER_DISK_CREATE || q->type == PAGER_ADOPT)
		wire_u64(&r);
	if (q->type == PAGER_DISK_CREATE)
		wire_u64(&r);
	wire_str(&r, q->text[1], sizeof(q->text[1]));
	wire_str(&r, q->text[2], sizeof(q->text[2]));
	for (size_t i = 0; i < STRINGS_MAX; i++)
		snprintf(fakes.last_text[i], sizeof(fakes.last_text[i]), "%.60s", q->text[i]);
}

/* What it does at once, asked or told. */
static void told(const struct question *q)
{
	const char *id = q->text[0];

	if (q->peer->who == FAKE_STORE) {
		if (q->type == STORE_REMOVE)
			fakes_drop(FAKE_STORED, id);
		return;
	}
	if (q->peer->who == FAKE_NETD) {
		if (q->type == NETD_SOCKETS && !q->nfds)
			fakes.net_no_sockets++;
		if (q->type == NETD_SOCKETS)
			fakes.net_sockets += (unsigned)q->nfds;
		if (q->type != NETD_CLOSE)
			return;
		fakes_drop(FAKE_NETS, id);
		fakes.nnet_ports = 0;
		return;
	}
	switch (q->type) {
	case PAGER_DETACH:
		fakes_drop(FAKE_MACHINES, id);
		break;
	case PAGER_FORGET:
		fakes_drop(FAKE_TEMPLATES, id);
		fakes_drop(FAKE_CAPTURED, id);
		break;
	case PAGER_DISK_REMOVE:
		fakes_drop(FAKE_DISKS, id);
		break;
	case PAGER_DISK_UNEXPORT:
		fakes_drop(FAKE_EXPORTS, id);
		break;
	default:
		break;
	}
}

/* -- its face ---------------------------------------------------------------------------------------------- */

/* It does these in the order in which they come, whenever it answers. */
static void begin(const struct question *q)
{
	if (fakes.refuse[q->peer->who][q->type])
		return;
	told(q);
	if (q->peer->who == FAKE_NETD && q->type == NETD_OPEN && q->nfds)
		fakes_put(FAKE_NETS, q->text[0]);
	if (q->peer->who != FAKE_PAGER)
		return;
	if (q->type == PAGER_ATTACH)
		fakes_put(FAKE_MACHINES, q->text[0]);
	else if (q->type == PAGER_DISK_CREATE)
		fakes_put(FAKE_DISKS, q->text[0]);
	else if (q->type == PAGER_DISK_EXPORT && fakes_have(FAKE_DISKS, q->text[1]))
		fakes_put(FAKE_EXPORTS, q->text[0]);
}

static int send_later(struct question *q)
{
	q->sent = true;
	return loop_defer(q->peer->loop, answer, q, &q->deferred);
}

int peer_call(struct peer *p, uint16_t type, const void *data, size_t len, const int *fds, size_t nfds, call_fn *fn,
	      void *arg, uint32_t *ret_id)
{
	struct question *q = questions;
	void *room;
	int r = 0;

	(void)fds;
	if (!p->up)
		return -ENOTCONN;
	if (nfds > MSG_FDS_MAX)
		return -EMSGSIZE;
	room = malloc(64); /* as the real one asks for memory: it may fail */
	if (!room)
		return -ENOMEM;
	free(room);
	while (q < questions + ARRAY_LEN(questions) && q->used)
		q++;
	if (q == questions + ARRAY_LEN(questions))
		return -ENOBUFS;
	*q = (struct question){
		.used = true, .peer = p, .id = ++last_id, .type = type, .nfds = nfds, .fn = fn, .arg = arg
	};
	read_strings(q, data, len);
	if (!fakes.hold[p->who][type])
		r = send_later(q);
	if (r < 0) {
		q->used = false;
		return r;
	}
	begin(q);
	fakes_note(p->who, type);
	if (ret_id)
		*ret_id = q->id;
	return 0;
}

/* One that was answered, or will be in a moment, cannot be stopped any more. */
static void cancel(struct peer *p, const void *data, size_t len)
{
	struct wire_rd r;
	uint32_t id;

	wire_rd_init(&r, data, len);
	id = wire_u32(&r);
	assert(wire_done(&r) == 0);
	for (size_t i = 0; i < ARRAY_LEN(questions); i++) {
		struct question *q = &questions[i];

		if (!q->used || q->sent || q->peer != p || q->id != id)
			continue;
		q->canceled = true;
		if (send_later(q) < 0)
			abort();
	}
}

int peer_tell(struct peer *p, uint16_t type, const void *data, size_t len, const int *fds, size_t nfds)
{
	static struct question q;

	if (!p->up)
		return -ENOTCONN;
	(void)fds;
	q = (struct question){ .peer = p, .type = type, .nfds = nfds };
	fakes_note(p->who, type);
	if (p->who == FAKE_STORE && type == STORE_CANCEL) {
		cancel(p, data, len);
		return 0;
	}
	read_strings(&q, data, len);
	told(&q);
	return 0;
}

static void come_up(void *arg)
{
	struct peer *p = arg;

	p->timer = 0;
	if (p->up || p->quit || (fakes.away[p->who] && !p->came))
		return;
	p->up = true;
	p->ops.on_up(p->arg, p->fresh);
}

int peer_new(const struct peer_kind *kind, const struct peer_setup *setup, const struct peer_ops *ops, void *arg,
	     struct peer **ret, struct err *e)
{
	struct peer *p = calloc(1, sizeof(*p));

	if (!p)
		return err_set(e, -ENOMEM, "%s: no memory", kind->name);
	*p = (struct peer){ .who = kind->kind == LAUNCH_PAGER  ? FAKE_PAGER
				   : kind->kind == LAUNCH_NETD ? FAKE_NETD
							       : FAKE_STORE,
			    .loop = setup->loop,
			    .ops = *ops,
			    .arg = arg };
	p->fresh = !known[p->who];
	known[p->who] = true;
	if (loop_timer(p->loop, now_ns(), come_up, p, &p->timer) < 0) {
		free(p);
		return err_set(e, -ENOMEM, "%s: no memory", kind->name);
	}
	peers[p->who] = p;
	*ret = p;
	return 0;
}

static void end_all(struct peer *p)
{
	for (size_t i = 0; i < ARRAY_LEN(questions); i++) {
		struct msg m = { 0 };

		if (questions[i].used && questions[i].peer == p)
			end_question(&questions[i], -EPIPE, "it is gone", NULL, &m);
	}
}

struct peer *peer_free(struct peer *p)
{
	if (!p)
		return NULL;
	p->up = false;
	loop_del(p->loop, &p->timer);
	end_all(p);
	if (peers[p->who] == p)
		peers[p->who] = NULL;
	free(p);
	return NULL;
}

bool peer_is_up(const struct peer *p)
{
	return p->up;
}

const char *peer_degraded(const struct peer *p)
{
	return !p->up && fakes.degraded[p->who] ? fakes.degraded[p->who] : "";
}

void peer_quit(struct peer *p, uint16_t type)
{
	fakes_note(p->who, type);
	known[p->who] = false;
	p->quit = true;
	p->up = false;
}

/* -- what the test does ------------------------------------------------------------------------------------ */

void fakes_up(enum fake_who who, bool fresh)
{
	struct peer *p = peers[who];

	assert(p && !p->up);
	fakes.away[who] = false;
	if (fresh && who == FAKE_PAGER)
		fakes.nset[FAKE_TEMPLATES] = fakes.nset[FAKE_CAPTURED] = fakes.nset[FAKE_MACHINES] =
			fakes.nset[FAKE_EXPORTS] = 0;
	if (fresh && who == FAKE_NETD)
		fakes.nset[FAKE_NETS] = fakes.nnet_ports = 0;
	p->fresh = fresh;
	p->came = true;
	come_up(p);
}

void fakes_lose(enum fake_who who)
{
	struct peer *p = peers[who];

	assert(p && p->up);
	fakes.away[who] = true;
	p->up = false;
	end_all(p);
	p->ops.on_lost(p->arg, "it was killed by the test");
}

void fakes_pager_lost(const char *machine, const char *words)
{
	uint8_t room[512];
	struct buf b = { .data = room, .cap = sizeof(room) - 1, .max = sizeof(room) - 1 };
	struct msg m = { .type = PAGER_LOST };

	wire_put_str(&b, machine);
	wire_put_u32(&b, (uint32_t)-EBADMSG);
	wire_put_str(&b, words);
	m.data = b.data;
	m.len = b.len;
	peers[FAKE_PAGER]->ops.on_msg(peers[FAKE_PAGER]->arg, &m);
}

void fakes_store_progress(int type, uint64_t done, uint64_t total)
{
	for (size_t i = 0; i < ARRAY_LEN(questions); i++) {
		uint8_t room[16];
		struct buf b = { .data = room, .cap = sizeof(room), .max = sizeof(room) };
		struct msg m = { .type = STORE_PROGRESS, .id = questions[i].id };

		if (!questions[i].used || questions[i].peer->who != FAKE_STORE || questions[i].type != type)
			continue;
		wire_put_u64(&b, done);
		wire_put_u64(&b, total);
		m.data = b.data;
		m.len = b.len;
		peers[FAKE_STORE]->ops.on_msg(peers[FAKE_STORE]->arg, &m);
	}
}

void fakes_netd_says(int type, const char *uuid, const char *text)
{
	static uint8_t room[4096];
	struct buf b = { .data = room, .cap = sizeof(room) - 1, .max = sizeof(room) - 1 };
	struct msg m = { .type = (uint16_t)type };

	wire_put_str(&b, uuid);
	if (text)
		wire_put_str(&b, text);
	m.data = b.data;
	m.len = b.len;
	peers[FAKE_NETD]->ops.on_msg(peers[FAKE_NETD]->arg, &m);
}

void fake_peers_answer(enum fake_who who, int type)
{
	for (size_t i = 0; i < ARRAY_LEN(questions); i++) {
		struct question *q = &questions[i];

		if (q->used && !q->sent && q->peer->who == who && q->type == type && send_later(q) < 0)
			abort();
	}
}

void fake_peers_reset(void)
{
	memset(known, 0, sizeof(known));
}
