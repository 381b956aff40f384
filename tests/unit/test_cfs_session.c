/* SPDX-License-Identifier: Apache-2.0 */
/* The session alone: what it tells the kernel, requests that name nothing, interrupts, limits, the end. */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <stdlib.h>
#include <unistd.h>
#include "fusewire.h"

static void init_tells_what_the_tree_needs(void **state)
{
	struct fw *w = *state;

	assert_false(w->init_flags & FUSE_ASYNC_READ);
	assert_true(w->init_flags & FUSE_PARALLEL_DIROPS); /* libfuse 3.14 forgets it */
	assert_true(w->init_flags & FUSE_ATOMIC_O_TRUNC);
	assert_int_equal(w->max_background, 65535);
}

static void unknown_node_ESTALE(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;
	struct fuse_open_out o;

	assert_int_equal(fw_getattr(w, 12345, NULL), -ESTALE);
	assert_int_equal(fw_getattr(w, 0, NULL), -ESTALE);
	assert_int_equal(fw_lookup(w, ~0ull, "a", &e), -ESTALE);
	assert_int_equal(fw_open(w, 2, O_RDONLY, &o), -ESTALE);
}

static void unknown_handle_EBADF(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out version, readme;
	struct fuse_open_out o;
	char buf[64];

	assert_int_equal(fw_walk(w, "version", &version), 0);
	assert_int_equal(fw_walk(w, "README.md", &readme), 0);
	assert_int_equal(fw_open(w, version.nodeid, O_RDONLY, &o), 0);
	assert_int_equal(fw_read(w, version.nodeid, o.fh + 1, O_RDONLY, 0, buf, 64), -EBADF);
	assert_int_equal(fw_read(w, readme.nodeid, o.fh, O_RDONLY, 0, buf, 64), -EBADF); /* of another node */
	assert_true(fw_read(w, version.nodeid, o.fh, O_RDONLY, 0, buf, 64) > 0);
	fw_release(w, version.nodeid, o.fh);
	assert_int_equal(fw_read(w, version.nodeid, o.fh, O_RDONLY, 0, buf, 64), -EBADF); /* released */
}

static void names_EINVAL_ENAMETOOLONG(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;
	char name[300];

	assert_int_equal(fw_lookup(w, FUSE_ROOT_ID, "", &e), -EINVAL);
	assert_int_equal(fw_lookup(w, FUSE_ROOT_ID, ".", &e), -EINVAL);
	assert_int_equal(fw_lookup(w, FUSE_ROOT_ID, "..", &e), -EINVAL);
	assert_int_equal(fw_lookup(w, FUSE_ROOT_ID, "a/b", &e), -EINVAL);
	memset(name, 'x', 256);
	name[256] = '\0';
	assert_int_equal(fw_lookup(w, FUSE_ROOT_ID, name, &e), -ENAMETOOLONG);
	name[255] = '\0';
	assert_int_equal(fw_lookup(w, FUSE_ROOT_ID, name, &e), -ENOENT);
}

/* What no node has a function for; never ENOSYS (fusewire checks every answer for it). */
static void what_nobody_does_is_refused(void **state)
{
	struct fw *w = *state;
	struct fuse_setxattr_in set = { .size = 1 };
	struct fuse_getxattr_in get = { .size = 100 };
	struct fuse_entry_out e;

	assert_int_equal(fw_walk(w, "version", &e), 0);
	assert_int_equal(fw_call(w, FUSE_SETXATTR, e.nodeid, &set, 8, "user.a\0b", 8, NULL), -EOPNOTSUPP);
	assert_int_equal(fw_call(w, FUSE_GETXATTR, e.nodeid, &get, sizeof(get), "user.a", 7, NULL), -EOPNOTSUPP);
	assert_int_equal(fw_call(w, FUSE_REMOVEXATTR, e.nodeid, "user.a", 7, NULL, 0, NULL), -EOPNOTSUPP);
	assert_int_equal(fw_call(w, FUSE_LISTXATTR, e.nodeid, &get, sizeof(get), NULL, 0, NULL), 0);
	assert_int_equal(fw_call(w, FUSE_READLINK, e.nodeid, NULL, 0, NULL, 0, NULL), -EINVAL);
	assert_int_equal(fw_call(w, FUSE_STATFS, FUSE_ROOT_ID, NULL, 0, NULL, 0, NULL), 0);
}

