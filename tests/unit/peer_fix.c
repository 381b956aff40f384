/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/peer_fix.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/fd.h"

#define SHIFT_NS 120000000000ull /* longer than any delay */

/* -- the clock ------------------------------------------------------------------------------------ */

static bool no_delays;

uint64_t __real_now_ns(void);
uint64_t __wrap_now_ns(void);

uint64_t __wrap_now_ns(void)
{
	/* The loop's own is not this one: what is due in a minute of ours is due at once for it. */
	return __real_now_ns() - (no_delays ? SHIFT_NS : 0);
}

void peer_no_delays(bool on)
{
	no_delays = on;
}

uint64_t peer_real_ns(void)
{
	return __real_now_ns();
}

/* -- the launcher --------------------------------------------------------------------------------- */

struct launcher {
	struct peer_world *w;
};

static struct answer {
	launcher_fn *fn;
	void *arg;
	int code;
} answers[8];
static size_t nanswers;
static struct launcher the_launcher;

static void answer_now(void *arg)
{
	struct msg m = { 0 };
	struct wire_rd r;
	struct answer a = answers[0];

	(void)arg;
	nanswers--;
	memmove(answers, answers + 1, nanswers * sizeof(answers[0]));
	wire_rd_init(&r, NULL, 0);
	a.fn(a.arg, a.code, a.code ? "refused by the test" : "", &r, &m);
}

static void on_spawn(struct peer_world *w, const void *data, size_t len, const int *fds, size_t nfds)
{
	static char store[LAUNCH_ARGS_BYTES_MAX];

	w->spawns++;
	assert_int_equal(launch_spawn_decode(data, len, &w->last, store, sizeof(store)), 0);
	w->last_args[0] = '\0';
	for (size_t i = 0; i < w->last.argc; i++) {
		strcat(w->last_args, w->last.argv[i]);
		strcat(w->last_args, " ");
	}
	if (w->refuse_spawn)
		return;
	assert_true(nfds >= 2 && nfds <= 1 + PEER_LISTEN_MAX);
	for (size_t i = 0; i < PEER_LISTEN_MAX; i++) {
		fd_close(&w->listeners[i]);
		if (1 + i < nfds)
			w->listeners[i] = fcntl(fds[1 + i], F_DUPFD_CLOEXEC, 3);
	}
}

int launcher_call(struct launcher *l, enum launch_type type, const void *data, size_t len, const int *fds, size_t nfds,
		  launcher_fn *fn, void *arg)
{
	struct peer_world *w = l->w;
	struct answer a = { fn, arg, 0 };

	if (type == LAUNCH_KILL) {
		w->kills++;
		assert_int_equal(len, LAUNCH_UUID_BYTES);
		memcpy(w->killed, (const char *)data + 4, LAUNCH_UUID_LEN);
	} else {
		assert_int_equal(type, LAUNCH_SPAWN);
		on_spawn(w, data, len, fds, nfds);
		a.code = w->refuse_spawn;
	}
	assert_true(nanswers < ARRAY_LEN(answers));
	answers[nanswers++] = a;
	return w->hold ? 0 : loop_defer(w->loop, answer_now, NULL, NULL);
}

void peer_launcher_answers(struct peer_world *w)
{
	(void)w;
	answer_now(NULL);
}

/* -- the world ------------------------------------------------------------------------------------ */

int peer_setup_world(void **state)
{
	static const char *const argv[] = { "crucible-peer", "--daemon-uid", "7" };
	struct peer_world *w = calloc(1, sizeof(*w));
	int store;

	snprintf(w->dir, sizeof(w->dir), "/tmp/crucible-test-peer-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	store = open(w->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(mkdirat(store, "run", 0750), 0);
	assert_int_equal(mkdirat(store, "blocks", 0700), 0);
	assert_int_equal(mkdirat(store, LAUNCH_BLOCKS_DIR, 0711), 0);
	assert_int_equal(loop_new(&w->loop), 0);
	w->fd = w->listeners[0] = w->listeners[1] = -1;
	the_launcher.w = w;
	nanswers = 0;
	w->setup = (struct peer_setup){
		.loop = w->loop,
		.launcher = &the_launcher,
		.store_fd = store,
		.log_fd = 2,
		.nofile = 4096,
		.argc = ARRAY_LEN(argv),
		.argv = argv,
	};
	peer_no_delays(false);
	*state = w;
	return 0;
}

int peer_teardown_world(void **state)
{
	struct peer_world *w = *state;
	char cmd[128];

	fd_close(&w->fd);
	fd_close(&w->listeners[0]);
	fd_close(&w->listeners[1]);
	fd_close(&w->setup.store_fd);
	w->loop = loop_free(w->loop);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", w->dir);
	assert_int_equal(system(cmd), 0);
	free(w);
	return 0;
}

void peer_on_up(void *arg, bool fresh)
{
	struct peer_world *w = arg;

	w->ups++;
	w->fresh = fresh;
}

void peer_on_lost(void *arg, const char *words)
{
	struct peer_world *w = arg;

	w->losts++;
	snprintf(w->words, sizeof(w->words), "%s", words);
}

void peer_spin(struct peer_world *w)
{
	for (int i = 0; i < 10; i++)
		assert_int_equal(loop_once(w->loop, 0), 0);
}

/* -- the other end -------------------------------------------------------------------------------- */

static void wait_readable(struct peer_world *w, int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	peer_until(w, poll(&p, 1, 0) == 1);
}

void peer_accept(struct peer_world *w, int listener)
{
	wait_readable(w, listener);
	fd_close(&w->fd);
	w->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(w->fd >= 0);
}

void peer_receive(struct peer_world *w, uint16_t type)
{
	wait_readable(w, w->fd);
	assert_int_equal(msg_recv(w->fd, w->in, sizeof(w->in), &w->m), 0);
	assert_int_equal(w->m.type, type);
}

void peer_answer(struct peer_world *w, uint16_t type, int code, const char *words, const struct buf *payload,
		 const int *fds, size_t nfds)
{
	struct buf b;

	buf_init(&b, MSG_MAX);
	assert_int_equal(wire_put_u32(&b, (uint32_t)code) | wire_put_str(&b, words), 0);
	if (payload)
		assert_int_equal(buf_add(&b, payload->data, payload->len), 0);
	assert_int_equal(msg_send(w->fd, type, w->m.id, b.data, b.len, fds, nfds), 0);
	buf_fini(&b);
	msg_close_fds(&w->m);
}

void peer_hang_up(struct peer_world *w)
{
	fd_close(&w->listeners[0]);
	fd_close(&w->listeners[1]);
	fd_close(&w->fd);
}

int peer_listen_as_before(struct peer_world *w, const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_true(snprintf(a.sun_path, sizeof(a.sun_path), "%s/%s", w->dir, path) < (int)sizeof(a.sun_path));
	assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 4), 0);
	return fd;
}

int peer_count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}
