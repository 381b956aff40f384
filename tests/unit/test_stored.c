/* SPDX-License-Identifier: Apache-2.0 */
/* crucible-store as a program, confined as it is in service: a snapshot in, and everything that can be asked of it. */
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/msg.h"
#include "base/proc.h"
#include "base/wire.h"
#include "snap_rig.h"
#include "snapstore/stored/stored.h"

#define PAGES  3000u
#define BLOCKS 20000u

struct server {
	struct snap_rig rig;
	char socket[100];
	pid_t pid;
	int fd;
	uint32_t id;
	/* The last answer. */
	uint8_t buf[MSG_MAX];
	struct msg m;
	int32_t code;
	char words[400];
	struct wire_rd rest;
	unsigned progress;
};

static const char *program(void)
{
	static char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 40);

	assert_true(n > 0);
	path[n] = '\0';
	strcat(dirname(path), "/../libexec/crucible-store");
	return path;
}

static void connect_to(struct server *s)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };

	fd_close(&s->fd);
	strcpy(at.sun_path, s->socket);
	s->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(s->fd, (struct sockaddr *)&at, sizeof(at)), 0);
}

static void start(struct server *s, const char *uid, const char *orphan_ms)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	char folder[100];
	const char *argv[] = { "crucible-store", "--snapstore", folder, "--daemon-uid", uid,
			       "--orphan-ms",	 orphan_ms,	NULL };
	struct proc_spec spec = PROC_SPEC_INIT;
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(folder, sizeof(folder), "%s/store", s->rig.path);
	snprintf(s->socket, sizeof(s->socket), "%s/sock", s->rig.path);
	unlink(s->socket);
	strcpy(at.sun_path, s->socket);
	assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(listener, 4), 0);
	spec.name = "store";
	spec.path = program();
	spec.argv = (char *const *)argv;
	spec.envp = environ;
	spec.stdio[2] = 2;
	spec.fds = &listener;
	spec.nfds = 1;
	OK(proc_spawn(&spec, &s->pid, NULL, &rig_err));
	close(listener);
	s->fd = -1;
}

static struct server *server_new(void)
{
	struct server *s = calloc(1, sizeof(*s));
	char uid[20];

	assert_non_null(s);
	snap_rig_new(&s->rig);
	s->rig.s = snap_close(s->rig.s);
	snprintf(uid, sizeof(uid), "%u", (unsigned)getuid());
	start(s, uid, "90000");
	connect_to(s);
	return s;
}

static int ended(struct server *s)
{
	int status = -1;

	assert_int_equal(proc_wait(s->pid, &status), 0);
	s->pid = -1;
	return status;
}

static void server_free(struct server *s)
{
	if (s->pid > 0) {
		msg_send(s->fd, STORE_QUIT, 0, NULL, 0, NULL, 0);
		assert_int_equal(ended(s), 0);
	}
	fd_close(&s->fd);
	snap_rig_free(&s->rig);
	free(s);
}

static void receive(struct server *s)
{
	struct pollfd p = { s->fd, POLLIN, 0 };

	do {
		assert_int_equal(poll(&p, 1, 60000), 1);
		assert_int_equal(msg_recv(s->fd, s->buf, sizeof(s->buf), &s->m), 0);
		s->progress += s->m.type == STORE_PROGRESS;
	} while (s->m.type == STORE_PROGRESS);
	assert_int_equal(s->m.type, STORE_REPLY);
	wire_rd_init(&s->rest, s->m.data, s->m.len);
	s->code = (int32_t)wire_u32(&s->rest);
	wire_str(&s->rest, s->words, sizeof(s->words));
	assert_false(s->rest.bad);
	assert_int_equal(s->code != 0, *s->words != 0);
}

static int ask(struct server *s, uint16_t type, const struct buf *b, const int *fds, size_t nfds)
{
	assert_int_equal(msg_send(s->fd, type, ++s->id, b ? b->data : NULL, b ? b->len : 0, fds, nfds), 0);
	receive(s);
	assert_int_equal(s->m.id, s->id);
	return s->code;
}

