/* SPDX-License-Identifier: Apache-2.0 */
/* Open handles, and what each uid holds: without the bounds one user's descriptors or waiting readers would be
 * everybody's. */
#include "cruciblefs/session_priv.h"

#include <assert.h>
#include <stdlib.h>

#define OPEN_UID  8192u
#define OPEN_ALL  65536u
#define BYTES_UID (64u * 1024 * 1024)

/* -- counts of a uid: few, so a plain array ---------------------------------------------------- */

static struct uid_count *uid_count_find(struct cfs_session *cs, uid_t uid)
{
	for (size_t i = 0; i < cs->nuids; i++)
		if (cs->uids[i].uid == uid)
			return &cs->uids[i];
	return NULL;
}

struct uid_count *uid_count_get(struct cfs_session *cs, uid_t uid)
{
	struct uid_count *u = uid_count_find(cs, uid);

	if (u)
		return u;
	if (cs->nuids == cs->uids_cap) {
		size_t cap = cs->uids_cap ? cs->uids_cap * 2 : 8;

		u = realloc(cs->uids, cap * sizeof(*u));
		if (!u)
			return NULL;
		cs->uids = u;
		cs->uids_cap = cap;
	}
	u = &cs->uids[cs->nuids++];
	*u = (struct uid_count){ .uid = uid };
	return u;
}

void uid_count_put(struct cfs_session *cs, uid_t uid)
{
	struct uid_count *u = uid_count_find(cs, uid);

	if (u && !u->open && !u->parked && !u->nodes && !u->bytes)
		*u = cs->uids[--cs->nuids];
}

int cfs_charge(struct cfs_session *cs, uid_t uid, size_t bytes)
{
	struct uid_count *u = uid_count_get(cs, uid);
	size_t max = cs->limits.bytes_uid ? cs->limits.bytes_uid : BYTES_UID;

	if (!u)
		return -ENOMEM;
	if (bytes > max - u->bytes) {
		uid_count_put(cs, uid);
		return -EDQUOT;
	}
	u->bytes += bytes;
	uid_count_put(cs, uid); /* of no bytes */
	return 0;
}

void cfs_uncharge(struct cfs_session *cs, uid_t uid, size_t bytes)
{
	struct uid_count *u = uid_count_find(cs, uid);

	if (!u)
		return; /* of no bytes */
	assert(u->bytes >= bytes);
	u->bytes -= bytes;
	uid_count_put(cs, uid);
}

/* -- handles ----------------------------------------------------------------------------------- */

int cfs_handle_open(struct cfs_req *r, struct cfs_handle *h, struct cfs_node *n, int flags)
{
	struct cfs_session *cs = r->cs;
	struct uid_count *u = uid_count_get(cs, r->who.uid);
	uint64_t fh = 0;
	int code = 0;

	if (!u)
		return -ENOMEM;
	if (u->open >= (cs->limits.open_uid ? cs->limits.open_uid : OPEN_UID))
		code = -EMFILE;
	if (!code)
		code = idtable_add(&cs->handles, h, cs->limits.open_all ? cs->limits.open_all : OPEN_ALL, &fh);
	if (code < 0) {
		uid_count_put(cs, r->who.uid);
		return code;
	}
	u->open++;
	*h = (struct cfs_handle){ .node = cfs_node_ref(n), .fh = fh, .who = r->who, .flags = flags };
	return 0;
}

struct cfs_handle *handle_find(struct cfs_session *cs, uint64_t fh)
{
	return idtable_find(&cs->handles, fh);
}

void handle_pin(struct cfs_handle *h)
{
	h->pins++;
}

static void end_handle(struct cfs_handle *h)
{
	struct cfs_node *n = h->node;

	poll_forget(h);
	n->ops->release(h); /* h is gone */
	cfs_node_unref(n);
}

void handle_unpin(struct cfs_handle *h)
{
	if (--h->pins == 0 && h->closing)
		end_handle(h);
}

void cfs_handle_close(struct cfs_session *cs, struct cfs_handle *h)
{
	if (h->closing)
		return;
	h->closing = true;
	idtable_del(&cs->handles, h->fh);
	uid_count_get(cs, h->who.uid)->open--; /* counted at open, so it is there */
	uid_count_put(cs, h->who.uid);
	if (h->pins == 0)
		end_handle(h);
}
