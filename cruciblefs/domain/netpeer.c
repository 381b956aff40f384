/* SPDX-License-Identifier: Apache-2.0 */
/* crucible-netd as the daemon knows it: one process for all sandboxes, found or started as the pager is (peer.h). First
 * it gets root's configuration: upstream resolvers, ranges that are open. One that was there before this daemon is
 * asked what it has, and closes what is nobody's. What it tells of a sandbox goes into that sandbox's net/log.jsonl. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "cruciblefs/domain/peer.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "netpolicy/netd/netd.h"

#define RESOLV_MAX  (16u * 1024)
#define NET_LOG	    "net.jsonl" /* in the sandbox's directory */
#define NET_LOG_MAX (1024u * 1024)
#define LINE_MAX_   2048u

const char *netd_resolv_conf = "/etc/resolv.conf";

static const struct peer_kind netd_kind = {
	.name = "crucible-netd",
	.kind = LAUNCH_NETD,
	.uuid = LAUNCH_UUID_NETD,
	.listen = { { "run", "netd.sock", SOCK_SEQPACKET, 0600 } },
	.nlisten = 1,
	.reply = NETD_REPLY,
	.greeting = NETD_LIST,
};

int ask_netd(struct registry *r, int type, struct ask *a, ask_fn *fn, void *arg)
{
	return ask_peer(r->netd, type, a, fn, arg);
}

bool netd_is_up(const struct registry *r)
{
	return r->netd && peer_is_up(r->netd);
}

const char *netd_failed(const struct registry *r)
{
	return r->netd ? peer_degraded(r->netd) : "it was never started; restart the daemon";
}

const char *netd_state_word(const struct registry *r)
{
	return netd_is_up(r) ? "up" : netd_failed(r)[0] ? "failed" : "starting";
}

/* -- configuration ------------------------------------------------------------------------------------------------- */

