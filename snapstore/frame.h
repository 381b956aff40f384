/* SPDX-License-Identifier: Apache-2.0 */
/* A frame: what a pack is made of. It describes itself, so that an index only tells where it is:
 *
 *	32  SHA-256 of everything behind it in the frame
 *	 4  "CFRM"
 *	 1  codec: 0 as it is, 1 LZ4
 *	 1  how many objects, 1 to 16
 *	 2  0
 *	 4  bytes of each object
 *	 4  bytes of the payload
 *	32 each  SHA-256 of each object
 *	    payload: the objects one behind the other, at most 64 KiB once decoded
 *
 * Numbers are little-endian. Objects are pages (4096 bytes each), nodes of maps, pieces of blobs (alone in a frame). */
#ifndef CRUCIBLE_SNAP_FRAME_H
#define CRUCIBLE_SNAP_FRAME_H

#include "snapstore/digest.h"

#define FRAME_HEAD    48u
#define FRAME_RAW_MAX (64u * 1024)
#define FRAME_MAX     (FRAME_HEAD + SNAP_WINDOW_PAGES * 32 + FRAME_RAW_MAX)

struct frame {
	uint32_t unit, count;		   /* count objects of unit bytes */
	const struct snap_digest *digests; /* count of them; borrowed from the bytes that were opened */
	const uint8_t *payload;		   /* the same */
	uint32_t stored;		   /* bytes of the payload */
	bool lz4;
};

/* @out: FRAME_MAX bytes. @state: memory of LZ4_sizeofState() bytes. @raw is stored as it is when LZ4 does not make it
 * smaller. Errors: -EIO from OpenSSL. */
int frame_encode(struct hasher *h, void *state, const void *raw, uint32_t unit, uint32_t count,
		 const struct snap_digest *digests, uint8_t *out, size_t *ret_len);
/* Untrusted bytes: checked against their own digest and for shape. Errors: -EBADMSG, -EIO from OpenSSL. */
int frame_open(struct hasher *h, const void *data, size_t len, struct frame *ret, struct err *e);
int frame_unpack(const struct frame *f, void *raw, struct err *e); /* @raw: FRAME_RAW_MAX bytes. -EBADMSG */

#endif
