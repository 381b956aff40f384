/* SPDX-License-Identifier: Apache-2.0 */
/* Which pages of a mapping are the process's own, by its pagemap. */
#include <errno.h>
#include <linux/types.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/pagemap.h"

/* Linux 6.7; our headers may be older. */
struct region {
	__u64 start, end, categories;
};
struct scan_arg {
	__u64 size, flags, start, end, walk_end, vec, vec_len, max_pages;
	__u64 category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define SCAN	       _IOWR('f', 16, struct scan_arg)
#define SCAN_FILE      (1u << 2)
#define SCAN_PRESENT   (1u << 3)
#define SCAN_SWAPPED   (1u << 4)
#define SCAN_ZERO_PAGE (1u << 5)

/* An entry of /proc/PID/pagemap. */
#define ENTRY_PRESENT (UINT64_C(1) << 63)
#define ENTRY_SWAPPED (UINT64_C(1) << 62)
#define ENTRY_FILE    (UINT64_C(1) << 61)

struct run { /* neighbours joined */
	uint32_t first, n;
	pagemap_run_fn *fn;
	void *arg;
};

static int run_add(struct run *run, uint32_t first, uint32_t n, struct err *e)
{
	int r = 0;

	if (run->n && run->first + run->n == first) {
		run->n += n;
		return 0;
	}
	if (run->n)
		r = run->fn(run->arg, run->first, run->n, e);
	run->first = first;
	run->n = n;
	return r;
}

static int run_end(struct run *run, struct err *e)
{
	return run->n ? run->fn(run->arg, run->first, run->n, e) : 0;
}

/* -ENOTTY, -EINVAL: this kernel has no such call (nothing was told yet). */
static int scan_ioctl(int pagemap, uint64_t base, uint64_t bytes, uint64_t without, struct run *run, struct err *e)
{
	struct region regions[256];
	struct scan_arg s = {
		.size = sizeof(s),
		.start = base,
		.end = base + bytes,
		.vec = (uintptr_t)regions,
		.vec_len = ARRAY_LEN(regions),
		.category_inverted = without,
		.category_mask = without,
		.category_anyof_mask = SCAN_PRESENT | SCAN_SWAPPED,
	};

	while (s.start < s.end) {
		int n = ioctl(pagemap, SCAN, &s);

		if (n < 0)
			return -errno;
		for (int i = 0; i < n; i++) {
			int r = run_add(run, (uint32_t)((regions[i].start - base) / PAGEMAP_PAGE),
					(uint32_t)((regions[i].end - regions[i].start) / PAGEMAP_PAGE), e);

			if (r < 0)
				return r;
		}
		if (s.walk_end <= s.start)
			return err_set(e, -EIO, "pagemap: the scan does not go on");
		s.start = s.walk_end;
	}
	return 0;
}

static int scan_entries(int pagemap, uint64_t base, uint64_t bytes, uint64_t without, struct run *run, struct err *e)
{
	uint64_t entries[4096];
	uint32_t pages = (uint32_t)(bytes / PAGEMAP_PAGE), at = 0;

	while (at < pages) {
		uint32_t n = pages - at < ARRAY_LEN(entries) ? pages - at : (uint32_t)ARRAY_LEN(entries);
		ssize_t got = pread(pagemap, entries, n * sizeof(entries[0]),
				    (off_t)((base / PAGEMAP_PAGE + at) * sizeof(entries[0])));

		if (got <= 0 || got % (ssize_t)sizeof(entries[0]))
			return err_set(e, got < 0 ? -errno : -ESRCH, "pagemap: %s",
				       got < 0 ? err_name(-errno) : "the process is gone");
		n = (uint32_t)((size_t)got / sizeof(entries[0]));
		for (uint32_t i = 0; i < n; i++) {
			int r = 0;

			if ((entries[i] & (ENTRY_PRESENT | ENTRY_SWAPPED)) && !(entries[i] & without))
				r = run_add(run, at + i, 1, e);
			if (r < 0)
				return r;
		}
		at += n;
	}
	return 0;
}

static int scan(int pagemap, uint64_t base, uint64_t bytes, bool call, uint64_t without_call, uint64_t without_entry,
		pagemap_run_fn *fn, void *arg, struct err *e)
{
	struct run run = { .fn = fn, .arg = arg };
	uint64_t entry;
	int r = -ENOTTY;

	/* The call says nothing of a process that is gone: it finds an empty one. */
	if (pread(pagemap, &entry, sizeof(entry), (off_t)(base / PAGEMAP_PAGE * sizeof(entry))) <= 0)
		return err_set(e, -ESRCH, "pagemap: the process is gone");
	if (call)
		r = scan_ioctl(pagemap, base, bytes, without_call, &run, e);
	if (r == -ENOTTY || (r == -EINVAL && !run.n))
		r = scan_entries(pagemap, base, bytes, without_entry, &run, e);
	else if (r < 0 && e && !*e->msg)
		err_set(e, r, "pagemap: scan: %s", err_name(r));
	return r < 0 ? r : run_end(&run, e);
}

int pagemap_own(int pagemap, uint64_t base, uint64_t bytes, bool call, pagemap_run_fn *fn, void *arg, struct err *e)
{
	/* The entries do not tell the zero page: it is copied as any other, and found to be zeros then. */
	return scan(pagemap, base, bytes, call, SCAN_FILE | SCAN_ZERO_PAGE, ENTRY_FILE, fn, arg, e);
}

int pagemap_mapped(int pagemap, uint64_t base, uint64_t bytes, bool call, pagemap_run_fn *fn, void *arg, struct err *e)
{
	return scan(pagemap, base, bytes, call, SCAN_ZERO_PAGE, 0, fn, arg, e);
}

static int count(void *arg, uint32_t first, uint32_t n, struct err *e)
{
	(void)first;
	(void)e;
	*(uint64_t *)arg += n;
	return 0;
}

int pagemap_count_own(int pagemap, uint64_t base, uint64_t bytes, uint64_t *ret, struct err *e)
{
	*ret = 0;
	return pagemap_own(pagemap, base, bytes, true, count, ret, e);
}
