/* SPDX-License-Identifier: Apache-2.0 */
/* A disk's record: any bytes. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "snapstore/disk/disk_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct record rec;
	struct err e = { 0 };
	int r = record_parse((const char *)data, len, &rec, &e);

	assert(r == 0 || (r == -EBADMSG && e.msg[0]));
	if (r < 0)
		return 0;
	assert(rec.bytes > 0 && rec.bytes <= DISK_BYTES_MAX);
	assert(rec.nlayers <= DISK_LAYERS_MAX && rec.nhad <= DISK_LAYERS_MAX && rec.own <= rec.nlayers);
	assert(rec.nlayers > 0 || rec.frozen);
	assert(strlen(rec.base) <= DISK_BASE_MAX && !strchr(rec.base, '/'));
	return 0;
}
