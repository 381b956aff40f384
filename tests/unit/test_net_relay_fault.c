/* SPDX-License-Identifier: Apache-2.0 */
/* Each system call and allocation of the relay fails in turn: the connection comes through or is reset, nothing is
 * lost, and the next one works. Linked with --wrap, see netpolicy/module.mk. */
#include "tests/unit/relay_rig.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

#define PORT  8000
#define THERE "127.0.0.2"

static struct relay_rig rig;
static bool armed, failed, no_splice;
static int left; /* calls to go */

/* Only what the relay calls, not the test. */
static bool fails(void)
{
	if (!armed || failed || --left > 0)
		return false;
	failed = true;
	return true;
}

#define WRAP(type, name, params, args, bad, code) \
	type __real_##name params;                \
	type __wrap_##name params;                \
	type __wrap_##name params                 \
	{                                         \
		if (fails()) {                    \
			errno = code;             \
			return bad;               \
		}                                 \
		return __real_##name args;        \
	}

WRAP(void *, malloc, (size_t n), (n), NULL, ENOMEM)
WRAP(void *, calloc, (size_t n, size_t m), (n, m), NULL, ENOMEM)
WRAP(void *, realloc, (void *p, size_t n), (p, n), NULL, ENOMEM)
WRAP(int, socket, (int d, int t, int p), (d, t, p), -1, EMFILE)
WRAP(int, accept4, (int fd, struct sockaddr *a, socklen_t *n, int f), (fd, a, n, f), -1, ENFILE)
WRAP(int, connect, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), -1, ENETUNREACH)
WRAP(int, getsockname, (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n), -1, ENOBUFS)
WRAP(int, shutdown, (int fd, int how), (fd, how), -1, ENOTCONN)
WRAP(int, pipe2, (int v[2], int f), (v, f), -1, EMFILE)
WRAP(int, epoll_ctl, (int ep, int op, int fd, struct epoll_event *ev), (ep, op, fd, ev), -1, ENOMEM)
WRAP(ssize_t, send, (int fd, const void *p, size_t n, int f), (fd, p, n, f), -1, ECONNRESET)
WRAP(ssize_t, recv, (int fd, void *p, size_t n, int f), (fd, p, n, f), -1, ETIMEDOUT)

ssize_t __real_splice(int in, off64_t *a, int out, off64_t *b, size_t n, unsigned f);
ssize_t __wrap_splice(int in, off64_t *a, int out, off64_t *b, size_t n, unsigned f);
ssize_t __wrap_splice(int in, off64_t *a, int out, off64_t *b, size_t n, unsigned f)
{
	if (no_splice) {
		errno = EINVAL;
		return -1;
	}
	if (fails()) {
		errno = ETIMEDOUT;
		return -1;
	}
	return __real_splice(in, a, out, b, n, f);
}

/* Turn the loop with the fault armed; the test's own calls between are left alone. */
static void turn(void)
{
	armed = true;
	(void)loop_once(rig.loop, 1);
	armed = false;
}

static bool settled(void)
{
	return rig.relay->conns == NULL && rig.relay->tcp[0].again == 0;
}

/* A short talk, in which anything may break: each end says a word, tells its end, and reads until the other's. True:
 * both heard the word. */
static bool try_talk(int near, int listener)
{
	int fds[2] = { near, -1 };
	bool over[2] = { false, false }, said[2] = { false, false };
	unsigned heard = 0;

	for (unsigned i = 0; i < 2000 && !(over[0] && (over[1] || (fds[1] < 0 && settled()))); i++) {
		turn();
		if (fds[1] < 0)
			fds[1] = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		for (int k = 0; k < 2; k++) {
			char word[8];
			ssize_t n;

			if (fds[k] < 0 || over[k])
				continue;
			if (!said[k]) {
				(void)!write(fds[k], "a word", 6);
				(void)shutdown(fds[k], SHUT_WR);
				said[k] = true;
			}
			n = read(fds[k], word, sizeof(word));
			heard += n > 0 ? (unsigned)n : 0;
			over[k] = n == 0 || (n < 0 && errno != EAGAIN);
		}
	}
	fd_close(&fds[0]);
	fd_close(&fds[1]);
	return heard == 12;
}

