/* SPDX-License-Identifier: Apache-2.0 */
/* The pager and the store as the daemon knows them, and what is told to them anew when one of the three was restarted.
 *
 * A fresh pager knows nothing. Each box keeps what it needs: the template, the engine's memory, the userfaultfd. They
 * are handed over again (ADOPT of the template, ATTACH of the machine), and each disk is offered again; until then
 * faults wait and QEMU reconnects. A fresh daemon meets a pager that knows all: it asks for what it cannot know itself,
 * the templates of snapshots that were on their way into the store. A snapshot whose pages died with the pager before
 * they were stored is damaged, and says so.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "cruciblefs/domain/peer.h"
#include "cruciblefs/domain/revive.h"
#include "snapstore/stored/stored.h"

static const struct peer_kind pager_kind = {
	.name = "crucible-pager",
	.kind = LAUNCH_PAGER,
	.uuid = LAUNCH_UUID_PAGER,
	.listen = { { "run", "pager.sock", SOCK_SEQPACKET, 0600 },
		    { LAUNCH_BLOCKS_DIR, "nbd.sock", SOCK_STREAM, 0666 } },
	.nlisten = 2,
	.reply = PAGER_REPLY,
	.greeting = PAGER_LIST,
};
static const struct peer_kind store_kind = {
	.name = "crucible-store",
	.kind = LAUNCH_STORE,
	.uuid = LAUNCH_UUID_STORE,
	.listen = { { "run", "store.sock", SOCK_SEQPACKET, 0600 } },
	.nlisten = 1,
	.reply = STORE_REPLY,
	.greeting = STORE_LIST,
	.probe = STORE_PING,
	.patient = true,
	.progress = STORE_PROGRESS,
};

/* -- calls ------------------------------------------------------------------------------------------------------------
 */

int ask_peer(struct peer *peer, int type, struct ask *a, ask_fn *fn, void *arg)
{
	int r = a->code;

	if (!r && !peer)
		r = -ENOTCONN;
	if (!r && fn)
		r = peer_call(peer, (uint16_t)type, a->b.data, a->b.len, a->fds, a->nfds, fn, arg, NULL);
	else if (!r)
		r = peer_tell(peer, (uint16_t)type, a->b.data, a->b.len, a->fds, a->nfds);
	buf_fini(&a->b);
	return r;
}

int ask_pager(struct registry *r, int type, struct ask *a, ask_fn *fn, void *arg)
{
	return ask_peer(r->pager, type, a, fn, arg);
}

int ask_store(struct registry *r, int type, struct ask *a, ask_fn *fn, void *arg)
{
	return ask_peer(r->store, type, a, fn, arg);
}

int ask_attach(struct registry *r, const struct attach *at, ask_fn *fn, void *arg)
{
	struct ask a;

	ask_init(&a);
	ask_str(&a, at->machine);
	ask_str(&a, at->template);
	ask_u64(&a, at->base);
	ask_u64(&a, at->bytes);
	ask_raw(&a, at->ranges->data, at->ranges->len);
	for (size_t i = 0; i < at->nfds; i++)
		ask_fd(&a, at->fds[i]);
	return ask_pager(r, PAGER_ATTACH, &a, fn, arg);
}

int ask_box(struct boxlink *k, int type, struct ask *a, ask_fn *fn, void *arg)
{
	int r = a->code;

	if (!r)
		r = boxlink_call_fds(k, (enum box_type)type, a->b.data, a->b.len, a->fds, a->nfds, fn, arg);
	buf_fini(&a->b);
	return r;
}

/* -- a fresh pager ----------------------------------------------------------------------------------------------------
 */

static void on_told(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	(void)r;
	(void)m;
	if (code < 0 && code != -EPIPE && code != -EEXIST)
		log_warn("event=pager-refuses what=%s error=\"%s\" next=continues", (const char *)arg, words);
}

static int adopt_template(struct registry *r, const char *uuid, uint64_t bytes, int template_fd, ask_fn *fn, void *arg)
{
	struct snapshot *p = snapshot_by_uuid(r, uuid);
	bool stored = !p || p->status != SNAPSHOT_STORING || p->bits_fd < 0;
	struct ask a;

	ask_init(&a);
	ask_str(&a, uuid);
	ask_u64(&a, bytes);
	ask_str(&a, p && !stored ? p->memory_base : "");
	ask_u8(&a, stored);
	ask_fd(&a, template_fd);
	if (!stored)
		ask_fd(&a, p->bits_fd);
	return ask_pager(r, PAGER_ADOPT, &a, fn, arg);
}

/* The memory of a machine that a fresh pager has to know, until it knows the template. */
struct again {
	struct sandbox *s; /* a reference */
	uint64_t base, bytes;
	int fds[3]; /* userfaultfd or -1, mem, pagemap */
};

