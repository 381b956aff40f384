/* SPDX-License-Identifier: Apache-2.0 */
/* Which pages of a private mapping are a process's own, by its pagemap: by PAGEMAP_SCAN (Linux 6.7), else entry by
 * entry (6 ms for 512 MiB). The process may run meanwhile: what is told was true at some time during the call.
 *
 * @pagemap: an open /proc/PID/pagemap. @base: an address in that process, of a page. @bytes: whole pages, at most 2^32
 * of them. Thread: any. Blocks for as long as it takes. Errors: -ESRCH the process is gone; -EIO; others of pread(2)
 * and ioctl(2); what @fn returned. */
#ifndef CRUCIBLE_BASE_PAGEMAP_H
#define CRUCIBLE_BASE_PAGEMAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define PAGEMAP_PAGE 4096u

/* @n pages from the @first of the range; below 0: ends the call with it. */
typedef int pagemap_run_fn(void *arg, uint32_t first, uint32_t n, struct err *e);

/* Runs of pages that are the process's own (anonymous, not the zero page), in order. @call false: without
 * PAGEMAP_SCAN. */
int pagemap_own(int pagemap, uint64_t base, uint64_t bytes, bool call, pagemap_run_fn *fn, void *arg, struct err *e);
/* Runs that are mapped at all: what it has touched. */
int pagemap_mapped(int pagemap, uint64_t base, uint64_t bytes, bool call, pagemap_run_fn *fn, void *arg, struct err *e);
/* How many pages are its own. */
int pagemap_count_own(int pagemap, uint64_t base, uint64_t bytes, uint64_t *ret, struct err *e);

#endif
