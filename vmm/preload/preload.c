/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * See preload.h for what it is for. This file becomes a shared object of its own, loaded into a process that is not
 * ours: it may use the C library and nothing else, prints one line at most, and never ends the process.
 *
 * Two threads meet here. The engine's calls mmap(); the one that is the RAM's is recorded once, `ram` last
 * (release), and never changes again. Ours serves the socket, one order after the other, and is the only one that puts
 * anything else in that place. The engine does not touch its RAM meanwhile: it waits for its state, or is paused.
 *
 * The userfaultfd is made at the start, before any guest runs, and the device that makes them is closed. There is one
 * for life: a new template's mapping is registered with the same; the mapping that it replaces takes its registration
 * along. Whatever fails before the first mapping is replaced leaves all as it was; after it the RAM is lost, and
 * that is said. */
#undef _FILE_OFFSET_BITS /* with it the C library's header renames mmap() to mmap64(); both are defined here */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vmm/preload/preload.h"

#define PAGE	  4096u
#define STACK	  (256u * 1024) /* the engine's thread-local variables lie in it too */
#define DEV_MAGIC 0xaa

/* Kernel headers of Debian 12 know it; those of older builders may not. */
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(DEV_MAGIC, 0x00)
#endif

static uint64_t ram_bytes; /* 0: nothing to do here */
static int sock = -1;
static int uffd = -1; /* stays open for life */
static atomic_bool ram_taken;
static _Atomic(char *) ram; /* NULL: not mapped yet */
static bool ram_lost;	    /* our thread's */

static void *raw_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): that is what the call returns */
	return (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, off);
}

/* -- the one mapping --------------------------------------------------------------------------- */

static void say(const char *words)
{
	ssize_t n = write(2, words, strlen(words));

	(void)n;
}

static void *map(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	int type = flags & MAP_TYPE;
	void *p;

	if (!ram_bytes || len != ram_bytes || fd < 0 || (type != MAP_SHARED && type != MAP_SHARED_VALIDATE))
		return raw_mmap(addr, len, prot, flags, fd, off);
	if (atomic_exchange(&ram_taken, true)) {
		say("crucible-preload: a second mapping of the size of the RAM is refused\n");
		errno = EEXIST;
		return MAP_FAILED;
	}
	p = raw_mmap(addr, len, prot, (flags & ~(MAP_TYPE | MAP_SYNC)) | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		     -1, 0);
	if (p == MAP_FAILED)
		atomic_store(&ram_taken, false);
	else
		atomic_store_explicit(&ram, p, memory_order_release);
	return p;
}

/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): the C library's are reserved names */
void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	return map(addr, len, prot, flags, fd, off);
}

void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	return map(addr, len, prot, flags, fd, off);
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */

/* -- one order --------------------------------------------------------------------------------- */

static int refuse(struct preload_answer *a, int code, const char *words)
{
	a->code = code;
	snprintf(a->words, sizeof(a->words), "%s", words);
	return code;
}

static int refuse_errno(struct preload_answer *a, const char *step)
{
	a->code = -errno;
	snprintf(a->words, sizeof(a->words), "%s: %s", step, strerror(errno));
	return a->code;
}

/* The ranges are in order, aligned, apart and inside of the RAM. */
static bool ranges_fit(const struct preload_order *o)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < o->nranges; i++) {
		const struct preload_range *r = &o->ranges[i];

		if (r->offset % PAGE || r->bytes % PAGE || !r->bytes || r->offset < at || r->offset > ram_bytes ||
		    r->bytes > ram_bytes - r->offset)
			return false;
		at = r->offset + r->bytes;
	}
	return true;
}

static int check(const struct preload_order *o, int template, struct preload_answer *a)
{
	struct stat st;

	if (o->magic != PRELOAD_MAGIC || o->nranges > PRELOAD_RANGES_MAX)
		return refuse(a, -EBADMSG, "the order is malformed");
	if (!atomic_load_explicit(&ram, memory_order_acquire))
		return refuse(a, -EAGAIN, "the engine has not mapped its RAM yet");
	if (template <0)
		return o->nranges || o->bytes ? refuse(a, -EINVAL, "an order with ranges or bytes, but no template")
					      : 0;
	if (ram_lost)
		return refuse(a, -ENOTRECOVERABLE, "the RAM was lost by an earlier order");
	if (fstat(template, &st) < 0)
		return refuse_errno(a, "template: stat");
	if ((fcntl(template, F_GETFL) & O_ACCMODE) != O_RDONLY)
		return refuse(a, -EINVAL, "the template is open for writing");
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != ram_bytes || o->bytes != ram_bytes)
		return refuse(a, -EINVAL, "the template is not of the size of the RAM");
	if (!ranges_fit(o))
		return refuse(a, -EINVAL, "the ranges are out of order or out of bounds");
	return 0;
}

/* What lies between the ranges of zeros is the template's. @len may be 0. */
static int watch(const char *start, uint64_t len, struct preload_answer *a)
{
	struct uffdio_register reg = { .range = { .start = (uintptr_t)start, .len = len },
				       .mode = UFFDIO_REGISTER_MODE_MISSING };

	if (uffd < 0 || len == 0)
		return 0;
	return ioctl(uffd, UFFDIO_REGISTER, &reg) < 0 ? refuse_errno(a, "userfaultfd: register") : 0;
}