static int ask_str(struct server *s, uint16_t type, const char *text)
{
	struct buf b;
	int r;

	buf_init(&b, 1000);
	assert_int_equal(wire_put_str(&b, text), 0);
	r = ask(s, type, &b, NULL, 0);
	buf_fini(&b);
	return r;
}

static struct json_object *answer(struct server *s)
{
	struct json_object *o = NULL;
	const char *text;
	size_t len;

	assert_int_equal(s->code, 0);
	text = wire_bytes(&s->rest, MSG_MAX, &len);
	assert_int_equal(wire_done(&s->rest), 0);
	OK(json_parse(text, len, &o, &rig_err));
	return o;
}

static uint64_t number(struct server *s, const char *key)
{
	AUTO_JSON *o = answer(s);
	uint64_t v = UINT64_MAX;

	/* The answer may be asked again. */
	wire_rd_init(&s->rest, s->m.data + 4 + 4, s->m.len - 8);
	OK(json_get_u64(o, key, 0, UINT64_MAX, &v, &rig_err));
	return v;
}

/* -- what is stored ----------------------------------------------------------------------------------------- */

static int file_of(const void *data, size_t len)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_int_equal(fd_pwrite_all(fd, data, len, 0), 0);
	return fd;
}

static void put_page(int fd, uint64_t index, uint64_t seed)
{
	uint8_t page[SNAP_PAGE_BYTES];

	rig_page(seed, page);
	assert_int_equal(fd_pwrite_all(fd, page, sizeof(page), index * sizeof(page)), 0);
}

struct layer {
	int data, map;
	uint8_t kinds[BLOCKS / 4];
};

static void layer_new(struct layer *l)
{
	memset(l, 0, sizeof(*l));
	l->data = memfd_create("data", MFD_CLOEXEC);
	l->map = memfd_create("map", MFD_CLOEXEC);
}

static void layer_set(struct layer *l, unsigned block, unsigned kind, uint64_t seed)
{
	l->kinds[block / 4] = (uint8_t)(l->kinds[block / 4] | kind << block % 4 * 2);
	if (kind == 1)
		put_page(l->data, block, seed);
	assert_int_equal(fd_pwrite_all(l->map, l->kinds, sizeof(l->kinds), 0), 0);
}

/* Memory: seed of page i for each i that is a multiple of @every. */
static int ingest(struct server *s, unsigned uuid, unsigned base, uint64_t seed, unsigned every, struct layer *layers,
		  unsigned nlayers)
{
	char name[SNAP_UUID_LEN + 1], base_name[SNAP_UUID_LEN + 1] = "", json[500];
	uint8_t bits[PAGES / 8 + 1] = { 0 };
	int fds[16], r;
	size_t n = 0;
	struct buf b;

	rig_uuid(uuid, name);
	if (base)
		rig_uuid(base, base_name);
	fds[n++] = file_of("device state", 12);
	fds[n++] = memfd_create("memory", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fds[1], (off_t)PAGES * SNAP_PAGE_BYTES), 0);
	for (unsigned i = 0; i < PAGES; i += every) {
		bits[i / 8] = (uint8_t)(bits[i / 8] | 1 << i % 8);
		put_page(fds[1], i, seed + i);
		/* Not captured: must not be looked at. */
		if (every > 1 && i + 1 < PAGES)
			put_page(fds[1], i + 1, 999999);
	}
	fds[n++] = file_of(bits, sizeof(bits));
	for (unsigned i = 0; i < nlayers; i++) {
		fds[n++] = layers[i].data;
		fds[n++] = layers[i].map;
	}
	snprintf(
		json, sizeof(json),
		"{\"uuid\":\"%s\",\"parent\":\"%s\",\"base\":\"%s\",\"created_ns\":5,\"memory_bytes\":%u,\"disk_bytes\":%u,"
		"\"meta\":{\"a\":[1]}}",
		name, base_name, base_name, PAGES * SNAP_PAGE_BYTES, BLOCKS * SNAP_PAGE_BYTES - 100);
	buf_init(&b, 1000);
	assert_int_equal(wire_put_str(&b, json) | wire_put_u32(&b, nlayers), 0);
	r = ask(s, STORE_INGEST, &b, fds, n);
	buf_fini(&b);
	for (size_t i = 0; i < 3; i++)
		close(fds[i]);
	return r;
}

