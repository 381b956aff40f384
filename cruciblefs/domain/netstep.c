/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * net_step() looks at what is missing and asks for the first of it: the namespace's sockets (launcher), netd to take
 * them, the list, the ports, and of the box that the guest brings its card up, when its start said nothing of one. One
 * request is on its way at a time; its answer leads to the next step, whatever was written meanwhile. So a change at
 * any moment is no more than a flag and a net_step(). */
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "netpolicy/netd/netd.h"
#include "netpolicy/topology.h"

#define LOOK_NS	  (500ull * 1000000ull)
#define AGAIN_NS  (50ull * 1000000ull) /* the launcher has much to do, or the engine is only just starting */
#define EARLY_NS  (1000ull * 1000ull)  /* it is being made */
#define AGAIN_MAX 5u

/* An answer came. False: of a machine that is no more, or netd has died; then what is missing is asked for anew. */
static bool answered(struct sandbox *s, int code)
{
	struct sandbox_net *n = &s->net;
	bool wanted = !n->dropped && n->state == NET_OPENING;

	n->asked = n->dropped = false;
	if (wanted && code != -EPIPE)
		return true;
	if (code == -EPIPE)
		n->there = false;
	net_step(s);
	return false;
}

/* A request went out, or not. */
static void sent(struct sandbox *s, int code, const char *what)
{
	s->net.asked = code == 0;
	if (code == 0)
		return;
	sandbox_unref(s); /* the request's */
	if (code == -ENOTCONN)
		net_step(s); /* netd is gone: waits for it */
	else
		net_broken(s, code, what, strerror(-code));
}

/* Ask netd for the next step. */
static void netd_step(struct sandbox *s, int type, struct ask *a, ask_fn *fn, const char *what)
{
	sent(s, ask_netd(s->reg, type, a, fn, sandbox_ref(s)), what);
}

/* -- steps: the namespace and netd ------------------------------------------------------------------------------- */

static void is_there(struct sandbox *s)
{
	s->net.there = true;
	s->net.maybe = false;
	s->net.allow_due = s->net.ports_due = true;
	net_step(s);
}

static void on_opened(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct sandbox *s = arg;

	(void)r, (void)m;
	if (answered(s, code)) {
		if (code < 0)
			net_broken(s, code, "handing it to crucible-netd", words);
		else
			is_there(s);
	}
	sandbox_unref(s);
}

/* A fork's programs may have addresses that its parent resolved; netd is told whose names these are. */
static void hand_over(struct sandbox *s, uint8_t mask, const struct msg *m)
{
	const struct snapshot *p = s->origin[0] ? snapshot_by_uuid(s->reg, s->origin) : NULL;
	struct ask a;

	ask_init(&a);
	ask_str(&a, s->uuid);
	ask_u8(&a, mask);
	if (p && !p->hidden)
		ask_str(&a, p->source_uuid);
	for (size_t i = 0; i < m->nfds; i++)
		ask_fd(&a, m->fds[i]);
	netd_step(s, NETD_OPEN, &a, on_opened, "handing it to crucible-netd");
}

static void on_namespace(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct sandbox *s = arg;
	uint8_t mask = code < 0 ? 0 : wire_u8(r);
	char text[320];

	/* That the launcher is gone is no news of netd. */
	if (!answered(s, code == -EPIPE ? -EIO : code)) {
		sandbox_unref(s);
		return;
	}
	if ((code == -EBUSY || code == -ENOENT) && s->net.tries++ < AGAIN_MAX && net_step_later(s, AGAIN_NS) == 0) {
		sandbox_unref(s);
		return;
	}
	s->net.tries = 0;
	if (code < 0) {
		snprintf(text, sizeof(text), "%.240s; crucible doctor tells what is missing", words);
		net_broken(s, code, "the host cannot filter it", text);
	} else if (wire_done(r) < 0 || !mask || mask >> TOPOLOGY_FD_COUNT ||
		   (size_t)__builtin_popcount(mask) != m->nfds) {
		net_broken(s, -EBADMSG, "making it", "the launcher answers nonsense");
	} else {
		hand_over(s, mask, m);
	}
	sandbox_unref(s);
}

