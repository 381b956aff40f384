/* SPDX-License-Identifier: Apache-2.0 */
/* The payloads of launch.h, each with one writer and one parser. */
#include <endian.h>
#include <string.h>

#include "cruciblefs/launch/launch_priv.h"

bool launch_uuid_ok(const char *uuid)
{
	for (size_t i = 0; i < LAUNCH_UUID_LEN; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;
		bool hex = (uuid[i] >= '0' && uuid[i] <= '9') || (uuid[i] >= 'a' && uuid[i] <= 'f');

		if (dash ? uuid[i] != '-' : !hex)
			return false;
	}
	return uuid[LAUNCH_UUID_LEN] == '\0';
}

bool launch_uuid_is_ours(const char *uuid)
{
	return !strcmp(uuid, LAUNCH_UUID_PAGER) || !strcmp(uuid, LAUNCH_UUID_STORE) || !strcmp(uuid, LAUNCH_UUID_NETD);
}

int launch_spawn_encode(const struct launch_spawn *s, struct buf *out)
{
	size_t before = out->len;
	int r;

	if (s->argc > LAUNCH_ARGS_MAX)
		return -EFBIG;
	r = wire_put_u8(out, s->kind);
	if (r == 0)
		r = wire_put_u32(out, s->slot);
	if (r == 0)
		r = wire_put_str(out, s->uuid);
	if (r == 0)
		r = wire_put_u8(out, s->kvm);
	if (r == 0)
		r = wire_put_u64(out, s->memory_bytes);
	if (r == 0)
		r = wire_put_u32(out, s->cpu_percent);
	if (r == 0)
		r = wire_put_u32(out, s->pids);
	if (r == 0)
		r = wire_put_u64(out, s->io_bytes_per_s);
	if (r == 0)
		r = wire_put_u32(out, s->nofile);
	if (r == 0)
		r = wire_put_u64(out, s->ram_bytes);
	if (r == 0)
		r = wire_put_u32(out, s->memory_fd);
	if (r == 0)
		r = wire_put_u32(out, s->net_fd);
	if (r == 0)
		r = wire_put_u32(out, (uint32_t)s->argc);
	for (size_t i = 0; i < s->argc && r == 0; i++)
		r = wire_put_str(out, s->argv[i]);
	if (r < 0)
		out->len = before;
	return r;
}

int launch_spawn_decode(const void *data, size_t len, struct launch_spawn *ret, char *store, size_t cap)
{
	struct launch_spawn s = { 0 };
	struct wire_rd r;
	uint32_t argc;
	uint8_t kvm;
	size_t used = 0;

	wire_rd_init(&r, data, len);
	s.kind = wire_u8(&r);
	s.slot = wire_u32(&r);
	wire_str(&r, s.uuid, sizeof(s.uuid));
	kvm = wire_u8(&r);
	s.memory_bytes = wire_u64(&r);
	s.cpu_percent = wire_u32(&r);
	s.pids = wire_u32(&r);
	s.io_bytes_per_s = wire_u64(&r);
	s.nofile = wire_u32(&r);
	s.ram_bytes = wire_u64(&r);
	s.memory_fd = wire_u32(&r);
	s.net_fd = wire_u32(&r);
	argc = wire_u32(&r);
	if (r.bad || s.kind >= LAUNCH_KIND_COUNT || s.slot >= LAUNCH_SLOTS_MAX || !launch_uuid_ok(s.uuid) || kvm > 1 ||
	    argc < 1 || argc > LAUNCH_ARGS_MAX)
		return -EBADMSG;
	s.kvm = kvm;
	for (; s.argc < argc; s.argc++) {
		wire_str(&r, store + used, cap - used);
		if (r.bad)
			return -EBADMSG;
		s.argv[s.argc] = store + used;
		used += strlen(store + used) + 1;
	}
	if (wire_done(&r) < 0)
		return -EBADMSG;
	*ret = s;
	return 0;
}

int launch_stat_encode(const struct launch_stat *s, struct buf *out)
{
	const uint64_t words[] = {
		s->memory_bytes, s->memory_peak_bytes, s->cpu_usec, s->oom_kills, s->io_read_bytes, s->io_write_bytes,
	};
	size_t before = out->len;
	int r = wire_put_u32(out, s->tasks);

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]) && r == 0; i++)
		r = wire_put_u64(out, words[i]);
	if (r < 0)
		out->len = before;
	return r;
}

int launch_stat_decode(struct wire_rd *r, struct launch_stat *ret)
{
	struct launch_stat s;

	s.tasks = wire_u32(r);
	s.memory_bytes = wire_u64(r);
	s.memory_peak_bytes = wire_u64(r);
	s.cpu_usec = wire_u64(r);
	s.oom_kills = wire_u64(r);
	s.io_read_bytes = wire_u64(r);
	s.io_write_bytes = wire_u64(r);
	if (wire_done(r) < 0)
		return -EBADMSG;
	*ret = s;
	return 0;
}

void launch_slot_encode(uint32_t slot, uint8_t out[4])
{
	uint32_t le = htole32(slot);

	memcpy(out, &le, sizeof(le));
}

int launch_net_sockets_encode(const char *uuid, uint32_t n, struct buf *out)
{
	int r = wire_put_str(out, uuid);

	return r < 0 ? r : wire_put_u32(out, n);
}

void launch_uuid_encode(const char *uuid, uint8_t out[LAUNCH_UUID_BYTES])
{
	launch_slot_encode(LAUNCH_UUID_LEN, out); /* a string: its length, its bytes */
	memcpy(out + 4, uuid, LAUNCH_UUID_LEN);
}
