/* SPDX-License-Identifier: Apache-2.0 */
/* Innards of the FUSE session, shared by session.c (life and loop), dispatch.c (libfuse's table), request.c (waiting,
 * answers), begin.c (what a request is about, who may), handle.c (open handles, limits of each uid), poll.c, dirbuf.c
 * and node.c. */
#ifndef CRUCIBLE_SESSION_PRIV_H
#define CRUCIBLE_SESSION_PRIV_H

#include <fuse_lowlevel.h>
#include "cruciblefs/idtable.h"
#include "cruciblefs/session.h"

struct uid_count { /* what one uid holds; dropped when all are 0 */
	uid_t uid;
	unsigned open, parked, nodes;
	size_t bytes;
};

struct cfs_session {
	struct loop *loop;
	struct registry *registry;
	struct fuse_session *se;
	struct fuse_buf in; /* the request being read */
	int fd;
	bool socket;
	loop_id io_id;
	struct cfs_limits limits;
	void (*on_end)(void *arg);
	void *on_end_arg;
	bool stopping, ended;
	bool freeing;	  /* nodes go whatever their counts */
	bool init_answer; /* the next message written is the answer to INIT */
	bool parallel_dirops;
	bool in_batch;	 /* requests are being received: run_interrupts() follows */
	bool interrupts; /* a parked request has its flag set */
	loop_id intr_id; /* run_interrupts() outside a batch */

	struct cfs_req *parked_first, *parked_last;
	unsigned nparked;
	struct uid_count *uids;
	size_t nuids, uids_cap;
	struct idtable handles, nodes;
	struct cfs_node *root;
	void (*root_closing)(struct cfs_node *root);
	struct cfs_node
		*unused; /* counts are 0: freed at the end of the batch or by reap_id, unless referenced again */
	loop_id reap_id;
};

struct cfs_req {
	struct cfs_session *cs;
	fuse_req_t fr;
	struct cfs_who who;
	pid_t pid;
	mode_t umask;
	bool plus; /* readdirplus */
	bool answered, parked, interrupted;
	unsigned depth;		       /* inside an ops, again or cancel function: the end of that one frees */
	struct cfs_node *node, *node2; /* references, so that they outlive the request */
	struct cfs_handle *h;	       /* pinned */
	cfs_again_fn *again;
	cfs_cancel_fn *cancel;
	void *arg;
	uint64_t grace_until_ns; /* an interrupt is not carried out before; 0: at once */
	loop_id grace_id;	 /* running since the interrupt */
	struct waiter w;
	struct waiter view_w;	     /* on the view's queue, while parked */
	struct cfs_req *prev, *next; /* of the parked */
	void *data;
};

/* -- request.c */
struct cfs_req *req_new(struct cfs_session *cs, fuse_req_t fr); /* NULL: ENOMEM was answered */
void req_leave(struct cfs_req *r);				/* the ops function has returned: freed when answered */
void req_run_interrupts(struct cfs_session *cs);
void req_cancel_all(struct cfs_session *cs, int code);
int req_answer_buf(struct cfs_req *r, const void *data, size_t len); /* 0, or it did not arrive */
void req_answer_poll(struct cfs_req *r, unsigned ready);

#define REQ_NAME_MAX 255u /* bytes */

/* -- begin.c: the request of node @ino for @access (CFS_ACCESS_…), or NULL when it was answered already */
struct cfs_req *req_begin(fuse_req_t fr, fuse_ino_t ino, unsigned access);
struct cfs_req *req_begin_name(fuse_req_t fr, fuse_ino_t ino, const char *name, unsigned access);
/* With a second directory or node; @name2 NULL: none. */
struct cfs_req *req_begin_two(fuse_req_t fr, fuse_ino_t ino, const char *name, fuse_ino_t ino2, const char *name2);
/* With the open file of @fh, which must be one of this node. @access 0: no policy is asked. */
struct cfs_req *req_begin_open(fuse_req_t fr, fuse_ino_t ino, uint64_t fh, unsigned access);
/* To close it: always. */
struct cfs_req *req_begin_release(fuse_req_t fr, fuse_ino_t ino, uint64_t fh);
bool node_is_stale(const struct cfs_node *n); /* its view has ended */

/* -- handle.c */
struct cfs_handle *handle_find(struct cfs_session *cs, uint64_t fh);
void handle_pin(struct cfs_handle *h);
void handle_unpin(struct cfs_handle *h);
/* What one uid holds. */
struct uid_count *uid_count_get(struct cfs_session *cs, uid_t uid); /* made when absent; NULL: no memory */
void uid_count_put(struct cfs_session *cs, uid_t uid);		    /* drop it when all are 0 */

/* -- poll.c */
void poll_request(struct cfs_req *r, struct cfs_handle *h, struct fuse_pollhandle *ph);
void poll_forget(struct cfs_handle *h); /* at release */

/* -- node.c */
void node_forget(struct cfs_session *cs, uint64_t id, uint64_t lookups);
int node_tell(struct cfs_node *n, uid_t uid); /* one lookup more, because of @uid; -ENFILE, -ENOMEM */
void node_untold(struct cfs_node *n);	      /* the answer did not arrive */
void node_reap(struct cfs_session *cs);	      /* free what is unused */

/* -- dispatch.c */
extern const struct fuse_lowlevel_ops cfs_lowlevel_ops;

#endif
