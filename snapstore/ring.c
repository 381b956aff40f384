/* SPDX-License-Identifier: Apache-2.0 */
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/fd.h"
#include "snapstore/ring.h"

#define FILES 128u

struct read_op { /* of one read that is under way */
	void *token;
	unsigned slot;
	unsigned next; /* of the free ones */
};

struct ring {
	struct io_uring u;
	int event_fd;
	unsigned depth;
	struct {
		bool taken;
		uint64_t id;
		unsigned busy; /* reads under way */
		uint64_t used;
	} files[FILES];
	uint64_t clock;
	unsigned free; /* first free read_op; depth: none */
	struct read_op ops[];
};

/* liburing 2.3 declares io_uring_register_restrictions() and io_uring_enable_rings(), but its library lacks both. */
static int ring_register(struct io_uring *u, unsigned opcode, const void *arg, unsigned n)
{
	return syscall(SYS_io_uring_register, u->ring_fd, opcode, arg, n) < 0 ? -errno : 0;
}

static int restrict_it(struct io_uring *u)
{
	struct io_uring_restriction only[] = {
		{ .opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_READ },
		{ .opcode = IORING_RESTRICTION_SQE_FLAGS_REQUIRED, .sqe_flags = IOSQE_FIXED_FILE },
		{ .opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED, .sqe_flags = IOSQE_FIXED_FILE },
		{ .opcode = IORING_RESTRICTION_REGISTER_OP, .register_op = IORING_REGISTER_FILES_UPDATE },
		{ .opcode = IORING_RESTRICTION_REGISTER_OP, .register_op = IORING_REGISTER_ENABLE_RINGS },
	};

	return ring_register(u, IORING_REGISTER_RESTRICTIONS, only, ARRAY_LEN(only));
}

int ring_new(unsigned depth, int event_fd, struct ring **ret, struct err *e)
{
	struct ring *r = calloc(1, sizeof(*r) + depth * sizeof(r->ops[0]));
	int none[FILES], code;

	if (!r)
		return err_set(e, -ENOMEM, "io_uring: no memory");
	r->depth = depth;
	r->event_fd = event_fd;
	for (unsigned i = 0; i < depth; i++)
		r->ops[i].next = i + 1;
	code = io_uring_queue_init(depth, &r->u, IORING_SETUP_R_DISABLED);
	if (code < 0) {
		free(r);
		/* Kernels before 5.10 do not know of disabled rings, nor of restrictions. */
		return code == -EINVAL ? err_set(e, -EOPNOTSUPP, "io_uring: this kernel cannot restrict one")
				       : err_set(e, code, "io_uring: %s", strerror(-code));
	}
	for (unsigned i = 0; i < FILES; i++)
		none[i] = -1;
	code = io_uring_register_files(&r->u, none, FILES);
	if (code == 0)
		code = io_uring_register_eventfd(&r->u, event_fd);
	if (code < 0) {
		err_set(e, code, "io_uring: setting it up: %s", strerror(-code));
	} else {
		code = restrict_it(&r->u);
		if (code < 0)
			code = err_set(e, code == -EINVAL ? -EOPNOTSUPP : code, "io_uring: restricting it: %s",
				       strerror(-code));
	}
	if (code == 0 && (code = ring_register(&r->u, IORING_REGISTER_ENABLE_RINGS, NULL, 0)) < 0)
		err_set(e, code, "io_uring: enabling it: %s", strerror(-code));
	if (code < 0) {
		ring_free(r);
		return code;
	}
	*ret = r;
	return 0;
}

struct ring *ring_free(struct ring *r)
{
	if (!r)
		return NULL;
	io_uring_queue_exit(&r->u);
	free(r);
	return NULL;
}

int ring_file(struct ring *r, uint64_t id, int fd, unsigned *ret_slot, struct err *e)
{
	unsigned best = FILES;
	int code;

	/* Ours; else a free one; else the one that is idle for the longest. */
	for (unsigned i = 0; i < FILES; i++) {
		if (r->files[i].taken && r->files[i].id == id) {
			r->files[i].used = ++r->clock;
			*ret_slot = i;
			return 0;
		}
		if (!r->files[i].busy && (best == FILES || r->files[i].used < r->files[best].used))
			best = i;
	}
	if (best == FILES)
		return err_set(e, -EBUSY, "io_uring: all files are in use");
	code = io_uring_register_files_update(&r->u, best, &fd, 1);
	if (code < 0)
		return err_set(e, code, "io_uring: a file: %s", strerror(-code));
	r->files[best].taken = true;
	r->files[best].id = id;
	r->files[best].used = ++r->clock;
	*ret_slot = best;
	return 0;
}

void ring_sweep(struct ring *r, bool (*keep)(void *arg, uint64_t id), void *arg)
{
	int none = -1;

	for (unsigned i = 0; i < FILES; i++) {
		if (!r->files[i].taken || keep(arg, r->files[i].id))
			continue;
		io_uring_register_files_update(&r->u, i, &none, 1);
		r->files[i].taken = false;
		r->files[i].used = 0;
	}
}

/* What the kernel does not take now (it has no memory) stays in the queue; the event brings us back. */
static void submit(struct ring *r)
{
	uint64_t one = 1;

	io_uring_submit(&r->u);
	if (io_uring_sq_ready(&r->u) && write(r->event_fd, &one, sizeof(one)) < 0)
		return; /* it counts to the brim already: readable */
}

int ring_read(struct ring *r, unsigned slot, void *buf, uint32_t len, uint64_t off, void *token)
{
	struct io_uring_sqe *sqe;
	unsigned i = r->free;

	if (i == r->depth || !(sqe = io_uring_get_sqe(&r->u)))
		return -EBUSY;
	io_uring_prep_read(sqe, (int)slot, buf, len, off);
	sqe->flags = IOSQE_FIXED_FILE;
	io_uring_sqe_set_data64(sqe, i);
	r->free = r->ops[i].next;
	r->ops[i] = (struct read_op){ token, slot, 0 };
	r->files[slot].busy++;
	submit(r);
	return 0;
}

void *ring_next(struct ring *r, int *ret_res)
{
	struct io_uring_cqe *cqe;
	void *token;
	uint64_t i;

	if (io_uring_sq_ready(&r->u))
		submit(r);
	if (io_uring_peek_cqe(&r->u, &cqe) != 0 || !cqe)
		return NULL;
	i = io_uring_cqe_get_data64(cqe);
	*ret_res = cqe->res;
	io_uring_cqe_seen(&r->u, cqe);
	token = r->ops[i].token;
	r->files[r->ops[i].slot].busy--;
	r->ops[i].next = r->free;
	r->free = (unsigned)i;
	return token;
}

int ring_wait(struct ring *r)
{
	int code;

	do
		code = io_uring_submit_and_wait(&r->u, 1);
	while (code == -EINTR);
	return code < 0 ? code : 0;
}
