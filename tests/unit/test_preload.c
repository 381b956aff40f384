/* SPDX-License-Identifier: Apache-2.0 */
/* The preload library in a program of ours (preload_subject.c), and the box's side against it and against fakes. */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/proc.h"
#include "vmm/preload/preload.h"

#define PAGE	  4096u
#define RAM	  (4u << 20)
#define SOCKET_AT 3
#define DEVICE_AT 4

struct fix {
	struct loop *loop;
	struct preload *preload;
	int far; /* fakes: the library's end */
	pid_t pid;
	FILE *in, *out;
	int done, code;
	bool lost;
	char words[200], line[600];
	uint64_t base;
	int mem, pagemap, uffd;
};

static void on_done(void *arg, struct preload_done *d)
{
	struct fix *f = arg;

	f->done++;
	f->code = d->code;
	f->lost = d->lost;
	snprintf(f->words, sizeof(f->words), "%s", d->words);
	if (d->code < 0)
		return;
	f->base = d->base;
	fd_close(&f->mem);
	fd_close(&f->pagemap);
	fd_close(&f->uffd);
	f->mem = take_fd(&d->mem);
	f->pagemap = take_fd(&d->pagemap);
	f->uffd = take_fd(&d->uffd);
}

static void until(struct fix *f, int want)
{
	uint64_t end = now_ns() + 20000000000ull;

	while (f->done < want && now_ns() < end)
		assert_int_equal(loop_once(f->loop, 50), 0);
	assert_int_equal(f->done, want);
}

static int order(struct fix *f, int template, uint64_t bytes, const struct preload_range *ranges, uint32_t n)
{
	int r = preload_order(f->preload, template, bytes, ranges, n, 20000, on_done, f);

	if (r < 0)
		return r;
	until(f, f->done + 1);
	return f->code;
}

/* -- the program with the library -------------------------------------------------------------- */

static const char *tell(struct fix *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(f->in, fmt, ap);
	va_end(ap);
	fprintf(f->in, "\n");
	fflush(f->in);
	assert_non_null(fgets(f->line, sizeof(f->line), f->out));
	return f->line;
}

static int die_with_us(void *arg, struct err *e)
{
	(void)arg;
	(void)e;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	return 0;
}

/* @ram: the text of the variable. The device goes along when there is one. */
static struct fix *subject(const char *ram, int *ret_socket)
{
	const char *build = getenv("CRUCIBLE_BUILD") ? getenv("CRUCIBLE_BUILD") : "build/release";
	struct fix *f = calloc(1, sizeof(*f));
	char path[300], preload[300], env_ram[80];
	char *argv[] = { path, NULL };
	char *envp[] = { preload, env_ram, (char *)"CRUCIBLE_PRELOAD_SOCKET=3", (char *)"CRUCIBLE_PRELOAD_UFFD=-1",
			 NULL };
	struct proc_spec spec = PROC_SPEC_INIT;
	AUTO_FD device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	int sock[2], in[2], out[2], fds[2];
	struct err e = { 0 };

	*f = (struct fix){ .mem = -1, .pagemap = -1, .uffd = -1, .far = -1 };
	snprintf(path, sizeof(path), "%s/unit/preload_subject", build);
	snprintf(preload, sizeof(preload), "LD_PRELOAD=%s/libexec/crucible-preload.so", build);
	snprintf(env_ram, sizeof(env_ram), "CRUCIBLE_PRELOAD_RAM=%s", ram);
	assert_int_equal(loop_new(&f->loop), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock), 0);
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	fds[0] = sock[1];
	fds[1] = device;
	if (device >= 0)
		envp[3] = (char *)"CRUCIBLE_PRELOAD_UFFD=4";
	spec.name = "subject";
	spec.path = path;
	spec.argv = argv;
	spec.envp = envp;
	spec.stdio[0] = in[0];
	spec.stdio[1] = out[1];
	spec.fds = fds;
	spec.nfds = device >= 0 ? 2 : 1;
	spec.setup = die_with_us;
	if (proc_spawn(&spec, &f->pid, NULL, &e) < 0)
		fail_msg("%s", e.msg);
	close(sock[1]);
	close(in[0]);
	close(out[1]);
	f->in = fdopen(in[1], "w");
	f->out = fdopen(out[0], "r");
	assert_non_null(fgets(f->line, sizeof(f->line), f->out));
	assert_string_equal(f->line, "hello\n");
	if (ret_socket)
		*ret_socket = sock[0];
	else
		assert_int_equal(preload_new(f->loop, sock[0], &f->preload), 0);
	return f;
}

