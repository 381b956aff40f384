/* SPDX-License-Identifier: Apache-2.0 */
/* bench-fault: what a page costs, against bare loops of the same kind in processes of the same shape.
 *
 *   bench-fault ROUNDS
 *
 * Ours is the pager and a process that maps its template, as tests/unit/pager_rig.h makes them; a page comes from the
 * store (hole), from its frame's neighbours (hole64: 64 KiB are filled for one event) or is there (read, write). The
 * bare loops are one process: a thread answers each event of its userfaultfd with one UFFDIO_COPY (of 4 or of 64 KiB)
 * of memory that is ready; and a private mapping of a file in memory is touched. Then eight machines read at once what
 * was in no memory before: pages that any of them saw half filled are counted.
 *
 * Prints samples of bench-report, ns for each page, among lines of cmocka's. */
#include "tests/unit/pager_rig.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/wire.h"

#define PAGES	 8192u /* 32 MiB */
#define BYTES	 ((size_t)PAGES * SNAP_PAGE_BYTES)
#define MACHINES 8u

static struct pager_rig rig;
static uint64_t seeds[PAGES];
static char uuid[PG_UUID_LEN + 1];
static unsigned rounds = 5;

static void sample(const char *cell, const char *subject, uint64_t ns, uint32_t pages)
{
	printf("sample fault.%s %s %.1f\n", cell, subject, (double)ns / pages);
}

/* -- ours -------------------------------------------------------------------------------------------------------------
 */

static void ours(const char *cell, bool write, uint32_t stride)
{
	struct rig_template t;
	struct rig_machine m;
	uint64_t ns = 0, one;

	assert_int_equal(rig_template(&rig, uuid, PAGES, &t), 0);
	rig_machine_new(&m, 1, &t, PAGES, true);
	fd_close(&t.fd);
	assert_int_equal(rig_machine_attach(&rig, &m, uuid), 0);
	if (stride == 1) {
		rig_machine_touch(&m, 0, PAGES, write, &ns);
	} else {
		for (uint32_t i = 0; i < PAGES; i += stride) {
			rig_machine_touch(&m, i, 1, write, &one);
			ns += one;
		}
	}
	assert_int_equal(rig_ask_str(&rig, PAGER_DETACH, m.id), 0);
	rig_machine_free(&m);
	sample(cell, "crucible", ns, PAGES / stride);
}

/* -- bare -------------------------------------------------------------------------------------------------------------
 */

struct copier {
	int uffd, stop;
	uint8_t *from;
	uint64_t base, window;
};

static void *copy_pages(void *arg)
{
	struct copier *c = arg;
	struct pollfd p[2] = { { .fd = c->uffd, .events = POLLIN }, { .fd = c->stop, .events = POLLIN } };

	while (poll(p, 2, -1) > 0 && !p[1].revents) {
		struct uffd_msg m;
		struct uffdio_copy copy = { 0 };

		if (read(c->uffd, &m, sizeof(m)) != sizeof(m))
			continue;
		copy.dst = m.arg.pagefault.address / c->window * c->window;
		copy.src = (uint64_t)(uintptr_t)c->from + (copy.dst - c->base);
		copy.len = c->window;
		ioctl(c->uffd, UFFDIO_COPY, &copy);
	}
	return NULL;
}

static uint64_t touch(volatile uint8_t *p, bool write, size_t stride)
{
	uint64_t began = now_ns();

	for (size_t i = 0; i < BYTES; i += stride)
		if (write)
			p[i] = 1;
		else
			(void)p[i];
	return now_ns() - began;
}

