/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the pager, each written here; their answers are taken apart by pager_reply.c. */
#include "cruciblefs/domain/pagerlink.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct pagerlink {
	struct peer *peer;
	struct pagerlink_ops ops;
	void *arg;
};

/* A call that waits. */
struct order {
	enum pager_type type;
	uint64_t bytes; /* of the memory that it is about; 0: not known */
	pager_fn *fn;
	void *arg;
};

/* -- calls --------------------------------------------------------------------------------------------------------- */

static void on_reply(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct order *o = arg;
	struct pager_reply p = { 0 };
	int k = code < 0 ? 0 : pager_reply_parse(o->type, o->bytes, r, m, &p);

	if (k < 0) {
		pager_reply_fini(&p);
		p = (struct pager_reply){ 0 };
	}
	p.code = k < 0 ? k : code;
	p.words = k == -ENOMEM ? "no memory" : k < 0 ? "the pager answers nonsense" : words;
	if (o->fn)
		o->fn(o->arg, &p);
	pager_reply_fini(&p);
	free(o);
}

/* Send @b, which is freed; @r: how it was filled. */
static int call(struct pagerlink *k, enum pager_type type, uint64_t bytes, int r, struct buf *b, const int *fds,
		size_t nfds, pager_fn *fn, void *arg)
{
	struct order *o = r == 0 ? malloc(sizeof(*o)) : NULL;

	if (r == 0 && !o)
		r = -ENOMEM;
	if (r == 0) {
		*o = (struct order){ type, bytes, fn, arg };
		r = peer_call(k->peer, (uint16_t)type, b->data, b->len, fds, nfds, on_reply, o, NULL);
	}
	if (r < 0)
		free(o);
	buf_fini(b);
	return r;
}

/* Those whose payload is one or two names, and that send no descriptors. */
static int call_names(struct pagerlink *k, enum pager_type type, const char *a, const char *b_or_null, pager_fn *fn,
		      void *arg)
{
	struct buf b;
	int r;

	buf_init(&b, 1024);
	r = peer_put(&b, "s", a);
	if (r == 0 && b_or_null)
		r = peer_put(&b, "s", b_or_null);
	return call(k, type, 0, r, &b, NULL, 0, fn, arg);
}

static int call_plain(struct pagerlink *k, enum pager_type type, pager_fn *fn, void *arg)
{
	struct buf b;

	buf_init(&b, 16);
	return call(k, type, 0, 0, &b, NULL, 0, fn, arg);
}

/* -- memory -------------------------------------------------------------------------------------------------------- */

int pager_template(struct pagerlink *k, const char *snapshot, uint64_t bytes, pager_fn *fn, void *arg)
{
	struct buf b;

	buf_init(&b, 256);
	return call(k, PAGER_TEMPLATE, bytes, peer_put(&b, "sq", snapshot, bytes), &b, NULL, 0, fn, arg);
}

int pager_attach(struct pagerlink *k, const struct pager_attach *a, pager_fn *fn, void *arg)
{
	int fds[3] = { a->uffd, a->mem, a->pagemap }, skip = a->uffd < 0, r;
	struct buf b;

	buf_init(&b, 16 * 1024);
	r = a->nranges > PAGER_RANGES_MAX
		    ? -EINVAL
		    : peer_put(&b, "ssqqu", a->machine, a->snapshot, a->base, a->bytes, a->nranges);
	for (uint32_t i = 0; i < a->nranges && r == 0; i++)
		r = peer_put(&b, "qq", a->ranges[i].offset, a->ranges[i].bytes);
	return call(k, PAGER_ATTACH, a->bytes, r, &b, fds + skip, 3 - (size_t)skip, fn, arg);
}

int pager_detach(struct pagerlink *k, const char *machine, pager_fn *fn, void *arg)
{
	return call_names(k, PAGER_DETACH, machine, NULL, fn, arg);
}

