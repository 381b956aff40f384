/* SPDX-License-Identifier: Apache-2.0 */
/* A request to store a snapshot: how many descriptors come with it (first byte), then the message. */
#include <assert.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "snapstore/stored/stored_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct msg m = { .type = STORE_INGEST };
	struct err e = { 0 };
	struct ingest in;
	int r;

	if (len == 0)
		return 0;
	m.nfds = data[0] % (MSG_FDS_MAX + 1);
	m.data = data + 1;
	m.len = len - 1;
	for (size_t i = 0; i < m.nfds; i++)
		m.fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	ingest_init(&in);
	r = ingest_parse(&m, &in, &e);
	assert(r <= 0 && (r == 0 || *e.msg));
	if (r == 0) {
		assert(strlen(in.uuid) == SNAP_UUID_LEN && in.nlayers <= STORED_LAYERS_MAX);
		assert(in.memory_pages <= UINT64_MAX / SNAP_PAGE_BYTES && (in.memory_pages == 0 || in.bits >= 0));
	}
	ingest_fini(&in);
	msg_close_fds(&m);
	return 0;
}
