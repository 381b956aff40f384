/* SPDX-License-Identifier: Apache-2.0 */
/* Raw FUSE requests to the session with the whole tree over the fake domain. The input is a list of requests: an
 * opcode, which node and handle (one that an answer told, or nonsense), arguments, a name (of the tree, or bytes of the
 * input). Lengths are right and names end with a NUL, because libfuse, which reads them first, relies on the kernel for
 * that. Between them the domain moves: commands print and end, sandboxes go. Must hold: no crash, each request answered
 * at most once, none after the end left, nothing leaked. */
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cruciblefs/root.h"
#include "tests/unit/fake_domain.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#define REQUESTS_MAX 300
#define BATCH_MAX    8
#define KNOWN_MAX    64
#define DATA_MAX     4096u

static const char *const names[] = { "run",	    "a",
				     "b",	    "cmd",
				     "stdin",	    "stdout",
				     "result.json", ".wait",
				     "wait",	    "status",
				     "ctl",	    "env",
				     "limits",	    "pids",
				     "exec",	    "1",
				     "2",	    "latest",
				     "web",	    "lease",
				     "import",	    ".fs",
				     "fs",	    "log.jsonl",
				     "scratch",	    "env~",
				     "snapshot",    "version",
				     "metrics",	    "events.jsonl",
				     "defaults",    "logs",
				     "by-name",	    "00000000-0000-4000-8000-000000000001.jsonl",
				     "profiles",    "base",
				     "info.json",   "README.md",
				     "views",	    "v",
				     "tree",	    "policy",
				     "ttl",	    "policy.json" };

static const uint8_t opcodes[] = { FUSE_LOOKUP,	     FUSE_FORGET,      FUSE_GETATTR,  FUSE_SETATTR,	FUSE_READLINK,
				   FUSE_SYMLINK,     FUSE_MKNOD,       FUSE_MKDIR,    FUSE_UNLINK,	FUSE_RMDIR,
				   FUSE_RENAME2,     FUSE_LINK,	       FUSE_OPEN,     FUSE_READ,	FUSE_WRITE,
				   FUSE_STATFS,	     FUSE_RELEASE,     FUSE_FSYNC,    FUSE_SETXATTR,	FUSE_GETXATTR,
				   FUSE_LISTXATTR,   FUSE_REMOVEXATTR, FUSE_FLUSH,    FUSE_OPENDIR,	FUSE_READDIR,
				   FUSE_READDIRPLUS, FUSE_RELEASEDIR,  FUSE_FSYNCDIR, FUSE_CREATE,	FUSE_INTERRUPT,
				   FUSE_POLL,	     FUSE_FALLOCATE,   FUSE_LSEEK,    FUSE_BATCH_FORGET };

struct input {
	const uint8_t *p, *end;
};

struct harness {
	struct loop *loop;
	struct registry *reg;
	struct cfs_session *cs;
	int fd;
	uint64_t unique;
	bool answered[REQUESTS_MAX + 1];
	bool forgets[REQUESTS_MAX + 1]; /* has no answer */
	uint64_t nodes[KNOWN_MAX], fhs[KNOWN_MAX];
	unsigned nnodes, nfhs;
	struct input in;
};

static void must(bool ok)
{
	if (!ok)
		abort();
}

static uint8_t byte(struct input *in)
{
	return in->p < in->end ? *in->p++ : 0;
}

static uint64_t number(struct input *in, unsigned bytes)
{
	uint64_t v = 0;

	while (bytes--)
		v = v << 8 | byte(in);
	return v;
}

static const char *name_of(struct input *in, char tmp[300])
{
	uint8_t which = byte(in);
	size_t n = 0;

	if (which < 200)
		return names[which % (sizeof(names) / sizeof(*names))];
	for (size_t want = byte(in) + (which & 15u); n < want && n < 290; n++) {
		char c = (char)byte(in);

		tmp[n] = c ? c : 'x';
	}
	tmp[n] = '\0';
	return tmp;
}

static uint64_t known(struct input *in, const uint64_t *list, unsigned n)
{
	uint8_t which = byte(in);

	if (which >= 250)
		return number(in, 8);
	return n ? list[which % n] : FUSE_ROOT_ID;
}

static void learn(uint64_t *list, unsigned *n, uint64_t id)
{
	list[*n < KNOWN_MAX ? (*n)++ : id % KNOWN_MAX] = id;
}

