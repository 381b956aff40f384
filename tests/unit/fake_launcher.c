/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "tests/unit/fake_launcher.h"

struct launcher {
	struct fake_launcher *f;
};

/* From a table, not the heap: what fails in the daemon by fault injection must not fail here. */
static struct pending {
	bool used;
	struct launcher *l;
	int code;
	const char *words;
	uint8_t payload[64];
	size_t len;
	int fds[MSG_FDS_MAX];
	unsigned nfds;
	bool held;
	launcher_fn *fn;
	void *arg;
} table[64];

struct launcher *fake_launcher_new(struct fake_launcher *f)
{
	struct launcher *l = calloc(1, sizeof(*l));

	if (l)
		l->f = f;
	f->box_fd = f->older_box_fd = -1;
	return l;
}

struct launcher *launcher_free(struct launcher *l)
{
	free(l);
	return NULL;
}

static void answer(void *arg)
{
	struct pending *p = arg;
	struct msg m = { .nfds = p->nfds };
	struct wire_rd r;

	memcpy(m.fds, p->fds, sizeof(p->fds));
	wire_rd_init(&r, p->payload, p->len);
	if (p->fn)
		p->fn(p->arg, p->code, p->words, &r, &m);
	for (unsigned i = 0; i < p->nfds; i++)
		fd_close(&m.fds[i]);
	p->used = false;
}

static void put_u32(struct pending *p, uint32_t v)
{
	launch_slot_encode(v, p->payload + p->len);
	p->len += 4;
}

static void give(struct pending *p, unsigned n)
{
	for (; n; n--)
		p->fds[p->nfds++] = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void net(struct fake_launcher *f, struct pending *p, const void *data)
{
	memcpy(f->net_uuid, (const char *)data + 4, LAUNCH_UUID_LEN);
	f->nets++;
	if (f->refuse_net) {
		p->code = f->refuse_net;
		p->words = "no nftables here";
		return;
	}
	p->payload[p->len++] = 5; /* IPv4 only */
	give(p, 2);
}

void fake_launcher_answer(struct fake_launcher *f)
{
	f->hold_net = f->hold_kill = false;
	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		if (table[i].used && table[i].held && loop_defer(f->loop, answer, &table[i], NULL) < 0)
			abort();
		table[i].held = false;
	}
}

static void spawn(struct fake_launcher *f, struct pending *p, const void *data, size_t len, const int *fds)
{
	static char store[LAUNCH_ARGS_BYTES_MAX];

	if (f->refuse_spawn) {
		p->code = f->refuse_spawn;
		p->words = "refused by the test";
		return;
	}
	if (launch_spawn_decode(data, len, &f->last, store, sizeof(store)) < 0) {
		p->code = -EBADMSG;
		return;
	}
	if (f->last.kind == LAUNCH_BOX) {
		f->spawned_boxes++;
		if (f->on_box)
			f->on_box(f->arg, f->last.uuid, fcntl(fds[1], F_DUPFD_CLOEXEC, 3));
		fd_close(&f->older_box_fd);
		f->older_box_fd = take_fd(&f->box_fd);
		memcpy(f->box_uuid, f->last.uuid, sizeof(f->box_uuid));
		f->box_fd = f->on_box ? -1 : fcntl(fds[1], F_DUPFD_CLOEXEC, 3);
	} else {
		f->spawned_engines++;
	}
	put_u32(p, 4711);
	put_u32(p, 2); /* str unenforced: "io" */
	memcpy(p->payload + p->len, "io", 2);
	p->len += 2;
	give(p, 1); /* in a pidfd's place */
}

static void kill_box(struct fake_launcher *f, const char *raw)
{
	char uuid[LAUNCH_UUID_LEN + 1];

	memcpy(uuid, raw, LAUNCH_UUID_LEN);
	uuid[LAUNCH_UUID_LEN] = '\0';
	if (!strcmp(uuid, LAUNCH_UUID_NETD))
		memcpy(f->killed, uuid, sizeof(uuid));
	if (!strcmp(uuid, f->box_uuid))
		fd_close(&f->box_fd);
	if (f->on_kill)
		f->on_kill(f->arg, uuid);
}

int launcher_call(struct launcher *l, enum launch_type type, const void *data, size_t len, const int *fds, size_t nfds,
		  launcher_fn *fn, void *arg)
{
	struct fake_launcher *f = l->f;
	struct pending *p = table;
	int r;

	(void)nfds;
	while (p < table + ARRAY_LEN(table) && p->used)
		p++;
	if (p == table + ARRAY_LEN(table))
		return -ENOBUFS;
	*p = (struct pending){ .used = true, .l = l, .words = "", .fn = fn, .arg = arg };
	switch (type) {
	case LAUNCH_SLOT_ALLOC:
		put_u32(p, f->slots_taken);
		break;
	case LAUNCH_SLOT_FREE:
		f->slots_freed++;
		break;
	case LAUNCH_SPAWN:
		spawn(f, p, data, len, fds);
		break;
	case LAUNCH_KILL:
		f->kills++;
		kill_box(f, (const char *)data + 4); /* {str uuid} */
		p->held = f->hold_kill;
		break;
	case LAUNCH_NET:
		net(f, p, data);
		p->held = f->hold_net;
		break;
	case LAUNCH_NET_SOCKETS:
		f->net_sockets++;
		if (f->refuse_sockets) {
			p->code = f->refuse_sockets;
			p->words = "no sockets here";
		} else {
			give(p, 16);
		}
		break;
	default:
		break;
	}
	r = p->held ? 0 : loop_defer(f->loop, answer, p, NULL);
	if (r < 0)
		p->used = false;
	else if (type == LAUNCH_SLOT_ALLOC)
		f->slots_taken++;
	return r;
}
