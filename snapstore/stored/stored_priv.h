/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of crucible-store share.
 *
 * Three threads: the loop's receives, answers and tells progress; the worker does one request after another and is the
 * only one that touches the struct snap; the reader does the quick ones beside it, on a struct snap of its own. A
 * struct request is the loop's, then a thread's from pool_submit() until its `done`; in between they share its atomics,
 * and what was parsed, which nobody changes. */
#ifndef CRUCIBLE_STORED_PRIV_H
#define CRUCIBLE_STORED_PRIV_H

#include <stdatomic.h>
#include "base/pool.h"
#include "snapstore/snap.h"
#include "snapstore/stored/stored.h"

#define STORED_LAYERS_MAX 6u /* descriptors of one message: 3 + 2 * 6 of MSG_FDS_MAX; DISK_FILES_MAX are sent */

struct ingest {
	char uuid[SNAP_UUID_LEN + 1], parent[SNAP_UUID_LEN + 1], base[SNAP_UUID_LEN + 1];
	uint64_t created_ns, memory_pages, disk_blocks;
	bool memory_whole;	  /* nothing of the base's memory shows */
	struct json_object *meta; /* owned */
	int state, memory, bits;  /* owned; -1: none */
	unsigned nlayers;
	int data[STORED_LAYERS_MAX], map[STORED_LAYERS_MAX]; /* oldest first; owned */
};
void ingest_init(struct ingest *in);
void ingest_fini(struct ingest *in);
/* {str json, u32 nlayers} and its descriptors, which are taken from @m. -EINVAL with words, -EBADMSG. */
int ingest_parse(struct msg *m, struct ingest *ret, struct err *e);

enum lane { SLOW, QUICK, LANES }; /* each does one request after another, with a thread and a struct snap of its own */

struct request {
	struct pool_job job;
	struct request *next; /* of the server's list */
	struct stored *owner;
	uint64_t client; /* which connection asked; it may be gone */
	uint32_t id;
	uint16_t type;
	enum lane lane;
	bool submitted; /* to the pool; the loop's */
	char uuid[SNAP_UUID_LEN + 1];
	struct ingest in;

	atomic_bool cancel;
	atomic_bool running;
	atomic_uint_fast64_t done, total;
	uint64_t told; /* progress that was sent; the loop's */

	int code; /* what came out; the worker's until it is done */
	struct err err;
	struct buf out; /* payload */
	int out_fd;
};
bool request_progress(void *arg, uint64_t done, uint64_t total); /* a snap_progress_fn of a struct request */

/* Worker. The answer goes into q->out; returns 0 or -errno with words in q->err. */
int ingest_run(struct snap *s, struct request *q);
int request_run(struct snap *s, struct request *q);

struct stored;
struct stored_params {
	int listen_fd; /* taken */
	uid_t daemon_uid;
	uint64_t orphan_ns;
	struct snap *reader; /* the same store, SNAP_READ; borrowed as the other is. NULL: all stand in line */
};
/* @on_end: there is nothing more to do; once, from the loop. @s is used by the worker until stored_free(). */
int stored_new(struct loop *l, struct snap *s, const struct stored_params *p, loop_fn *on_end, void *arg,
	       struct stored **ret, struct err *e);
struct stored *stored_free(struct stored *st); /* waits for what runs; the snap stays the caller's */

#endif
