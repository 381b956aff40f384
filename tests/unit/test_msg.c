/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/msg.h"

static uint8_t buf[MSG_MAX], big[MSG_MAX + 1];

/* Descriptors that are open, to find leaks. */
static unsigned int open_fds(void)
{
	unsigned int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void make_pair(int pair[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
}

/* -- blocking --------------------------------------------------------------------------------------- */

static void test_round_trip_with_fds(void **state)
{
	unsigned int before = open_fds();
	int pair[2], fds[MSG_FDS_MAX], taken;
	struct stat a, b;
	struct msg m;

	(void)state;
	make_pair(pair);
	for (size_t i = 0; i < MSG_FDS_MAX; i++)
		fds[i] = pair[0];
	assert_int_equal(msg_send(pair[0], 513, 0xfffffffe, "data", 4, fds, MSG_FDS_MAX), 0);
	assert_int_equal(msg_send(pair[0], 0, 0, NULL, 0, NULL, 0), 0);
	assert_int_equal(msg_send(pair[0], 1, 2, big, MSG_MAX, NULL, 0), 0);
	assert_int_equal(msg_recv(pair[1], buf, sizeof(buf), &m), 0);
	assert_int_equal(m.type, 513);
	assert_int_equal(m.id, 0xfffffffe);
	assert_int_equal(m.len, 4);
	assert_memory_equal(m.data, "data", 4);
	assert_int_equal(m.nfds, MSG_FDS_MAX);
	assert_true(fcntl(m.fds[0], F_GETFD) & FD_CLOEXEC);
	taken = take_fd(&m.fds[3]);
	msg_close_fds(&m);
	assert_int_equal(fstat(taken, &a) | fstat(pair[0], &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	close(taken);
	assert_int_equal(msg_recv(pair[1], buf, sizeof(buf), &m), 0);
	assert_int_equal(m.len, 0);
	assert_int_equal(msg_recv(pair[1], buf, sizeof(buf), &m), 0);
	assert_int_equal(m.len, MSG_MAX);
	close(pair[0]);
	assert_int_equal(msg_recv(pair[1], buf, sizeof(buf), &m), -ECONNRESET);
	close(pair[1]);
	assert_int_equal(open_fds(), before);
}

static void test_send_emsgsize_and_epipe(void **state)
{
	int pair[2], fds[MSG_FDS_MAX + 1] = { 0 };

	(void)state;
	make_pair(pair);
	assert_int_equal(msg_send(pair[0], 1, 1, big, MSG_MAX + 1, NULL, 0), -EMSGSIZE);
	assert_int_equal(msg_send(pair[0], 1, 1, NULL, 0, fds, MSG_FDS_MAX + 1), -EMSGSIZE);
	close(pair[1]);
	assert_int_equal(msg_send(pair[0], 1, 1, NULL, 0, NULL, 0), -EPIPE); /* and no SIGPIPE */
	close(pair[0]);
}

static void send_raw(int fd, const void *data, size_t len, const int *fds, size_t nfds)
{
	char space[CMSG_SPACE(32 * sizeof(int))] = "";
	struct iovec iov = { (void *)data, len };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (nfds) {
		struct cmsghdr *c;

		mh.msg_control = space;
		mh.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
	}
	assert_int_equal(sendmsg(fd, &mh, 0), len);
}

static void test_malformed_ebadmsg(void **state)
{
	static const struct {
		const char *bytes;
		size_t len, nfds;
	} bad[] = {
		{ "\1\0\0\0\1\0\0\0\0\0\0", 11, 0 },		       /* cut header */
		{ "\1", 1, 0 },					       /* less */
		{ "\1\0\0\0\1\0\0\0\1\0\0\0", 12, 0 },		       /* a byte of payload promised */
		{ "\1\0\0\0\1\0\0\0\0\0\0\0x", 13, 0 },		       /* one too many */
		{ "\1\0\1\0\1\0\0\0\0\0\0\0", 12, 0 },		       /* a descriptor promised */
		{ "\1\0\0\0\1\0\0\0\0\0\0\0", 12, 1 },		       /* one too many */
		{ "\1\0\x11\0\1\0\0\0\0\0\0\0", 12, MSG_FDS_MAX + 1 }, /* more than we take */
		{ "\1\0\0\0\1\0\0\0\xff\xff\xff\xff", 12, 0 },
	};
	int pair[2], fds[MSG_FDS_MAX + 1];
	unsigned int before;
	struct msg m;

	(void)state;
	make_pair(pair);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		fds[i] = pair[0];
	before = open_fds();
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		send_raw(pair[0], bad[i].bytes, bad[i].len, fds, bad[i].nfds);
		assert_int_equal(msg_recv(pair[1], buf, sizeof(buf), &m), -EBADMSG);
		assert_int_equal(m.nfds, 0);
		assert_int_equal(open_fds(), before); /* what came along is closed */
	}
	/* Longer than the receiver's buffer: that message is lost, the next is not. */
	assert_int_equal(msg_send(pair[0], 1, 1, "12345", 5, fds, 1), 0);
	assert_int_equal(msg_send(pair[0], 2, 2, "1234", 4, NULL, 0), 0);
	assert_int_equal(msg_recv(pair[1], buf, 4, &m), -EMSGSIZE);
	assert_int_equal(msg_recv(pair[1], buf, 4, &m), 0);
	assert_int_equal(m.type, 2);
	assert_int_equal(open_fds(), before);
	close(pair[0]);
	close(pair[1]);
}

/* The peer leaves without having read what we sent: what it sent before still arrives. */
static void test_reset_after_the_last_message(void **state)
{
	struct msg m;
	int pair[2];

	(void)state;
	make_pair(pair);
	assert_int_equal(msg_send(pair[1], 9, 0, NULL, 0, NULL, 0), 0);
	assert_int_equal(msg_send(pair[0], 7, 0, NULL, 0, NULL, 0), 0);
	close(pair[0]);
	assert_int_equal(msg_recv(pair[1], buf, sizeof(buf), &m), 0);
	assert_int_equal(m.type, 7);
	assert_int_equal(msg_recv(pair[1], buf, sizeof(buf), &m), -ECONNRESET);
	close(pair[1]);
}

/* -- on a loop -------------------------------------------------------------------------------------- */

struct fix {
	struct loop *l;
	struct msgconn *c;
	int peer;
	unsigned int msgs, gone, next_id;
	int reason, took;
	size_t bytes;
	bool free_in_msg, free_in_gone, take;
};

static void on_msg(void *arg, struct msg *m)
{
	struct fix *f = arg;

	f->msgs++;
	f->bytes += m->len;
	if (m->id)
		assert_int_equal(m->id, ++f->next_id); /* in order */
	if (f->take && m->nfds)
		f->took = take_fd(&m->fds[0]);
	if (f->free_in_msg)
		f->c = msgconn_free(f->c);
	if (m->len) /* still there after the free */
		assert_int_equal(m->data[m->len - 1], 0);
}

static void on_gone(void *arg, int reason)
{
	struct fix *f = arg;

	f->gone++;
	f->reason = reason;
	if (f->free_in_gone)
		f->c = msgconn_free(f->c);
}

static const struct msgconn_ops ops = { .on_msg = on_msg, .on_gone = on_gone };

static int setup(void **state)
{
	static struct fix f;
	int pair[2];

	f = (struct fix){ .took = -1 };
	make_pair(pair);
	f.peer = pair[1];
	assert_int_equal(loop_new(&f.l), 0);
	assert_int_equal(msgconn_new(f.l, pair[0], 1u << 20, &ops, &f, &f.c), 0);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fix *f = *state;

	f->c = msgconn_free(f->c);
	assert_null(msgconn_free(NULL));
	f->l = loop_free(f->l);
	fd_close(&f->peer);
	fd_close(&f->took);
	return 0;
}

static void test_receives_and_closes_what_is_not_taken(void **state)
{
	struct fix *f = *state;
	unsigned int before = open_fds();
	int two[2] = { f->peer, f->peer };

	f->take = true;
	assert_int_equal(msg_send(f->peer, 1, 1, "", 0, two, 2), 0);
	loop_once(f->l, 0);
	assert_int_equal(f->msgs, 1);
	assert_true(f->took >= 0);
	assert_int_equal(open_fds(), before + 1);
}

static void test_free_in_on_msg(void **state)
{
	struct fix *f = *state;

	f->free_in_msg = true;
	assert_int_equal(msg_send(f->peer, 1, 1, "\0", 1, NULL, 0), 0);
	assert_int_equal(msg_send(f->peer, 1, 2, "\0", 1, NULL, 0), 0);
	loop_once(f->l, 0);
	loop_once(f->l, 0);
	assert_int_equal(f->msgs, 1);
	assert_int_equal(f->gone, 0);
	assert_null(f->c);
}

static void test_gone_once_after_the_last_message(void **state)
{
	struct fix *f = *state;

	assert_int_equal(msg_send(f->peer, 1, 1, "\0", 1, NULL, 0), 0);
	fd_close(&f->peer);
	/* Sending finds out first; the message that was sent before still comes, then the end, from the loop. */
	assert_int_equal(msgconn_send(f->c, 1, 0, NULL, 0, NULL, 0), -EPIPE);
	assert_int_equal(msgconn_send(f->c, 1, 0, NULL, 0, NULL, 0), -EPIPE);
	assert_int_equal(f->gone, 0);
	loop_once(f->l, 0);
	loop_once(f->l, 0);
	assert_int_equal(f->msgs, 1);
	assert_int_equal(f->gone, 1);
	assert_int_equal(f->reason, -ECONNRESET);
	assert_int_equal(msgconn_send(f->c, 1, 0, NULL, 0, NULL, 0), -EPIPE);
}

static void test_free_in_on_gone(void **state)
{
	struct fix *f = *state;

	f->free_in_gone = true;
	fd_close(&f->peer);
	loop_once(f->l, 0);
	assert_int_equal(f->gone, 1);
	assert_null(f->c);
}

static void test_malformed_is_the_end(void **state)
{
	struct fix *f = *state;

	send_raw(f->peer, "x", 1, NULL, 0);
	loop_once(f->l, 0);
	assert_int_equal(f->gone, 1);
	assert_int_equal(f->reason, -EBADMSG);
}

static void test_queue_bounded_enobufs(void **state)
{
	struct fix *f = *state;
	unsigned int before, sent = 0;
	struct msg m;
	int r;

	while (msgconn_queued(f->c) == 0 && sent < 100000)
		assert_int_equal(msgconn_send(f->c, 1, ++sent, big, 1000, NULL, 0), 0);
	before = open_fds();
	/* A waiting message has descriptors of its own: the caller's may go. */
	{
		AUTO_FD file = open("/dev/null", O_RDONLY | O_CLOEXEC);

		assert_int_equal(msgconn_send(f->c, 1, ++sent, NULL, 0, &file, 1), 0);
	}
	assert_int_equal(open_fds(), before + 1);
	while ((r = msgconn_send(f->c, 1, sent + 1, big, 1000, NULL, 0)) == 0)
		sent++;
	assert_int_equal(r, -ENOBUFS);
	assert_true(msgconn_queued(f->c) <= 1u << 20);
	assert_int_equal(msgconn_send(f->c, 1, 0, big, MSG_MAX + 1, NULL, 0), -EMSGSIZE);
	/* All arrive, in order, as the peer reads. */
	for (unsigned int got = 0; got < sent;) {
		loop_once(f->l, 0);
		assert_int_equal(fd_set_nonblock(f->peer, true), 0);
		while ((r = msg_recv(f->peer, buf, sizeof(buf), &m)) == 0) {
			assert_int_equal(m.id, ++got);
			msg_close_fds(&m);
		}
		assert_int_equal(r, -EAGAIN);
	}
	assert_int_equal(msgconn_queued(f->c), 0);
	assert_int_equal(open_fds(), before);
	loop_once(f->l, 0);
}

static void test_peer_gone_with_a_full_queue(void **state)
{
	struct fix *f = *state;
	AUTO_FD file = open("/dev/null", O_RDONLY | O_CLOEXEC);
	unsigned int before = open_fds();

	while (msgconn_queued(f->c) < 100000)
		assert_int_equal(msgconn_send(f->c, 1, 0, big, 1000, &file, 1), 0);
	fd_close(&f->peer);
	for (int i = 0; i < 3; i++)
		loop_once(f->l, 0);
	assert_int_equal(f->gone, 1);
	assert_int_equal(msgconn_queued(f->c), 0);
	assert_int_equal(open_fds(), before - 1); /* no duplicate is left */
}

static void test_new_takes_fd_on_failure(void **state)
{
	struct fix *f = *state;
	struct msgconn *c;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	assert_int_equal(msgconn_new(f->l, fd, 10, &ops, f, &c), -EPERM);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void test_many_messages_leave_others_their_turn(void **state)
{
	struct fix *f = *state;

	for (uint32_t i = 1; i <= 100; i++)
		assert_int_equal(msg_send(f->peer, 1, i, NULL, 0, NULL, 0), 0);
	loop_once(f->l, 0);
	assert_true(f->msgs < 100);
	while (f->msgs < 100)
		loop_once(f->l, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip_with_fds),
		cmocka_unit_test(test_send_emsgsize_and_epipe),
		cmocka_unit_test(test_malformed_ebadmsg),
		cmocka_unit_test(test_reset_after_the_last_message),
		cmocka_unit_test_setup_teardown(test_receives_and_closes_what_is_not_taken, setup, teardown),
		cmocka_unit_test_setup_teardown(test_free_in_on_msg, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gone_once_after_the_last_message, setup, teardown),
		cmocka_unit_test_setup_teardown(test_free_in_on_gone, setup, teardown),
		cmocka_unit_test_setup_teardown(test_malformed_is_the_end, setup, teardown),
		cmocka_unit_test_setup_teardown(test_queue_bounded_enobufs, setup, teardown),
		cmocka_unit_test_setup_teardown(test_peer_gone_with_a_full_queue, setup, teardown),
		cmocka_unit_test_setup_teardown(test_new_takes_fd_on_failure, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_messages_leave_others_their_turn, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
