/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the daemon (first byte: the type), and the box's own texts as the daemon reads them. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "agent/proto.h"
#include "vmm/box/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void hello(const uint8_t *data, size_t len)
{
	struct box_hello h;
	struct err e = { 0 };

	if (box_hello_parse(data, len, &h, &e) < 0)
		return;
	assert(h.state < BOX_STATE_COUNT && strlen(h.guest) < sizeof(h.guest));
	box_hello_fini(&h);
}

static void memory(const struct box_msg *m)
{
	uint64_t at = 0;

	assert(m->memory.n <= PRELOAD_RANGES_MAX && m->memory.bytes % 4096 == 0);
	for (uint32_t i = 0; i < m->memory.n; i++) {
		const struct preload_range *g = &m->memory.ranges[i];

		assert(g->offset >= at && g->bytes > 0 && g->offset % 4096 == 0 && g->bytes % 4096 == 0);
		assert(g->offset + g->bytes > g->offset && g->offset + g->bytes <= m->memory.bytes);
		at = g->offset + g->bytes;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct box_msg m;
	struct err e = { 0 };
	int r;

	if (len == 0)
		return 0;
	if (data[0] == BOX_HELLO) {
		hello(data + 1, len - 1);
		return 0;
	}
	r = box_msg_parse(data[0], data + 1, len - 1, &m, &e);
	if (r < 0) {
		assert((r == -EBADMSG || r == -EINVAL) && *e.msg);
		return 0;
	}
	assert(m.type != BOX_EXEC || m.exec.n > 0);
	assert(m.type != BOX_CTL || m.ctl.verb < BOX_VERB_COUNT);
	assert(m.type != BOX_FS || m.fs.len <= AG_PAYLOAD_MAX);
	assert(m.type != BOX_FREEZE || (m.freeze.ms > 0 && m.freeze.ms <= BOX_FREEZE_MS_MAX));
	assert(m.type != BOX_LOAD || (*m.load.export_name && !strpbrk(m.load.export_name, "\"\\ \n")));
	assert(m.type != BOX_START || !m.start.restore || strlen(m.start.machine_id) == 32);
	if (m.type == BOX_MEMORY)
		memory(&m);
	box_msg_fini(&m);
	return 0;
}