static void over(struct fix *f)
{
	f->preload = preload_free(f->preload);
	assert_null(preload_free(NULL));
	if (f->in) {
		fclose(f->in);
		fclose(f->out);
		proc_wait(f->pid, NULL);
	}
	fd_close(&f->mem);
	fd_close(&f->pagemap);
	fd_close(&f->uffd);
	fd_close(&f->far);
	loop_free(f->loop);
	free(f);
}

static struct fix *mapped(void)
{
	struct fix *f = subject("4194304", NULL);

	assert_non_null(strstr(tell(f, "map %u 1", RAM), "private"));
	return f;
}

/* A template of @bytes; page 1 holds 0x11, page 2 0x22, page 100 0x64; the rest are holes. */
static int template_of(uint64_t bytes, int *ret_writable)
{
	static uint8_t page[PAGE];
	int fd = memfd_create("template", MFD_CLOEXEC), ro;
	char path[64];

	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	for (int i = 0; i < 3; i++) {
		const uint8_t at[] = { 1, 2, 100 };

		memset(page, at[i] < 100 ? at[i] * 0x11 : at[i], PAGE);
		assert_int_equal(pwrite(fd, page, PAGE, (off_t)at[i] * PAGE), PAGE);
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ro = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(ro >= 0);
	if (ret_writable)
		*ret_writable = fd;
	else
		close(fd);
	return ro;
}

static void test_only_the_one_mapping(void **state)
{
	struct fix *f = subject("4194304", NULL);

	(void)state;
	assert_non_null(strstr(tell(f, "map %u 1", RAM / 2), "file"));
	assert_non_null(strstr(tell(f, "map %u 0", RAM), "private")); /* the program's own wish */
	assert_non_null(strstr(tell(f, "map %u 1", RAM + PAGE), "file"));
	assert_int_equal(order(f, -1, 0, NULL, 0), -EAGAIN); /* none of these was it */
	assert_non_null(strstr(f->words, "not mapped its RAM yet"));
	assert_non_null(strstr(tell(f, "map %u 1", RAM), "private"));
	assert_int_equal(order(f, -1, 0, NULL, 0), 0);
	/* A second of that size. */
	snprintf(f->words, sizeof(f->words), "errno %d\n", EEXIST);
	assert_string_equal(tell(f, "map %u 1", RAM), f->words);
	over(f);
}

static void test_without_orders_it_does_nothing(void **state)
{
	static const char *const bad[] = { "", "0", "4194303", "4194304k", "-1" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct fix *f = subject(bad[i], NULL);

		assert_non_null(strstr(tell(f, "map %u 1", RAM), "file"));
		assert_non_null(strstr(tell(f, "map %u 1", RAM), "file"));
		over(f);
	}
}

/* What was written is read through the descriptors, and found by them. */
static void test_mem_and_pagemap(void **state)
{
	struct fix *f = mapped();
	uint64_t entry;
	uint8_t byte;

	(void)state;
	tell(f, "write %u 77", 5 * PAGE);
	assert_int_equal(order(f, -1, 0, NULL, 0), 0);
	assert_int_equal(f->uffd, -1); /* there was no template */
	assert_int_equal(pread(f->mem, &byte, 1, (off_t)(f->base + 5 * PAGE)), 1);
	assert_int_equal(byte, 77);
	assert_int_equal(pread(f->pagemap, &entry, 8, (off_t)(f->base / PAGE + 5) * 8), 8);
	assert_true(entry >> 63 && !(entry >> 61 & 1)); /* present, anonymous */
	assert_int_equal(pread(f->pagemap, &entry, 8, (off_t)(f->base / PAGE + 6) * 8), 8);
	assert_int_equal(entry >> 62, 0);
	over(f);
}

/* The template's pages, no longer the old ones; what is written stays private. */
static void test_a_template_in_its_place(void **state)
{
	struct fix *f = mapped();
	int writable, template = template_of(RAM, &writable);
	struct preload_range zeros[] = { { 0, PAGE }, { 101 * PAGE, RAM - 101 * PAGE } };
	uint64_t entry;
	uint8_t byte;

	(void)state;
	tell(f, "write %u 99", PAGE);
	assert_int_equal(order(f, template, RAM, zeros, 2), 0);
	assert_string_equal(tell(f, "read %u", PAGE), "17\n");
	assert_string_equal(tell(f, "read %u", 2 * PAGE + 5), "34\n");
	assert_string_equal(tell(f, "read 0"), "0\n");
	assert_string_equal(tell(f, "write %u 5", PAGE), "5\n");
	assert_string_equal(tell(f, "write 0 6"), "6\n");
	assert_int_equal(pread(writable, &byte, 1, PAGE), 1);
	assert_int_equal(byte, 17);
	assert_int_equal(lseek(writable, 0, SEEK_DATA), PAGE); /* zeros of its own, not the template's */
	/* Page 1 was written, page 2 only read. */
	assert_int_equal(pread(f->pagemap, &entry, 8, (off_t)(f->base / PAGE + 1) * 8), 8);
	assert_true(entry >> 63 && !(entry >> 61 & 1));
	assert_int_equal(pread(f->pagemap, &entry, 8, (off_t)(f->base / PAGE + 2) * 8), 8);
	assert_true(entry >> 63 && (entry >> 61 & 1));
	/* Again, the same: it is what it was. */
	assert_int_equal(order(f, template, RAM, NULL, 0), 0);
	assert_string_equal(tell(f, "read %u", PAGE), "17\n");
	close(template);
	close(writable);
	over(f);
}

static bool has_flag(struct fix *f, uint32_t page, const char *flag)
{
	tell(f, "flags %u", page * PAGE);
	return strstr(f->line, flag);
}

static void test_flags_are_put_back(void **state)
{
	struct fix *f = mapped();
	int template = template_of(RAM, NULL);
	struct preload_range zeros = { 50 * PAGE, 16 * PAGE };

	(void)state;
	assert_int_equal(order(f, template, RAM, &zeros, 1), 0);
	for (uint32_t page = 1; page < 200; page += 59) { /* before, in and behind the zeros */
		assert_true(has_flag(f, page, " dc"));	  /* not copied by a fork */
		assert_true(has_flag(f, page, " dd"));	  /* not dumped */
		assert_true(has_flag(f, page, " nr"));	  /* not accounted */
	}
	if (f->uffd >= 0) {
		assert_true(has_flag(f, 1, " um"));
		assert_false(has_flag(f, 60, " um"));
		assert_true(has_flag(f, 178, " um"));
	}
	close(template);
	over(f);
}

/* The next fault of the program, filled with @value. */
static void serve_fault(struct fix *f, int writable, uint32_t page, uint8_t value)
{
	struct pollfd p = { .fd = f->uffd, .events = POLLIN };
	uint8_t bytes[PAGE];
	struct uffd_msg msg;
	struct uffdio_range wake = { .start = f->base + (uint64_t)page * PAGE, .len = PAGE };

	assert_int_equal(poll(&p, 1, 20000), 1);
	assert_int_equal(read(f->uffd, &msg, sizeof(msg)), sizeof(msg));
	assert_int_equal(msg.event, UFFD_EVENT_PAGEFAULT);
	assert_int_equal(msg.arg.pagefault.address & ~(uint64_t)(PAGE - 1), wake.start);
	memset(bytes, value, PAGE);
	assert_int_equal(pwrite(writable, bytes, PAGE, (off_t)page * PAGE), PAGE);
	assert_int_equal(ioctl(f->uffd, UFFDIO_WAKE, &wake), 0);
}

static void test_holes_fault(void **state)
{
	struct fix *f = mapped();

	(void)state;
	/* Twice: the second template is registered with the same userfaultfd. */
	for (uint32_t round = 0; round < 2; round++) {
		int writable, template = template_of(RAM, &writable);

		assert_int_equal(order(f, template, RAM, NULL, 0), 0);
		if (f->uffd < 0) {
			fprintf(stderr, "skipped: no /dev/userfaultfd here\n");
			close(template);
			close(writable);
			over(f);
			skip();
		}
		assert_string_equal(tell(f, "read %u", PAGE), "17\n"); /* there: no fault */
		fprintf(f->in, "read %u\n", 7 * PAGE);
		fflush(f->in);
		serve_fault(f, writable, 7, (uint8_t)(40 + round));
		assert_non_null(fgets(f->line, sizeof(f->line), f->out));
		assert_int_equal(strtol(f->line, NULL, 10), 40 + round);
		/* The kernel's own access, by the descriptor: without a fault once it is there. */
		assert_int_equal(pread(f->mem, f->words, 1, (off_t)(f->base + 7 * PAGE)), 1);
		assert_int_equal(f->words[0], 40 + round);
		close(template);
		close(writable);
	}
	over(f);
}

static void test_refused_orders_change_nothing(void **state)
{
	struct fix *f = mapped();
	int writable, good = template_of(RAM, &writable), small = template_of(RAM / 2, NULL);
	static const struct preload_range bad[][2] = {
		{ { 1, PAGE } },
		{ { 0, PAGE - 1 } },
		{ { 0, 0 } },
		{ { RAM, PAGE } },
		{ { RAM - PAGE, 2 * PAGE } },
		{ { UINT64_MAX - PAGE + 1, PAGE } },
		{ { PAGE, UINT64_MAX - PAGE + 1 } },
		{ { 0, 2 * PAGE }, { PAGE, PAGE } },
		{ { 8 * PAGE, PAGE }, { 0, PAGE } },
	};
	int pair[2];

	(void)state;
	tell(f, "write %u 99", PAGE);
	assert_int_equal(order(f, small, RAM / 2, NULL, 0), -EINVAL);
	assert_non_null(strstr(f->words, "size of the RAM"));
	assert_int_equal(order(f, small, RAM, NULL, 0), -EINVAL);
	assert_int_equal(order(f, good, RAM / 2, NULL, 0), -EINVAL);
	assert_int_equal(order(f, writable, RAM, NULL, 0), -EINVAL);
	assert_non_null(strstr(f->words, "open for writing"));
	assert_int_equal(pipe(pair), 0);
	assert_int_equal(order(f, pair[0], RAM, NULL, 0), -EINVAL);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(order(f, good, RAM, bad[i], bad[i][1].bytes ? 2 : 1), -EINVAL);
		assert_non_null(strstr(f->words, "ranges"));
	}
	assert_string_equal(tell(f, "read %u", PAGE), "99\n");
	/* Never sent. */
	assert_int_equal(order(f, good, RAM, bad[0], PRELOAD_RANGES_MAX + 1), -EINVAL);
	assert_int_equal(order(f, -1, 0, bad[0], 1), -EINVAL);
	close(pair[0]);
	close(pair[1]);
	close(good);
	close(small);
	close(writable);
	over(f);
}

