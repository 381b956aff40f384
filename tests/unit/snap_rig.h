/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the snapstore share: a store in a folder of its own, pages that tell which they are, damage. */
#ifndef CRUCIBLE_TEST_SNAP_RIG_H
#define CRUCIBLE_TEST_SNAP_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "snapstore/snap.h"

#define OK(call)                                                                                                    \
	do {                                                                                                        \
		int rig_r_ = (call);                                                                                \
		if (rig_r_ != 0)                                                                                    \
			fail_msg("note %llu: %s: %d %s", (unsigned long long)rig_note, #call, rig_r_, rig_err.msg); \
	} while (0)

extern uint64_t rig_note;  /* said with what fails: a seed, a round */
extern struct err rig_err; /* pass &rig_err to what OK() wraps */

struct snap_rig {
	char path[64];
	int dirfd;
	struct snap *s; /* open for writing */
};
void snap_rig_new(struct snap_rig *r);
void snap_rig_reopen(struct snap_rig *r);
void snap_rig_free(struct snap_rig *r);
struct snap *snap_rig_reader(struct snap_rig *r);

/* A page that @seed decides: 0 is zeros; others half noise, half text. */
void rig_page(uint64_t seed, uint8_t page[SNAP_PAGE_BYTES]);
void rig_uuid(unsigned n, char out[SNAP_UUID_LEN + 1]);
uint64_t rig_random(uint64_t *state);
/* One snapshot: pages @seeds (UINT64_MAX: not put) of a map of @n entries over @base (NULL: zeros). */
struct snap_digest rig_store(struct snap_rig *r, unsigned uuid, const struct snap_digest *base, const uint64_t *seeds,
			     uint64_t n, struct snap_counts *ret);
/* Files of <store>/<folder> whose name ends so; the last name into @ret_path (below the rig's folder; may be NULL). */
unsigned rig_files(struct snap_rig *r, const char *folder, const char *suffix, char ret_path[128]);
void rig_flip(struct snap_rig *r, const char *path, uint64_t off); /* one bit */
void rig_cut(struct snap_rig *r, const char *path, uint64_t len);
uint64_t rig_size(struct snap_rig *r, const char *path);

#endif