static void take_answers(struct harness *h)
{
	static char buf[300 * 1024];
	ssize_t n;

	while ((n = recv(h->fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0) {
		const struct fuse_out_header *o = (const void *)buf;
		size_t len = (size_t)n - sizeof(*o);

		must((size_t)n >= sizeof(*o) && o->len == n);
		if (o->unique == 0)
			continue;
		must(o->error <= 0 && o->error > -1000 && o->error != -ENOSYS);
		if (o->unique > REQUESTS_MAX)
			continue; /* INIT, or an interrupt */
		must(!h->answered[o->unique]);
		h->answered[o->unique] = true;
		if (!o->error && len == sizeof(struct fuse_entry_out))
			learn(h->nodes, &h->nnodes, ((const struct fuse_entry_out *)(const void *)(o + 1))->nodeid);
		if (!o->error && len == sizeof(struct fuse_open_out))
			learn(h->fhs, &h->nfhs, ((const struct fuse_open_out *)(const void *)(o + 1))->fh);
		if (!o->error && len == sizeof(struct fuse_entry_out) + sizeof(struct fuse_open_out)) {
			const struct fuse_entry_out *e = (const void *)(o + 1);

			learn(h->nodes, &h->nnodes, e->nodeid);
			learn(h->fhs, &h->nfhs, ((const struct fuse_open_out *)(const void *)(e + 1))->fh);
		}
	}
}

static void run(struct harness *h)
{
	for (int i = 0; i < 3; i++) {
		must(loop_once(h->loop, 0) == 0);
		take_answers(h);
	}
}

static void send_request(struct harness *h, uint32_t opcode, uint64_t nodeid, uint64_t unique, uint32_t uid,
			 const void *body, size_t len)
{
	struct fuse_in_header hd = {
		.len = (uint32_t)(sizeof(hd) + len), .opcode = opcode, .unique = unique, .nodeid = nodeid, .uid = uid
	};
	struct iovec iov[2] = { { &hd, sizeof(hd) }, { (void *)body, len } };

	must(writev(h->fd, iov, 2) == (ssize_t)hd.len);
}

/* The body of a request: the opcode's struct filled from the input, then what follows it. */
static size_t body_of(struct harness *h, uint32_t opcode, char *body)
{
	struct input *in = &h->in;
	char tmp[300], tmp2[300];
	size_t fixed = 0, n;

	memset(body, 0, 128);
	switch (opcode) {
	case FUSE_FORGET:
		((struct fuse_forget_in *)(void *)body)->nlookup = number(in, 1);
		return sizeof(struct fuse_forget_in);
	case FUSE_BATCH_FORGET: {
		struct fuse_batch_forget_in *b = (void *)body;
		struct fuse_forget_one *one = (void *)(b + 1);

		b->count = 2;
		for (int i = 0; i < 2; i++)
			one[i] = (struct fuse_forget_one){ known(in, h->nodes, h->nnodes), number(in, 1) };
		return sizeof(*b) + 2 * sizeof(*one);
	}
	case FUSE_GETATTR:
		*(struct fuse_getattr_in *)(void *)body =
			(struct fuse_getattr_in){ .getattr_flags = byte(in) & 1, .fh = known(in, h->fhs, h->nfhs) };
		return sizeof(struct fuse_getattr_in);
	case FUSE_SETATTR: {
		struct fuse_setattr_in *s = (void *)body;

		s->valid = (uint32_t)number(in, 2);
		s->fh = known(in, h->fhs, h->nfhs);
		s->size = number(in, byte(in) & 7);
		s->mode = (uint32_t)number(in, 2);
		s->uid = byte(in);
		return sizeof(*s);
	}
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		((struct fuse_open_in *)(void *)body)->flags = (uint32_t)number(in, 2);
		return sizeof(struct fuse_open_in);
	case FUSE_READ:
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
		*(struct fuse_read_in *)(void *)body = (struct fuse_read_in){ .fh = known(in, h->fhs, h->nfhs),
									      .offset = number(in, byte(in) & 7),
									      .size = (uint32_t)number(in, 2),
									      .flags = byte(in) & 1 ? O_NONBLOCK : 0 };
		return sizeof(struct fuse_read_in);
	case FUSE_WRITE: {
		struct fuse_write_in *w = (void *)body;

		w->fh = known(in, h->fhs, h->nfhs);
		w->offset = number(in, byte(in) & 7);
		w->flags = (uint32_t)(O_WRONLY | (byte(in) & 1 ? O_NONBLOCK : 0) | (byte(in) & 1 ? O_APPEND : 0));
		w->size = (uint32_t)(byte(in) & 1 ? number(in, 1) : number(in, 2) % DATA_MAX);
		for (n = 0; n < w->size; n++)
			body[sizeof(*w) + n] = (char)(in->p < in->end ? byte(in) : 'A' + n % 3);
		return sizeof(*w) + w->size;
	}
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
		((struct fuse_release_in *)(void *)body)->fh = known(in, h->fhs, h->nfhs);
		return sizeof(struct fuse_release_in);
	case FUSE_FLUSH:
	case FUSE_FSYNC:
	case FUSE_FSYNCDIR:
		((struct fuse_flush_in *)(void *)body)->fh = known(in, h->fhs, h->nfhs);
		return sizeof(struct fuse_flush_in);
	case FUSE_INTERRUPT:
		((struct fuse_interrupt_in *)(void *)body)->unique = 1 + number(in, 1) % (h->unique ? h->unique : 1);
		return sizeof(struct fuse_interrupt_in);
	case FUSE_POLL:
		*(struct fuse_poll_in *)(void *)body = (struct fuse_poll_in){ .fh = known(in, h->fhs, h->nfhs),
									      .kh = byte(in),
									      .flags = byte(in) & 1 };
		return sizeof(struct fuse_poll_in);
	case FUSE_FALLOCATE:
		*(struct fuse_fallocate_in *)(void *)body =
			(struct fuse_fallocate_in){ .fh = known(in, h->fhs, h->nfhs),
						    .offset = number(in, byte(in) & 7),
						    .length = number(in, byte(in) & 7),
						    .mode = byte(in) };
		return sizeof(struct fuse_fallocate_in);
	case FUSE_LSEEK:
		*(struct fuse_lseek_in *)(void *)body = (struct fuse_lseek_in){ .fh = known(in, h->fhs, h->nfhs),
										.offset = number(in, byte(in) & 7),
										.whence = byte(in) };
		return sizeof(struct fuse_lseek_in);
	case FUSE_READLINK:
	case FUSE_STATFS:
		return 0;
	case FUSE_MKNOD:
		*(struct fuse_mknod_in *)(void *)body = (struct fuse_mknod_in){ .mode = (uint32_t)number(in, 2) };
		fixed = sizeof(struct fuse_mknod_in);
		break;
	case FUSE_MKDIR:
		fixed = sizeof(struct fuse_mkdir_in);
		break;
	case FUSE_CREATE:
		*(struct fuse_create_in *)(void *)body =
			(struct fuse_create_in){ .flags = (uint32_t)number(in, 2), .mode = 0100644 };
		fixed = sizeof(struct fuse_create_in);
		break;
	case FUSE_LINK:
		((struct fuse_link_in *)(void *)body)->oldnodeid = known(in, h->nodes, h->nnodes);
		fixed = sizeof(struct fuse_link_in);
		break;
	case FUSE_RENAME2:
		*(struct fuse_rename2_in *)(void *)body =
			(struct fuse_rename2_in){ .newdir = known(in, h->nodes, h->nnodes), .flags = byte(in) & 3 };
		fixed = sizeof(struct fuse_rename2_in);
		break;
	case FUSE_SETXATTR:
		fixed = 8; /* FUSE_COMPAT_SETXATTR_IN_SIZE */
		break;
	case FUSE_GETXATTR:
	case FUSE_LISTXATTR:
		((struct fuse_getxattr_in *)(void *)body)->size = (uint32_t)number(in, 2);
		fixed = sizeof(struct fuse_getxattr_in);
		break;
	}
	n = fixed + (size_t)sprintf(body + fixed, "%s", name_of(in, tmp)) + 1;
	if (opcode == FUSE_RENAME2 || opcode == FUSE_SYMLINK)
		n += (size_t)sprintf(body + n, "%s", name_of(in, tmp2)) + 1;
	return n;
}

static void view_moves(struct harness *h, uint8_t what)
{
	static const struct cfs_who root;
	static const char policy[] = "{\"operations\":[\"create\",\"read\"]}";
	struct view *v = registry_find_view(h->reg, "v");

	if (!v)
		fake_view(h->reg, "v", "{}");
	else if (what % 4 == 0)
		fake_view_expire(v);
	else if (what % 4 == 1)
		view_ttl_store(v, "60", 2, &root, NULL);
	else if (what % 4 == 2)
		view_policy_store(v, policy, sizeof(policy) - 1, &root, NULL);
	else
		registry_remove_view(h->reg, v, &root, NULL);
}

/* What happens on the other side. */
static void domain_moves(struct harness *h)
{
	static const struct cfs_who root;
	uint8_t what = byte(&h->in), which = byte(&h->in);
	struct sandbox *s =
		registry_find(h->reg, which & 2 ? registry_find_view(h->reg, "v") : NULL, which & 1 ? "b" : "a");
	struct execution *x = s ? sandbox_exec_next(s, NULL) : NULL;
	const char *slot = s ? slot_next(s, NULL) : NULL;

	if (what >= 200) {
		view_moves(h, what);
		return;
	}
	while (x && which-- > 128 && sandbox_exec_next(s, x))
		x = sandbox_exec_next(s, x);
	if (!s)
		return;
	switch (what % 8) {
	case 0:
	case 1:
		if (x)
			fake_end(s, exec_number(x), what);
		break;
	case 2:
		if (x)
			fake_print(s, exec_number(x), 1, "text\n");
		break;
	case 3:
		if (x && exec_state(x) == EXEC_DONE)
			fake_forget(s, exec_number(x));
		break;
	case 4:
		if (slot)
			fake_room(s, slot, what);
		break;
	case 5:
		registry_destroy(h->reg, s, &root, "fuzz");
		break;
	case 6:
		fake_status(s, what % SBX_STATUS_COUNT);
		break;
	default:
		fake_event_of(h->reg, what & 1, "{}");
	}
}

static void start(struct harness *h)
{
	struct fuse_init_in init = { .major = 7, .minor = 38, .flags = FUSE_DO_READDIRPLUS | FUSE_ATOMIC_O_TRUNC };
	struct cfs_session_opts o = { .socket = true };
	struct err e = { 0 };
	int fds[2];

	must(loop_new(&h->loop) == 0);
	h->reg = fake_registry_new(h->loop);
	must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) == 0);
	h->fd = fds[0];
	o.loop = h->loop;
	o.registry = h->reg;
	o.fd = fds[1];
	o.limits = (struct cfs_limits){
		.parked_uid = 20, .open_uid = 40, .nodes_uid = 400, .nodes_all = 500, .bytes_uid = 400000
	};
	must(cfs_session_new(&o, &h->cs, &e) == 0 && cfs_root_install(h->cs, &e) == 0);
	send_request(h, FUSE_INIT, 0, 1u << 20, 0, &init, sizeof(init));
	run(h);
	learn(h->nodes, &h->nnodes, FUSE_ROOT_ID);
	fake_sandbox(h->reg, "a", 0);
	fake_view(h->reg, "v", "{}");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static char body[DATA_MAX + 1024];
	static struct harness h;
	struct fuse_getattr_in last = { 0 };
	unsigned interrupts = 0, batch = 0;

	h = (struct harness){ .in = { data, data + len } };
	start(&h);
	while (h.in.p < h.in.end && h.unique < REQUESTS_MAX - 1) {
		uint8_t op = byte(&h.in);
		uint32_t opcode;
		uint64_t node;
		size_t n;

		if (op >= 240) {
			domain_moves(&h);
			run(&h);
			continue;
		}
		opcode = opcodes[op % sizeof(opcodes)];
		node = known(&h.in, h.nodes, h.nnodes);
		n = body_of(&h, opcode, body);
		h.unique++;
		h.forgets[h.unique] = opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET || opcode == FUSE_INTERRUPT;
		interrupts += opcode == FUSE_INTERRUPT;
		send_request(&h, opcode, node, opcode == FUSE_INTERRUPT ? (1u << 21) + h.unique : h.unique, op & 1,
			     body, n);
		/* Else in one batch with the next; the socket holds only so many. */
		if ((byte(&h.in) & 3) || ++batch == BATCH_MAX) {
			batch = 0;
			run(&h);
		}
	}
	/* libfuse keeps each interrupt that found no request, and drops one of them with each later request. */
	for (unsigned i = 0; i <= interrupts; i++) {
		send_request(&h, FUSE_GETATTR, FUSE_ROOT_ID, (1u << 22) + i, 0, &last, sizeof(last));
		run(&h);
	}
	cfs_session_stop(h.cs);
	run(&h);
	for (uint64_t i = 1; i <= h.unique; i++)
		must(h.forgets[i] || h.answered[i]);
	cfs_session_free(h.cs);
	must(fake_uploads(h.reg) == 0);
	fake_registry_free(h.reg);
	must(fake_views_alive() == 0);
	loop_free(h.loop);
	close(h.fd);
	return 0;
}