static void expect_map(struct snap *s, const struct snap_digest *root, uint64_t entries, uint64_t index, uint64_t seed)
{
	uint8_t want[SNAP_PAGE_BYTES], got[SNAP_PAGE_BYTES];
	struct snap_map *m = NULL;
	struct snap_digest d;

	OK(snap_map_open(s, root, entries, &m, &rig_err));
	OK(snap_map_get(m, index, &d, &rig_err));
	snap_map_close(m);
	if (seed == UINT64_MAX) {
		assert_true(snap_digest_equal(&d, &snap_absent));
		return;
	}
	rig_page(seed, want);
	OK(snap_page_read(s, &d, got, &rig_err));
	assert_memory_equal(want, got, sizeof(want));
}

static void test_a_snapshot_and_its_child(void **state)
{
	struct stat st;
	static struct layer old, new;
	struct server *s = server_new();
	char one[SNAP_UUID_LEN + 1], two[SNAP_UUID_LEN + 1], bytes[20];
	struct snap_manifest m, m2;
	struct snap *reader;
	const char *text;
	size_t len;

	(void)state;
	rig_uuid(1, one);
	rig_uuid(2, two);
	layer_new(&old);
	layer_new(&new);
	for (unsigned i = 0; i < 200; i++)
		layer_set(&old, 100 + i, 1, 50000 + i);
	layer_set(&old, BLOCKS - 1, 1, 7);
	layer_set(&new, 101, 1, 60000);
	layer_set(&new, 102, 2, 0);
	layer_set(&new, 19000, 2, 0);
	assert_int_equal(ask(s, STORE_PING, NULL, NULL, 0), 0);
	assert_int_equal(ingest(s, 1, 0, 1000, 3, (struct layer[]){ old, new }, 2), 0);
	assert_int_equal(number(s, "pages_new"), PAGES / 3 + 200);
	assert_int_equal(number(s, "pages_known"), 0);
	assert_int_equal(number(s, "shared_with_parent"), 0);

	/* As it is written, by a reader of its own. */
	reader = snap_rig_reader(&s->rig);
	OK(snap_manifest_read(reader, one, &m, &rig_err));
	assert_int_equal(m.memory_pages, PAGES);
	assert_int_equal(m.disk_blocks, BLOCKS);
	assert_int_equal(m.created_ns, 5);
	assert_string_equal(json_line(m.meta), "{\"a\":[1]}");
	for (unsigned i = 0; i < PAGES; i += 7)
		expect_map(reader, &m.memory, PAGES, i, i % 3 ? 0 : 1000 + i);
	expect_map(reader, &m.disk, BLOCKS, 99, UINT64_MAX);
	expect_map(reader, &m.disk, BLOCKS, 100, 50000);
	expect_map(reader, &m.disk, BLOCKS, 101, 60000);
	expect_map(reader, &m.disk, BLOCKS, 102, 0);
	expect_map(reader, &m.disk, BLOCKS, 103, 50003);
	expect_map(reader, &m.disk, BLOCKS, 19000, 0);
	expect_map(reader, &m.disk, BLOCKS, BLOCKS - 1, 7);

	/* A child of few pages and no layer: the rest is the base's. */
	assert_int_equal(ingest(s, 2, 1, 5000, 1500, NULL, 0), 0);
	assert_int_equal(number(s, "pages_new"), 2);
	assert_int_equal(number(s, "shared_with_parent"), PAGES / 3 - 2 + 200);
	OK(snap_manifest_read(reader, two, &m2, &rig_err));
	assert_string_equal(m2.parent, one);
	assert_true(snap_digest_equal(&m.disk, &m2.disk));
	expect_map(reader, &m2.memory, PAGES, 0, 5000);
	expect_map(reader, &m2.memory, PAGES, 3, 1003);
	expect_map(reader, &m2.memory, PAGES, 1500, 6500);
	assert_int_equal(ingest(s, 2, 1, 5000, 1500, NULL, 0), -EEXIST);
	assert_int_equal(ingest(s, 3, 9, 5000, 1500, NULL, 0), -ENOENT);

	/* What can be asked. */
	assert_int_equal(ask(s, STORE_LIST, NULL, NULL, 0), 0);
	assert_int_equal(wire_u32(&s->rest), 2);
	assert_int_equal(ask_str(s, STORE_MANIFEST, one), 0);
	text = wire_bytes(&s->rest, MSG_MAX, &len);
	snap_manifest_fini(&m);
	OK(snap_manifest_parse(text, len, &m, &rig_err));
	assert_int_equal(m.memory_pages, PAGES);
	assert_int_equal(ask_str(s, STORE_MANIFEST, "nonsense"), -EINVAL);
	assert_int_equal(ask_str(s, STORE_STATE, two), 0);
	assert_int_equal(s->m.nfds, 1);
	assert_int_equal(pread(s->m.fds[0], bytes, sizeof(bytes), 0), 12);
	assert_memory_equal(bytes, "device state", 12);
	/* Every fork gets this one. */
	assert_int_equal(pwrite(s->m.fds[0], "x", 1, 0), -1);
	assert_int_equal(ftruncate(s->m.fds[0], 0), -1);
	assert_int_equal(fstat(s->m.fds[0], &st), 0);
	assert_int_equal(st.st_mode & 0777, 0444);
	msg_close_fds(&s->m);
	assert_int_equal(ask_str(s, STORE_VERIFY, two), 0);
	assert_int_equal(number(s, "damaged"), 0);
	assert_int_equal(ask_str(s, STORE_VERIFY, ""), 0);
	assert_int_equal(number(s, "damaged"), 0);
	assert_int_equal(number(s, "pages"), PAGES / 3 + 202);
	assert_int_equal(ask(s, STORE_STAT, NULL, NULL, 0), 0);
	assert_int_equal(number(s, "snapshots"), 2);
	assert_int_equal(ask_str(s, STORE_REMOVE, one), 0);
	assert_int_equal(ask_str(s, STORE_REMOVE, one), 0);
	assert_int_equal(ask(s, STORE_GC, NULL, NULL, 0), 0);
	assert_int_equal(number(s, "pages_dropped"), 2);
	expect_map(reader, &m2.memory, PAGES, 3, 1003);
	snap_manifest_fini(&m);
	snap_manifest_fini(&m2);
	snap_close(reader);
	close(old.data), close(old.map), close(new.data), close(new.map);
	server_free(s);
}

