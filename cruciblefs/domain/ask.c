/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the pager, the store and a box: written, sent, answered all alike. */
#include "cruciblefs/domain/snapshot_priv.h"

uint64_t ask_deadline_ns = 60ull * 1000000000ull;

void ask_init(struct ask *a)
{
	*a = (struct ask){ 0 };
	buf_init(&a->b, MSG_MAX);
}

static void note(struct ask *a, int code)
{
	a->code = a->code ? a->code : code;
}

void ask_str(struct ask *a, const char *s)
{
	note(a, wire_put_str(&a->b, s));
}

void ask_u8(struct ask *a, uint8_t v)
{
	note(a, wire_put_u8(&a->b, v));
}

void ask_u32(struct ask *a, uint32_t v)
{
	note(a, wire_put_u32(&a->b, v));
}

void ask_u64(struct ask *a, uint64_t v)
{
	note(a, wire_put_u64(&a->b, v));
}

void ask_raw(struct ask *a, const void *data, size_t len)
{
	note(a, buf_add(&a->b, data, len));
}

void ask_fd(struct ask *a, int fd)
{
	if (a->nfds == MSG_FDS_MAX)
		note(a, -E2BIG);
	else
		a->fds[a->nfds++] = fd;
}