/* A cat of a run that has not ended: answers to interrupts come from the batch that brings them. */
static uint64_t blocked_open(struct fw *w, const char *path)
{
	struct fuse_entry_out e;
	uint64_t unique;

	assert_int_equal(fw_walk(w, path, &e), 0);
	unique = fw_start_open(w, e.nodeid, O_RDONLY);
	fw_run(w);
	assert_false(fw_answered(w, unique));
	return unique;
}

static void interrupt_EINTR(void **state)
{
	struct fw *w = *state;
	uint64_t a, b;

	fake_sandbox(w->reg, "a", 0);
	fw_put(w, "run/a/cmd", "sleep 9\n");
	a = blocked_open(w, "run/a/.wait");
	b = blocked_open(w, "run/a/.wait");
	assert_int_equal(cfs_session_parked(w->cs), 2);
	fw_interrupt(w, a);
	assert_int_equal(fw_take(w, a, NULL), -EINTR);
	assert_false(fw_answered(w, b));
	assert_int_equal(cfs_session_parked(w->cs), 1);
	fw_interrupt(w, b);
	assert_int_equal(fw_take(w, b, NULL), -EINTR);
	assert_int_equal(cfs_session_open(w->cs), 0);
}

/* The kernel may send the interrupt before the request has been read. */
static void interrupt_that_comes_first_EINTR(void **state)
{
	struct fw *w = *state;
	struct fuse_interrupt_in in;
	struct fuse_entry_out e;
	uint64_t unique;

	fake_sandbox(w->reg, "a", 0);
	fw_put(w, "run/a/cmd", "sleep 9\n");
	assert_int_equal(fw_walk(w, "run/a/.wait", &e), 0);
	in.unique = (w->unique + 2) * 2; /* of the request after the next */
	fw_send(w, FUSE_INTERRUPT, 0, &in, sizeof(in), NULL, 0);
	unique = fw_start_open(w, e.nodeid, O_RDONLY);
	assert_int_equal(unique, in.unique);
	fw_run(w);
	assert_int_equal(fw_take(w, unique, NULL), -EINTR);
}

/* -- a root of our own: every getattr waits, with 30 ms of grace -- */

static struct {
	struct cfs_node node;
	struct cfs_req *waiting;
	unsigned cancelled;
} slow;

static void slow_cancel(struct cfs_req *r, void *arg)
{
	(void)arg;
	assert_ptr_equal(r, slow.waiting);
	slow.waiting = NULL;
	slow.cancelled++;
}

static void slow_getattr(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h)
{
	(void)n, (void)h;
	slow.waiting = r;
	assert_int_equal(cfs_park(r, NULL, NULL, slow_cancel, NULL), 0);
	cfs_park_grace(r, 30);
}

static void slow_free(struct cfs_node *n)
{
	(void)n;
}

static int slow_install(struct cfs_session *cs, struct err *e)
{
	static const struct cfs_node_ops ops = { .free = slow_free, .getattr = slow_getattr };

	(void)e;
	slow.node = (struct cfs_node){ 0 };
	cfs_session_set_root(cs, &slow.node, &ops, NULL);
	return 0;
}

static void an_interrupt_has_its_grace(void **state)
{
	struct fw *w = fw_new_with(NULL, slow_install);
	struct fuse_getattr_in in = { 0 };
	struct stat st = { .st_mode = S_IFDIR };
	uint64_t unique;

	(void)state;
	unique = fw_send(w, FUSE_GETATTR, FUSE_ROOT_ID, &in, sizeof(in), NULL, 0);
	fw_run(w);
	fw_interrupt(w, unique);
	assert_false(fw_answered(w, unique));
	cfs_reply_attr(slow.waiting, &st, 0); /* in time */
	fw_run(w);
	assert_int_equal(fw_take(w, unique, NULL), 0);
	unique = fw_send(w, FUSE_GETATTR, FUSE_ROOT_ID, &in, sizeof(in), NULL, 0);
	fw_run(w);
	fw_interrupt(w, unique);
	fw_interrupt(w, unique); /* a second signal does not begin it anew */
	while (!fw_answered(w, unique))
		fw_wait(w, 1000);
	assert_int_equal(fw_take(w, unique, NULL), -EINTR);
	assert_int_equal(slow.cancelled, 1);
	assert_null(slow.waiting);
	fw_free(w);
}

