/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes, each at the other end of the socket that the launcher would have given it. */
#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/fd.h"
#include "tests/unit/fakes.h"

static struct box {
	int fd; /* 0: a free place; they are never 0 */
	char machine[LAUNCH_UUID_LEN + 1];
	bool frozen, started, restores, held, loaded, ready;
	bool memory, template;		    /* MEMORY came; with a template */
	char snapshot[LAUNCH_UUID_LEN + 1]; /* whose */
	bool gone;
} boxes[FAKE_BOXES];

static struct waiting { /* what was held */
	struct box *box;
	uint16_t type;
	uint32_t id;
} waiting[64];
static size_t nwaiting;

static struct box *box_of(const char *machine)
{
	for (size_t i = 0; i < FAKE_BOXES; i++) {
		if (boxes[i].fd && !strcmp(boxes[i].machine, machine))
			return &boxes[i];
	}
	return NULL;
}

static void hang_up(struct box *b)
{
	size_t n = 0;

	for (size_t i = 0; i < nwaiting; i++) {
		if (waiting[i].box != b)
			waiting[n++] = waiting[i];
	}
	nwaiting = n;
	close(b->fd);
	*b = (struct box){ 0 };
}

void fake_box_add(void *arg, const char *machine, int fd)
{
	struct box *b = boxes;

	(void)arg;
	while (b < boxes + FAKE_BOXES && b->fd)
		b++;
	assert(b < boxes + FAKE_BOXES && fd > 0);
	*b = (struct box){ .fd = fd };
	snprintf(b->machine, sizeof(b->machine), "%s", machine);
}

void fake_box_kill(void *arg, const char *machine)
{
	struct box *b = box_of(machine);

	(void)arg;
	if (b)
		hang_up(b);
}

bool fake_box_lives(const char *machine)
{
	return box_of(machine) != NULL;
}

bool fake_box_frozen(const char *machine)
{
	struct box *b = box_of(machine);

	return b && b->frozen;
}

void fake_box_hang_up(const char *machine)
{
	struct box *b = box_of(machine);

	assert(b);
	hang_up(b);
}

size_t fake_box_count(void)
{
	size_t n = 0;

	for (size_t i = 0; i < FAKE_BOXES; i++)
		n += boxes[i].fd != 0;
	return n;
}

void fake_boxes_reset(void)
{
	for (size_t i = 0; i < FAKE_BOXES; i++) {
		if (boxes[i].fd)
			hang_up(&boxes[i]);
	}
}

/* -- what it says ------------------------------------------------------------------------------------------ */

static uint8_t room[16384];

static void begin(struct buf *b)
{
	*b = (struct buf){ .data = room, .cap = sizeof(room) - 1, .max = sizeof(room) - 1 };
}

static void say(struct box *x, uint16_t type, uint32_t id, const struct buf *b, const int *fds, size_t nfds)
{
	/* It may be gone already, and then hears nothing. */
	msg_send(x->fd, type, id, b->data, b->len, fds, nfds);
}

static void state(struct box *x, enum box_state st, const char *words)
{
	struct buf b;

	begin(&b);
	wire_put_u8(&b, (uint8_t)st);
	wire_put_str(&b, words);
	wire_put_str(&b, st == BOX_READY ? "{\"kernel\":\"k\"}" : "");
	say(x, BOX_STATE, 0, &b, NULL, 0);
}

void fake_box_state(const char *machine, enum box_state st, const char *words)
{
	struct box *b = box_of(machine);

	assert(b);
	state(b, st, words);
}

/* The guest is there: booted, or loaded and told who it is now. */
static void maybe_ready(struct box *x)
{
	if (fakes.silent || x->ready || !x->started || (x->restores && !x->loaded))
		return;
	x->ready = true;
	state(x, BOX_READY, "");
}

static void event(struct box *x, const char *json)
{
	struct buf b;

	begin(&b);
	buf_adds(&b, json);
	say(x, BOX_EVENT, 0, &b, NULL, 0);
}

static void run_command(struct box *x, const struct msg *m)
{
	struct wire_rd r;
	struct buf b;
	uint64_t n;

	wire_rd_init(&r, m->data, m->len);
	n = wire_u64(&r);
	begin(&b);
	wire_put_u64(&b, n);
	wire_put_u8(&b, 1);
	wire_put_u64(&b, 0);
	wire_put_u64(&b, 0);
	say(x, BOX_PROGRESS, 0, &b, NULL, 0);
	begin(&b);
	wire_put_u64(&b, n);
	wire_put_u32(&b, 0);
	wire_put_str(&b, "");
	wire_put_str(&b, "");
	wire_put_u64(&b, 1);
	wire_put_u64(&b, 100);
	say(x, BOX_DONE, 0, &b, NULL, 0);
}

/* -- what it is asked ---------------------------------------------------------------------------------------- */