int pager_capture_begin(struct pagerlink *k, const char *snapshot, uint64_t bytes, const char *parent, pager_fn *fn,
			void *arg)
{
	struct buf b;

	buf_init(&b, 256);
	return call(k, PAGER_CAPTURE_BEGIN, bytes, peer_put(&b, "sqs", snapshot, bytes, parent), &b, NULL, 0, fn, arg);
}

int pager_capture(struct pagerlink *k, const char *machine, const char *snapshot, pager_fn *fn, void *arg)
{
	return call_names(k, PAGER_CAPTURE, machine, snapshot, fn, arg);
}

int pager_captured(struct pagerlink *k, const char *snapshot, pager_fn *fn, void *arg)
{
	return call_names(k, PAGER_CAPTURED, snapshot, NULL, fn, arg);
}

int pager_adopt(struct pagerlink *k, const char *snapshot, uint64_t bytes, const char *parent, int template_fd,
		int bits_fd, pager_fn *fn, void *arg)
{
	const int fds[] = { template_fd, bits_fd };
	struct buf b;
	int r;

	buf_init(&b, 256);
	r = peer_put(&b, "sqsb", snapshot, bytes, parent, bits_fd < 0);
	return call(k, PAGER_ADOPT, bytes, r, &b, fds, bits_fd < 0 ? 1 : 2, fn, arg);
}

int pager_stored(struct pagerlink *k, const char *snapshot, pager_fn *fn, void *arg)
{
	return call_names(k, PAGER_STORED, snapshot, NULL, fn, arg);
}

int pager_forget(struct pagerlink *k, const char *snapshot, pager_fn *fn, void *arg)
{
	return call_names(k, PAGER_FORGET, snapshot, NULL, fn, arg);
}

int pager_workset(struct pagerlink *k, const char *snapshot, pager_fn *fn, void *arg)
{
	return call_names(k, PAGER_WORKSET, snapshot, NULL, fn, arg);
}

int pager_workset_set(struct pagerlink *k, const char *snapshot, int fd, pager_fn *fn, void *arg)
{
	struct buf b;

	buf_init(&b, 256);
	return call(k, PAGER_WORKSET_SET, 0, peer_put(&b, "s", snapshot), &b, &fd, 1, fn, arg);
}

/* -- disks --------------------------------------------------------------------------------------------------------- */

int pager_disk_create(struct pagerlink *k, const struct pager_disk *d, pager_fn *fn, void *arg)
{
	struct buf b;
	int r;

	buf_init(&b, 1024);
	r = peer_put(&b, "sqqss", d->id, d->bytes, d->limit_bytes, d->snapshot, d->base_name);
	return call(k, PAGER_DISK_CREATE, 0, r, &b, &d->base_fd, 1, fn, arg);
}

int pager_disk_remove(struct pagerlink *k, const char *id, pager_fn *fn, void *arg)
{
	return call_names(k, PAGER_DISK_REMOVE, id, NULL, fn, arg);
}

int pager_disk_export(struct pagerlink *k, const char *name, const char *id, uint32_t uid, pager_fn *fn, void *arg)
{
	struct buf b;

	buf_init(&b, 1024);
	return call(k, PAGER_DISK_EXPORT, 0, peer_put(&b, "ssu", name, id, uid), &b, NULL, 0, fn, arg);
}

int pager_disk_unexport(struct pagerlink *k, const char *name, pager_fn *fn, void *arg)
{
	return call_names(k, PAGER_DISK_UNEXPORT, name, NULL, fn, arg);
}

int pager_disk_sync(struct pagerlink *k, const char *id, pager_fn *fn, void *arg)
{
	return call_names(k, PAGER_DISK_SYNC, id, NULL, fn, arg);
}

int pager_disk_files(struct pagerlink *k, const char *snapshot, const char *parent, pager_fn *fn, void *arg)
{
	return call_names(k, PAGER_DISK_FILES, snapshot, parent, fn, arg);
}

