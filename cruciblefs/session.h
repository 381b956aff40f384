/* SPDX-License-Identifier: Apache-2.0 */
/* The FUSE session on the loop: requests, answers, waiting, open handles, limits of each uid.
 *
 * How a request lives:
 *   received -> ops function (node.h) -> answered inside it                                  done
 *                                     -> cfs_park() -> @again on each wake -> answered       done
 *                                                   -> an event of your own -> answered      done
 *                                                   -> interrupted, or the session stops, or its view ends:
 *                                                      @cancel, then EINTR (ENOTCONN, ESTALE) done
 * An answer (cfs_reply_…) ends the request, unparks it and frees what belongs to it; the pointer is dead once the
 * function that answers returns to the loop. Inside one ops, @again or @cancel function a second answer is ignored.
 * After @cancel the request will be answered by the session (unless @cancel did), so forget the pointer there: that is
 * the only thing that can end a parked request behind your back.
 *
 * Thread: the loop's. Nothing here blocks. */
#ifndef CRUCIBLE_SESSION_H
#define CRUCIBLE_SESSION_H

#include "base/err.h"
#include "base/loop.h"
#include "base/waitq.h"
#include "cruciblefs/node.h"
#include "cruciblefs/sandbox.h"

/* -- the session ----------------------------------------------------------------------------------------- */

struct cfs_limits {	     /* 0: the default */
	unsigned parked_uid; /* requests of one uid that wait at once (2048); more: -EDQUOT */
	unsigned open_uid;   /* open files and directories of one uid (8192); more: -EMFILE */
	unsigned nodes_uid;  /* nodes that the kernel knows because of one uid (65536); more: -ENFILE */
	size_t bytes_uid;    /* memory that one uid makes us keep: cfs_charge() (64 MiB); more: -EDQUOT */
	unsigned parked_all; /* of all (16384) */
	unsigned open_all;   /* of all (65536); more: -ENFILE */
	unsigned nodes_all;  /* of all (1048576) */
};

struct cfs_session_opts {
	struct loop *loop;	   /* borrowed, outlives the session */
	struct registry *registry; /* borrowed, outlives the session; may be NULL in tests of the session alone */
	int fd; /* /dev/fuse, already mounted (the launcher's), or a SOCK_SEQPACKET socket; the session's from success
		   on */
	bool socket; /* @fd is a socket that speaks raw FUSE requests (tests, fuzzing) */
	struct cfs_limits limits;
	void (*ended)(void *arg); /* unmounted, or the connection was aborted; from the loop, once; may free the
				     session. May be NULL */
	void *arg;
};

/* Errors: -ENOMEM, -EBADF, -EIO, those of loop_add. On an error @o->fd is still the caller's. */
int cfs_session_new(const struct cfs_session_opts *o, struct cfs_session **ret, struct err *e);
/* Before the first round of the loop: @root becomes the node of id 1 (no cfs_node_init for it). It lives until the
 * session ends:
 * @closing (may be NULL) is then called after the handles are released, to drop references of nodes that @root's owner
 * holds itself; @root's ops->free is the last that is called. */
void cfs_session_set_root(struct cfs_session *cs, struct cfs_node *root, const struct cfs_node_ops *ops,
			  void (*closing)(struct cfs_node *root));
struct cfs_node *cfs_session_root(struct cfs_session *cs);
/* Answer all parked requests (ENOTCONN) and serve on: what is asked from now on and would wait is ENOTCONN too. Before
 * an orderly unmount. */
void cfs_session_stop(struct cfs_session *cs);
/* Stop; then release every handle (uploads are dropped, not committed) and node; close the descriptor. NULL is fine;
 * returns NULL. */
struct cfs_session *cfs_session_free(struct cfs_session *cs);

struct loop *cfs_session_loop(struct cfs_session *cs);
struct registry *cfs_session_registry(struct cfs_session *cs);
bool cfs_session_stopping(struct cfs_session *cs);
bool cfs_session_freeing(
	struct cfs_session *cs); /* inside cfs_session_free(): release functions drop instead of commit */
size_t cfs_session_parked(struct cfs_session *cs); /* for tests and metrics */
size_t cfs_session_open(struct cfs_session *cs);

/* Memory that is kept because of something that @uid has open, holds or waits for. Errors: -EDQUOT, -ENOMEM. */
int cfs_charge(struct cfs_session *cs, uid_t uid, size_t bytes);
void cfs_uncharge(struct cfs_session *cs, uid_t uid, size_t bytes);

/* -- a request --------------------------------------------------------------------------------------------- */

struct cfs_session *cfs_req_session(struct cfs_req *r);
const struct cfs_who *cfs_req_who(struct cfs_req *r); /* the caller; lives as long as the request */
mode_t cfs_req_umask(struct cfs_req *r);
/* The calling thread's id, 0 across pid namespaces. Good for recognising that a thread which must ask again does so
 * (wait.c), and for nothing else: never look at /proc/PID of it. */
pid_t cfs_req_pid(struct cfs_req *r);
/* @size bytes, zeroed, freed after the answer: for what a parked request needs later. Once a request. NULL on no
 * memory. */
void *cfs_req_data(struct cfs_req *r, size_t size);
void *cfs_req_data_get(struct cfs_req *r); /* what that returned */
bool cfs_req_answered(struct cfs_req *r);  /* only inside the ops, @again or @cancel function */

