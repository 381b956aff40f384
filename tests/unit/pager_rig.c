/* SPDX-License-Identifier: Apache-2.0 */
#include "pager_rig.h"

#include <fcntl.h>
#include <ftw.h>
#include <json-c/json.h>
#include <libgen.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/confine.h"
#include "base/fd.h"
#include "base/wire.h"

#define SEEDS_MAX 16384u /* pages of one order */

/* -- the pager ---------------------------------------------------------------------------------------------- */

static int listening(const char *path, int type)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	unlink(path);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 8), 0);
	return fd;
}

static int give(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return lchown(path, 65534, 65534);
}

/* The program itself, in service: another user, seccomp and all. */
static void program(struct pager_rig *r)
{
	char self[128] = { 0 }, path[256], uid[16];

	/* The program's own name for it. */
	if (symlinkat("store", r->store.dirfd, "snapstore") < 0 && errno != EEXIST)
		_exit(4);
	nftw(r->store.path, give, 16, FTW_PHYS);
	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		_exit(4);
	snprintf(path, sizeof(path), "%s/../libexec/crucible-pager", dirname(self));
	snprintf(uid, sizeof(uid), "%u", (unsigned)getuid());
	if (dup2(r->listen_fd, 20) < 0 || dup2(r->blocks_fd, 21) < 0 || dup2(20, 3) < 0 || dup2(21, 4) < 0 ||
	    confine_drop(r->as, r->as, 0, NULL) < 0)
		_exit(5);
	close_range(5, 1000, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execl(path, "crucible-pager", uid, r->store.path, (char *)NULL);
	_exit(6);
}

static void pager_process(struct pager_rig *r)
{
	struct pager_params p = r->params;
	struct pager *pager = NULL;
	struct loop *l;
	struct err e = { 0 };

	if (r->as)
		program(r);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	p.listen_fd = dup(r->listen_fd);
	p.blocks_fd = dup(r->blocks_fd);
	p.rootfd = open(r->store.path, O_RDONLY | O_DIRECTORY);
	p.disksfd = openat(p.rootfd, "disks", O_RDONLY | O_DIRECTORY);
	p.procfd = open("/proc/self/fd", O_PATH | O_DIRECTORY);
	if (loop_new(&l) < 0 || pager_new(l, &p, &pager, &e) < 0) {
		fprintf(stderr, "pager: %s\n", e.msg);
		_exit(3);
	}
	loop_run(l);
	pager_free(pager);
	loop_free(l);
	exit(0); /* not _exit: leaks are looked for */
}

void pager_rig_start(struct pager_rig *r)
{
	fflush(stdout);
	r->pid = fork();
	assert_true(r->pid >= 0);
	if (r->pid == 0)
		pager_process(r);
}

void pager_rig_connect(struct pager_rig *r)
{
	struct timeval patience = { .tv_sec = 20 };
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	fd_close(&r->client);
	r->client = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s/pager.sock", r->store.path);
	/* A pager that is not there fails a test, and does not hang it. */
	assert_int_equal(setsockopt(r->client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
	assert_int_equal(connect(r->client, (struct sockaddr *)&a, sizeof(a)), 0);
}

void pager_rig_new(struct pager_rig *r)
{
	char path[128];

	memset(r, 0, sizeof(*r));
	snap_rig_new(&r->store);
	r->params = (struct pager_params)PAGER_PARAMS_INIT;
	r->params.daemon_uid = getuid();
	r->params.store = "store";
	r->client = -1;
	assert_int_equal(mkdirat(r->store.dirfd, "disks", 0700), 0);
	snprintf(path, sizeof(path), "%s/pager.sock", r->store.path);
	r->listen_fd = listening(path, SOCK_SEQPACKET);
	snprintf(path, sizeof(path), "%s/nbd.sock", r->store.path);
	r->blocks_fd = listening(path, SOCK_STREAM);
	pager_rig_start(r);
	pager_rig_connect(r);
}

int pager_rig_end(struct pager_rig *r)
{
	int status = -1;

	if (r->pid > 0)
		assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
	r->pid = 0;
	return status;
}

void pager_rig_kill(struct pager_rig *r)
{
	kill(r->pid, SIGKILL);
	pager_rig_end(r);
}

void pager_rig_free(struct pager_rig *r)
{
	struct buf b;

	if (r->pid) {
		buf_init(&b, 64);
		rig_send(r, PAGER_QUIT, &b, NULL, 0);
		assert_int_equal(pager_rig_end(r), 0);
	}
	fd_close(&r->client);
	fd_close(&r->listen_fd);
	fd_close(&r->blocks_fd);
	snap_rig_free(&r->store);
}

/* -- messages ----------------------------------------------------------------------------------------------- */

void rig_send(struct pager_rig *r, uint16_t type, struct buf *b, const int *fds, size_t nfds)
{
	assert_int_equal(msg_send(r->client, type, ++r->next_id, b->data, b->len, fds, nfds), 0);
	buf_reset(b);
}

static void note_lost(struct pager_rig *r, const struct msg *m)
{
	struct wire_rd rd;

	assert_true(r->nlost < RIG_LOST_MAX);
	wire_rd_init(&rd, m->data, m->len);
	wire_str(&rd, r->lost[r->nlost].machine, sizeof(r->lost[0].machine));
	r->lost[r->nlost].code = (int)wire_u32(&rd);
	wire_str(&rd, r->lost[r->nlost].words, sizeof(r->lost[0].words));
	assert_int_equal(wire_done(&rd), 0);
	r->nlost++;
}

static bool receive(struct pager_rig *r, struct rig_reply *ret)
{
	struct wire_rd rd;
	struct msg m;

	assert_int_equal(msg_recv(r->client, ret->data, sizeof(ret->data), &m), 0);
	if (m.type == PAGER_LOST) {
		note_lost(r, &m);
		return false;
	}
	assert_int_equal(m.type, PAGER_REPLY);
	wire_rd_init(&rd, m.data, m.len);
	ret->code = (int)wire_u32(&rd);
	wire_str(&rd, ret->words, sizeof(ret->words));
	assert_false(rd.bad);
	ret->len = wire_left(&rd);
	memmove(ret->data, rd.p, ret->len);
	ret->nfds = m.nfds;
	memcpy(ret->fds, m.fds, sizeof(ret->fds));
	return true;
}

int rig_receive(struct pager_rig *r, struct rig_reply *ret)
{
	while (!receive(r, ret))
		;
	return ret->code;
}

void rig_wait_lost(struct pager_rig *r, unsigned n)
{
	struct rig_reply y;

	while (r->nlost < n)
		assert_false(receive(r, &y));
}

int rig_ask(struct pager_rig *r, uint16_t type, struct buf *b, const int *fds, size_t nfds, struct rig_reply *ret)
{
	rig_send(r, type, b, fds, nfds);
	return rig_receive(r, ret);
}

void rig_close(struct rig_reply *y)
{
	for (size_t i = 0; i < y->nfds; i++)
		fd_close(&y->fds[i]);
	y->nfds = 0;
}

int rig_ask_str(struct pager_rig *r, uint16_t type, const char *s)
{
	struct rig_reply y;
	struct buf b;

	buf_init(&b, 256);
	wire_put_str(&b, s);
	rig_ask(r, type, &b, NULL, 0, &y);
	rig_close(&y);
	buf_fini(&b);
	return y.code;
}

uint64_t rig_stat(struct pager_rig *r, const char *snapshot, const char *key)
{
	struct json_object *o, *list, *found = NULL;
	struct rig_reply y;
	struct wire_rd rd;
	struct buf b;
	const char *text;
	uint64_t value;
	size_t len;

	buf_init(&b, 256);
	assert_int_equal(rig_ask(r, PAGER_STAT, &b, NULL, 0, &y), 0);
	wire_rd_init(&rd, y.data, y.len);
	text = wire_bytes(&rd, MSG_MAX, &len);
	assert_int_equal(wire_done(&rd), 0);
	o = json_tokener_parse(strndupa(text, len));
	assert_non_null(o);
	if (!snapshot)
		found = o;
	list = json_object_object_get(o, "templates");
	for (size_t i = 0; snapshot && i < json_object_array_length(list); i++) {
		struct json_object *t = json_object_array_get_idx(list, i);

		if (!strcmp(json_object_get_string(json_object_object_get(t, "snapshot")), snapshot))
			found = t;
	}
	assert_non_null(found);
	value = json_object_get_uint64(json_object_object_get(found, key));
	json_object_put(o);
	return value;
}

/* -- pages -------------------------------------------------------------------------------------------------- */

void rig_words(uint64_t seed, uint64_t page[SNAP_PAGE_BYTES / 8])
{
	uint64_t x = seed * 0x9e3779b97f4a7c15ull;

	if (!seed) {
		memset(page, 0, SNAP_PAGE_BYTES);
		return;
	}
	for (unsigned i = 0; i < SNAP_PAGE_BYTES / 8; i++)
		page[i] = x ^ (uint64_t)i * 0x100000001ull;
}

void rig_store_pages(struct pager_rig *r, const char *uuid, const uint64_t *seeds, uint32_t n)
{
	struct snap_manifest m = { .memory_pages = n, .created_ns = 1 };
	uint64_t page[SNAP_PAGE_BYTES / 8];
	struct snap_batch *b = NULL;
	struct snap_edit *d = NULL;

	strcpy(m.uuid, uuid);
	OK(snap_batch_new(r->store.s, &b, &rig_err));
	OK(snap_edit_new(b, NULL, &snap_zero, n, &d, &rig_err));
	for (uint32_t i = 0; i < n; i++) {
		if (!seeds[i])
			continue;
		rig_words(seeds[i], page);
		OK(snap_edit_put(d, i, page, &rig_err));
	}
	OK(snap_edit_finish(d, &m.memory, &rig_err));
	OK(snap_batch_commit(b, &m, NULL, &rig_err));
}

/* -- the machine's process ---------------------------------------------------------------------------------- */

enum op { OP_MAP, OP_CHECK, OP_WRITE, OP_TOUCH };

struct order {
	uint32_t op, page, n, flags;
	uint32_t nranges;
	struct pg_range ranges[PAGER_RANGES_MAX];
	uint64_t seeds[SEEDS_MAX];
};
struct result {
	int32_t code;
	uint64_t value;
	uint8_t has_uffd;
};

#define FLAG_UFFD  1u
#define FLAG_WRITE 2u
#define ORDER_HEAD offsetof(struct order, seeds)

static int make_uffd(uint64_t base, const struct order *o)
{
	AUTO_FD dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	AUTO_FD u = dev < 0 ? -1 : ioctl(dev, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	struct uffdio_api api = { .api = UFFD_API };
	uint64_t at = 0;

	if (u < 0 || ioctl(u, UFFDIO_API, &api) < 0)
		return -1;
	for (uint32_t i = 0; i <= o->nranges; i++) {
		uint64_t end = i < o->nranges ? o->ranges[i].offset : (uint64_t)o->n * SNAP_PAGE_BYTES;
		struct uffdio_register reg = { .range = { base + at, end - at }, .mode = UFFDIO_REGISTER_MODE_MISSING };

		if (end > at && ioctl(u, UFFDIO_REGISTER, &reg) < 0)
			return -1;
		if (i < o->nranges)
			at = o->ranges[i].offset + o->ranges[i].bytes;
	}
	return take_fd(&u);
}

/* As the preload library does it. */
static void do_map(const struct order *o, int fd, uint8_t **base, int *uffd, struct result *res)
{
	size_t len = (size_t)o->n * SNAP_PAGE_BYTES;
	int where = *base ? MAP_FIXED : 0, kind = fd < 0 ? MAP_ANONYMOUS : MAP_NORESERVE;

	*base = mmap(*base, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | where | kind, fd, 0);
	madvise(*base, len, MADV_NOHUGEPAGE);
	for (uint32_t i = 0; i < o->nranges && *base != MAP_FAILED; i++)
		if (mmap(*base + o->ranges[i].offset, o->ranges[i].bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
			*base = MAP_FAILED;
	fd_close(uffd);
	if (*base != MAP_FAILED && (o->flags & FLAG_UFFD))
		*uffd = make_uffd((uintptr_t)*base, o);
	res->code = *base == MAP_FAILED || ((o->flags & FLAG_UFFD) && *uffd < 0) ? -errno : 0;
	res->value = (uintptr_t)*base;
	res->has_uffd = *uffd >= 0;
}

static uint64_t touch(uint8_t *base, const struct order *o)
{
	uint64_t start = now_ns();

	for (uint32_t i = o->page; i < o->page + o->n; i++) {
		volatile uint8_t *p = base + (size_t)i * SNAP_PAGE_BYTES;

		if (o->flags & FLAG_WRITE)
			p[8] = 1;
		else
			(void)p[8];
	}
	return now_ns() - start;
}

static void machine_process(int sock)
{
	static struct order o;
	uint64_t page[SNAP_PAGE_BYTES / 8];
	uint8_t *base = NULL;
	int uffd = -1;
	struct msg m;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (msg_recv(sock, &o, sizeof(o), &m) == 0) {
		struct result res = { 0 };
		int fds[3], nfds = 0;

		memmove(&o, m.data, m.len);
		if (o.op == OP_MAP) {
			do_map(&o, m.nfds ? m.fds[0] : -1, &base, &uffd, &res);
			fds[nfds++] = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
			fds[nfds++] = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
			if (uffd >= 0)
				fds[nfds++] = uffd;
		}
		for (uint32_t i = 0; i < o.n && o.op == OP_CHECK; i++) {
			rig_words(o.seeds[i], page);
			res.value += memcmp(page, base + (size_t)(o.page + i) * SNAP_PAGE_BYTES, sizeof(page)) != 0;
		}
		for (uint32_t i = 0; i < o.n && o.op == OP_WRITE; i++)
			rig_words(o.seeds[i], (uint64_t *)(void *)(base + (size_t)(o.page + i) * SNAP_PAGE_BYTES));
		if (o.op == OP_TOUCH)
			res.value = touch(base, &o);
		msg_close_fds(&m);
		msg_send(sock, 1, 1, &res, sizeof(res), fds, (size_t)nfds);
		for (int i = 0; i < nfds && i < 2; i++)
			close(fds[i]);
	}
	_exit(0);
}

/* -- its other side ----------------------------------------------------------------------------------------- */

static void order(struct rig_machine *m, struct order *o, uint32_t nseeds, const uint64_t *seeds, int fd)
{
	assert_true(nseeds <= SEEDS_MAX);
	if (nseeds)
		memcpy(o->seeds, seeds, nseeds * 8);
	assert_int_equal(msg_send(m->sock, 1, 1, o, ORDER_HEAD + nseeds * 8, &fd, fd >= 0), 0);
}

static struct result result(struct rig_machine *m, int fds[3])
{
	struct result res;
	struct msg got;
	uint8_t data[128];

	assert_int_equal(msg_recv(m->sock, data, sizeof(data), &got), 0);
	assert_int_equal(got.len, sizeof(res));
	memcpy(&res, got.data, sizeof(res));
	assert_int_equal(res.code, 0);
	for (size_t i = 0; i < 3 && fds; i++)
		fds[i] = i < got.nfds ? take_fd(&got.fds[i]) : -1;
	msg_close_fds(&got);
	return res;
}

static struct order *order_new(enum op op, uint32_t page, uint32_t n)
{
	struct order *o = calloc(1, sizeof(*o));

	assert_non_null(o);
	o->op = op;
	o->page = page;
	o->n = n;
	return o;
}

void rig_machine_map(struct rig_machine *m, const struct rig_template *t, bool uffd)
{
	struct order *o = order_new(OP_MAP, 0, m->pages);
	int fds[3];

	if (uffd)
		o->flags = FLAG_UFFD;
	m->nranges = t ? t->nranges : 0;
	if (t) {
		o->nranges = t->nranges;
		memcpy(o->ranges, t->ranges, sizeof(o->ranges));
		memcpy(m->ranges, t->ranges, sizeof(m->ranges));
	}
	order(m, o, 0, NULL, t ? t->fd : -1);
	free(o);
	m->base = result(m, fds).value;
	fd_close(&m->mem);
	fd_close(&m->pagemap);
	fd_close(&m->uffd);
	m->mem = fds[0];
	m->pagemap = fds[1];
	m->uffd = fds[2];
}

void rig_machine_new(struct rig_machine *m, unsigned number, const struct rig_template *t, uint32_t pages, bool uffd)
{
	int pair[2];

	memset(m, 0, sizeof(*m));
	m->uffd = m->mem = m->pagemap = -1;
	m->pages = pages;
	rig_uuid(0xaa000000u + number, m->id);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	fflush(stdout);
	m->pid = fork();
	assert_true(m->pid >= 0);
	if (m->pid == 0) {
		close(pair[0]);
		machine_process(pair[1]);
	}
	close(pair[1]);
	m->sock = pair[0];
	rig_machine_map(m, t, uffd);
}

void rig_machine_free(struct rig_machine *m)
{
	fd_close(&m->sock);
	kill(m->pid, SIGKILL);
	waitpid(m->pid, NULL, 0);
	fd_close(&m->uffd);
	fd_close(&m->mem);
	fd_close(&m->pagemap);
}

int rig_machine_attach(struct pager_rig *r, struct rig_machine *m, const char *snapshot)
{
	int fds[3], n = 0;
	struct rig_reply y;
	struct buf b;

	buf_init(&b, 8192);
	wire_put_str(&b, m->id);
	wire_put_str(&b, snapshot);
	wire_put_u64(&b, m->base);
	wire_put_u64(&b, (uint64_t)m->pages * SNAP_PAGE_BYTES);
	pg_ranges_put(&b, m->ranges, m->nranges);
	if (m->uffd >= 0)
		fds[n++] = m->uffd;
	fds[n++] = m->mem;
	fds[n++] = m->pagemap;
	rig_ask(r, PAGER_ATTACH, &b, fds, (size_t)n, &y);
	buf_fini(&b);
	if (y.code)
		print_message("attach: %s\n", y.words);
	return y.code;
}

static void ranges_get(struct wire_rd *rd, struct rig_template *t)
{
	t->nranges = wire_u32(rd);
	assert_true(t->nranges <= PAGER_RANGES_MAX);
	for (uint32_t i = 0; i < t->nranges; i++) {
		t->ranges[i].offset = wire_u64(rd);
		t->ranges[i].bytes = wire_u64(rd);
	}
	assert_int_equal(wire_done(rd), 0);
}

int rig_template(struct pager_rig *r, const char *snapshot, uint32_t pages, struct rig_template *ret)
{
	return rig_template_ask(r, snapshot, pages, false, ret);
}

int rig_template_ask(struct pager_rig *r, const char *snapshot, uint32_t pages, bool whole, struct rig_template *ret)
{
	struct rig_reply y;
	struct wire_rd rd;
	struct buf b;

	memset(ret, 0, sizeof(*ret));
	ret->fd = -1;
	ret->pages = pages;
	buf_init(&b, 256);
	wire_put_str(&b, snapshot);
	wire_put_u64(&b, (uint64_t)pages * SNAP_PAGE_BYTES);
	wire_put_u8(&b, whole);
	if (rig_ask(r, PAGER_TEMPLATE, &b, NULL, 0, &y) == 0) {
		wire_rd_init(&rd, y.data, y.len);
		ranges_get(&rd, ret);
		assert_int_equal(y.nfds, 1);
		ret->fd = y.fds[0];
	}
	buf_fini(&b);
	return y.code;
}

void rig_machine_check_send(struct rig_machine *m, uint32_t page, uint32_t n, const uint64_t *seeds)
{
	struct order *o = order_new(OP_CHECK, page, n);

	order(m, o, n, seeds, -1);
	free(o);
}

uint32_t rig_machine_check_receive(struct rig_machine *m)
{
	return (uint32_t)result(m, NULL).value;
}

uint32_t rig_machine_check(struct rig_machine *m, uint32_t page, uint32_t n, const uint64_t *seeds)
{
	rig_machine_check_send(m, page, n, seeds);
	return rig_machine_check_receive(m);
}

void rig_machine_write(struct rig_machine *m, uint32_t page, uint32_t n, const uint64_t *seeds)
{
	struct order *o = order_new(OP_WRITE, page, n);

	order(m, o, n, seeds, -1);
	free(o);
	result(m, NULL);
}

void rig_machine_touch(struct rig_machine *m, uint32_t page, uint32_t n, bool write, uint64_t *ret_ns)
{
	struct order *o = order_new(OP_TOUCH, page, n);
	struct result res;

	o->flags = write ? FLAG_WRITE : 0;
	order(m, o, 0, NULL, -1);
	free(o);
	res = result(m, NULL);
	if (ret_ns)
		*ret_ns = res.value;
}

bool rig_machine_answers(struct rig_machine *m, int timeout_ms)
{
	struct pollfd p = { .fd = m->sock, .events = POLLIN };

	return poll(&p, 1, timeout_ms) == 1;
}

int rig_snapshot(struct pager_rig *r, struct rig_machine *m, const char *from, const char *to, struct rig_reply *ret)
{
	struct rig_template t = { .pages = m->pages };
	struct wire_rd rd;
	struct buf b;

	buf_init(&b, 512);
	wire_put_str(&b, to);
	wire_put_u64(&b, (uint64_t)m->pages * SNAP_PAGE_BYTES);
	wire_put_str(&b, from);
	if (rig_ask(r, PAGER_CAPTURE_BEGIN, &b, NULL, 0, ret) != 0)
		goto out;
	assert_int_equal(ret->nfds, 1);
	t.fd = ret->fds[0];
	wire_put_str(&b, m->id);
	wire_put_str(&b, to);
	wire_put_str(&b, m->disk);
	if (rig_ask(r, PAGER_CAPTURE, &b, NULL, 0, ret) == 0) {
		wire_rd_init(&rd, ret->data, ret->len);
		wire_u64(&rd);
		wire_u64(&rd);
		ranges_get(&rd, &t);
		rig_machine_map(m, &t, true);
		assert_int_equal(rig_machine_attach(r, m, to), 0);
	}
	fd_close(&t.fd);
out:
	buf_fini(&b);
	return ret->code;
}