static void attach_again(struct again *g)
{
	struct buf none;

	buf_init(&none, 16);
	wire_put_u32(&none, 0);
	if (g->s->link)
		g->s->attached = capture_attach(g->s, g->s->template, g->base, g->bytes, &none,
						g->fds + (g->fds[0] < 0), 2u + (g->fds[0] >= 0)) == 0;
	buf_fini(&none);
	for (size_t i = 0; i < ARRAY_LEN(g->fds); i++)
		fd_close(&g->fds[i]);
	sandbox_unref(g->s);
	free(g);
}

/* -EEXIST: another machine of the same template was first. What else went wrong, ATTACH tells. */
static void on_adopted(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	on_told((void *)"template", code, words, r, m);
	attach_again(arg);
}

bool relink_in_doubt(struct registry *r, const struct sandbox *s)
{
	for (struct snapshot *p = r->first_snapshot; p; p = p->next) {
		if (p->doubt && !strcmp(p->source_uuid, s->uuid))
			return true;
	}
	return false;
}

/* A daemon before us did not live, or had no room, to write down that the machine had come to stand on a snapshot that
 * was being taken. It was never shown, but its pages are the machine's: it is stored, and goes when nothing needs it.
 */
static bool stands_on(struct sandbox *s, const char *uuid)
{
	struct snapshot *p = snapshot_by_uuid(s->reg, uuid);
	struct err e = { 0 };

	if (!strcmp(s->template, uuid))
		return true;
	if (!p || strcmp(p->source_uuid, s->uuid) != 0)
		return false;
	log_info("sandbox=%s uuid=%s event=memory-of-another snapshot=%s was=%s next=continues", s->name, s->uuid, uuid,
		 s->template);
	snprintf(s->template, sizeof(s->template), "%s", uuid);
	snprintf(s->origin, sizeof(s->origin), "%s", uuid);
	if (sandbox_save(s, &e) < 0)
		log_warn("sandbox=%s uuid=%s event=not-saved error=\"%s\" next=continues", s->name, s->uuid, e.msg);
	if (p->status == SNAPSHOT_CAPTURING) {
		p->status = SNAPSHOT_STORING;
		snapshot_open_state(p); /* without it: damaged, once the pager was asked */
		if (snapshot_save(p, &e) < 0)
			log_warn("snapshot=%s uuid=%s event=not-saved error=\"%s\" next=continues", p->name, p->uuid,
				 e.msg);
	}
	return true;
}

static void find_storing(struct registry *r);

/* Its box has answered: no snapshot of it is in doubt any more. */
static void doubt_ends(struct sandbox *s)
{
	bool any = false;

	for (struct snapshot *p = s->reg->first_snapshot; p; p = p->next) {
		if (p->doubt && !strcmp(p->source_uuid, s->uuid))
			any = true, p->doubt = false;
	}
	if (!any)
		return;
	find_storing(s->reg);
	snapshots_sweep(s->reg);
}

static void on_memory_again(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct sandbox *s = arg;
	uint64_t base = wire_u64(r), bytes = wire_u64(r);
	uint8_t has_uffd = wire_u8(r);
	char of[LAUNCH_UUID_LEN + 1] = "";
	bool has_template, right;
	struct again *g;

	(void)words;
	wire_str(r, of, sizeof(of));
	has_template = of[0] != '\0';
	right = code == 0 && wire_done(r) == 0 && m->nfds >= 2u + has_template + has_uffd;
	if (s->link && !s->gone && right)
		right = stands_on(s, of);
	if (code != -EPIPE)
		doubt_ends(s);
	/* It booted cold, and was never snapshotted. A capture that failed may have asked for its memory, which is all
	 * its own: the next one asks again. */
	if (code == -ENOENT || !s->link || s->gone || (right && !has_template)) {
		sandbox_unref(s);
		return;
	}
	if (!right) {
		sandbox_down(s, "the machine was lost: its box could not hand over its memory to a restarted pager");
		sandbox_unref(s);
		return;
	}
	g = malloc(sizeof(*g));
	if (!g) {
		sandbox_down(s, "the machine was lost: no memory to tell a restarted pager of it");
		sandbox_unref(s);
		return;
	}
	*g = (struct again){ s, base, bytes, { -1, take_fd(&m->fds[0]), take_fd(&m->fds[1]) } };
	if (has_uffd)
		g->fds[0] = take_fd(&m->fds[2 + has_template]);
	if (adopt_template(s->reg, s->template, bytes, m->fds[2], on_adopted, g) < 0)
		attach_again(g);
}

/* A box came back to this daemon: the pager may not know its machine, or have forgotten it. */
void relink_adopted(struct sandbox *s)
{
	if (s->reg->pager && peer_is_up(s->reg->pager))
		relink_sandbox(s);
}