typedef void cfs_again_fn(struct cfs_req *r, void *arg);
typedef void cfs_cancel_fn(struct cfs_req *r, void *arg);
/* Keep the request open after the function returns.
 * @q, @again: after each wake of @q (from the loop) @again looks whether the request can be answered now, and answers
 * or leaves it. Both NULL: an event of the caller's own will answer.
 * @cancel: the caller was interrupted, the session stops, or the view ends: forget the request (a short count may be
 * answered here). May be NULL. May be called again for a parked request: replaces queue and functions. Errors (the
 * request is then not parked and still needs its answer): -EDQUOT too many of this uid or in all; -ENOTCONN the session
 * stops. */
int cfs_park(struct cfs_req *r, struct waitq *q, cfs_again_fn *again, cfs_cancel_fn *cancel, void *arg);
/* After cfs_park(): an interrupt is carried out no earlier than @ms from now. For what normally takes no time: every
 * signal that a program handles (SIGCHLD of a shell, SIGURG of Go, timers) interrupts, and EINTR of a stat(2) is what
 * no local disk gives. Who has waited longer than that is let go at once. */
void cfs_park_grace(struct cfs_req *r, unsigned ms);

/* -- answers. @code is 0 or -errno ------------------------------------------------------------------------- */

void cfs_reply_err(struct cfs_req *r, int code);
/* A name leads to @n: counts one lookup of it (taken back when the caller has gone). Timeouts in seconds: 0 unless the
 * answer can never change; of what is seen through a view they are 0 always, for the view can end.
 * @st->st_ino is what users see. The caller's own reference of @n stays the caller's. */
void cfs_reply_entry(struct cfs_req *r, struct cfs_node *n, const struct stat *st, double entry_timeout,
		     double attr_timeout);
void cfs_reply_attr(struct cfs_req *r, const struct stat *st, double timeout);
void cfs_reply_readlink(struct cfs_req *r, const char *target);
void cfs_reply_buf(struct cfs_req *r, const void *data, size_t len); /* of read */
void cfs_reply_write(struct cfs_req *r, size_t taken);
void cfs_reply_statfs(struct cfs_req *r, const struct statvfs *st);
void cfs_reply_lseek(struct cfs_req *r, uint64_t off);
/* The value or the list: answers its size when @size is 0, -ERANGE when it is too short. */
void cfs_reply_xattr(struct cfs_req *r, const void *value, size_t len, size_t size);

/* -- open handles ------------------------------------------------------------------------------------------ */

struct cfs_pollstate;
struct cfs_handle {		    /* embedded in the opener's struct, whose release function frees it */
	struct cfs_node *node;	    /* holds a reference while it is open */
	uint64_t fh;		    /* index and generation */
	struct cfs_who who;	    /* who opened it; counted for its uid */
	int flags;		    /* of open(2); F_SETFL's as of the latest read or write */
	struct cfs_pollstate *poll; /* the session's */
	unsigned pins;		    /* the session's: requests under way on it */
	bool closing;		    /* the session's: released while pinned */
};

/* Register @h as an open handle of @n for the request's caller. Errors: -EMFILE, -ENFILE, -ENOMEM; @h is then not
 * registered and still the caller's. From success on the handle ends by ops->release alone. */
int cfs_handle_open(struct cfs_req *r, struct cfs_handle *h, struct cfs_node *n, int flags);
/* End a registered handle that was not handed out (an error between cfs_handle_open and the answer). Calls
 * ops->release. */
void cfs_handle_close(struct cfs_session *cs, struct cfs_handle *h);

#define CFS_OPEN_DIRECT	 1u /* reads and writes come here one by one, no page cache; through a view always */
#define CFS_OPEN_KEEP	 2u /* what the page cache holds of this node is still right */
#define CFS_OPEN_NONSEEK 8u
/* Hand @h out; when the caller has gone meanwhile, @h is released. */
void cfs_reply_open(struct cfs_req *r, struct cfs_handle *h, unsigned open_flags);
void cfs_reply_create(struct cfs_req *r, struct cfs_node *n, const struct stat *st, double entry_timeout,
		      double attr_timeout, struct cfs_handle *h, unsigned open_flags);

/* -- directories ------------------------------------------------------------------------------------------- */

struct cfs_dirbuf {
	struct cfs_req *r;
	char *p; /* NULL: no memory; add says false */
	size_t size, len;
	bool plus;		/* of a readdirplus request */
	struct cfs_node **told; /* plus: those whose lookup was counted */
	size_t ntold, told_cap;
};
/* @size: the request's. Whether the request is a readdir or a readdirplus is known to the session. */
void cfs_dirbuf_init(struct cfs_dirbuf *b, struct cfs_req *r, size_t size);
/* One entry; of @st only st_ino and the type bits of st_mode are told, unless @n is given in a readdirplus answer: then
 * all of @st is told with timeouts 0 and one lookup of @n is counted ("." and "..": never). False: it did not fit (or
 * no memory), stop here. */
bool cfs_dirbuf_add(struct cfs_dirbuf *b, const char *name, const struct stat *st, uint64_t next_off,
		    struct cfs_node *n);
void cfs_dirbuf_reply(struct cfs_dirbuf *b);	      /* answers and frees */
void cfs_dirbuf_drop(struct cfs_dirbuf *b, int code); /* answers an error, takes the lookups back, frees */

#endif