static void ask_namespace(struct sandbox *s)
{
	uint8_t machine[LAUNCH_UUID_BYTES], mask;
	struct msg early;
	struct ask a;

	if (!s->reg->launcher) {
		net_broken(s, -EIO, "making it", "the launcher is gone; restart the daemon");
		return;
	}
	netd_refresh(s->reg);
	if (s->net.unsure) {
		ask_init(&a);
		ask_str(&a, s->uuid);
		ask_netd(s->reg, NETD_CLOSE, &a, NULL, NULL);
		s->net.unsure = false;
	}
	if (net_early_comes(s->reg, s->machine) && net_step_later(s, EARLY_NS) == 0)
		return;
	if (!net_early_comes(s->reg, s->machine) && net_early_take(s->reg, s->machine, &mask, &early)) {
		hand_over(s, mask, &early);
		msg_close_fds(&early);
		return;
	}
	launch_uuid_encode(s->machine, machine);
	sent(s,
	     launcher_call(s->reg->launcher, LAUNCH_NET, machine, sizeof(machine), NULL, 0, on_namespace,
			   sandbox_ref(s)),
	     "asking the launcher");
}

/* Which ports it has kept. What is no answer of ours is no harm: all is set anew then. */
static void take_kept(struct sandbox *s, struct wire_rd *r)
{
	uint32_t known, count;
	char text[96];

	known = wire_u8(r);
	count = wire_u32(r);
	for (uint32_t i = 0; known && i < count && i < NET_PORTS_MAX && !r->bad; i++) {
		wire_str(r, text, sizeof(text));
		if (!r->bad)
			net_ports_netd_has(s, text);
	}
}

static void on_there(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct sandbox *s = arg;

	(void)words, (void)m;
	if (answered(s, code)) {
		s->net.maybe = false;
		if (code == 0) {
			take_kept(s, r);
			is_there(s);
		} else {
			net_step(s);
		}
	}
	sandbox_unref(s);
}

/* A daemon before us, or a connection before this one, may have opened it: connections go on then. */
static void ask_there(struct sandbox *s)
{
	struct ask a;

	ask_init(&a);
	ask_str(&a, s->uuid);
	ask_u8(&a, 0);
	netd_step(s, NETD_OPEN, &a, on_there, "asking crucible-netd");
}

/* -- steps: list, ports, guest ----------------------------------------------------------------------------------- */

static void on_allowed(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct sandbox *s = arg;

	(void)r, (void)m;
	if (answered(s, code)) {
		if (code < 0)
			net_broken(s, code, "net/allow", words);
		else
			net_step(s);
	}
	sandbox_unref(s);
}

static void send_allow(struct sandbox *s)
{
	struct err e = { 0 };
	struct ask a;
	int k = net_list_check(s, &e); /* root's limit may have changed since it was written */

	if (k < 0) {
		net_broken(s, k, "net/allow", e.msg);
		return;
	}
	s->net.allow_due = false;
	ask_init(&a);
	ask_str(&a, s->uuid);
	ask_str(&a, s->attrs.net_allow ? s->attrs.net_allow : "");
	netd_step(s, NETD_ALLOW, &a, on_allowed, "net/allow");
}