static void test_every_call_fails_once(void **state)
{
	unsigned whole = 0, broken = 0;
	int nth = 0;

	(void)state;
	do {
		int listener, near;

		rig_start(&rig, PORT);
		rig.relay->rest_ns = 1000000;
		listener = rig_listen(OUTSIDE, THERE, PORT, 8);
		near = rig_dial(INSIDE, THERE, PORT);
		failed = false;
		left = ++nth;
		*(try_talk(near, listener) ? &whole : &broken) += 1;
		rig_run(&rig, settled());
		/* One more, with nothing that fails. */
		{
			int guest = rig_dial(INSIDE, THERE, PORT), far;

			far = rig_accept(&rig, listener);
			rig_talk(&rig, guest, far, 100000);
		}
		rig_run(&rig, settled());
		fd_close(&listener);
		rig_stop(&rig);
	} while (failed && nth < 500);
	assert_false(failed); /* all of them had their turn */
	assert_true(whole > 1);
	assert_true(broken > 5);
}

static void test_no_memory_for_ports(void **state)
{
	struct net_port p[2] = { { .host_port = 8080, .guest_port = 80 }, { .host_port = 8081, .guest_port = 80 } };
	int nth = 0, rc;

	(void)state;
	for (int i = 0; i < 2; i++)
		assert_int_equal(net_addr_parse("127.0.0.1", &p[i].host), 0);
	do {
		int fds[2], keep = -1;
		struct err e = { 0 };

		rig_start(&rig, 0);
		fds[0] = rig_listen(OUTSIDE, "127.0.0.1", 8080, 8);
		assert_int_equal(relay_set_ports(rig.relay, p, fds, 1, NULL), 0);
		fds[0] = -1;
		fds[1] = rig_listen(OUTSIDE, "127.0.0.1", 8081, 8);
		failed = false;
		left = ++nth;
		armed = true;
		rc = relay_set_ports(rig.relay, p, fds, 2, &e);
		armed = false;
		assert_int_equal(rc, failed ? -ENOMEM : 0);
		assert_true(failed == (e.msg[0] != 0));
		assert_int_equal(rig.relay->nports, failed ? 1 : 2);
		assert_int_equal(relay_set_ports(rig.relay, p, &keep, 1, NULL), 0);
		rig_stop(&rig);
	} while (failed && nth < 50);
	assert_int_equal(rc, 0);
	assert_true(nth > 3);
}

static void test_no_memory_for_a_relay(void **state)
{
	static const struct relay_ops ops;
	struct relay *r = NULL;
	unsigned fds;
	int nth = 0, rc;

	(void)state;
	do {
		int tcp4 = rig_listen(INSIDE, "0.0.0.0", PORT, 8), tcp6 = rig_listen(INSIDE, "::", PORT, 8);
		struct loop *l;

		fds = rig_open_fds() - 2;
		assert_int_equal(loop_new(&l), 0);
		failed = false;
		left = ++nth;
		armed = true;
		rc = relay_new(l, &ops, NULL, tcp4, tcp6, &r);
		armed = false;
		assert_int_equal(rc, failed ? -ENOMEM : 0);
		if (rc == 0)
			relay_free(r);
		loop_free(l);
		assert_int_equal(rig_open_fds(), fds);
	} while (failed && nth < 50);
	assert_true(nth > 3);
}

static void test_what_cannot_be_spliced_is_copied(void **state)
{
	int listener, guest, far;

	(void)state;
	rig_start(&rig, PORT);
	listener = rig_listen(OUTSIDE, THERE, PORT, 8);
	no_splice = true;
	guest = rig_dial(INSIDE, THERE, PORT);
	far = rig_accept(&rig, listener);
	rig_talk(&rig, guest, far, 1 << 20);
	no_splice = false;
	(void)rig_event(&rig, 1, "out", "ended", "");
	fd_close(&listener);
	rig_stop(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_call_fails_once),
		cmocka_unit_test(test_no_memory_for_ports),
		cmocka_unit_test(test_no_memory_for_a_relay),
		cmocka_unit_test(test_what_cannot_be_spliced_is_copied),
	};

	return cmocka_run_group_tests(tests, rig_world, NULL);
}
