/* SPDX-License-Identifier: Apache-2.0 */
/* A blob: bytes that are no pages, device state say. As an object, it is the list of its pieces:
 *
 *	4  "CBLO"    4  0    8  length    32 each  digests of pieces of 60 KiB, the last may be shorter */
#ifndef CRUCIBLE_SNAP_BLOB_H
#define CRUCIBLE_SNAP_BLOB_H

#include "snapstore/digest.h"

#define BLOB_PIECE	(60u * 1024)
#define BLOB_PIECES_MAX ((SNAP_BLOB_MAX + BLOB_PIECE - 1) / BLOB_PIECE)
#define BLOB_HEAD	16u
#define BLOB_HEAD_MAX	(BLOB_HEAD + BLOB_PIECES_MAX * 32)

struct blob {
	uint64_t len;
	uint32_t n;
	struct snap_digest pieces[BLOB_PIECES_MAX];
};
uint32_t blob_pieces(uint64_t len);
size_t blob_pack(const struct blob *b, uint8_t out[BLOB_HEAD_MAX]);
int blob_parse(const void *data, size_t len, struct blob *ret, struct err *e); /* untrusted: -EBADMSG */

#endif