static void forget_frees_nodes(void **state)
{
	struct fw *w = *state;
	size_t before = cfs_node_count(w->cs);
	struct fuse_entry_out e;

	for (int i = 0; i < 3; i++)
		assert_int_equal(fw_lookup(w, FUSE_ROOT_ID, "version", &e), 0);
	assert_int_equal(cfs_node_count(w->cs), before + 1); /* the same text: the same node */
	fw_forget(w, e.nodeid, 2);
	assert_int_equal(fw_getattr(w, e.nodeid, NULL), 0);
	fw_forget(w, e.nodeid, 1);
	assert_int_equal(cfs_node_count(w->cs), before);
	assert_int_equal(fw_getattr(w, e.nodeid, NULL), -ESTALE);
	fw_forget(w, e.nodeid, 1); /* once more than told: nothing */
}

/* Forgotten and asked for in the same batch, as the kernel does when a cached name has changed its node. */
static void forget_then_lookup_in_one_batch(void **state)
{
	struct fw *w = *state;
	struct fuse_forget_in in = { .nlookup = 1 };
	const struct fw_answer *a;
	struct fuse_entry_out e;
	uint64_t unique;

	assert_int_equal(fw_lookup(w, FUSE_ROOT_ID, "version", &e), 0);
	fw_send(w, FUSE_FORGET, e.nodeid, &in, sizeof(in), NULL, 0);
	unique = fw_send(w, FUSE_LOOKUP, FUSE_ROOT_ID, "version", 8, NULL, 0);
	fw_run(w);
	assert_int_equal(fw_take(w, unique, &a), 0);
	memcpy(&e, a->data, sizeof(e));
	assert_int_not_equal(e.nodeid, 0);
	assert_int_equal(fw_getattr(w, e.nodeid, NULL), 0);
}

static void a_node_lives_while_it_is_open(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;
	struct fuse_open_out o;
	char buf[64];

	assert_int_equal(fw_lookup(w, FUSE_ROOT_ID, "version", &e), 0);
	assert_int_equal(fw_open(w, e.nodeid, O_RDONLY, &o), 0);
	fw_forget(w, e.nodeid, 1);
	assert_true(fw_read(w, e.nodeid, o.fh, O_RDONLY, 0, buf, 64) > 0);
	fw_release(w, e.nodeid, o.fh);
	assert_int_equal(fw_getattr(w, e.nodeid, NULL), -ESTALE);
}

static void release_under_a_parked_read(void **state)
{
	struct fw *w = *state;
	struct fuse_release_in rel;
	struct fuse_entry_out e;
	struct fuse_open_out o;
	uint64_t unique;

	fake_sandbox(w->reg, "a", 0);
	fw_put(w, "run/a/cmd", "sleep 9\n");
	assert_int_equal(fw_walk(w, "run/a/.wait", &e), 0);
	assert_int_equal(fw_open(w, e.nodeid, O_RDONLY | O_NONBLOCK, &o), 0);
	unique = fw_start_read(w, e.nodeid, o.fh, O_RDONLY, 0, 100); /* O_NONBLOCK was taken off */
	rel = (struct fuse_release_in){ .fh = o.fh };
	assert_int_equal(fw_call(w, FUSE_RELEASE, e.nodeid, &rel, sizeof(rel), NULL, 0, NULL), 0);
	fw_forget(w, e.nodeid, 1);
	assert_false(fw_answered(w, unique));
	fake_end(registry_find(w->reg, NULL, "a"), 1, 0);
	fw_run(w);
	assert_int_equal(fw_take(w, unique, NULL), 0);
	assert_int_equal(cfs_session_open(w->cs), 0);
}

