/* SPDX-License-Identifier: Apache-2.0 */
/* The rig's engine behind engine.h (for what a generic machine and a snapshot need), and its preload library. */
#include "test_box_rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/wire.h"
#include "vmm/preload/preload.h"

/* -- the engine -------------------------------------------------------------------------------- */

enum fake_state { INCOMING, RUNNING, PAUSED };

struct engine {
	struct rig *rig;
	struct loop *loop;
	struct engine_events ev;
	void *arg;
	enum fake_state state;
	loop_id up, gone, done;
	enum rig_op op; /* under way, if fn */
	engine_done_fn *fn;
	void *fn_arg;
	int fd;	 /* borrowed */
	struct { /* beside them */
		engine_done_fn *fn;
		void *arg;
		uint64_t bytes;
		loop_id done;
	} balloon;
};

static struct rig *rig_of_connect; /* connect() has no argument for it */

void rig_use_fake_engine(struct rig *r)
{
	r->engine_ops = &fake_engine_ops;
	rig_of_connect = r;
}

static void say(struct engine *g, enum engine_event ev)
{
	g->ev.on_event(g->arg, ev, "");
}

static void on_up(void *arg)
{
	struct engine *g = arg;

	g->up = 0;
	say(g, ENGINE_EV_UP);
}

void rig_engine_up(struct rig *r)
{
	on_up(r->engine);
}

void rig_engine_says(struct rig *r, enum engine_event ev, const char *detail)
{
	if (ev == ENGINE_EV_PAUSED)
		r->engine->state = PAUSED;
	r->engine->ev.on_event(r->engine->arg, ev, detail);
}

static int fake_connect(struct loop *l, int fd, bool generic, const struct engine_events *ev, void *arg,
			struct engine **ret, struct err *e)
{
	struct engine *g = calloc(1, sizeof(*g));

	(void)e;
	close(fd);
	*g = (struct engine){ .rig = rig_of_connect, .loop = l, .ev = *ev, .arg = arg };
	g->state = generic ? INCOMING : RUNNING;
	assert_int_equal(generic, g->rig->generic);
	g->rig->engine = g;
	if (!g->rig->engine_late)
		assert_int_equal(loop_defer(l, on_up, g, &g->up), 0);
	*ret = g;
	return 0;
}

static void effect(struct engine *g)
{
	char text[64] = "";

	switch (g->op) {
	case OP_PAUSE:
		g->state = PAUSED;
		say(g, ENGINE_EV_PAUSED);
		break;
	case OP_RESUME:
		g->state = RUNNING;
		say(g, ENGINE_EV_RESUMED);
		break;
	case OP_SAVE:
		assert_true(write(g->fd, "STATE", 5) == 5);
		break;
	case OP_LOAD:
		assert_true(pread(g->fd, text, sizeof(text) - 1, 0) > 0);
		snprintf(g->rig->loaded, sizeof(g->rig->loaded), "%s", text);
		g->state = PAUSED;
		break;
	default:
		break;
	}
}

static void on_op_done(void *arg)
{
	struct engine *g = arg;
	engine_done_fn *fn = g->fn;
	int code = g->rig->op_fail[g->op];
	struct err e = { 0 };

	g->done = 0;
	if (code == 0)
		effect(g);
	else
		err_set(&e, code, "the fake engine would not");
	g->fn = NULL;
	if (fn)
		fn(g->fn_arg, code, &e);
}

bool rig_engine_runs(const struct rig *r)
{
	return r->engine->state == RUNNING;
}

void rig_engine_answers(struct rig *r)
{
	assert_non_null(r->engine->fn);
	on_op_done(r->engine);
}

static int begin(struct engine *g, enum rig_op op, enum fake_state needed, int fd, engine_done_fn *fn, void *arg)
{
	static const char *const names[] = { "pause ", "resume ", "save ", "assign ", "load " };

	if (g->rig->op_refuse[op])
		return g->rig->op_refuse[op];
	if (g->fn || g->state != needed)
		return -EBUSY;
	g->op = op;
	g->fn = fn;
	g->fn_arg = arg;
	g->fd = fd;
	g->rig->ops[op]++;
	rig_trace(g->rig, names[op]);
	return g->rig->op_hang[op] ? 0 : loop_defer(g->loop, on_op_done, g, &g->done);
}

