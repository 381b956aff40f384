/* SPDX-License-Identifier: Apache-2.0 */
/* The frame parser and the small encodings that box and agent share. See proto.h. */
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "agent/proto.h"
#include "base/fd.h"
#include "base/wire.h"

/* How many bytes of payload a type may have. Types with JSON or text are bounded by the frame alone. */
static const struct bounds {
	uint32_t min, max;
} payload_bounds[] = {
	[AG_HELLO] = { 2, AG_PAYLOAD_MAX },
	[AG_PING] = { 0, 64 },
	[AG_PONG] = { 0, 64 },
	[AG_BYE] = { 0, AG_PAYLOAD_MAX },
	[AG_STAGE] = { 0, AG_PAYLOAD_MAX },
	[AG_EXEC] = { 1, AG_PAYLOAD_MAX },
	[AG_EXEC_STARTED] = { 2, AG_PAYLOAD_MAX },
	[AG_EXIT] = { 2, AG_PAYLOAD_MAX },
	[AG_SIGNAL] = { 4, 4 },
	[AG_KILL] = { 0, 0 },
	[AG_RESIZE] = { 4, 4 },
	[AG_DATA] = { 0, AG_PAYLOAD_MAX }, /* empty only with AG_EOF */
	[AG_CREDIT] = { 4, 4 },
	[AG_CLOSE] = { 0, 0 },
	[AG_FS_REQ] = { 0, AG_PAYLOAD_MAX },
	[AG_FS_REP] = { 4, AG_PAYLOAD_MAX },
	[AG_SYNC] = { 0, 0 },
	[AG_SYNCED] = { 0, 0 },
	[AG_SHUTDOWN] = { 0, 0 },
	[AG_FREEZE] = { 4, 4 },
	[AG_FROZEN] = { 4, 4 },
	[AG_THAW] = { 0, 0 },
	[AG_TRIM] = { 0, 0 },
	[AG_NET] = { 2, AG_PAYLOAD_MAX },
	[AG_NET_UP] = { 8, AG_PAYLOAD_MAX },
	[AG_SPARE] = { 0, 0 },
	[AG_SPARE_IS] = { 12, 12 },
};
static_assert(ARRAY_LEN(payload_bounds) == AG_TYPE_COUNT, "a type without bounds");

static bool flags_ok(uint8_t type, uint8_t flags, uint32_t len)
{
	switch (type) {
	case AG_DATA:
		return (flags & ~(AG_WHICH_MASK | AG_EOF)) == 0 && (flags & AG_WHICH_MASK) < AG_WHICH_COUNT &&
		       (len > 0 || (flags & AG_EOF));
	case AG_CREDIT:
		return flags < AG_WHICH_COUNT;
	case AG_EXEC:
		return (flags & ~AG_MORE) == 0;
	case AG_FS_REQ:
	case AG_FS_REP:
		return flags > 0 && flags < AG_FS_OP_COUNT;
	default:
		return flags == 0;
	}
}

static uint32_t get_u32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void put_u32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

long ag_frame_parse(const uint8_t *data, size_t len, struct ag_frame *ret)
{
	struct ag_frame f;

	if (len < AG_HEADER_LEN)
		return 0;
	f.len = get_u32(data);
	f.type = data[4];
	f.flags = data[5];
	f.stream = get_u32(data + 8);
	f.seq = get_u32(data + 12);
	f.payload = data + AG_HEADER_LEN;
	if (f.type == 0 || f.type >= AG_TYPE_COUNT || data[6] != 0 || data[7] != 0)
		return -EBADMSG;
	if (f.len < payload_bounds[f.type].min || f.len > payload_bounds[f.type].max)
		return -EBADMSG;
	if (!flags_ok(f.type, f.flags, f.len))
		return -EBADMSG;
	if (len - AG_HEADER_LEN < f.len)
		return 0;
	*ret = f;
	return (long)(AG_HEADER_LEN + f.len);
}

void ag_frame_header(uint8_t out[AG_HEADER_LEN], uint8_t type, uint8_t flags, uint32_t stream, uint32_t seq,
		     uint32_t len)
{
	put_u32(out, len);
	out[4] = type;
	out[5] = flags;
	out[6] = out[7] = 0;
	put_u32(out + 8, stream);
	put_u32(out + 12, seq);
}

void ag_attr_get(struct wire_rd *r, struct ag_attr *ret)
{
	ret->mode = wire_u32(r);
	ret->nlink = wire_u32(r);
	ret->uid = wire_u32(r);
	ret->gid = wire_u32(r);
	ret->size = wire_u64(r);
	ret->blocks512 = wire_u64(r);
	ret->ino = wire_u64(r);
	ret->atime_ns = wire_u64(r);
	ret->mtime_ns = wire_u64(r);
	ret->ctime_ns = wire_u64(r);
	ret->rdev = wire_u32(r);
}

int ag_attr_put(struct buf *b, const struct ag_attr *a)
{
	uint8_t raw[AG_ATTR_LEN], *p = raw;
	const uint32_t head[] = { a->mode, a->nlink, a->uid, a->gid };
	const uint64_t body[] = { a->size, a->blocks512, a->ino, a->atime_ns, a->mtime_ns, a->ctime_ns };

	for (size_t i = 0; i < ARRAY_LEN(head); i++, p += 4)
		put_u32(p, head[i]);
	for (size_t i = 0; i < ARRAY_LEN(body); i++, p += 8) {
		put_u32(p, (uint32_t)body[i]);
		put_u32(p + 4, (uint32_t)(body[i] >> 32));
	}
	put_u32(p, a->rdev);
	return buf_add(b, raw, sizeof(raw)); /* one call: all of it or nothing */
}

/* Linux x86-64. Written out: the host may name signals of a guest on another day, and libc's own names carry no prefix.
 */
static const char *const signal_names[] = {
	NULL,	     "SIGHUP",	"SIGINT",    "SIGQUIT", "SIGILL",   "SIGTRAP", "SIGABRT", "SIGBUS",
	"SIGFPE",    "SIGKILL", "SIGUSR1",   "SIGSEGV", "SIGUSR2",  "SIGPIPE", "SIGALRM", "SIGTERM",
	"SIGSTKFLT", "SIGCHLD", "SIGCONT",   "SIGSTOP", "SIGTSTP",  "SIGTTIN", "SIGTTOU", "SIGURG",
	"SIGXCPU",   "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO",   "SIGPWR",  "SIGSYS",
};
static_assert(ARRAY_LEN(signal_names) == 32, "signals 1 to 31 have names");
#define SIGNAL_MAX 64

const char *ag_signal_name(int signo, char tmp[16])
{
	if (signo > 0 && signo < (int)ARRAY_LEN(signal_names))
		return signal_names[signo];
	snprintf(tmp, 16, "SIG%d", signo);
	return tmp;
}

int ag_signal_number(const char *name)
{
	const char *bare = strncasecmp(name, "SIG", 3) == 0 ? name + 3 : name;

	for (size_t i = 1; i < ARRAY_LEN(signal_names); i++)
		if (strcasecmp(bare, signal_names[i] + 3) == 0)
			return (int)i;
	if (*bare >= '1' && *bare <= '9' && strlen(bare) <= 2) {
		char *end;
		long n = strtol(bare, &end, 10);

		if (*end == '\0' && n <= SIGNAL_MAX)
			return (int)n;
	}
	return -EINVAL;
}
