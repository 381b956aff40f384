/* SPDX-License-Identifier: Apache-2.0 */
/* The network of a machine that waits to be forked (warm.c), made before anybody wants it, if its snapshot has a list:
 * the namespace and its sockets, which nobody serves yet. Whoever gets the machine finds them, and has one step less to
 * wait for (netstep.c). Where that fails, nothing is lost: it is asked for again then.
 *
 * By the machine's id, and here until both the launcher has answered and somebody has taken it or let go of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "base/msg.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "netpolicy/topology.h"

struct net_early {
	struct registry *reg;
	struct net_early *next;
	char machine[LAUNCH_UUID_LEN + 1];
	bool asked, dropped;
	uint8_t mask;
	struct msg m; /* its descriptors alone */
};

static void free_one(struct net_early *n)
{
	struct net_early **at = &n->reg->net_early;

	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	msg_close_fds(&n->m);
	free(n);
}

static struct net_early *find(struct registry *r, const char *machine)
{
	struct net_early *n = r->net_early;

	while (n && (n->dropped || strcmp(n->machine, machine) != 0))
		n = n->next;
	return n;
}

static void on_namespace(void *arg, int code, const char *words, struct wire_rd *rd, struct msg *m)
{
	struct net_early *n = arg;

	(void)words;
	n->asked = false;
	n->mask = code < 0 ? 0 : wire_u8(rd);
	if (n->dropped || code < 0 || wire_done(rd) < 0 || !n->mask || n->mask >> TOPOLOGY_FD_COUNT ||
	    (size_t)__builtin_popcount(n->mask) != m->nfds) {
		free_one(n);
		return;
	}
	for (; n->m.nfds < m->nfds; n->m.nfds++)
		n->m.fds[n->m.nfds] = take_fd(&m->fds[n->m.nfds]);
}

void net_early_begin(struct registry *r, const char *machine)
{
	uint8_t id[LAUNCH_UUID_BYTES];
	struct net_early *n;

	if (!r->launcher || find(r, machine))
		return;
	n = calloc(1, sizeof(*n));
	if (!n)
		return;
	n->reg = r;
	n->next = r->net_early;
	r->net_early = n;
	snprintf(n->machine, sizeof(n->machine), "%s", machine);
	launch_uuid_encode(machine, id);
	n->asked = launcher_call(r->launcher, LAUNCH_NET, id, sizeof(id), NULL, 0, on_namespace, n) == 0;
	if (!n->asked)
		free_one(n);
}

bool net_early_comes(struct registry *r, const char *machine)
{
	const struct net_early *n = find(r, machine);

	return n && n->asked;
}

bool net_early_take(struct registry *r, const char *machine, uint8_t *mask, struct msg *ret)
{
	struct net_early *n = find(r, machine);

	if (!n)
		return false;
	*mask = n->mask;
	*ret = n->m;
	n->m.nfds = 0;
	free_one(n);
	return true;
}

void net_early_drop(struct registry *r, const char *machine)
{
	struct net_early *n = find(r, machine);

	if (n && n->asked)
		n->dropped = true; /* its answer finds it */
	else if (n)
		free_one(n);
}

void net_early_free(struct registry *r)
{
	while (r->net_early)
		free_one(r->net_early);
}
