/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's link to the store. How such links begin and end is test_pagerlink.c's; here is what the store's have of
 * their own. The test is the store. */
#include "tests/unit/peer_fix.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "cruciblefs/domain/storelink.h"

static const struct storelink_ops ops = { peer_on_up, peer_on_lost };

static struct seen {
	unsigned n, progresses;
	struct store_reply r; /* pointers of it are gone */
	bool json;
	char words[128], uuid[SNAP_UUID_LEN + 1];
	int fd;
	uint64_t done, total;
} seen;

static void on_reply(void *arg, struct store_reply *r)
{
	struct seen *s = arg;

	s->n++;
	s->r = *r;
	s->json = r->json != NULL;
	snprintf(s->words, sizeof(s->words), "%s", r->words);
	if (r->nuuids)
		memcpy(s->uuid, r->uuids[r->nuuids - 1], sizeof(s->uuid));
	fd_close(&s->fd);
	if (r->state_fd)
		s->fd = take_fd(r->state_fd);
}

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
	struct seen *s = arg;

	s->progresses++;
	s->done = done;
	s->total = total;
}

static struct storelink *start_and_up(struct peer_world *w)
{
	struct storelink *k = NULL;
	struct err e = { 0 };
	struct buf b;

	seen = (struct seen){ .fd = -1 };
	if (storelink_new(&w->setup, &ops, w, &k, &e) < 0)
		fail_msg("%s", e.msg);
	peer_until(w, w->spawns == 1);
	peer_accept(w, w->listeners[0]);
	peer_receive(w, STORE_LIST);
	buf_init(&b, 64);
	peer_put(&b, "u", 0u);
	peer_answer(w, STORE_REPLY, 0, "", &b, NULL, 0);
	buf_fini(&b);
	peer_until(w, w->ups == 1);
	return k;
}

static void answer_text(struct peer_world *w, const char *text)
{
	unsigned before = seen.n;
	struct buf b;

	buf_init(&b, 8192);
	assert_int_equal(peer_put(&b, "s", text), 0);
	peer_answer(w, STORE_REPLY, 0, "", &b, NULL, 0);
	buf_fini(&b);
	peer_until(w, seen.n == before + 1);
}

static void test_started(void **state)
{
	struct peer_world *w = *state;
	struct storelink *k = start_and_up(w);
	struct stat st;

	assert_string_equal(w->killed, LAUNCH_UUID_STORE);
	assert_int_equal(w->last.kind, LAUNCH_STORE);
	assert_string_equal(w->last.uuid, LAUNCH_UUID_STORE);
	assert_true(w->fresh);
	assert_int_equal(fstatat(w->setup.store_fd, "run/store.sock", &st, 0), 0);
	assert_int_equal(st.st_mode, S_IFSOCK | 0600);
	assert_int_equal(w->listeners[1], -1);
	storelink_quit(k);
	peer_receive(w, STORE_QUIT);
	storelink_free(k);
}

/* It is at work and answers nobody for longer than a pager may: that is no reason to kill it. */
static void test_patience(void **state)
{
	struct peer_world *w = *state;
	int listener = peer_listen_as_before(w, "run/store.sock");
	struct storelink *k = NULL;

	peer_no_delays(true);
	assert_int_equal(storelink_new(&w->setup, &ops, w, &k, NULL), 0);
	peer_accept(w, listener);
	peer_spin(w);
	assert_int_equal(w->kills, 0);
	peer_receive(w, STORE_LIST);
	peer_answer(w, STORE_REPLY, -EFBIG, "more than a message holds", NULL, NULL, 0); /* it lives, nevertheless */
	peer_until(w, w->ups == 1);
	assert_false(w->fresh);
	storelink_free(k);
	close(listener);
}

