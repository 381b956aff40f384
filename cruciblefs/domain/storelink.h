/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's side of snapstore/stored/stored.h: one function a message, and its answer as a plain struct. What each
 * message means stands there. peer.h says how the process is found, started and started again.
 *
 * Every function returns 0 (@fn will be called exactly once, from the loop, unless it is NULL) or -errno (@fn will not
 * be called): -ENOTCONN the store is not up, -ENOBUFS, -ENOMEM. Descriptors are borrowed. A call that was interrupted
 * by the store's death (-EPIPE) may have been done: ask for the manifest. Thread: the loop's. Nothing blocks. */
#ifndef CRUCIBLE_DOMAIN_STORELINK_H
#define CRUCIBLE_DOMAIN_STORELINK_H

#include <json-c/json.h>
#include "cruciblefs/domain/peer.h"
#include "snapstore/snap.h"
#include "snapstore/stored/stored.h"

#define STORE_LIST_MAX	 4096u
#define STORE_LAYERS_MAX ((MSG_FDS_MAX - 3) / 2)

struct store_ingested {
	uint64_t pages_new, pages_known, pages_zero, bytes_stored, shared_with_parent;
	char disk_root[65], memory_root[65]; /* hex; "": none */
};
struct store_verified {
	uint64_t pages, damaged, bytes_read;
	char first[256]; /* words about the first damage */
};

/* Valid until the callback returns. Of what does not belong to the message, nothing is set. */
struct store_reply {
	int code; /* 0 or -errno; -EBADMSG also: nonsense; -EPIPE: the store is gone */
	const char *words;
	struct json_object *json; /* INGEST, VERIFY, GC, STAT: an object, as it came */
	struct store_ingested ingested;
	struct store_verified verified;
	struct snap_gc gc;
	struct snap_stat stat;
	struct snap_manifest manifest; /* MANIFEST */
	size_t nuuids;		       /* LIST */
	char (*uuids)[SNAP_UUID_LEN + 1];
	int *state_fd; /* STATE: take_fd() it; else NULL */
};
typedef void store_fn(void *arg, struct store_reply *r);
typedef void store_progress_fn(void *arg, uint64_t done, uint64_t total);

struct storelink;
struct storelink_ops {
	void (*on_up)(void *arg, bool fresh);
	void (*on_lost)(void *arg, const char *words);
};
/* Errors: those of peer_new(). */
int storelink_new(const struct peer_setup *setup, const struct storelink_ops *ops, void *arg, struct storelink **ret,
		  struct err *e);
struct storelink *storelink_free(struct storelink *k); /* waiting calls are answered with -EPIPE; the store lives on */
bool storelink_is_up(const struct storelink *k);
const char *storelink_degraded(const struct storelink *k); /* see peer_degraded() */
void storelink_quit(struct storelink *k);

struct store_ingest {
	const char *uuid, *parent, *base;	       /* parent, base "": none */
	uint64_t created_ns, memory_bytes, disk_bytes; /* memory_bytes 0: disk only, template and bits are -1 */
	struct json_object *meta;		       /* an object, or NULL; borrowed */
	int state_fd, template_fd, bits_fd;
	unsigned nlayers;
	int data[STORE_LAYERS_MAX], map[STORE_LAYERS_MAX]; /* oldest first */
};
/* @progress may be NULL; it is called before @fn only. @ret_id: for store_cancel(), may be NULL.
 * -EINVAL: a number of layers, or descriptors, that no message has. */
int store_ingest(struct storelink *k, const struct store_ingest *i, store_progress_fn *progress, store_fn *fn,
		 void *arg, uint32_t *ret_id);
int store_verify(struct storelink *k, const char *uuid, store_progress_fn *progress, store_fn *fn, void *arg,
		 uint32_t *ret_id); /* "": everything */
int store_remove(struct storelink *k, const char *uuid, store_fn *fn, void *arg);
int store_gc(struct storelink *k, store_progress_fn *progress, store_fn *fn, void *arg, uint32_t *ret_id);
int store_stat(struct storelink *k, store_fn *fn, void *arg);
int store_manifest(struct storelink *k, const char *uuid, store_fn *fn, void *arg);
int store_list(struct storelink *k, store_fn *fn, void *arg);
int store_state(struct storelink *k, const char *uuid, store_fn *fn, void *arg);
int store_cancel(struct storelink *k, uint32_t id); /* its @fn is called all the same */

/* What follows the words in a reply to @type, which had @m's descriptors. -EBADMSG; -ENOMEM. store_reply_fini()
 * afterwards, also on failure. */
int store_reply_parse(enum stored_type type, struct wire_rd *r, struct msg *m, struct store_reply *ret);
void store_reply_fini(struct store_reply *r);

#endif
