/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's memory as the engine's preload library hands it over: a template is put in its place for the daemon, and
 * the box keeps copies of the descriptors, so that a pager that was restarted gets them again and a dead one never
 * means zeros. The library does one order at a time; so do we. */
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/wire.h"
#include "vmm/box/box_priv.h"

int box_memory_begin(struct box *b, int fd)
{
	struct box_memory *m = &b->memory;

	m->mem = m->pagemap = m->template_fd = m->uffd = m->fresh = -1;
	return preload_new(b->loop, fd, &m->preload);
}

void box_memory_fini(struct box *b)
{
	struct box_memory *m = &b->memory;

	m->preload = preload_free(m->preload);
	m->pending = false;
	if (!m->begun)
		return;
	fd_close(&m->mem);
	fd_close(&m->pagemap);
	fd_close(&m->template_fd);
	fd_close(&m->uffd);
	fd_close(&m->fresh);
}

static void replace(int *fd, int *from)
{
	fd_close(fd);
	*fd = take_fd(from);
}

static size_t add_fd(int *fds, size_t n, int fd)
{
	if (fd >= 0)
		fds[n++] = fd;
	return n;
}

static void keep_and_tell(struct box *b, struct preload_done *d)
{
	struct box_memory *m = &b->memory;
	bool has_uffd = d->uffd >= 0;
	int fds[3];
	size_t n = 0;

	replace(&m->mem, &d->mem);
	replace(&m->pagemap, &d->pagemap);
	m->base = d->base;
	m->known = true;
	if (m->with_template) { /* else what was in its place before still is */
		replace(&m->template_fd, &m->fresh);
		replace(&m->uffd, &d->uffd);
		m->bytes = m->fresh_bytes;
		memcpy(m->snapshot, m->fresh_snapshot, sizeof(m->snapshot));
	}
	n = add_fd(fds, n, m->mem);
	n = add_fd(fds, n, m->pagemap);
	if (has_uffd)
		n = add_fd(fds, n, m->uffd);
	if (wire_put_u64(&b->data, m->base) == 0 && wire_put_u8(&b->data, has_uffd) == 0)
		box_reply_data(b, m->id, 0, "", b->data.data, b->data.len, fds, n);
	buf_reset(&b->data);
}

static void on_done(void *arg, struct preload_done *d)
{
	struct box *b = arg;
	struct box_memory *m = &b->memory;
	char words[256];

	m->pending = false;
	if (d->code == 0) {
		keep_and_tell(b, d);
	} else {
		snprintf(words, sizeof(words), "the guest's memory: %.200s",
			 d->words && *d->words ? d->words : err_name(d->code));
		box_reply(b, m->id, d->code, words);
		/* Without an answer it may still be done, at any time, under a machine that runs. */
		if (d->lost)
			box_end(b, words);
		else if (m->with_template && d->code == -ETIMEDOUT)
			box_end(b, "the engine did not say whether the guest's memory was replaced");
	}
	m->id = 0;
	fd_close(&m->fresh);
	box_freeze_memory_done(b);
}

static int refuse(struct box *b, const struct box_msg *m, int fd, struct err *e)
{
	if ((m->memory.bytes > 0) != (fd >= 0) || (*m->memory.snapshot != 0) != (fd >= 0))
		return err_set(e, -EBADMSG, "memory: a template, its size and its name come together");
	if (b->memory.pending)
		return err_set(e, -EBUSY, "memory: an order is under way");
	if (fd >= 0 && b->load.life != LIFE_EMPTY && b->freeze.step != FREEZE_HELD)
		return err_set(e, -EBUSY, "memory: it can be replaced before a load, or while frozen");
	if (fd >= 0 && b->freeze.thawing)
		return err_set(e, -EBUSY, "memory: the machine is about to go on");
	return 0;
}

void box_take_memory(struct box *b, uint32_t id, const struct box_msg *m, int *fd)
{
	struct err e = { 0 };
	int r = refuse(b, m, *fd, &e);

	if (r == 0) {
		r = preload_order(b->memory.preload, *fd, m->memory.bytes, m->memory.ranges, m->memory.n,
				  b->t.memory_timeout_ms, on_done, b);
		if (r < 0)
			err_set(&e, r, "memory: %s", err_name(r));
	}
	if (r < 0) {
		box_reply(b, id, r, e.msg);
		return;
	}
	b->memory.pending = true;
	b->memory.with_template = *fd >= 0;
	b->memory.fresh = take_fd(fd);
	b->memory.fresh_bytes = m->memory.bytes;
	memcpy(b->memory.fresh_snapshot, m->memory.snapshot, sizeof(b->memory.fresh_snapshot));
	b->memory.id = id;
}

void box_take_memory_again(struct box *b, uint32_t id)
{
	const struct box_memory *m = &b->memory;
	int fds[4];
	size_t n = 0;

	if (!m->known) {
		box_reply(b, id, -ENOENT, "memory: nothing was handed over yet");
		return;
	}
	n = add_fd(fds, n, m->mem);
	n = add_fd(fds, n, m->pagemap);
	n = add_fd(fds, n, m->template_fd);
	n = add_fd(fds, n, m->uffd);
	if (wire_put_u64(&b->data, m->base) == 0 && wire_put_u64(&b->data, m->bytes) == 0 &&
	    wire_put_u8(&b->data, m->uffd >= 0) == 0 && wire_put_str(&b->data, m->snapshot) == 0)
		box_reply_data(b, id, 0, "", b->data.data, b->data.len, fds, n);
	buf_reset(&b->data);
}