static void open_limit_EMFILE(void **state)
{
	static const struct cfs_limits limits = { .open_uid = 3 };
	struct fw *w = fw_new(&limits);
	struct fuse_entry_out e;
	struct fuse_open_out o[3], more;
	char buf[8192];

	(void)state;
	fake_sandbox(w->reg, "a", 7);
	w->uid = 7;
	assert_int_equal(fw_walk(w, "run/a/status", &e), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(fw_open(w, e.nodeid, O_RDONLY, &o[i]), 0);
	assert_int_equal(fw_open(w, e.nodeid, O_RDONLY, &more), -EMFILE);
	assert_int_equal(fw_put(w, "run/a/cmd", "true"), -EMFILE);
	assert_int_equal(fake_uploads(w->reg), 0);
	w->uid = 0; /* somebody else's */
	assert_true(fw_cat(w, "run/a/error", buf, sizeof(buf)) > 0);
	assert_non_null(strstr(buf, "too many files"));
	w->uid = 7;
	fw_release(w, e.nodeid, o[0].fh);
	assert_int_equal(fw_open(w, e.nodeid, O_RDONLY, &more), 0);
	fw_free(w);
}

static void parked_limit_EDQUOT(void **state)
{
	static const struct cfs_limits limits = { .parked_uid = 2 };
	struct fw *w = fw_new(&limits);
	struct fuse_entry_out e;
	struct fuse_open_out o;
	uint64_t unique;
	char buf[8192];

	(void)state;
	fake_sandbox(w->reg, "a", 0);
	fw_put(w, "run/a/cmd", "sleep 9\n");
	blocked_open(w, "run/a/.wait");
	unique = blocked_open(w, "run/a/.wait");
	assert_int_equal(fw_walk(w, "run/a/.wait", &e), 0);
	assert_int_equal(fw_open(w, e.nodeid, O_RDONLY, &o), -EDQUOT);
	assert_true(fw_cat(w, "run/a/error", buf, sizeof(buf)) > 0);
	assert_non_null(strstr(buf, "result.json")); /* the way out */
	w->uid = 8;
	blocked_open(w, "run/a/.wait");
	w->uid = 0;
	fw_interrupt(w, unique);
	blocked_open(w, "run/a/.wait");
	fw_free(w);
}

static void node_limit_ENFILE(void **state)
{
	static const struct cfs_limits limits = { .nodes_uid = 4 };
	struct fw *w = fw_new(&limits);
	struct fuse_entry_out run, a, one, e;
	struct fuse_open_out o;

	(void)state;
	fake_sandbox(w->reg, "a", 0);
	w->uid = 7;
	assert_int_equal(fw_lookup(w, FUSE_ROOT_ID, "run", &run), 0);
	assert_int_equal(fw_lookup(w, run.nodeid, "a", &a), 0);
	assert_int_equal(fw_lookup(w, a.nodeid, "cmd", &one), 0); /* O_PATH: a node each time */
	assert_int_equal(fw_lookup(w, a.nodeid, "cmd", &e), 0);
	assert_int_equal(fw_lookup(w, a.nodeid, "cmd", &e), -ENFILE);
	assert_int_equal(fw_create(w, a.nodeid, "x", O_WRONLY | O_CREAT, 0600, &e, &o), -ENFILE);
	assert_int_equal(cfs_session_open(w->cs), 0);
	assert_int_equal(fw_lookup(w, a.nodeid, ".fs", &e), -ENFILE);
	assert_int_equal(fw_lookup(w, FUSE_ROOT_ID, "run", &run), 0); /* known already */
	w->uid = 8;
	assert_int_equal(fw_lookup(w, a.nodeid, "cmd", &e), 0);
	w->uid = 7;
	fw_forget(w, one.nodeid, 1);
	assert_int_equal(fw_lookup(w, a.nodeid, "env", &e), 0);
	fw_free(w);
}

static void byte_limit_EDQUOT(void **state)
{
	static const struct cfs_limits limits = { .bytes_uid = 4096 };
	struct fw *w = fw_new(&limits);
	struct fuse_entry_out e, other;
	static char cmd[5000];
	char buf[8192];

	(void)state;
	memset(cmd, '#', sizeof(cmd));
	fake_sandbox(w->reg, "a", 0);
	fw_mkdir(w, "run/a/exec/web");
	w->uid = 7;
	assert_int_equal(fw_put(w, "run/a/env", "A=1\n"), -EDQUOT);
	assert_int_equal(fw_list(w, "run/a", buf, sizeof(buf)), 0);
	assert_int_equal(fw_put_bytes(w, "run/a/cmd", O_WRONLY, cmd, 3000), 0);
	assert_int_equal(fw_walk(w, "run/a/cmd", &e), 0);
	assert_int_equal(fw_walk(w, "run/a/cmd", &other), 0);	     /* the same text is kept once */
	assert_int_equal(fw_walk(w, "run/a/exec/1/cmd", &other), 0); /* a stream: nothing of it is kept */
	assert_int_equal(fw_put_bytes(w, "run/a/exec/web/stdin", O_WRONLY, cmd, 2000), -EDQUOT); /* would wait */
	fw_forget(w, e.nodeid, 9);
	w->uid = 8;
	assert_int_equal(fw_walk(w, "run/a/exec/1/cmd", &other), 0);
	fw_free(w);
}

static void stop_answers_all_ENOTCONN(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;
	uint64_t a, b, c;
	char buf[8192];

	fake_sandbox(w->reg, "a", 0);
	fw_put(w, "run/a/cmd", "sleep 9\n");
	a = blocked_open(w, "run/a/.wait");
	b = blocked_open(w, "run/a/.wait");
	assert_int_equal(fw_walk(w, "run/a/.wait", &e), 0);
	cfs_session_stop(w->cs);
	c = fw_start_open(w, e.nodeid, O_RDONLY);
	fw_run(w);
	assert_int_equal(fw_take(w, a, NULL), -ENOTCONN);
	assert_int_equal(fw_take(w, b, NULL), -ENOTCONN);
	assert_int_equal(fw_take(w, c, NULL), -ENOTCONN);
	assert_true(fw_cat(w, "run/a/status", buf, sizeof(buf)) > 0); /* what does not wait is served on */
}

static void free_answers_parked_and_drops_uploads(void **state)
{
	struct fw *w = fw_new(NULL);
	struct fuse_entry_out e;
	struct fuse_open_out o;
	struct sandbox *s = sandbox_ref(fake_sandbox(w->reg, "a", 0));
	uint64_t unique;

	(void)state;
	fw_put(w, "run/a/cmd", "sleep 9\n");
	unique = blocked_open(w, "run/a/.wait");
	assert_int_equal(fw_walk(w, "run/a/cmd", &e), 0);
	assert_int_equal(fw_open(w, e.nodeid, O_WRONLY, &o), 0);
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_WRONLY, 0, "half", 4), 4);
	w->cs = cfs_session_free(w->cs);
	fw_run(w);
	assert_int_equal(fw_take(w, unique, NULL), -ENOTCONN);
	assert_int_equal(sandbox_latest_exec(s), 1); /* half a command did not run */
	assert_int_equal(fake_refs(s), 2);
	sandbox_unref(s);
	fw_free(w);
}