int pager_disk_stat(struct pagerlink *k, const char *id, pager_fn *fn, void *arg)
{
	return call_names(k, PAGER_DISK_STAT, id, NULL, fn, arg);
}

/* -- the process -----------------------------------------------------------------------------------------------------
 */

int pager_stat(struct pagerlink *k, pager_fn *fn, void *arg)
{
	return call_plain(k, PAGER_STAT, fn, arg);
}

int pager_list(struct pagerlink *k, pager_fn *fn, void *arg)
{
	return call_plain(k, PAGER_LIST, fn, arg);
}

int pager_evict(struct pagerlink *k, const char *snapshot, pager_fn *fn, void *arg)
{
	return call_names(k, PAGER_EVICT, snapshot, NULL, fn, arg);
}

int pager_config(struct pagerlink *k, uint64_t budget_bytes, pager_fn *fn, void *arg)
{
	struct buf b;

	buf_init(&b, 64);
	return call(k, PAGER_CONFIG, 0, peer_put(&b, "q", budget_bytes), &b, NULL, 0, fn, arg);
}

/* -- the link ------------------------------------------------------------------------------------------------------ */

static void on_up(void *arg, bool fresh)
{
	struct pagerlink *k = arg;

	k->ops.on_up(k->arg, fresh);
}

static void on_lost(void *arg, const char *words)
{
	struct pagerlink *k = arg;

	k->ops.on_lost(k->arg, words);
}

static void on_msg(void *arg, struct msg *m)
{
	char machine[PAGER_UUID_LEN + 1], words[CALLS_WORDS_MAX];
	struct pagerlink *k = arg;
	struct wire_rd r;
	int code;

	if (m->type != PAGER_LOST)
		return; /* of a newer pager */
	wire_rd_init(&r, m->data, m->len);
	wire_str(&r, machine, sizeof(machine));
	code = (int)wire_u32(&r);
	wire_str(&r, words, sizeof(words));
	if (wire_done(&r) == 0)
		k->ops.on_machine_lost(k->arg, machine, code < 0 && code >= -4095 ? code : -EIO, words);
}

int pagerlink_new(const struct peer_setup *setup, const struct pagerlink_ops *ops, void *arg, struct pagerlink **ret,
		  struct err *e)
{
	static const struct peer_kind kind = {
		.name = "crucible-pager",
		.kind = LAUNCH_PAGER,
		.uuid = LAUNCH_UUID_PAGER,
		.listen = {
			[PAGER_FD_LISTEN - 3] = { "run", "pager.sock", SOCK_SEQPACKET, 0600 },
			/* Engines have uids of their own each; the folder above keeps all others out. */
			[PAGER_FD_BLOCKS - 3] = { LAUNCH_BLOCKS_DIR, "nbd.sock", SOCK_STREAM, 0666 },
		},
		.nlisten = 2,
		.reply = PAGER_REPLY,
		.greeting = PAGER_LIST,
	};
	static const struct peer_ops peer_ops = { on_up, on_lost, on_msg };
	struct pagerlink *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return err_set(e, -ENOMEM, "%s: no memory", kind.name);
	k->ops = *ops;
	k->arg = arg;
	r = peer_new(&kind, setup, &peer_ops, k, &k->peer, e);
	if (r < 0) {
		free(k);
		return r;
	}
	*ret = k;
	return 0;
}

struct pagerlink *pagerlink_free(struct pagerlink *k)
{
	if (!k)
		return NULL;
	peer_free(k->peer);
	free(k);
	return NULL;
}

bool pagerlink_is_up(const struct pagerlink *k)
{
	return peer_is_up(k->peer);
}

const char *pagerlink_degraded(const struct pagerlink *k)
{
	return peer_degraded(k->peer);
}

void pagerlink_quit(struct pagerlink *k)
{
	peer_quit(k->peer, PAGER_QUIT);
}