static void on_ports(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct sandbox *s = arg;
	struct sandbox_net *n = &s->net;
	bool kept = false, more = false;

	(void)r, (void)m;
	if (!answered(s, code)) {
		sandbox_unref(s);
		return;
	}
	for (size_t i = 0; i < n->nports; i++) {
		kept |= n->ports[i].with_netd;
		n->ports[i].with_netd |= code == 0 && n->ports[i].sent;
		more |= !n->ports[i].sent && !n->ports[i].with_netd && n->ports[i].fd >= 0;
		n->ports[i].sent = false;
	}
	n->ports_due |= more; /* more than one message carries */
	if (code == -ENOENT && kept) {
		/* It has lost one that it had. */
		net_ports_forget_netd(s);
		n->ports_due = true;
		net_step(s);
	} else if (code < 0) {
		net_broken(s, code, "net/ports", words);
	} else {
		net_step(s);
	}
	sandbox_unref(s);
}

static void send_ports(struct sandbox *s)
{
	struct sandbox_net *n = &s->net;
	struct err e = { 0 };
	struct ask a;
	uint32_t count = 0;
	char text[96];
	int k = net_ports_bind(s, &e);

	if (k < 0 && n->holds_ready) {
		net_broken(s, k, "net/ports", e.msg);
		return;
	}
	if (k < 0)
		sandbox_fail(s, NULL, &e); /* the others are served */
	n->ports_due = false;
	ask_init(&a);
	for (size_t i = 0; i < n->nports; i++) {
		struct net_held *h = &n->ports[i];

		h->sent = !h->with_netd && h->fd >= 0 && a.nfds < MSG_FDS_MAX;
		if (h->sent)
			ask_fd(&a, h->fd);
		count += h->sent || h->with_netd;
	}
	ask_str(&a, s->uuid);
	ask_u32(&a, count);
	for (size_t i = 0; i < n->nports; i++) {
		const struct net_held *h = &n->ports[i];

		if (!h->sent && !h->with_netd)
			continue;
		net_port_text(&h->port, text, sizeof(text));
		ask_str(&a, text);
		ask_u8(&a, h->sent);
	}
	netd_step(s, NETD_PORTS, &a, on_ports, "net/ports");
}

static void on_guest(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct sandbox *s = arg;
	struct err e = { 0 };

	(void)r, (void)m;
	/* That the box is gone is no news of netd; the machine's end comes by itself. */
	if (answered(s, code == -EPIPE ? -ENOTCONN : code)) {
		s->net.guest_on = code == 0;
		if (code == 0 && sandbox_save(s, &e) < 0)
			log_warn("sandbox=%s uuid=%s event=not-saved error=\"%s\" next=continues", s->name, s->uuid,
				 e.msg);
		if (code < 0)
			net_broken(s, code, "the guest", words);
		else
			net_step(s);
	}
	sandbox_unref(s);
}

/* Only of one that is ready; READY leads here again. */
static void tell_guest(struct sandbox *s)
{
	struct ask a;
	int k;

	if (!s->link || s->status != SBX_READY)
		return;
	ask_init(&a);
	ask_u8(&a, 1);
	k = ask_box(s->link, BOX_NET, &a, on_guest, sandbox_ref(s));
	sent(s, k == -ENOTCONN ? -EPIPE : k, "the guest");
}

/* What waits for it fails when it fails; what does not may go on waiting. */
static void wait_for_netd(struct sandbox *s)
{
	const char *failed = netd_failed(s->reg);

	if (!s->net.holds)
		return;
	if (failed[0])
		net_broken(s, -ENOTSUP, "crucible-netd is away", failed);
	else if (net_step_later(s, LOOK_NS) < 0)
		net_broken(s, -ENOMEM, "crucible-netd is away", "no memory to wait for it");
}

void net_step(struct sandbox *s)
{
	struct sandbox_net *n = &s->net;

	loop_del(s->reg->loop, &n->step);
	if (n->asked || n->state != NET_OPENING)
		return;
	if (!netd_is_up(s->reg))
		wait_for_netd(s);
	else if (!n->there && n->maybe)
		ask_there(s);
	else if (!n->there)
		ask_namespace(s);
	else if (n->allow_due)
		send_allow(s);
	else if (n->ports_due)
		send_ports(s);
	else if (!n->guest_on)
		tell_guest(s);
	else
		net_opened(s);
}