/* Aligned to 64 KiB, so that a window begins where a window's memory does. */
static void bare_copy(const char *cell, size_t window, size_t stride, uint8_t *from)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct copier c = { .from = from, .window = window };
	uint8_t *all = mmap(NULL, BYTES + 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *p;
	pthread_t thread;
	int stop[2];

	assert_true(all != MAP_FAILED);
	madvise(all, BYTES + 65536, MADV_NOHUGEPAGE);
	p = all + (65536 - (uintptr_t)all % 65536) % 65536;
	c.uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	assert_true(c.uffd >= 0 && ioctl(c.uffd, UFFDIO_API, &api) == 0);
	reg.range.start = c.base = (uint64_t)(uintptr_t)p;
	reg.range.len = BYTES;
	assert_int_equal(ioctl(c.uffd, UFFDIO_REGISTER, &reg), 0);
	assert_int_equal(pipe(stop), 0);
	c.stop = stop[0];
	assert_int_equal(pthread_create(&thread, NULL, copy_pages, &c), 0);
	sample(cell, "bare-copy", touch(p, false, stride), (uint32_t)(BYTES / stride));
	close(stop[1]);
	pthread_join(thread, NULL);
	close(stop[0]);
	close(c.uffd);
	munmap(all, BYTES + 65536);
}

static void bare_native(const char *cell, bool write, int fd)
{
	uint8_t *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);

	assert_true(p != MAP_FAILED);
	sample(cell, "bare-native", touch(p, write, SNAP_PAGE_BYTES), PAGES);
	munmap(p, BYTES);
}

/* -- all
 * ---------------------------------------------------------------------------------------------------------------- */

static void torn(unsigned round)
{
	struct rig_machine machines[MACHINES];
	struct rig_template t;
	uint32_t differ = 0;

	assert_int_equal(rig_ask_str(&rig, PAGER_FORGET, uuid), 0);
	for (unsigned i = 0; i < MACHINES; i++) {
		assert_int_equal(rig_template(&rig, uuid, PAGES, &t), 0);
		rig_machine_new(&machines[i], 10 + round * MACHINES + i, &t, PAGES, true);
		fd_close(&t.fd);
		assert_int_equal(rig_machine_attach(&rig, &machines[i], uuid), 0);
	}
	for (unsigned i = 0; i < MACHINES; i++)
		rig_machine_check_send(&machines[i], 0, PAGES, seeds);
	for (unsigned i = 0; i < MACHINES; i++)
		differ += rig_machine_check_receive(&machines[i]);
	for (unsigned i = 0; i < MACHINES; i++) {
		assert_int_equal(rig_ask_str(&rig, PAGER_DETACH, machines[i].id), 0);
		rig_machine_free(&machines[i]);
	}
	printf("sample fault.torn crucible %u\n", differ);
}

static void measure(void **state)
{
	AUTO_FD fd = memfd_create("bare", MFD_CLOEXEC);
	uint8_t *from = malloc(BYTES);

	(void)state;
	assert_non_null(from);
	for (uint32_t i = 0; i < PAGES; i++) {
		seeds[i] = i + 1;
		rig_words(seeds[i], (uint64_t *)(void *)(from + (size_t)i * SNAP_PAGE_BYTES));
	}
	assert_int_equal(fd_pwrite_all(fd, from, BYTES, 0), 0);
	rig_uuid(1, uuid);
	pager_rig_new(&rig);
	rig_store_pages(&rig, uuid, seeds, PAGES);
	for (unsigned i = 0; i < rounds; i++) {
		rig_ask_str(&rig, PAGER_FORGET, uuid); /* the first time there is nothing to forget */
		ours("hole", false, PG_WINDOW);
		bare_copy("hole", SNAP_PAGE_BYTES, 65536, from);
		assert_int_equal(rig_ask_str(&rig, PAGER_FORGET, uuid), 0);
		ours("hole64", false, 1);
		bare_copy("hole64", 65536, SNAP_PAGE_BYTES, from);
		ours("read", false, 1);
		bare_native("read", false, fd);
		ours("write", true, 1);
		bare_native("write", true, fd);
		torn(i);
	}
	pager_rig_free(&rig);
	free(from);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(measure) };

	if (argc > 1)
		rounds = (unsigned)strtoul(argv[1], NULL, 10);
	setvbuf(stdout, NULL, _IOLBF, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
