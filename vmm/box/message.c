/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/box/message.h"

#include <stdlib.h>
#include <string.h>

#include "agent/proto.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/wire.h"

static int parse_set(const void *data, size_t len, struct box_set *ret, struct err *e)
{
	static const char *const keys[] = { "name", "env", NULL };
	AUTO_JSON *o = NULL;
	const char *name = NULL, *env = NULL;
	struct box_set s = { 0 };
	int r = json_parse(data, len, &o, e);

	if (r == 0)
		r = json_known_keys(o, keys, e);
	if (r == 0)
		r = json_get_str(o, "name", &name, e);
	if (r == 0)
		r = json_get_str(o, "env", &env, e);
	if (r < 0)
		return r;
	if (name && (!*name || strlen(name) >= sizeof(((struct box_config *)0)->name)))
		return err_set(e, -EINVAL, "name: too long, or none");
	s.name = name ? strdup(name) : NULL;
	s.env = env ? strdup(env) : NULL;
	if ((name && !s.name) || (env && !s.env)) {
		free(s.name);
		free(s.env);
		return err_set(e, -ENOMEM, "no memory");
	}
	*ret = s;
	return 0;
}

#define PAGE_BYTES   4096u
#define MEMORY_BYTES (1ull << 40) /* no machine has more */

static int parse_memory(struct wire_rd *r, struct box_msg *m)
{
	uint64_t at = 0;

	m->memory.bytes = wire_u64(r);
	m->memory.n = wire_u32(r);
	if (m->memory.bytes % PAGE_BYTES || m->memory.bytes > MEMORY_BYTES || m->memory.n > PRELOAD_RANGES_MAX)
		return -EBADMSG;
	for (uint32_t i = 0; i < m->memory.n; i++) {
		struct preload_range *g = &m->memory.ranges[i];

		g->offset = wire_u64(r);
		g->bytes = wire_u64(r);
		if (g->offset % PAGE_BYTES || g->bytes % PAGE_BYTES || g->bytes == 0 || g->offset < at ||
		    g->offset >= m->memory.bytes || g->bytes > m->memory.bytes - g->offset)
			return -EBADMSG;
		at = g->offset + g->bytes;
	}
	wire_str(r, m->memory.snapshot, sizeof(m->memory.snapshot));
	return 0;
}

static int parse_load(struct wire_rd *r, struct box_msg *m)
{
	uint8_t hold = wire_u8(r);

	m->load.hold = hold;
	wire_str(r, m->load.export_name, sizeof(m->load.export_name));
	if (hold >= BOX_HOLD_COUNT || r->bad || !*m->load.export_name)
		return -EBADMSG;
	for (const char *c = m->load.export_name; *c; c++)
		if (*c <= ' ' || *c >= 0x7f || *c == '"' || *c == '\\')
			return -EBADMSG;
	return 0;
}