static void test_ingest(void **state)
{
	struct peer_world *w = *state;
	struct storelink *k = start_and_up(w);
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct json_object *meta = json_object_new_object();
	struct store_ingest i = {
		.uuid = SNAP_B,
		.parent = SNAP_A,
		.base = "",
		.created_ns = 12345678901234567890u,
		.memory_bytes = 512u << 20,
		.disk_bytes = 64ull << 30,
		.meta = meta,
		.state_fd = fd,
		.template_fd = fd,
		.bits_fd = fd,
		.nlayers = 2,
		.data = { fd, fd },
		.map = { fd, fd },
	};
	AUTO_JSON *o = NULL;
	const char *text;
	struct wire_rd r;
	struct buf b;
	size_t len;
	uint64_t created = 0;
	uint32_t id;

	json_object_object_add(meta, "name", json_object_new_string("b\"c"));
	assert_int_equal(store_ingest(k, &i, on_progress, on_reply, &seen, &id), 0);
	peer_receive(w, STORE_INGEST);
	assert_int_equal(w->m.id, id);
	assert_int_equal(w->m.nfds, 7);
	wire_rd_init(&r, w->m.data, w->m.len);
	text = wire_bytes(&r, 4096, &len);
	assert_int_equal(wire_u32(&r), 2);
	assert_int_equal(wire_done(&r), 0);
	assert_int_equal(json_parse(text, len, &o, NULL), 0);
	assert_int_equal(json_get_u64(o, "created_ns", 0, UINT64_MAX, &created, NULL), 0);
	assert_true(created == i.created_ns);
	assert_string_equal(json_object_get_string(json_object_object_get(o, "parent")), SNAP_A);
	assert_string_equal(json_object_get_string(json_object_object_get(o, "base")), "");
	assert_non_null(json_object_object_get(json_object_object_get(o, "meta"), "name"));
	/* Progress, also such that is not. */
	buf_init(&b, 64);
	peer_put(&b, "qq", (uint64_t)3, (uint64_t)9);
	assert_int_equal(msg_send(w->fd, STORE_PROGRESS, id, b.data, b.len, NULL, 0), 0);
	assert_int_equal(msg_send(w->fd, STORE_PROGRESS, id + 1, b.data, b.len, NULL, 0), 0);
	assert_int_equal(msg_send(w->fd, STORE_PROGRESS, id, b.data, 9, NULL, 0), 0);
	buf_reset(&b);
	peer_put(&b, "qq", (uint64_t)10, (uint64_t)9);
	assert_int_equal(msg_send(w->fd, STORE_PROGRESS, id, b.data, b.len, NULL, 0), 0);
	buf_fini(&b);
	peer_until(w, seen.progresses);
	peer_spin(w);
	assert_true(seen.progresses == 1 && seen.done == 3 && seen.total == 9);
	assert_int_equal(store_cancel(k, id), 0);
	msg_close_fds(&w->m);
	peer_receive(w, STORE_CANCEL);
	assert_int_equal(w->m.id, 0);
	wire_rd_init(&r, w->m.data, w->m.len);
	assert_int_equal(wire_u32(&r), id);
	assert_int_equal(wire_done(&r), 0);
	w->m.id = id;
	answer_text(w,
		    "{\"pages_new\":5,\"pages_known\":6,\"pages_zero\":7,\"bytes_stored\":8,\"shared_with_parent\":9,"
		    "\"disk_root\":\"\",\"memory_root\":"
		    "\"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\"}");
	assert_int_equal(seen.r.code, 0);
	assert_true(seen.r.ingested.pages_new == 5 && seen.r.ingested.shared_with_parent == 9 && seen.json);
	assert_int_equal(strlen(seen.r.ingested.memory_root), 64);
	assert_string_equal(seen.r.ingested.disk_root, "");
	json_object_put(meta);
	close(fd);
	storelink_free(k);
}

static void test_ingest_einval(void **state)
{
	struct peer_world *w = *state;
	struct storelink *k = start_and_up(w);
	const struct store_ingest good = {
		.uuid = SNAP_B, .parent = "", .base = "", .state_fd = 2, .template_fd = -1, .bits_fd = -1
	};
	struct store_ingest i = good;

	i.nlayers = STORE_LAYERS_MAX + 1;
	assert_int_equal(store_ingest(k, &i, NULL, on_reply, &seen, NULL), -EINVAL);
	i = good;
	i.state_fd = -1;
	assert_int_equal(store_ingest(k, &i, NULL, on_reply, &seen, NULL), -EINVAL);
	i = good;
	i.memory_bytes = 4096;
	assert_int_equal(store_ingest(k, &i, NULL, on_reply, &seen, NULL), -EINVAL);
	i = good;
	i.template_fd = 2;
	assert_int_equal(store_ingest(k, &i, NULL, on_reply, &seen, NULL), -EINVAL);
	i = good; /* disk only */
	assert_int_equal(store_ingest(k, &i, NULL, on_reply, &seen, NULL), 0);
	peer_receive(w, STORE_INGEST);
	assert_int_equal(w->m.nfds, 1);
	storelink_free(k);
	assert_int_equal(seen.r.code, -EPIPE);
}