/* What a start waits for, and a daemon's greeting, do not stand in line behind what is slow. */
static void test_quick_ones_do_not_wait(void **state)
{
	enum { SLOW = 50 };
	struct server *s = server_new();
	unsigned verified = 0, quick = 0, at_last = 0;
	char uuid[40];
	struct buf b;

	(void)state;
	assert_int_equal(ingest(s, 1, 0, 5000, 1500, NULL, 0), 0);
	rig_uuid(1, uuid);
	buf_init(&b, 100);
	for (int i = 0; i < SLOW; i++) {
		buf_reset(&b);
		wire_put_str(&b, "");
		assert_int_equal(msg_send(s->fd, STORE_VERIFY, 1000, b.data, b.len, NULL, 0), 0);
	}
	assert_int_equal(msg_send(s->fd, STORE_LIST, 1, NULL, 0, NULL, 0), 0);
	buf_reset(&b);
	wire_put_str(&b, uuid);
	assert_int_equal(msg_send(s->fd, STORE_STATE, 2, b.data, b.len, NULL, 0), 0);
	assert_int_equal(msg_send(s->fd, STORE_MANIFEST, 3, b.data, b.len, NULL, 0), 0);
	while (verified + quick < SLOW + 3) {
		receive(s);
		assert_int_equal(s->code, 0);
		if (s->m.id == 1000) {
			verified++;
			continue;
		}
		assert_int_equal(s->m.id, ++quick);
		assert_int_equal(s->m.nfds, s->m.id == 2);
		msg_close_fds(&s->m);
		at_last = verified;
	}
	assert_true(at_last < SLOW);
	/* One of a snapshot that is about to go waits for that. */
	for (int i = 0; i < 3; i++) {
		static const uint16_t types[] = { STORE_VERIFY, STORE_REMOVE, STORE_STATE };

		assert_int_equal(msg_send(s->fd, types[i], 2000 + i, b.data, b.len, NULL, 0), 0);
	}
	for (unsigned i = 0; i < 3; i++) {
		receive(s);
		assert_int_equal(s->m.id, 2000 + i);
	}
	assert_int_equal(s->code, -ENOENT);
	buf_fini(&b);
	server_free(s);
}

