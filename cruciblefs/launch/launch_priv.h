/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of crucible-launch share. proto.c and client.c, which crucibled links too, need only launch.h
 * and launch_uuid_ok(). */
#ifndef CRUCIBLE_LAUNCH_PRIV_H
#define CRUCIBLE_LAUNCH_PRIV_H

#include "base/cgroup.h"
#include "base/loop.h"
#include "base/msg.h"
#include "cruciblefs/launch/launch.h"

#define LAUNCH_RUN_DIR	  "/run/crucible"
#define LAUNCH_PRELOAD_SO "/preload.so" /* as the engine sees it */

/* 36 characters of lower-case hex and '-', as uuid_unparse_lower() writes them: nothing that a path could be made of.
 */
bool launch_uuid_ok(const char *uuid);
bool launch_uuid_is_ours(const char *uuid); /* the pager's, the store's or netd's: no sandbox */

/* From the command line; nothing of it can be changed by a request. */
struct launch_config {
	uid_t uid_base;
	const char *mount;		     /* absolute, without symbolic links but for the last step */
	const char *store;		     /* absolute */
	const char *cgroup;		     /* name */
	const char *prog[LAUNCH_KIND_COUNT]; /* absolute; pager, store and netd may be NULL */
	const char *preload;		     /* crucible-preload.so, absolute; NULL: none */
};

#define NET_JOBS_MAX 1024 /* NET and NET_SOCKETS that wait */

/* -- slots.c ----------------------------------------------------------------------------------- */

struct slots {
	int *fds;      /* LAUNCH_SLOTS_MAX descriptors that hold the locks; -1: not ours */
	uint32_t next; /* where to look first: a uid that was just given back rests for a while */
};
int slots_init(struct slots *s, struct err *e); /* -ENOMEM, those of mkdir */
/* Let go of all, and remove the file when no process on the machine holds one. */
void slots_fini(struct slots *s);
/* Lock a free slot. Errors: -EAGAIN all are taken; those of open. */
int slots_alloc(struct slots *s, uint32_t *ret_slot, struct err *e);
int slots_free(struct slots *s, uint32_t slot, struct err *e); /* -EINVAL not ours */
int slots_fd(const struct slots *s, uint32_t slot);	       /* the lock's descriptor, borrowed; -1 not ours */

/* -- root.c ------------------------------------------------------------------------------------ */

/* In a child that has a mount and a pid namespace of its own: build the root that launch.h describes and move into it.
 * /proc and all paths of the host are gone afterwards; the pager has a /proc of its own namespace. Errors: in words,
 * those of mount(2) and its kin. */
struct root_plan {
	enum launch_kind kind;
	const char *store, *uuid;
	uid_t uid; /* owner of the kvm node */
	gid_t gid;
	bool kvm;
	const char *preload; /* file to show as LAUNCH_PRELOAD_SO; NULL: none */
};
int root_enter(const struct root_plan *p, struct err *e);

/* -- the process ------------------------------------------------------------------------------- */

struct child;	 /* spawn.c */
struct kill_job; /* sandbox.c */
struct net_job;	 /* net.c */

struct launchd {
	struct launch_config cfg;
	struct loop *loop;
	struct msgconn *conn;
	struct cgroup_root *cgroups;
	struct slots slots;
	int prog_fd[LAUNCH_KIND_COUNT]; /* pinned at the start, so that all sandboxes of a daemon run its version; -1:
					   absent then */
	int uffd_dev;			/* /dev/userfaultfd, for engines; -1: the machine has none */
	bool oom_below_zero;		/* we may protect a process from the kernel's OOM killer */
	dev_t store_dev;
	struct child *children;
	struct kill_job *kills;
	struct net_job *nets;
};

/* What a handler answers with, besides its code and words. */
struct answer {
	struct buf payload;
	int fds[MSG_FDS_MAX]; /* owned, closed after sending */
	size_t nfds;
};
#define LAUNCH_LATER 1 /* a handler's result: it will call launchd_reply() itself */

/* Send a reply; nothing when @id is 0. A daemon that does not read its replies any more ends us. */
void launchd_reply(struct launchd *d, uint32_t id, int code, const char *words, const struct answer *a);

/* -- given.c ----------------------------------------------------------------------------------- */

/* What a new process gets, besides its output. */
struct given {
	int fds[MSG_FDS_MAX + 2]; /* its 3, 4, …; borrowed */
	size_t nfds;
	char *envp[5]; /* malloc'd */
};
/* The descriptors of @m behind the one for its output, then /dev/userfaultfd, then the slot's lock; the variables of
 * its preload library. @req was checked. -ENOMEM: given_fini() is due all the same. */
int given_make(struct given *g, const struct launchd *d, const struct launch_spawn *req, const struct msg *m);
void given_fini(struct given *g);

/* Handlers: @r stands behind nothing yet and must be read to its end. They return 0, -errno with words, or
 * LAUNCH_LATER. @m: for its descriptors and its id. Thread: loop. */
typedef int handler_fn(struct launchd *d, struct msg *m, struct wire_rd *r, struct answer *a, struct err *e);
handler_fn on_mount, on_unmount;      /* mount.c */
handler_fn on_spawn;		      /* spawn.c */
handler_fn on_kill, on_stat, on_list; /* sandbox.c */
handler_fn on_net, on_net_sockets;    /* net.c */

/* spawn.c: collect the children that ended and tell the daemon. */
void children_reap(struct launchd *d);
bool children_has(const struct launchd *d,
		  const char *uuid);   /* whether a child of that sandbox was not yet collected */
void children_free(struct launchd *d); /* forgets them; they run on */
/* sandbox.c: look after what is being killed, now that something ended. */
void kills_poke(struct launchd *d);
void kills_free(struct launchd *d);
void nets_free(struct launchd *d); /* net.c: ends what is under way, without an answer */

#endif