static int put(const struct preload_order *o, int template, struct preload_answer *a)
{
	const int flags = MAP_FIXED | MAP_PRIVATE | MAP_NORESERVE, prot = PROT_READ | PROT_WRITE;
	char *base = atomic_load_explicit(&ram, memory_order_acquire);
	uint64_t at = 0;

	if (raw_mmap(base, ram_bytes, prot, flags, template, 0) == MAP_FAILED)
		return refuse_errno(a, "template: mmap"); /* nothing was replaced */
	ram_lost = true;
	for (uint32_t i = 0; i < o->nranges; i++) {
		const struct preload_range *r = &o->ranges[i];

		if (raw_mmap(base + r->offset, r->bytes, prot, flags | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
			return refuse_errno(a, "the RAM is lost: mmap of zeros");
		if (watch(base + at, r->offset - at, a) < 0)
			return a->code;
		at = r->offset + r->bytes;
	}
	if (watch(base + at, ram_bytes - at, a) < 0)
		return a->code;
	/* What the engine asked for the mapping that was here. */
	if (madvise(base, ram_bytes, MADV_DONTFORK) < 0 || madvise(base, ram_bytes, MADV_DONTDUMP) < 0)
		return refuse_errno(a, "madvise");
	ram_lost = false;
	return 0;
}

/* -- the socket -------------------------------------------------------------------------------- */

union control {
	char space[CMSG_SPACE(3 * sizeof(int))];
	struct cmsghdr align;
};

static void close_if(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* The length of the next order, 0 at the end, -1 on an error. What was cut off is malformed: *@ret_len is then wrong.
 */
static ssize_t receive(struct preload_order *o, int *ret_template)
{
	union control c = { 0 };
	struct iovec iov = { .iov_base = o, .iov_len = sizeof(*o) };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.space, .msg_controllen = sizeof(c.space)
	};
	struct cmsghdr *h;
	bool strange;
	ssize_t n;

	*ret_template = -1;
	do
		n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n;
	strange = m.msg_flags & (MSG_TRUNC | MSG_CTRUNC);
	for (h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h)) {
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (h->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(fd));
			strange |= *ret_template >= 0;
			close_if(ret_template);
			*ret_template = fd;
		}
	}
	if (strange || n != sizeof(*o)) {
		close_if(ret_template);
		memset(o, 0, sizeof(*o)); /* no magic: refused as malformed */
	}
	return n;
}

static int answer(const struct preload_answer *a, const int *fds, size_t nfds)
{
	union control c = { 0 };
	struct iovec iov = { .iov_base = (void *)a, .iov_len = sizeof(*a) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (nfds) {
		struct cmsghdr *h;

		m.msg_control = c.space;
		m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(h), fds, nfds * sizeof(int));
	}
	do
		n = sendmsg(sock, &m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

/* One order, one answer. <0: the socket is of no more use. */
static int serve(const struct preload_order *o, int template)
{
	struct preload_answer a = { .magic = PRELOAD_MAGIC };
	int fds[3] = { -1, -1, uffd };
	size_t nfds = 0;
	int r = check(o, template, &a);

	/* First what may fail without harm. */
	if (r == 0) {
		fds[0] = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
		fds[1] = fds[0] < 0 ? -1 : open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
		if (fds[1] < 0)
			r = refuse_errno(&a, "/proc/self/{mem,pagemap}");
	}
	if (r == 0 && template >= 0)
		r = put(o, template, &a);
	if (r == 0) {
		a.base = (uintptr_t)atomic_load_explicit(&ram, memory_order_acquire);
		a.has_uffd = template >= 0 && uffd >= 0;
		nfds = a.has_uffd ? 3 : 2;
	} else {
		a.lost = ram_lost && template >= 0;
	}
	r = answer(&a, fds, nfds);
	close_if(&fds[0]);
	close_if(&fds[1]);
	return r;
}

static void *thread_main(void *arg)
{
	static struct preload_order order; /* 4 KiB, of this thread only */
	int template;

	(void)arg;
	while (receive(&order, &template) > 0) {
		int r = serve(&order, template);

		close_if(&template);
		if (r < 0)
			break;
	}
	return NULL; /* the box is gone; the engine will follow it */
}

/* -- the start --------------------------------------------------------------------------------- */

/* A decimal number of the environment, or -1. */
static long long env_number(const char *name)
{
	const char *text = getenv(name);
	char *end;
	long long n;

	if (!text || !*text)
		return -1;
	errno = 0;
	n = strtoll(text, &end, 10);
	return errno || *end || n < 0 ? -1 : n;
}

/* A userfaultfd that may also serve the kernel's own accesses (KVM's, and read() into the RAM), or -1. */
static int make_uffd(int device)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0 && (ioctl(fd, UFFDIO_API, &api) < 0 || !(api.features & UFFD_FEATURE_MISSING_SHMEM)))
		close_if(&fd);
	return fd;
}

static bool start_thread(void)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	if (pthread_attr_init(&attr) != 0)
		return false;
	pthread_attr_setstacksize(&attr, STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	/* The engine's signals are the engine's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&thread, &attr, thread_main, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return r == 0;
}

__attribute__((constructor)) static void begin(void)
{
	long long s = env_number("CRUCIBLE_PRELOAD_SOCKET"), bytes = env_number("CRUCIBLE_PRELOAD_RAM");
	long long device = env_number("CRUCIBLE_PRELOAD_UFFD");

	if (s < 0 || s > INT32_MAX || bytes <= 0 || bytes % PAGE)
		return;
	sock = (int)s;
	fcntl(sock, F_SETFD, FD_CLOEXEC);
	if (device >= 0 && device <= INT32_MAX) {
		uffd = make_uffd((int)device);
		close((int)device);
	}
	if (!start_thread()) {
		say("crucible-preload: no thread: it does nothing\n"); /* the box gets no answer, and says so */
		return;
	}
	ram_bytes = (uint64_t)bytes;
}