static void test_requests_that_are_none(void **state)
{
	struct server *s = server_new();
	static struct layer bad;
	struct buf b;

	(void)state;
	assert_int_equal(ask(s, 999, NULL, NULL, 0), -EBADMSG);
	assert_int_equal(ask(s, STORE_VERIFY, NULL, NULL, 0), -EBADMSG);
	assert_int_equal(ask(s, STORE_INGEST, NULL, NULL, 0), -EBADMSG);
	assert_int_equal(ask_str(s, STORE_STAT, "x"), -EBADMSG);
	buf_init(&b, 1000);
	assert_int_equal(wire_put_str(&b, "{\"uuid\":1}") | wire_put_u32(&b, 0), 0);
	assert_int_equal(ask(s, STORE_INGEST, &b, NULL, 0), -EINVAL);
	buf_fini(&b);
	assert_int_equal(wire_put_str(&b, "{\"uuid\":\"00000001-0000-4000-8000-000000000000\",\"disk_bytes\":4096}") |
				 wire_put_u32(&b, 7),
			 0);
	assert_int_equal(ask(s, STORE_INGEST, &b, NULL, 0), -E2BIG);
	buf_fini(&b);
	assert_int_equal(wire_put_str(&b, "{\"uuid\":\"00000001-0000-4000-8000-000000000000\",\"memory_bytes\":4096}") |
				 wire_put_u32(&b, 0),
			 0);
	assert_int_equal(ask(s, STORE_INGEST, &b, NULL, 0), -EINVAL);
	/* A template that is shorter than it says. */
	{
		int fds[3] = { file_of("x", 1), file_of("x", 1), file_of("x", 1) };

		assert_int_equal(ask(s, STORE_INGEST, &b, fds, 3), -EINVAL);
		for (unsigned i = 0; i < 3; i++)
			close(fds[i]);
	}
	buf_fini(&b);
	layer_new(&bad);
	layer_set(&bad, 5, 3, 0);
	assert_int_equal(ingest(s, 1, 0, 1, 100, &bad, 1), -EINVAL);
	close(bad.data), close(bad.map);
	assert_int_equal(rig_files(&s->rig, "packs", "", NULL), 0);
	server_free(s);
}

static void test_a_newer_client_takes_over(void **state)
{
	struct server *s = server_new();
	int first = s->fd;
	char byte;

	(void)state;
	assert_int_equal(ask(s, STORE_LIST, NULL, NULL, 0), 0);
	s->fd = -1;
	connect_to(s);
	assert_int_equal(ask(s, STORE_LIST, NULL, NULL, 0), 0);
	assert_true(recv(first, &byte, 1, 0) <= 0);
	close(first);
	server_free(s);
}

static void test_another_uid_is_not_answered(void **state)
{
	struct server *s = calloc(1, sizeof(*s));
	char byte;

	(void)state;
	assert_non_null(s);
	snap_rig_new(&s->rig);
	s->rig.s = snap_close(s->rig.s);
	start(s, "4242", "90000");
	connect_to(s);
	assert_true(recv(s->fd, &byte, 1, 0) <= 0);
	kill(s->pid, SIGTERM);
	assert_true(WIFSIGNALED(ended(s)));
	server_free(s);
}

static void test_it_ends_when_nobody_comes(void **state)
{
	struct server *s = calloc(1, sizeof(*s));

	(void)state;
	assert_non_null(s);
	snap_rig_new(&s->rig);
	s->rig.s = snap_close(s->rig.s);
	start(s, "4242", "20");
	assert_int_equal(ended(s), 0);
	server_free(s);
}