static int memory_answer(struct box *x, bool again, struct buf *b, int fds[4], size_t *nfds)
{
	if (again && !x->memory)
		return -ENOENT;
	wire_put_u64(b, 0x7f0000000000);
	if (again)
		wire_put_u64(b, x->template ? 256u << 20 : 0);
	wire_put_u8(b, x->template && !fakes.no_uffd);
	if (again)
		wire_put_str(b, x->snapshot);
	fds[(*nfds)++] = fakes_fd();
	fds[(*nfds)++] = fakes_fd();
	if (again && x->template)
		fds[(*nfds)++] = fakes_fd();
	if (x->template && !fakes.no_uffd)
		fds[(*nfds)++] = fakes_fd();
	return 0;
}

static void answer(struct box *x, uint16_t type, uint32_t id)
{
	int code = fakes.refuse[FAKE_BOX][type], fds[4];
	size_t nfds = 0;
	struct buf b;

	begin(&b);
	wire_put_u32(&b, (uint32_t)code);
	wire_put_str(&b, code ? "refused by the test" : "");
	if (code == 0 && ((type == BOX_FREEZE && x->frozen) || (type == BOX_THAW && !x->frozen)))
		code = -EBUSY;
	if (code == 0 && (type == BOX_MEMORY || type == BOX_MEMORY_AGAIN))
		code = memory_answer(x, type == BOX_MEMORY_AGAIN, &b, fds, &nfds);
	if (code == 0 && (type == BOX_FREEZE || type == BOX_THAW)) {
		x->frozen = type == BOX_FREEZE;
		wire_put_u64(&b, 5000000);
	}
	if (code < 0) {
		begin(&b);
		wire_put_u32(&b, (uint32_t)code);
		wire_put_str(&b, "refused by the test");
	}
	if (id)
		say(x, BOX_REPLY, id, &b, fds, nfds);
	for (size_t i = 0; i < nfds; i++)
		close(fds[i]);
	if (code == 0 && type == BOX_LOAD) {
		x->loaded = true;
		if (x->held && !x->started)
			event(x, fakes.not_warm ? "{\"event\":\"held\",\"warm\":false}"
						: "{\"event\":\"held\",\"warm\":true}");
		maybe_ready(x);
	}
}

static void take_timeout_max(const struct msg *m)
{
	struct wire_rd r;
	uint8_t flags;

	wire_rd_init(&r, m->data, m->len);
	wire_u64(&r);
	flags = wire_u8(&r);
	wire_u32(&r);
	wire_u64(&r);
	fakes.last_timeout_max = flags & BOX_EXEC_TIMEOUT_MAX ? wire_u32(&r) : 0;
	assert(!wire_done(&r));
}

static void take(struct box *x, struct msg *m)
{
	struct wire_rd r;

	fakes_note(FAKE_BOX, m->type);
	wire_rd_init(&r, m->data, m->len);
	if (m->type == BOX_START) {
		snprintf(fakes.last_json, sizeof(fakes.last_json), "%.*s", (int)m->len, (const char *)m->data);
		x->started = true;
		x->restores = strstr(fakes.last_json, "\"restore\":true") != NULL;
		maybe_ready(x);
	} else if (m->type == BOX_MEMORY) {
		x->memory = true;
		x->template = x->template || m->nfds;
		wire_u64(&r);
		for (uint32_t n = wire_u32(&r); n > 0 && !r.bad; n--)
			wire_raw(&r, 16);
		if (m->nfds)
			wire_str(&r, x->snapshot, sizeof(x->snapshot));
	} else if (m->type == BOX_FREEZE && m->nfds && !fakes.no_state) {
		assert(syscall(SYS_write, m->fds[0], "STATE", 5ul) == 5); /* not write(), which is made to fail */
	} else if (m->type == BOX_LOAD) {
		uint8_t hold = wire_u8(&r);

		assert(hold < BOX_HOLD_COUNT);
		fakes.holds[hold]++;
		x->held = hold != BOX_HOLD_NOT;
	} else if (m->type == BOX_EXEC) {
		take_timeout_max(m);
		if (fakes.runs_commands)
			run_command(x, m);
	} else if (m->type == BOX_VM && wire_u8(&r) == BOX_VM_STOP) {
		state(x, BOX_GONE, "");
	}
	if (fakes.hold[FAKE_BOX][m->type] && m->id) {
		assert(nwaiting < ARRAY_LEN(waiting));
		waiting[nwaiting++] = (struct waiting){ x, m->type, m->id };
	} else {
		answer(x, m->type, m->id);
	}
}

void fake_boxes_serve(void)
{
	static uint8_t in[MSG_MAX];

	for (size_t i = 0; i < FAKE_BOXES; i++) {
		struct box *x = &boxes[i];

		while (x->fd) {
			struct pollfd p = { .fd = x->fd, .events = POLLIN };
			struct msg m = { 0 };

			if (poll(&p, 1, 0) != 1)
				break;
			if (msg_recv(x->fd, in, sizeof(in), &m) < 0) {
				hang_up(x); /* the daemon is gone, or has hung up */
				break;
			}
			take(x, &m);
			msg_close_fds(&m);
		}
	}
}

void fake_boxes_answer(int type)
{
	size_t n = 0;

	for (size_t i = 0; i < nwaiting; i++) {
		if (waiting[i].type == type)
			answer(waiting[i].box, waiting[i].type, waiting[i].id);
		else
			waiting[n++] = waiting[i];
	}
	nwaiting = n;
}