void relink_sandbox(struct sandbox *s)
{
	struct ask a;

	if (!s->link || !s->machine[0] || !s->reg->pager)
		return;
	s->attached = false;
	if (s->disk[0]) {
		ask_init(&a);
		ask_str(&a, s->machine);
		ask_str(&a, s->disk);
		ask_u32(&a, s->box_uid + 1);
		ask_pager(s->reg, PAGER_DISK_EXPORT, &a, on_told, (void *)"disk");
	}
	ask_init(&a);
	if (ask_box(s->link, BOX_MEMORY_AGAIN, &a, on_memory_again, sandbox_ref(s)) < 0)
		sandbox_unref(s);
}

/* -- snapshots on their way into the store ----------------------------------------------------------------------------
 */

static void on_manifest(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct snapshot *p = arg;

	(void)r;
	(void)m;
	(void)words;
	if (p->status == SNAPSHOT_STORING && code == 0) {
		snapshot_set_status(p, SNAPSHOT_READY, "");
		snapshot_drop_state(p);
	} else if (p->status == SNAPSHOT_STORING && code == -ENOENT) {
		snapshot_set_status(p, SNAPSHOT_DAMAGED,
				    p->state_fd < 0
					    ? "its device state was lost before it was stored"
					    : "its pages were lost before they were stored: the pager ended meanwhile");
	}
	snapshot_unref(p);
}

static void on_captured(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct snapshot *p = arg;
	struct ask a;

	(void)r;
	(void)words;
	if (p->status != SNAPSHOT_STORING || p->template_fd >= 0) {
		snapshot_unref(p); /* asked twice: pager and store came one after the other */
		return;
	}
	if (code == 0 && m->nfds >= 2 && p->state_fd >= 0) {
		p->template_fd = take_fd(&m->fds[0]);
		p->bits_fd = take_fd(&m->fds[1]);
		ingest_kick(p->reg);
		snapshot_unref(p);
		return;
	}
	ask_init(&a);
	ask_str(&a, p->uuid);
	if (code == -EPIPE || ask_store(p->reg, STORE_MANIFEST, &a, on_manifest, p) < 0)
		snapshot_unref(p); /* asked again when they are back */
}

static void find_storing(struct registry *r)
{
	struct ask a;

	for (struct snapshot *p = r->first_snapshot; p; p = p->next) {
		if (p->status != SNAPSHOT_STORING || p->template_fd >= 0)
			continue;
		ask_init(&a);
		ask_str(&a, p->uuid);
		if (ask_pager(r, PAGER_CAPTURED, &a, on_captured, snapshot_ref(p)) < 0)
			snapshot_unref(p);
	}
}

static void on_stat(void *arg, int code, const char *words, struct wire_rd *rd, struct msg *m)
{
	struct registry *r = arg;
	AUTO_JSON *o = NULL;
	const char *text, *degraded = "";
	struct err e;
	size_t len = 0;

	(void)words;
	(void)m;
	text = code == 0 ? wire_bytes(rd, MSG_MAX, &len) : NULL;
	if (!text || json_parse(text, len, &o, &e) < 0 || json_get_str(o, "degraded", &degraded, NULL) < 0)
		return;
	snprintf(r->pager_degraded, sizeof(r->pager_degraded), "%s%s", degraded[0] ? "pager: " : "", degraded);
}

static void on_pager_up(void *arg, bool fresh)
{
	struct registry *r = arg;
	struct ask a;

	ask_init(&a);
	ask_pager(r, PAGER_STAT, &a, on_stat, r);

	ask_init(&a);
	ask_u64(&a, r->host_memory_mib * r->cfg->template_percent / 100 << 20);
	ask_pager(r, PAGER_CONFIG, &a, NULL, NULL);
	if (fresh) {
		worksets_untold(r);
		revive_end_all(r, "the pager was restarted");
		for (struct snapshot *p = r->first_snapshot; p; p = p->next) {
			if (p->status == SNAPSHOT_STORING && p->template_fd >= 0)
				adopt_template(r, p->uuid, (uint64_t)p->memory_mib << 20, p->template_fd, on_told,
					       (void *)"template");
		}
	}
	/* One that came back did not hear what was asked of it while nobody was connected. */
	for (struct sandbox *s = r->first; s; s = s->next) {
		if (fresh || ((s->template[0] || relink_in_doubt(r, s)) && !s->attached && !s->restore))
			relink_sandbox(s);
	}
	for (struct sandbox *s = r->hidden; s; s = s->next) {
		if (fresh || (s->template[0] && !s->attached && !s->restore))
			relink_sandbox(s);
	}
	strays_tell(r);
	find_storing(r);
	snapshots_sweep(r);
	pool_fill(r);
	waitq_wake(&r->trial_waitq);
	ingest_kick(r);
}

static int start_pager(struct registry *r, struct err *e);