static int fake_pause(struct engine *g, uint32_t ms, engine_done_fn *fn, void *arg)
{
	(void)ms;
	return begin(g, OP_PAUSE, RUNNING, -1, fn, arg);
}

static int fake_resume(struct engine *g, uint32_t ms, engine_done_fn *fn, void *arg)
{
	(void)ms;
	return begin(g, OP_RESUME, PAUSED, -1, fn, arg);
}

static int fake_save(struct engine *g, int fd, uint32_t ms, engine_done_fn *fn, void *arg)
{
	(void)ms;
	return begin(g, OP_SAVE, PAUSED, fd, fn, arg);
}

static int fake_assign(struct engine *g, const char *name, uint32_t ms, engine_done_fn *fn, void *arg)
{
	(void)ms;
	snprintf(g->rig->disk, sizeof(g->rig->disk), "%s", name);
	return begin(g, OP_ASSIGN, INCOMING, -1, fn, arg);
}

static int fake_load(struct engine *g, int fd, uint32_t ms, engine_done_fn *fn, void *arg)
{
	(void)ms;
	return begin(g, OP_LOAD, INCOMING, fd, fn, arg);
}

static void on_balloon_done(void *arg)
{
	struct engine *g = arg;
	engine_done_fn *fn = g->balloon.fn;
	int code = g->rig->op_fail[OP_BALLOON];
	struct err e = { 0 };

	g->balloon.done = 0;
	g->balloon.fn = NULL;
	if (code == 0 && g->rig->on_balloon)
		g->rig->on_balloon(g->rig, g->balloon.bytes);
	else if (code < 0)
		err_set(&e, code, "the fake engine would not");
	fn(g->balloon.arg, code, &e);
}

static int fake_balloon(struct engine *g, uint64_t bytes, uint32_t ms, engine_done_fn *fn, void *arg)
{
	char word[32];

	(void)ms;
	if (g->rig->op_refuse[OP_BALLOON])
		return g->rig->op_refuse[OP_BALLOON];
	if (g->balloon.fn || g->state == INCOMING)
		return -EBUSY;
	g->balloon.fn = fn;
	g->balloon.arg = arg;
	g->balloon.bytes = bytes;
	g->rig->ops[OP_BALLOON]++;
	snprintf(word, sizeof(word), "balloon=%u ", (unsigned int)(bytes >> 20));
	rig_trace(g->rig, word);
	return g->rig->op_hang[OP_BALLOON] ? 0 : loop_defer(g->loop, on_balloon_done, g, &g->balloon.done);
}

void rig_balloon_answers(struct rig *r)
{
	assert_non_null(r->engine->balloon.fn);
	on_balloon_done(r->engine);
}

static void on_engine_gone(void *arg)
{
	struct engine *g = arg;

	g->gone = 0;
	rig_engine_dies(g->rig);
	say(g, ENGINE_EV_GONE);
}

static int fake_quit(struct engine *g)
{
	g->rig->quits++;
	return g->gone ? 0 : loop_defer(g->loop, on_engine_gone, g, &g->gone);
}

static struct engine *fake_free(struct engine *g)
{
	if (!g)
		return NULL;
	loop_del(g->loop, &g->up);
	loop_del(g->loop, &g->gone);
	loop_del(g->loop, &g->done);
	loop_del(g->loop, &g->balloon.done);
	g->rig->engine = NULL;
	free(g);
	return NULL;
}

const struct engine_ops fake_engine_ops = {
	.name = "fake",
	.connect = fake_connect,
	.pause = fake_pause,
	.resume = fake_resume,
	.save = fake_save,
	.assign_disk = fake_assign,
	.load = fake_load,
	.balloon = fake_balloon,
	.quit = fake_quit,
	.free = fake_free,
};

/* -- the preload library ----------------------------------------------------------------------- */