static void unmount_ends_the_session(void **state)
{
	struct fw *w = fw_new(NULL);

	(void)state;
	fake_sandbox(w->reg, "a", 0);
	fw_put(w, "run/a/cmd", "sleep 9\n");
	blocked_open(w, "run/a/.wait");
	assert_false(w->ended);
	assert_int_equal(shutdown(w->fd, SHUT_WR), 0);
	assert_int_equal(loop_once(w->loop, 1000), 0);
	assert_true(w->ended);
	fw_free(w);
}

static void poll_of_a_text_is_ready(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;
	struct fuse_open_out o;
	uint32_t events = 0;

	assert_int_equal(fw_walk(w, "version", &e), 0);
	assert_int_equal(fw_open(w, e.nodeid, O_RDONLY, &o), 0);
	assert_int_equal(fw_poll(w, e.nodeid, o.fh, 1, true, &events), 0);
	assert_int_equal(events, POLLIN | POLLOUT);
	assert_int_equal(fw_poll(w, e.nodeid, o.fh + 1, 1, true, &events), -EBADF);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fw_setup, fw_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(init_tells_what_the_tree_needs),
		TEST(unknown_node_ESTALE),
		TEST(unknown_handle_EBADF),
		TEST(names_EINVAL_ENAMETOOLONG),
		TEST(what_nobody_does_is_refused),
		TEST(interrupt_EINTR),
		TEST(interrupt_that_comes_first_EINTR),
		cmocka_unit_test(an_interrupt_has_its_grace),
		TEST(forget_frees_nodes),
		TEST(forget_then_lookup_in_one_batch),
		TEST(a_node_lives_while_it_is_open),
		TEST(release_under_a_parked_read),
		cmocka_unit_test(open_limit_EMFILE),
		cmocka_unit_test(parked_limit_EDQUOT),
		cmocka_unit_test(node_limit_ENFILE),
		cmocka_unit_test(byte_limit_EDQUOT),
		TEST(stop_answers_all_ENOTCONN),
		cmocka_unit_test(free_answers_parked_and_drops_uploads),
		cmocka_unit_test(unmount_ends_the_session),
		TEST(poll_of_a_text_is_ready),
	};

	return cmocka_run_group_tests_name("cfs_session", tests, NULL, NULL);
}