/* Root's file, often a link. What cannot be read is empty: there is no resolver then, and netd says so. */
static int read_resolv_conf(struct registry *r, struct buf *out)
{
	AUTO_FD fd = open(netd_resolv_conf, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	uint8_t *to;
	ssize_t n;

	if (fd < 0 || fstat(fd, &r->resolv_stat) < 0 || !S_ISREG(r->resolv_stat.st_mode)) {
		r->resolv_stat = (struct stat){ 0 };
		return 0;
	}
	if (buf_reserve(out, RESOLV_MAX, &to) < 0)
		return -ENOMEM;
	n = read(fd, to, RESOLV_MAX);
	for (ssize_t i = 0; i < n; i++)
		to[i] = to[i] ? to[i] : ' ';
	out->len += n > 0 ? (size_t)n : 0;
	return 0;
}

static int upstreams(struct registry *r, struct buf *out)
{
	int k = 0;

	if (!r->cfg->net_upstream[0])
		return read_resolv_conf(r, out);
	for (const char *p = r->cfg->net_upstream; !k && *p; p += strcspn(p, "\n") + 1)
		k = buf_addf(out, "nameserver %.*s\n", (int)strcspn(p, "\n"), p);
	return k;
}

static void on_configured(void *arg, int code, const char *words, struct wire_rd *rd, struct msg *m)
{
	struct registry *r = arg;

	(void)rd, (void)m;
	if (code == -EPIPE)
		return; /* the next one is told anew */
	snprintf(r->netd_words, sizeof(r->netd_words), "%s%.160s", code < 0 ? "net: " : "", code < 0 ? words : "");
	if (code < 0)
		log_warn("peer=crucible-netd event=configuration-refused error=\"%s\" next=names-do-not-resolve",
			 words);
}

static void configure(struct registry *r)
{
	struct net_cidr ranges[CONFIG_NET_RANGES_MAX];
	size_t n = 0;
	struct buf text;
	struct ask a;

	buf_init(&text, RESOLV_MAX + 64);
	ask_init(&a);
	a.code = upstreams(r, &text);
	ask_str(&a, text.len && buf_str(&text) ? buf_str(&text) : "");
	config_net_private(r->cfg, ranges, &n, NULL);
	ask_u32(&a, (uint32_t)n);
	for (const char *p = r->cfg->net_private; *p; p += strcspn(p, "\n") + 1) {
		char word[64];

		snprintf(word, sizeof(word), "%.*s", (int)strcspn(p, "\n"), p);
		ask_str(&a, word);
	}
	buf_fini(&text);
	if (ask_netd(r, NETD_CONFIG, &a, on_configured, r) < 0 && netd_is_up(r))
		log_warn("peer=crucible-netd event=not-configured next=names-do-not-resolve");
}

/* Of a machine that ended while nobody told it: its ports can be bound now. */
static void on_stray_closed(void *arg, int code, const char *words, struct wire_rd *rd, struct msg *m)
{
	struct registry *r = arg;
	struct err e = { 0 };

	(void)code, (void)words, (void)rd, (void)m;
	for (struct sandbox *s = r->first; s; s = s->next) {
		if (s->net.state == NET_OFF && !s->adopt_timer && net_ports_bind(s, &e) < 0)
			log_warn("sandbox=%s uuid=%s event=port-not-bound error=\"%s\" next=tried-at-its-start",
				 s->name, s->uuid, e.msg);
	}
}

static void on_list(void *arg, int code, const char *words, struct wire_rd *rd, struct msg *m)
{
	struct registry *r = arg;
	uint32_t n = code < 0 ? 0 : wire_u32(rd);
	struct ask a;

	(void)words, (void)m;
	for (uint32_t i = 0; i < n && !rd->bad; i++) {
		char uuid[LAUNCH_UUID_LEN + 1];
		struct sandbox *s;

		wire_str(rd, uuid, sizeof(uuid));
		s = rd->bad ? NULL : registry_by_uuid(r, uuid);
		if (rd->bad || (s && (s->adopt_timer || s->net.state == NET_OPENING || s->net.state == NET_OPEN)))
			continue;
		ask_init(&a);
		ask_str(&a, uuid);
		ask_netd(r, NETD_CLOSE, &a, on_stray_closed, r);
	}
}

/* It is asked what it has, and told to close what is nobody's. */
static void sweep(struct registry *r)
{
	struct ask a;

	ask_init(&a);
	r->netd_sweep = ask_netd(r, NETD_LIST, &a, on_list, r) < 0;
}

void netd_refresh(struct registry *r)
{
	const struct stat *old = &r->resolv_stat;
	struct stat st;

	if (r->netd_sweep)
		sweep(r);
	if (r->cfg->net_upstream[0] || stat(netd_resolv_conf, &st) < 0)
		return;
	if (st.st_mtim.tv_sec != old->st_mtim.tv_sec || st.st_mtim.tv_nsec != old->st_mtim.tv_nsec ||
	    st.st_ino != old->st_ino || st.st_size != old->st_size)
		configure(r);
}

/* -- what it tells ------------------------------------------------------------------------------------------------- */

/* It reads what guests and the network send: a line of its own that is no JSON object is none. */
static void on_log(struct registry *r, struct wire_rd *rd)
{
	char uuid[LAUNCH_UUID_LEN + 1], line[LINE_MAX_ + 1];
	struct sandbox *s;
	AUTO_JSON *o = NULL;
	const char *text;

	wire_str(rd, uuid, sizeof(uuid));
	wire_str(rd, line, sizeof(line));
	if (wire_done(rd) < 0 || json_parse(line, strlen(line), &o, NULL) < 0 ||
	    !json_object_is_type(o, json_type_object))
		return;
	s = registry_by_uuid(r, uuid);
	text = s ? json_line(o) : NULL;
	if (!text)
		return;
	journal_append(s->dirfd, NET_LOG, text, NET_LOG_MAX);
	waitq_wake(&s->waitq);
}

int sandbox_net_log_open(struct sandbox *s, int *ret_fd)
{
	int fd = openat(s->dirfd, NET_LOG, O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0640);

	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

static void on_msg(void *arg, struct msg *m)
{
	struct registry *r = arg;
	char uuid[LAUNCH_UUID_LEN + 1];
	struct sandbox *s;
	struct wire_rd rd;

	wire_rd_init(&rd, m->data, m->len);
	if (m->type == NETD_LOG) {
		on_log(r, &rd);
	} else if (m->type == NETD_NEED_SOCKETS) {
		wire_str(&rd, uuid, sizeof(uuid));
		s = wire_done(&rd) == 0 ? registry_by_uuid(r, uuid) : NULL;
		if (s)
			net_give_sockets(s);
	}
}

/* -- figures ------------------------------------------------------------------------------------------------------- */

static int read_stat(struct wire_rd *rd, struct netd_stat *ret)
{
	struct netd_stat st;

	st.bytes_out = wire_u64(rd);
	st.bytes_in = wire_u64(rd);
	st.opened = wire_u64(rd);
	st.refused = wire_u64(rd);
	st.failed = wire_u64(rd);
	st.questions = wire_u64(rd);
	st.denied = wire_u64(rd);
	st.open = wire_u32(rd);
	if (wire_done(rd) < 0)
		return -EBADMSG;
	*ret = st;
	return 0;
}

static void on_stat(void *arg, int code, const char *words, struct wire_rd *rd, struct msg *m)
{
	struct sandbox *s = arg;

	(void)words, (void)m;
	s->net.stat_asked = false;
	if (code == 0 && read_stat(rd, &s->net.stat) == 0)
		waitq_wake(&s->waitq);
	sandbox_unref(s);
}

static void on_stat_of_all(void *arg, int code, const char *words, struct wire_rd *rd, struct msg *m)
{
	struct registry *r = arg;

	(void)words, (void)m;
	r->net_stat_asked = false;
	if (code == 0)
		read_stat(rd, &r->net_stat);
}

/* Newer numbers, behind: a reading shows those that are here. */
void netd_stat_ask(struct registry *r, struct sandbox *s)
{
	bool *asked = s ? &s->net.stat_asked : &r->net_stat_asked;
	struct ask a;

	if (*asked || !netd_is_up(r) || (s && !s->net.there))
		return;
	ask_init(&a);
	ask_str(&a, s ? s->uuid : "");
	if (s)
		sandbox_ref(s);
	*asked = ask_netd(r, NETD_STAT, &a, s ? on_stat : on_stat_of_all, s ? (void *)s : (void *)r) == 0;
	if (!*asked)
		sandbox_unref(s);
}

/* -- it comes and goes --------------------------------------------------------------------------------------------- */

static void each(struct registry *r, void (*fn)(struct sandbox *s, bool flag), bool flag)
{
	struct sandbox *s = r->first ? sandbox_ref(r->first) : NULL;

	/* What one of them does may take it, but not the next, out of the table. */
	while (s) {
		struct sandbox *next = s->next ? sandbox_ref(s->next) : NULL;

		fn(s, flag);
		sandbox_unref(s);
		s = next;
	}
}

static void lost(struct sandbox *s, bool flag)
{
	(void)flag;
	net_netd_lost(s);
}

static void on_lost(void *arg, const char *words)
{
	log_warn("event=peer-lost error=\"%s\" next=started-again", words);
	each(arg, lost, false);
}

static void on_up(void *arg, bool fresh)
{
	struct registry *r = arg;

	configure(r);
	if (!fresh)
		sweep(r);
	each(r, net_netd_up, fresh);
}

int netd_begin(struct registry *r, struct err *e)
{
	static const struct peer_ops ops = { on_up, on_lost, on_msg };
	static char daemon_uid[16];
	static const char *argv[] = { "crucible-netd", daemon_uid, NULL };

	snprintf(daemon_uid, sizeof(daemon_uid), "%u", r->cfg->uid_base);
	argv[ARRAY_LEN(argv) - 1] = log_level_name(r->cfg->log_level);
	return relink_start_peer(r, &netd_kind, &ops, argv, ARRAY_LEN(argv), &r->netd, e);
}

void netd_quit(struct registry *r)
{
	if (r->netd)
		peer_quit(r->netd, NETD_QUIT);
}

void netd_unlink(struct registry *r)
{
	unlinkat(r->store_fd, "run/netd.sock", 0);
}

void netd_end(struct registry *r)
{
	r->netd = peer_free(r->netd);
}