/* The messages that are not JSON: one case each, read in the order of box.h. */
static int parse_wire(const void *data, size_t len, struct box_msg *m)
{
	struct wire_rd r;
	uint8_t word = 0;
	int code = 0;

	wire_rd_init(&r, data, len);
	switch (m->type) {
	case BOX_EXEC:
		m->exec.n = wire_u64(&r);
		m->exec.flags = wire_u8(&r);
		m->exec.uid = wire_u32(&r);
		m->exec.accepted_wall_ns = wire_u64(&r);
		m->exec.timeout_max_s = m->exec.flags & BOX_EXEC_TIMEOUT_MAX ? wire_u32(&r) : 0;
		if (m->exec.n == 0 || (m->exec.flags & ~(BOX_EXEC_BESIDE | BOX_EXEC_LIVE_STDIN | BOX_EXEC_TIMEOUT_MAX)))
			return -EBADMSG;
		if ((m->exec.flags & BOX_EXEC_TIMEOUT_MAX) && !m->exec.timeout_max_s)
			return -EBADMSG;
		if ((m->exec.flags & BOX_EXEC_LIVE_STDIN) && !(m->exec.flags & BOX_EXEC_BESIDE))
			return -EBADMSG;
		break;
	case BOX_STDIN:
		m->in.n = wire_u64(&r);
		word = wire_u8(&r);
		m->in.eof = word != 0;
		m->in.len = wire_left(&r);
		m->in.data = wire_raw(&r, m->in.len);
		if (word > 1)
			return -EBADMSG;
		break;
	case BOX_CTL:
		m->ctl.n = wire_u64(&r);
		word = wire_u8(&r);
		m->ctl.verb = (enum box_verb)word;
		m->ctl.a = wire_u32(&r);
		m->ctl.b = wire_u32(&r);
		if (word >= BOX_VERB_COUNT)
			return -EBADMSG;
		break;
	case BOX_VM:
		word = wire_u8(&r);
		m->vm.what = (enum box_vm)word;
		m->vm.grace_ms = wire_u32(&r);
		if (word >= BOX_VM_COUNT)
			return -EBADMSG;
		break;
	case BOX_FS:
		m->fs.op = wire_u8(&r);
		m->fs.len = wire_left(&r);
		m->fs.data = wire_raw(&r, m->fs.len);
		if (m->fs.op == 0 || m->fs.op >= AG_FS_OP_COUNT || m->fs.len > AG_PAYLOAD_MAX)
			return -EBADMSG;
		break;
	case BOX_MEMORY:
		code = parse_memory(&r, m);
		break;
	case BOX_FREEZE:
		m->freeze.ms = wire_u32(&r);
		if (m->freeze.ms == 0 || m->freeze.ms > BOX_FREEZE_MS_MAX)
			return -EBADMSG;
		break;
	case BOX_LOAD:
		code = parse_load(&r, m);
		break;
	case BOX_NET:
		word = wire_u8(&r);
		m->net.on = word != 0;
		if (word > 1)
			return -EBADMSG;
		break;
	case BOX_RECLAIM:
		m->reclaim.bytes = wire_u64(&r);
		if (m->reclaim.bytes == 0 || m->reclaim.bytes % PAGE_BYTES || m->reclaim.bytes > MEMORY_BYTES)
			return -EBADMSG;
		break;
	case BOX_MEMORY_AGAIN:
	case BOX_THAW:
	case BOX_TRIM:
		break;
	default:
		return -EBADMSG;
	}
	return code < 0 ? code : wire_done(&r);
}

int box_msg_parse(uint16_t type, const void *data, size_t len, struct box_msg *ret, struct err *e)
{
	struct box_msg m = { .type = (enum box_type)type };
	int r;

	if (type == BOX_START)
		r = box_config_parse(data, len, &m.start, e);
	else if (type == BOX_SET)
		r = parse_set(data, len, &m.set, e);
	else
		r = parse_wire(data, len, &m);
	if (r == -EBADMSG)
		err_set(e, r, "message %u of the daemon is malformed", type);
	if (r < 0)
		return r;
	*ret = m;
	return 0;
}

void box_msg_fini(struct box_msg *m)
{
	if (m->type == BOX_START) {
		box_config_fini(&m->start);
	} else if (m->type == BOX_SET) {
		free(m->set.name);
		free(m->set.env);
		m->set = (struct box_set){ 0 };
	}
}

/* -- what the box says ------------------------------------------------------------------------- */

int box_state_format(struct buf *out, enum box_state s, const char *words, const char *guest)
{
	int r = wire_put_u8(out, (uint8_t)s);

	if (r == 0)
		r = wire_put_str(out, words);
	if (r == 0)
		r = wire_put_str(out, guest);
	return r;
}

int box_progress_format(struct buf *out, uint64_t n, bool started, uint64_t stdout_bytes, uint64_t stderr_bytes)
{
	int r = wire_put_u64(out, n);

	if (r == 0)
		r = wire_put_u8(out, started);
	if (r == 0)
		r = wire_put_u64(out, stdout_bytes);
	if (r == 0)
		r = wire_put_u64(out, stderr_bytes);
	return r;
}

int box_done_format(struct buf *out, const struct box_done *d)
{
	int r = wire_put_u64(out, d->n);

	if (r == 0)
		r = wire_put_u32(out, (uint32_t)d->exit_code);
	if (r == 0)
		r = wire_put_str(out, d->signal);
	if (r == 0)
		r = wire_put_str(out, d->error);
	if (r == 0)
		r = wire_put_u64(out, d->duration_ms);
	if (r == 0)
		r = wire_put_u64(out, d->spool_bytes);
	return r;
}

int box_credit_format(struct buf *out, uint64_t n, uint32_t bytes)
{
	int r = wire_put_u64(out, n);

	return r == 0 ? wire_put_u32(out, bytes) : r;
}

int box_reply_format(struct buf *out, int code, const char *words, const void *data, size_t len)
{
	int r = wire_put_u32(out, (uint32_t)code);

	if (r == 0)
		r = wire_put_str(out, words);
	return r == 0 ? buf_add(out, data, len) : r;
}