/* The pager comes second: it opens the store, and may not make a ring any more once it serves. */
static void on_store_up(void *arg, bool fresh)
{
	struct registry *r = arg;
	struct err e = { 0 };

	(void)fresh;
	if (!r->pager && start_pager(r, &e) < 0)
		log_err("event=no-pager error=\"%s\" next=nothing-starts", e.msg);
	find_storing(arg);
	snapshots_sweep(arg);
	waitq_wake(&((struct registry *)arg)->trial_waitq);
	ingest_kick(arg);
}

static void on_lost(void *arg, const char *words)
{
	struct registry *r = arg;

	waitq_wake(&r->trial_waitq); /* it may have failed too often */
	log_warn("event=peer-lost error=\"%s\" next=started-again", words);
}

static void on_pager_msg(void *arg, struct msg *m)
{
	struct wire_rd rd;
	char machine[LAUNCH_UUID_LEN + 1], why[256], words[320];

	if (m->type != PAGER_LOST)
		return;
	wire_rd_init(&rd, m->data, m->len);
	wire_str(&rd, machine, sizeof(machine));
	wire_u32(&rd);
	wire_str(&rd, why, sizeof(why));
	if (wire_done(&rd) < 0)
		return;
	snprintf(words, sizeof(words), "a page of its memory cannot be read: %s", why);
	machine_lost(arg, machine, words);
}

static void on_store_msg(void *arg, struct msg *m)
{
	if (m->type == STORE_PROGRESS)
		store_work_heard(arg, m);
}

bool registry_peers_are_up(struct registry *r)
{
	return r->pager && r->store && peer_is_up(r->pager) && peer_is_up(r->store);
}

const char *registry_peers_words(struct registry *r)
{
	const char *words = r->pager ? peer_degraded(r->pager) : "";

	return words[0] ? words : r->store ? peer_degraded(r->store) : "";
}

bool registry_peers_failed(struct registry *r)
{
	return !r->store || registry_peers_words(r)[0];
}

/* A machine needs four of the pager; more than the host permits us we cannot give. */
static uint32_t most_descriptors(void)
{
	struct rlimit lim;

	return getrlimit(RLIMIT_NOFILE, &lim) < 0 || lim.rlim_max > 65536 ? 65536 : (uint32_t)lim.rlim_max;
}

/* Their command lines are borrowed for life. */
static char daemon_uid[16];

int relink_start_peer(struct registry *r, const struct peer_kind *kind, const struct peer_ops *ops,
		      const char *const *argv, size_t argc, struct peer **ret, struct err *e)
{
	const struct peer_setup setup = {
		.loop = r->loop,
		.launcher = r->launcher,
		.store_fd = r->store_fd,
		.log_fd = 2,
		.nofile = most_descriptors(),
		.argc = argc,
		.argv = argv,
	};

	return peer_new(kind, &setup, ops, r, ret, e);
}

static int start_pager(struct registry *r, struct err *e)
{
	static const struct peer_ops ops = { on_pager_up, on_lost, on_pager_msg };
	static const char *argv[] = { "crucible-pager", daemon_uid, "/", NULL };

	argv[ARRAY_LEN(argv) - 1] = log_level_name(r->cfg->log_level);
	return relink_start_peer(r, &pager_kind, &ops, argv, ARRAY_LEN(argv), &r->pager, e);
}

int relink_begin(struct registry *r, struct err *e)
{
	static const struct peer_ops ops = { on_store_up, on_lost, on_store_msg };
	static const char *argv[] = { "crucible-store", "--daemon-uid", daemon_uid, "--snapstore",
				      "/snapstore",	"--log-level",	NULL };

	snprintf(daemon_uid, sizeof(daemon_uid), "%u", r->cfg->uid_base);
	argv[ARRAY_LEN(argv) - 1] = log_level_name(r->cfg->log_level);
	return relink_start_peer(r, &store_kind, &ops, argv, ARRAY_LEN(argv), &r->store, e);
}

/* An orderly end: nothing of ours is left running. */
void relink_quit(struct registry *r)
{
	if (r->pager)
		peer_quit(r->pager, PAGER_QUIT);
	if (r->store)
		peer_quit(r->store, STORE_QUIT);
}

/* After an orderly end nobody is to find a socket that nobody listens on. */
void relink_unlink(struct registry *r)
{
	const struct peer_kind *const kinds[] = { &pager_kind, &store_kind };
	char path[64];

	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		for (size_t k = 0; k < kinds[i]->nlisten; k++) {
			snprintf(path, sizeof(path), "%s/%s", kinds[i]->listen[k].dir, kinds[i]->listen[k].name);
			unlinkat(r->store_fd, path, 0);
		}
	}
}

void relink_end(struct registry *r)
{
	r->pager = peer_free(r->pager);
	r->store = peer_free(r->store);
}