static void test_what_runs_is_finished_without_its_client(void **state)
{
	struct server *s = server_new();
	char uuid[SNAP_UUID_LEN + 1];
	struct snap_manifest m;
	struct snap *reader;

	(void)state;
	assert_int_equal(ingest(s, 1, 0, 1, 1, NULL, 0), 0);
	assert_int_equal(msg_send(s->fd, STORE_VERIFY, 5, "\0\0\0", 4, NULL, 0), 0);
	assert_int_equal(msg_send(s->fd, STORE_CANCEL, 0, "\5\0\0", 4, NULL, 0), 0);
	receive(s); /* canceled, or done already */
	assert_true(s->code == 0 || s->code == -ECANCELED);
	assert_int_equal(msg_send(s->fd, STORE_GC, 6, NULL, 0, NULL, 0), 0);
	connect_to(s);
	assert_int_equal(ask(s, STORE_STAT, NULL, NULL, 0), 0); /* done after the gc of the other */
	reader = snap_rig_reader(&s->rig);
	rig_uuid(1, uuid);
	OK(snap_manifest_read(reader, uuid, &m, &rig_err));
	snap_manifest_fini(&m);
	snap_close(reader);
	server_free(s);
}

static long peak_kib(pid_t pid)
{
	AUTO_FREE char *text = NULL;
	char path[64];
	const char *p;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	assert_int_equal(fd_slurp(-1, path, 65536, &text, NULL), 0);
	p = strstr(text, "VmHWM:");
	assert_non_null(p);
	return strtol(p + strlen("VmHWM:"), NULL, 10);
}

/* More than one pack's worth of pages that are all new: what it holds does not grow with it. */
static void test_memory_is_bounded(void **state)
{
	const uint64_t pages = 80000;
	struct server *s = server_new();
	uint8_t *bits = malloc(pages / 8);
	int fds[3] = { file_of("state", 5), memfd_create("memory", MFD_CLOEXEC), -1 };
	uint8_t page[SNAP_PAGE_BYTES];
	char json[300];
	uint64_t start;
	struct buf b;
	long before, after;

	(void)state;
	rig_page(77, page);
	for (uint64_t i = 0; i < pages; i++) {
		memcpy(page, &i, sizeof(i));
		assert_int_equal(fd_pwrite_all(fds[1], page, sizeof(page), i * sizeof(page)), 0);
	}
	memset(bits, 0xff, pages / 8);
	fds[2] = file_of(bits, pages / 8);
	assert_int_equal(ask(s, STORE_LIST, NULL, NULL, 0), 0);
	before = peak_kib(s->pid);
	snprintf(json, sizeof(json),
		 "{\"uuid\":\"00000001-0000-4000-8000-000000000000\",\"memory_bytes\":%llu,\"meta\":{}}",
		 (unsigned long long)pages * SNAP_PAGE_BYTES);
	buf_init(&b, 1000);
	assert_int_equal(wire_put_str(&b, json) | wire_put_u32(&b, 0), 0);
	start = now_ns();
	assert_int_equal(ask(s, STORE_INGEST, &b, fds, 3), 0);
	print_message("%.0f MB/s\n", (double)pages * SNAP_PAGE_BYTES * 1e3 / (double)(now_ns() - start));
	print_message("progress was told %u times\n", s->progress);
	after = peak_kib(s->pid);
	print_message("at its most: %ld KiB, %ld KiB at first\n", after, before);
	assert_int_equal(number(s, "pages_new"), pages);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	assert_true(after - before <= 32 * 1024);
#endif
	buf_fini(&b);
	free(bits);
	for (unsigned i = 0; i < 3; i++)
		close(fds[i]);
	server_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_snapshot_and_its_child),
		cmocka_unit_test(test_quick_ones_do_not_wait),
		cmocka_unit_test(test_requests_that_are_none),
		cmocka_unit_test(test_a_newer_client_takes_over),
		cmocka_unit_test(test_another_uid_is_not_answered),
		cmocka_unit_test(test_it_ends_when_nobody_comes),
		cmocka_unit_test(test_what_runs_is_finished_without_its_client),
		cmocka_unit_test(test_memory_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