/* The template is in place, its ranges of zeros are not: the kernel has no room for more mappings. The machine must not
 * go on, and that is said. */
static void test_a_lost_ram_is_said(void **state)
{
	struct fix *f = mapped();
	int good = template_of(RAM, NULL), small = template_of(RAM / 2, NULL);
	const struct preload_range zeros = { 16 * PAGE, 16 * PAGE };

	(void)state;
	tell(f, "write %u 99", PAGE);
	assert_string_equal(tell(f, "crowd"), "full\n");
	assert_int_equal(order(f, small, RAM, NULL, 0), -EINVAL);
	assert_false(f->lost); /* nothing was replaced */
	assert_string_equal(tell(f, "read %u", PAGE), "99\n");
	assert_int_equal(order(f, good, RAM, &zeros, 1), -ENOMEM);
	assert_true(f->lost);
	assert_int_equal(order(f, good, RAM, NULL, 0), -ENOTRECOVERABLE);
	assert_true(f->lost);
	assert_int_equal(order(f, -1, 0, NULL, 0), 0);
	close(good);
	close(small);
	over(f);
}

/* Bytes that are no order get an answer that says so, and the next order is served. */
static void test_malformed_orders(void **state)
{
	struct preload_order o = { .magic = PRELOAD_MAGIC };
	struct preload_answer a;
	struct fix *f;
	int sock;

	(void)state;
	f = subject("4194304", &sock);
	assert_non_null(strstr(tell(f, "map %u 1", RAM), "private"));
	assert_int_equal(send(sock, "x", 1, 0), 1);
	assert_int_equal(recv(sock, &a, sizeof(a), 0), sizeof(a));
	assert_int_equal(a.code, -EBADMSG);
	o.nranges = PRELOAD_RANGES_MAX + 1;
	assert_int_equal(send(sock, &o, sizeof(o), 0), sizeof(o));
	assert_int_equal(recv(sock, &a, sizeof(a), 0), sizeof(a));
	assert_int_equal(a.code, -EBADMSG);
	o.nranges = 0;
	o.bytes = RAM; /* of no template */
	assert_int_equal(send(sock, &o, sizeof(o), 0), sizeof(o));
	assert_int_equal(recv(sock, &a, sizeof(a), 0), sizeof(a));
	assert_int_equal(a.code, -EINVAL);
	o.bytes = 0;
	assert_int_equal(send(sock, &o, sizeof(o), 0), sizeof(o));
	assert_int_equal(recv(sock, &a, sizeof(a), 0), sizeof(a));
	assert_int_equal(a.code, 0);
	assert_true(a.base != 0);
	close(sock);
	/* The program lives on without a box. */
	assert_string_equal(tell(f, "write %u 3", PAGE), "3\n");
	over(f);
}

