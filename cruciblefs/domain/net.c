/* SPDX-License-Identifier: Apache-2.0 */
/* A sandbox's network: its beginnings and ends (net.h has the states). What is between them is netstep.c's.
 *
 * Nothing is let through before netd has the list, and netd that dies lets nothing through: every failure is closed.
 * Commands wait while a start or a write is under way (holds), but not for a netd that was lost under a machine that
 * runs. A start's READY waits too. */
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "netpolicy/netd/netd.h"

#define SOCKETS_EACH 16u /* of one order: MSG_FDS_MAX */

bool net_wanted(const struct sandbox *s)
{
	return !s->hidden && (s->attrs.net_allow || s->net.nports);
}

const char *net_word(const struct sandbox *s)
{
	return s->net.guest_on ? "filtered" : "none";
}

void net_log_change(struct sandbox *s, const struct cfs_who *who, const char *file, size_t lines)
{
	struct json_object *extra = json_object_new_object();

	if (extra) {
		json_object_object_add(extra, "file", json_object_new_string(file));
		json_object_object_add(extra, "lines", json_object_new_uint64(lines));
	}
	journal_add(s->reg, s, who, "network", extra);
}

static void on_step(void *arg)
{
	net_step(arg);
}

int net_step_later(struct sandbox *s, uint64_t after_ns)
{
	loop_del(s->reg->loop, &s->net.step);
	return loop_timer(s->reg->loop, now_ns() + after_ns, on_step, s, &s->net.step);
}

/* -- ends ---------------------------------------------------------------------------------------------------------- */

static void release(struct sandbox *s)
{
	bool ready = s->net.ready_waits;

	loop_del(s->reg->loop, &s->net.patience);
	s->net.holds = s->net.holds_ready = s->net.ready_waits = false;
	if (ready)
		boxlink_ready(s);
	else
		exec_send_all(s);
}

static void on_closed(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct sandbox *s = arg;

	(void)code, (void)words, (void)r, (void)m;
	/* What a daemon before us had bound was netd's alone until now. */
	if (!s->gone && s->net.state == NET_OFF)
		net_ports_bind(s, NULL);
	sandbox_unref(s);
}

static void close_at_netd(struct sandbox *s)
{
	struct ask a;

	s->net.there = s->net.maybe = false;
	net_ports_forget_netd(s);
	ask_init(&a);
	ask_str(&a, s->uuid);
	if (ask_netd(s->reg, NETD_CLOSE, &a, on_closed, sandbox_ref(s)) == 0)
		return;
	s->reg->netd_sweep = true; /* it is asked for what it has, and closes what is nobody's (netpeer.c) */
	sandbox_unref(s);
}

/* It cannot be had. The sandbox may have gone down on return. */
void net_broken(struct sandbox *s, int code, const char *what, const char *words)
{
	struct sandbox_net *n = &s->net;
	struct err e = { 0 };

	err_set(&e, code, "sandbox %s: its network: %s: %s", s->name, what, words);
	if (n->holds_ready) {
		/* Another machine would fare no better; and nobody has used what this one has of a snapshot, so that
		 * the next start goes on from there again, not from the disk alone. */
		s->unproven = false;
		s->disk_unused |= s->template[0] != '\0';
		s->reg->n_failed_starts++;
		sandbox_down(s, e.msg);
		return;
	}
	log_warn("sandbox=%s uuid=%s event=no-network error=\"%s\" next=goes-on-without", s->name, s->uuid, e.msg);
	n->state = NET_BROKEN;
	loop_del(s->reg->loop, &n->step);
	close_at_netd(s);
	sandbox_fail(s, NULL, &e);
	release(s);
}

void net_opened(struct sandbox *s)
{
	s->net.state = NET_OPEN;
	if (s->net.nports)
		net_give_sockets(s);
	sandbox_changed(s);
	release(s);
}

/* -- beginnings ---------------------------------------------------------------------------------------------------- */

static void on_patience(void *arg)
{
	struct sandbox *s = arg;

	/* A guest that is paused, or boots, is waited for; what comes of it comes by its own deadlines. */
	if (s->net.there && !s->net.asked && !s->net.holds_ready)
		return;
	/* Whether netd hangs, and has to go for the sake of all who come later, is not for one late request to say: it
	 * is asked a word in between (peer.h), and who says none is replaced. */
	s->net.dropped = s->net.asked;
	net_broken(s, -ETIMEDOUT, "waiting for the launcher, crucible-netd or its box", "no answer");
}

static int begin(struct sandbox *s, bool holds)
{
	struct sandbox_net *n = &s->net;
	int k = 0;

	n->state = NET_OPENING;
	n->allow_due = n->ports_due = true;
	n->holds |= holds;
	loop_del(s->reg->loop, &n->patience);
	if (holds)
		k = loop_timer(s->reg->loop, now_ns() + ask_deadline_ns, on_patience, s, &n->patience);
	return k < 0 ? k : net_step_later(s, 0);
}