static bool same_file(int a, int b)
{
	struct stat x, y;

	return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

bool heard_fd_is(const struct heard *h, size_t nth, int fd)
{
	return nth < h->nfds && same_file(h->fds[nth], fd);
}

void rig_mem_answers(struct rig *r)
{
	struct preload_answer a = { .magic = PRELOAD_MAGIC, .code = r->mem_code, .base = r->mem_base };
	int fds[] = { r->mem_fds[0], r->mem_fds[1], r->mem_fds[2] };
	bool uffd = r->mem_had_template && !r->mem_no_uffd;
	size_t nfds = r->mem_code < 0 ? 0 : uffd ? 3 : 2;
	union {
		char space[CMSG_SPACE(sizeof(fds))];
		struct cmsghdr align;
	} c = { 0 };
	struct iovec iov = { &a, sizeof(a) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	a.has_uffd = nfds == 3;
	a.lost = r->mem_lost;
	if (r->mem_code < 0)
		snprintf(a.words, sizeof(a.words), "the fake library would not");
	if (nfds > 0) {
		struct cmsghdr *h;

		m.msg_control = &c;
		m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(h), fds, nfds * sizeof(int));
	}
	assert_true(sendmsg(r->mem, &m, MSG_NOSIGNAL) == sizeof(a));
}

void rig_on_memory(void *arg, uint32_t events)
{
	struct rig *r = arg;
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} c = { 0 };
	struct iovec iov = { &r->mem_order, sizeof(r->mem_order) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c) };
	struct cmsghdr *h;
	ssize_t n = recvmsg(r->mem, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	(void)events;
	if (n <= 0) {
		loop_del(r->loop, &r->mem_src);
		return;
	}
	assert_int_equal(n, sizeof(r->mem_order));
	assert_int_equal(r->mem_order.magic, PRELOAD_MAGIC);
	h = CMSG_FIRSTHDR(&m);
	r->mem_had_template = h != NULL;
	if (h) {
		int fd;

		memcpy(&fd, CMSG_DATA(h), sizeof(fd));
		assert_true(same_file(fd, r->template_fd));
		close(fd);
	}
	r->mem_orders++;
	rig_trace(r, "memory ");
	if (!r->mem_silent)
		rig_mem_answers(r);
}

/* -- requests ---------------------------------------------------------------------------------- */

static int temp_file(struct rig *r)
{
	int fd = openat(r->dirfd, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	return fd;
}

void rig_make_files(struct rig *r)
{
	r->template_fd = temp_file(r);
	r->state_fd = temp_file(r);
	for (int i = 0; i < 3; i++)
		r->mem_fds[i] = temp_file(r);
}

void rig_close_files(struct rig *r)
{
	fd_close(&r->template_fd);
	fd_close(&r->state_fd);
	for (int i = 0; i < 3; i++)
		fd_close(&r->mem_fds[i]);
}

uint32_t rig_request_fd(struct rig *r, enum box_type type, const void *data, size_t len, int fd)
{
	assert_int_equal(
		msgconn_send(r->daemon, (uint16_t)type, ++r->last_id, data, len, fd >= 0 ? &fd : NULL, fd >= 0), 0);
	return r->last_id;
}

uint32_t rig_ask_memory(struct rig *r, bool with_template)
{
	struct buf b;
	uint32_t id;

	buf_init(&b, 256);
	wire_put_u64(&b, with_template ? RIG_MEM_BYTES : 0);
	wire_put_u32(&b, with_template ? 1 : 0);
	if (with_template) {
		wire_put_u64(&b, 65536);
		wire_put_u64(&b, 131072);
	}
	wire_put_str(&b, with_template ? RIG_SNAPSHOT : "");
	id = rig_request_fd(r, BOX_MEMORY, b.data, b.len, with_template ? r->template_fd : -1);
	buf_fini(&b);
	return id;
}

uint32_t rig_ask_freeze(struct rig *r, uint32_t ms)
{
	uint8_t data[4] = { (uint8_t)ms, (uint8_t)(ms >> 8), (uint8_t)(ms >> 16), (uint8_t)(ms >> 24) };

	return rig_request_fd(r, BOX_FREEZE, data, sizeof(data), r->state_fd);
}

uint32_t rig_ask_load(struct rig *r, enum box_hold hold)
{
	struct buf b;
	uint32_t id;

	buf_init(&b, 256);
	wire_put_u8(&b, (uint8_t)hold);
	wire_put_str(&b, "disk-of-a");
	id = rig_request_fd(r, BOX_LOAD, b.data, b.len, r->state_fd);
	buf_fini(&b);
	return id;
}

void rig_trace(struct rig *r, const char *word)
{
	assert_int_equal(buf_adds(&r->trace, word), 0);
}

void rig_traced(struct rig *r, const char *want)
{
	const char *have = buf_str(&r->trace);

	if (strcmp(have ? have : "", want) != 0)
		fail_msg("it went \"%s\", not \"%s\"", have ? have : "", want);
	buf_reset(&r->trace);
}