/* -- the box's side against fakes -------------------------------------------------------------- */

static struct fix *fake(void)
{
	struct fix *f = calloc(1, sizeof(*f));
	int pair[2];

	*f = (struct fix){ .mem = -1, .pagemap = -1, .uffd = -1 };
	assert_int_equal(loop_new(&f->loop), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	f->far = pair[1];
	assert_int_equal(preload_new(f->loop, pair[0], &f->preload), 0);
	return f;
}

static void answer(struct fix *f, const void *data, size_t len, size_t nfds)
{
	union {
		char space[CMSG_SPACE(8 * sizeof(int))];
		struct cmsghdr align;
	} c = { 0 };
	struct iovec iov = { .iov_base = (void *)data, .iov_len = len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	int fds[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };

	if (nfds) {
		struct cmsghdr *h;

		m.msg_control = &c;
		m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(h), fds, nfds * sizeof(int));
	}
	assert_int_equal(sendmsg(f->far, &m, MSG_NOSIGNAL), (ssize_t)len);
}

static void begin(struct fix *f, uint32_t timeout_ms)
{
	assert_int_equal(preload_order(f->preload, -1, 0, NULL, 0, timeout_ms, on_done, f), 0);
}

static void test_epipe(void **state)
{
	struct fix *f = fake();

	(void)state;
	begin(f, 20000);
	assert_int_equal(preload_order(f->preload, -1, 0, NULL, 0, 1, on_done, f), -EBUSY);
	fd_close(&f->far);
	until(f, 1);
	assert_int_equal(f->code, -EPIPE);
	assert_int_equal(preload_order(f->preload, -1, 0, NULL, 0, 1, on_done, f), -EPIPE);
	over(f);
}

/* A late answer is not the next order's. */
static void test_etimedout_and_ebusy(void **state)
{
	struct preload_answer a = { .magic = PRELOAD_MAGIC, .code = -EINVAL, .words = "late" };
	struct fix *f = fake();
	uint64_t end = now_ns() + 20000000000ull;
	int r = -EBUSY;

	(void)state;
	begin(f, 5);
	until(f, 1);
	assert_int_equal(f->code, -ETIMEDOUT);
	assert_int_equal(preload_order(f->preload, -1, 0, NULL, 0, 20000, on_done, f), -EBUSY);
	answer(f, &a, sizeof(a), 0);
	while (r == -EBUSY && now_ns() < end) {
		loop_once(f->loop, 10);
		r = preload_order(f->preload, -1, 0, NULL, 0, 20000, on_done, f);
	}
	assert_int_equal(r, 0);
	assert_int_equal(f->done, 1);
	memcpy(a.words, "\n\033in time", 10);
	answer(f, &a, sizeof(a), 0);
	until(f, 2);
	assert_int_equal(f->code, -EINVAL);
	assert_string_equal(f->words, "??in time");
	over(f);
}

/* An engine that was taken over: the connection ends, nothing leaks. */
static void test_nonsense(void **state)
{
	static const struct {
		struct preload_answer a;
		size_t len, nfds;
	} bad[] = {
		{ { .magic = PRELOAD_MAGIC }, 4, 0 },
		{ { .magic = PRELOAD_MAGIC + 1 }, sizeof(struct preload_answer), 2 },
		{ { .magic = PRELOAD_MAGIC, .code = 1 }, sizeof(struct preload_answer), 2 },
		{ { .magic = PRELOAD_MAGIC, .code = -5000 }, sizeof(struct preload_answer), 0 },
		{ { .magic = PRELOAD_MAGIC, .code = -1 }, sizeof(struct preload_answer), 1 },
		{ { .magic = PRELOAD_MAGIC }, sizeof(struct preload_answer), 0 },
		{ { .magic = PRELOAD_MAGIC }, sizeof(struct preload_answer), 3 },
		{ { .magic = PRELOAD_MAGIC }, sizeof(struct preload_answer), 8 },
		{ { .magic = PRELOAD_MAGIC, .has_uffd = 1 }, sizeof(struct preload_answer), 3 }, /* unasked */
		{ { .magic = PRELOAD_MAGIC, .lost = 1 }, sizeof(struct preload_answer), 2 },
		{ { .magic = PRELOAD_MAGIC, .code = -1, .lost = 2 }, sizeof(struct preload_answer), 0 },
		{ { .magic = PRELOAD_MAGIC, .has_uffd = 2 }, sizeof(struct preload_answer), 3 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct fix *f = fake();

		begin(f, 20000);
		answer(f, &bad[i].a, bad[i].len, bad[i].nfds);
		until(f, 1);
		assert_int_equal(f->code, -EPIPE);
		assert_non_null(strstr(f->words, "nonsense"));
		assert_int_equal(preload_order(f->preload, -1, 0, NULL, 0, 1, on_done, f), -EPIPE);
		over(f);
	}
}

static void on_done_frees(void *arg, struct preload_done *d)
{
	struct fix *f = arg;

	f->done++;
	f->code = d->code;
	f->preload = preload_free(f->preload);
}

static void test_freed_inside(void **state)
{
	struct preload_answer a = { .magic = PRELOAD_MAGIC };
	struct fix *f = fake();

	(void)state;
	assert_int_equal(preload_order(f->preload, -1, 0, NULL, 0, 20000, on_done_frees, f), 0);
	answer(f, &a, sizeof(a), 2);
	until(f, 1);
	assert_int_equal(f->code, 0);
	over(f);
	f = fake();
	assert_int_equal(preload_order(f->preload, -1, 0, NULL, 0, 1, on_done_frees, f), 0);
	until(f, 1);
	assert_int_equal(f->code, -ETIMEDOUT);
	over(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_only_the_one_mapping),
		cmocka_unit_test(test_without_orders_it_does_nothing),
		cmocka_unit_test(test_mem_and_pagemap),
		cmocka_unit_test(test_a_template_in_its_place),
		cmocka_unit_test(test_flags_are_put_back),
		cmocka_unit_test(test_holes_fault),
		cmocka_unit_test(test_refused_orders_change_nothing),
		cmocka_unit_test(test_a_lost_ram_is_said),
		cmocka_unit_test(test_malformed_orders),
		cmocka_unit_test(test_epipe),
		cmocka_unit_test(test_etimedout_and_ebusy),
		cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_freed_inside),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