int net_start(struct sandbox *s, bool on)
{
	struct sandbox_net *n = &s->net;
	int k;

	n->there = n->maybe = false;
	n->guest_on = on;
	if (!on) {
		net_early_drop(s->reg, s->machine);
		return 0;
	}
	n->holds_ready = true;
	k = begin(s, true);
	if (k < 0)
		net_down(s);
	return k;
}

bool net_guest_ready(struct sandbox *s)
{
	if (s->net.holds_ready) {
		s->net.ready_waits = true;
		return true;
	}
	if (s->net.state == NET_OPENING)
		net_step_later(s, 0);
	return false;
}

void net_adopted(struct sandbox *s)
{
	struct sandbox_net *n = &s->net;

	if (!net_wanted(s) && !n->guest_on)
		return;
	n->maybe = true;
	n->there = false;
	n->holds_ready = s->status == SBX_STARTING;
	if (begin(s, true) < 0)
		net_broken(s, -ENOMEM, "asking crucible-netd", "no memory");
}

void net_changed(struct sandbox *s)
{
	struct sandbox_net *n = &s->net;

	if (!s->link || !s->machine[0] || s->down_pending)
		return;
	if (n->state == NET_OFF || n->state == NET_BROKEN) {
		n->there = n->maybe = false;
		n->state = NET_OFF;
		if (!net_wanted(s))
			return;
	}
	if (begin(s, true) < 0)
		net_broken(s, -ENOMEM, "telling crucible-netd", "no memory");
}

void net_down(struct sandbox *s)
{
	struct sandbox_net *n = &s->net;

	if (n->state != NET_OFF || n->guest_on)
		close_at_netd(s);
	net_early_drop(s->reg, s->machine);
	n->dropped = n->asked;
	loop_del(s->reg->loop, &n->step);
	loop_del(s->reg->loop, &n->patience);
	n->state = NET_OFF;
	n->there = n->maybe = n->guest_on = n->holds = n->holds_ready = n->ready_waits = false;
	n->tries = 0;
}

void net_gone(struct sandbox *s)
{
	net_ports_free(s);
}

void net_fini(struct sandbox *s)
{
	loop_del(s->reg->loop, &s->net.step);
	loop_del(s->reg->loop, &s->net.patience);
	net_ports_free(s);
}

/* -- netd comes and goes ------------------------------------------------------------------------------------------- */

void net_netd_lost(struct sandbox *s)
{
	struct sandbox_net *n = &s->net;

	/* What it has heard, if it comes back and not a fresh one: all of it, or perhaps the last request. */
	n->maybe |= n->there;
	n->unsure = !n->maybe;
	n->there = false;
	net_ports_forget_netd(s);
	if (n->state == NET_OPEN)
		n->state = NET_OPENING;
	if (n->state == NET_OPENING) {
		n->allow_due = n->ports_due = true;
		net_step(s);
	}
}

void net_netd_up(struct sandbox *s, bool fresh)
{
	struct sandbox_net *n = &s->net;

	if (fresh)
		n->maybe = n->unsure = false;
	if (n->state == NET_BROKEN && s->link && net_wanted(s)) {
		if (begin(s, false) < 0)
			net_broken(s, -ENOMEM, "asking crucible-netd", "no memory");
		return;
	}
	net_step(s);
}

/* @m: NULL: there are none to be had. netd must hear that, too: it asks no second time before. */
static void send_sockets(struct sandbox *s, const struct msg *m)
{
	struct ask a;

	ask_init(&a);
	ask_str(&a, s->uuid);
	for (size_t i = 0; m && i < m->nfds; i++)
		ask_fd(&a, m->fds[i]);
	ask_netd(s->reg, NETD_SOCKETS, &a, NULL, NULL);
}

static void on_sockets(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct sandbox *s = arg;

	(void)r;
	s->net.sockets_asked = false;
	if (s->net.there) {
		if (code < 0)
			log_warn("sandbox=%s uuid=%s event=no-sockets error=\"%s\" next=those-who-wait-are-refused",
				 s->name, s->uuid, words);
		send_sockets(s, code < 0 ? NULL : m);
	}
	sandbox_unref(s);
}

void net_give_sockets(struct sandbox *s)
{
	struct buf order;

	if (!s->net.there || s->net.sockets_asked || !s->machine[0] || !s->reg->launcher)
		return;
	buf_init(&order, 64);
	sandbox_ref(s);
	s->net.sockets_asked =
		launch_net_sockets_encode(s->machine, SOCKETS_EACH, &order) == 0 &&
		launcher_call(s->reg->launcher, LAUNCH_NET_SOCKETS, order.data, order.len, NULL, 0, on_sockets, s) == 0;
	buf_fini(&order);
	if (!s->net.sockets_asked) {
		send_sockets(s, NULL);
		sandbox_unref(s);
	}
}