static void test_replies(void **state)
{
	struct peer_world *w = *state;
	struct storelink *k = start_and_up(w);
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct buf b;

	assert_int_equal(store_verify(k, "", on_progress, on_reply, &seen, NULL), 0);
	peer_receive(w, STORE_VERIFY);
	answer_text(w, "{\"pages\":10,\"damaged\":1,\"first\":\"pack 3\",\"bytes_read\":11}");
	assert_true(seen.r.code == 0 && seen.r.verified.damaged == 1 && seen.r.verified.bytes_read == 11);
	assert_string_equal(seen.r.verified.first, "pack 3");
	assert_int_equal(store_gc(k, on_progress, on_reply, &seen, NULL), 0);
	peer_receive(w, STORE_GC);
	assert_int_equal(w->m.len, 0);
	answer_text(w,
		    "{\"bytes_before\":10,\"bytes_after\":4,\"packs_before\":2,\"packs_after\":1,\"pages_dropped\":3}");
	assert_true(seen.r.code == 0 && seen.r.gc.bytes_after == 4 && seen.r.gc.pages_dropped == 3);
	assert_int_equal(store_stat(k, on_reply, &seen), 0);
	peer_receive(w, STORE_STAT);
	answer_text(w, "{\"snapshots\":2,\"packs\":1,\"bytes_logical\":99}");
	assert_true(seen.r.code == 0 && seen.r.stat.snapshots == 2 && seen.r.stat.bytes_logical == 99);
	assert_int_equal(store_manifest(k, SNAP_A, on_reply, &seen), 0);
	peer_receive(w, STORE_MANIFEST);
	answer_text(w, "{}");
	assert_true(seen.r.code == 0 && seen.r.manifest.memory_pages == 7);
	assert_int_equal(store_manifest(k, SNAP_A, on_reply, &seen), 0);
	peer_receive(w, STORE_MANIFEST);
	answer_text(w, "{ }");
	assert_int_equal(seen.r.code, -EBADMSG);
	assert_int_equal(store_remove(k, SNAP_A, on_reply, &seen), 0);
	peer_receive(w, STORE_REMOVE);
	peer_answer(w, STORE_REPLY, 0, "", NULL, NULL, 0);
	peer_until(w, seen.n == 6);
	assert_int_equal(seen.r.code, 0);
	assert_int_equal(store_state(k, SNAP_A, on_reply, &seen), 0);
	peer_receive(w, STORE_STATE);
	peer_answer(w, STORE_REPLY, 0, "", NULL, &fd, 1);
	peer_until(w, seen.n == 7);
	assert_true(seen.r.code == 0 && seen.fd >= 0);
	assert_int_equal(store_state(k, SNAP_A, on_reply, &seen), 0);
	peer_receive(w, STORE_STATE);
	peer_answer(w, STORE_REPLY, 0, "", NULL, NULL, 0); /* without it */
	peer_until(w, seen.n == 8);
	assert_int_equal(seen.r.code, -EBADMSG);
	buf_init(&b, 256);
	peer_put(&b, "uss", 2u, SNAP_A, SNAP_B);
	assert_int_equal(store_list(k, on_reply, &seen), 0);
	peer_receive(w, STORE_LIST);
	peer_answer(w, STORE_REPLY, 0, "", &b, NULL, 0);
	peer_until(w, seen.n == 9);
	assert_true(seen.r.code == 0 && seen.r.nuuids == 2);
	assert_string_equal(seen.uuid, SNAP_B);
	buf_fini(&b);
	close(fd);
	storelink_free(k);
}

static void test_json_ebadmsg(void **state)
{
	struct peer_world *w = *state;
	struct storelink *k = start_and_up(w);
	static const char *const bad[] = {
		"",
		"[]",
		"{\"pages_new\":-1}",
		"{\"pages_new\":\"x\"}",
		"{\"memory_root\":\"00\"}",
		"{\"memory_root\":\"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeXX\"}",
		"{\"memory_root\":\"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff0\"}",
		"{\"disk_root\":7}",
		"{} {}",
	};
	const struct store_ingest i = {
		.uuid = SNAP_B, .parent = "", .base = "", .state_fd = 2, .template_fd = -1, .bits_fd = -1
	};

	for (size_t n = 0; n < ARRAY_LEN(bad); n++) {
		assert_int_equal(store_ingest(k, &i, NULL, on_reply, &seen, NULL), 0);
		peer_receive(w, STORE_INGEST);
		answer_text(w, bad[n]);
		assert_int_equal(seen.r.code, -EBADMSG);
		assert_false(seen.json);
		assert_string_equal(seen.words, "the store answers nonsense");
	}
	assert_true(storelink_is_up(k));
	storelink_free(k);
}

static int teardown(void **state)
{
	fd_close(&seen.fd);
	return peer_teardown_world(state);
}

int main(void)
{
#define with_world(test) cmocka_unit_test_setup_teardown(test, peer_setup_world, teardown)
	const struct CMUnitTest tests[] = {
		with_world(test_started),	with_world(test_patience), with_world(test_ingest),
		with_world(test_ingest_einval), with_world(test_replies),  with_world(test_json_ebadmsg),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
