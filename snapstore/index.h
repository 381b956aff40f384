/* SPDX-License-Identifier: Apache-2.0 */
/* The index of one pack, as bytes: where each of its objects is. Written once, mapped by those who read.
 *
 *	 8  "CRUCIDX1"
 *	 4  objects    4  frames    4  objects that are pages    4  0
 *	 8  bytes of the pack
 *	1024  256 numbers: how many digests begin with a byte <= i
 *	32 each  digests, ascending, each once
 *	 4 each  frame * 16 + which object of it
 *	16 each  frames: offset in the pack (8), bytes (4), bytes of an object * 32 + objects (4)
 *	32  SHA-256 of all this
 *
 * A reader checks the shape, and each place when it uses it; what the index leads to is checked by the frame itself. */
#ifndef CRUCIBLE_SNAP_INDEX_H
#define CRUCIBLE_SNAP_INDEX_H

#include "snapstore/frame.h"

#define INDEX_OBJECTS_MAX (1u << 20)
#define INDEX_FRAMES_MAX  (1u << 20)

struct index_frame {
	uint64_t off;
	uint32_t bytes, shape; /* little-endian, as they stand in the file */
};
struct index {
	uint32_t nobjects, nframes, npages;
	uint64_t pack_bytes;
	const uint32_t *fanout;
	const struct snap_digest *digests;
	const uint32_t *places;
	const struct index_frame *frames;
};
struct place { /* of a frame in a pack */
	uint64_t off;
	uint32_t bytes, unit, count;
};

/* Untrusted bytes, aligned to 8, borrowed for as long as *ret is used. -EBADMSG. */
int index_open(const void *data, size_t len, struct index *ret, struct err *e);
int index_check(struct hasher *h, const void *data, size_t len, struct err *e); /* its digest: -EBADMSG, -EIO */
bool index_find(const struct index *x, const struct snap_digest *d, uint32_t *ret_pos);
/* The frame of the object at @pos, and which of its objects. -EBADMSG: it lies outside. */
int index_place(const struct index *x, uint32_t pos, uint32_t *ret_frame, uint32_t *ret_slot, struct err *e);
int index_frame(const struct index *x, uint32_t frame, struct place *ret, struct err *e);

struct index_entry { /* of an index that is being made */
	struct snap_digest digest;
	uint32_t place;
};
/* Of equal digests the last place is taken. @entries are sorted in place. @ret: malloc'd. -ENOMEM, -EIO. */
int index_build(struct hasher *h, struct index_entry *entries, uint32_t n, const struct place *frames, uint32_t nframes,
		uint64_t pack_bytes, uint8_t **ret, size_t *ret_len);

#endif
