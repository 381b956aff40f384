/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <string.h>
#include "snapstore/blob.h"

static const uint8_t magic[8] = { 'C', 'B', 'L', 'O' };

uint32_t blob_pieces(uint64_t len)
{
	return (uint32_t)((len + BLOB_PIECE - 1) / BLOB_PIECE);
}

size_t blob_pack(const struct blob *b, uint8_t out[BLOB_HEAD_MAX])
{
	uint64_t len = htole64(b->len);

	memcpy(out, magic, sizeof(magic));
	memcpy(out + 8, &len, sizeof(len));
	memcpy(out + BLOB_HEAD, b->pieces, b->n * sizeof(b->pieces[0]));
	return BLOB_HEAD + b->n * sizeof(b->pieces[0]);
}

int blob_parse(const void *data, size_t len, struct blob *ret, struct err *e)
{
	const uint8_t *p = data;
	uint64_t total;

	if (len < BLOB_HEAD || memcmp(p, magic, sizeof(magic)) != 0)
		return err_set(e, -EBADMSG, "not a blob");
	memcpy(&total, p + 8, sizeof(total));
	total = le64toh(total);
	if (total > SNAP_BLOB_MAX || len != BLOB_HEAD + blob_pieces(total) * 32u)
		return err_set(e, -EBADMSG, "the head of a blob is wrong");
	ret->len = total;
	ret->n = blob_pieces(total);
	memcpy(ret->pieces, p + BLOB_HEAD, ret->n * 32u);
	return 0;
}
