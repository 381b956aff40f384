/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots, inside the domain (snapshot.h is their face).
 *
 * Invariants:
 *  1. A snapshot has one uuid for everything: <store>/snapshots/<uuid>/snapshot.json, the pager's template and disk
 *     stack, the snapstore's manifest.
 *  2. A sandbox's memory is a private mapping of its `template` ("" after a cold boot), its disk a stack above its
 *     `origin`. Both name snapshots. What was captured is a difference to those, so they outlive it: a snapshot that
 *     was removed stays, hidden, until no sandbox stands on it and no child of it is still being stored.
 *  3. The snapstore gets snapshots one after another, parents first (ingest.c).
 * Files: snapshot.c (objects, lineage, removal), snapshot_file.c (snapshot.json), capture.c (taking one), ingest.c
 * (into the store), revive.c (a machine that goes on from one), restore.c (for a sandbox), warm.c (before anybody wants
 * it), pool.c (machines that wait to be anything), fork.c (batches), prepare.c (of profiles), strays.c, whole.c (verify
 * and gc), diff.c, relink.c (after a restart of the pager, the store or the daemon). */
#ifndef CRUCIBLE_SNAPSHOT_PRIV_H
#define CRUCIBLE_SNAPSHOT_PRIV_H

#include "cruciblefs/domain/machine.h"
#include "cruciblefs/snapshot.h"
#include "snapstore/pager/pager.h"

struct snapshot {
	struct registry *reg;
	struct snapshot *prev, *next; /* in the registry, in order of creation */
	unsigned refs;
	bool listed;   /* in the registry */
	bool gone;     /* removed by its owner; hidden until nothing needs it */
	bool removing; /* the pager was asked to forget it, or the store */
	bool needed;   /* by somebody, as the last sweep found */
	bool hidden;   /* prepared from a profile: nobody's to see */
	bool doubt; /* a daemon before us was taking it: its source's memory may be of it. Its box knows (relink.c) */
	char name[CFS_NAME_MAX + 1];
	char uuid[LAUNCH_UUID_LEN + 1];
	struct cfs_who owner;
	uint64_t created_ns, changed_ns;
	enum snapshot_status status;
	char error[320];
	struct waitq waitq;
	char source[CFS_NAME_MAX + 1], source_uuid[LAUNCH_UUID_LEN + 1];
	char parent[80];		       /* a name, or "profile:NAME"; for people */
	char parent_uuid[LAUNCH_UUID_LEN + 1]; /* the origin of the sandbox that it was taken of; "": none */
	char birth[LAUNCH_UUID_LEN + 1];       /* what the disk of that sandbox was made from; "": its base image */
	char memory_base[LAUNCH_UUID_LEN + 1]; /* its template; "": none */
	char key[256];			       /* hidden: what it is the prepared state of */
	char base[160], bootid[80];	       /* disk image, kernel */
	struct attrs attrs;
	enum engine_accel accel;
	uint32_t memory_mib, vcpus; /* classes */
	char fingerprint[128];
	uint64_t pause_ns, captured_pages, stored_bytes, new_pages, shared_pages;
	char *inherited;       /* JSON array: commands that ran; NULL: none */
	unsigned ingest_tries; /* to store it, that failed */
	int state_fd;	       /* the device state; of stored ones those that were used last have it. -1: not here */
	uint64_t state_used_ns;
	int template_fd, bits_fd; /* until it is stored: for a pager that is restarted */
	char *batch;		  /* names of the last fork, lines */
	char *verified;		  /* JSON line, or NULL */
	enum { DIFF_NONE, DIFF_RUNNING, DIFF_DONE, DIFF_FAILED } diff;
	bool busy;						   /* verify runs */
	struct store_work work;					   /* storing or verifying it */
	enum { WORKSET_NONE, WORKSET_KEPT, WORKSET_TOLD } workset; /* as a file (perhaps), known to this pager */
	loop_id workset_timer;
	uint64_t used_ns;      /* hidden: when a sandbox last went on from it; 0: not since the daemon's start */
	unsigned failed_loads; /* one after the other */
};

#define SNAPSHOT_STATES_KEPT 64u /* 60 KiB each, as a rule */

/* One caller waits for its end. */
struct snapshot_job {
	unsigned refs; /* the waiter's and the worker's */
	bool done;
	struct err e;
	struct waitq waitq;
};
struct snapshot_job *job_new(struct registry *r);		   /* two references */
void job_end(struct snapshot_job *j, int code, const char *words); /* the worker's reference goes; NULL is fine */

/* -- snapshot.c */
struct snapshot *snapshot_new(struct registry *r);
struct snapshot *snapshot_by_uuid(struct registry *r, const char *uuid); /* also hidden and gone ones */
struct snapshot *snapshot_by_key(struct registry *r, const char *key);
void snapshot_insert(struct registry *r, struct snapshot *p);
void snapshot_changed(struct snapshot *p);
void snapshot_set_status(struct snapshot *p, enum snapshot_status st, const char *words); /* saved, told */
void snapshots_sweep(struct registry *r); /* remove what was removed and nothing needs any more */
void snapshots_free_all(struct registry *r);
/* May @p be restored here? -EPROTONOSUPPORT, -EBADMSG, -EBUSY with words. */
int snapshot_usable(struct snapshot *p, struct err *e);
/* -- snapshot_file.c */
int snapshot_save(struct snapshot *p, struct err *e);
int snapshots_load(struct registry *r, struct err *e);
void snapshot_remove_dir(struct snapshot *p);
int snapshot_open_state(struct snapshot *p); /* p->state_fd */
/* What the engine writes its device state into: a memfd that takes SNAP_BLOB_MAX bytes and not one more. -errno. */
int snapshot_make_state(void);
/* What it has written there becomes a file of ours, p->state_fd. -EIO: nothing, or more than there is; those of files.
 */
int snapshot_keep_state(struct snapshot *p, int from);
void snapshot_state_used(struct snapshot *p); /* a fork asks for it: kept while few others are */
void snapshot_drop_state(struct snapshot *p); /* the store has it */
/* -- capture.c */
int capture_begin(struct sandbox *s, const char *name, const char *key, const struct cfs_who *who,
		  struct snapshot_job *j, struct err *e); /* @j: taken, may be NULL; @key: hidden */
/* Tell the pager of a machine's memory: @ranges as on the wire, @fds: userfaultfd (if there is one), mem, pagemap. What
 * it refuses ends the machine. */
int capture_attach(struct sandbox *s, const char *template, uint64_t base, uint64_t bytes, const struct buf *ranges,
		   const int *fds, size_t nfds);
/* -- fork.c */
void forks_end(struct registry *r); /* the daemon ends */
/* -- diff.c */
void diffs_end(struct registry *r);	 /* the daemon ends: they have failed */
void diffs_end_dead(struct registry *r); /* those of views that have ended, too */
/* -- ingest.c */
void ingest_kick(struct registry *r); /* something is storing, or may be tried again */
void ingest_stop(struct registry *r);
/* -- restore.c */
/* Bring @s up from @p. The result is the sandbox's status. -ENOMEM. */
int restore_begin(struct sandbox *s, struct snapshot *p, struct err *e);
void restore_let_go(struct restore *o);
/* -- prepare.c */
/* The prepared snapshot that a start of @s from its profile can use; NULL: none (yet); then one is begun, behind. */
struct snapshot *prepared_for(struct sandbox *s, const struct profile *pr);
struct snapshot *prepared_default(struct registry *r); /* one of the default profile and shape; NULL: none */
void prepare_end(struct registry *r);
/* -- pool.c */
struct machine *pool_take(struct registry *r, uint32_t memory_mib, uint32_t vcpus); /* NULL: none */
bool registry_anybody_starts(const struct registry *r); /* a sandbox of somebody's is being brought up */
void pool_fill(struct registry *r);			/* soon, behind */
void pool_wanted(struct registry *r);			/* a machine was just asked for: not now, then soon */
unsigned pool_ready(const struct registry *r);
void pool_drain(struct registry *r); /* warm ones, too */
/* -- warm.c */
struct revival;
/* One that waits, for a sandbox with such a disk and no limits of its own; the caller's now. NULL: none. Either way
 * @p is the one of its kind that is wanted from now on. */
struct revival *warm_take(struct registry *r, struct snapshot *p, uint32_t disk_mib);
bool warm_fill(struct registry *r); /* make one, if one is to be made; true: one is being made */
unsigned warm_count(const struct registry *r, enum warm_of kind, bool held);
uint64_t warm_memory_mib(const struct registry *r);
bool warm_give_up(struct registry *r); /* one of them, for its memory, prepared ones last; false: there is none */
void warm_forget(struct registry *r, const struct snapshot *p); /* it is gone, damaged, or its view has ended */
void warm_drain(struct registry *r);
/* -- strays.c: what the pager has to let go of, of a machine or a disk that is nobody's now */
enum { GO_MEMORY = 1, GO_EXPORT = 2, GO_DISK = 4 };
void pager_let_go(struct registry *r, const char *id, unsigned what); /* now, or when the pager is back */
void strays_load(struct registry *r);
void strays_add(struct registry *r, const char *id);
void strays_tell(struct registry *r); /* the pager is up: it lets go of them */
void strays_free(struct registry *r);
/* -- workset.c */
void workset_learn(struct snapshot *p);	  /* a machine went on from it */
void workset_tell(struct snapshot *p);	  /* the pager will be asked for its template */
void worksets_untold(struct registry *r); /* the pager is a fresh one */
/* -- whole.c */
void store_gc_soon(struct registry *r);
void store_end(struct registry *r);
/* -- relink.c */
bool registry_peers_are_up(struct registry *r);
bool registry_peers_failed(struct registry *r);
const char *registry_peers_words(struct registry *r);		   /* why they are away; "": nothing is wrong */
void relink_sandbox(struct sandbox *s);				   /* tell a fresh pager of its machine */
bool relink_in_doubt(struct registry *r, const struct sandbox *s); /* which snapshot its memory is of */
void relink_adopted(struct sandbox *s);
void relink_quit(struct registry *r);
void relink_unlink(struct registry *r);
int relink_begin(struct registry *r, struct err *e);
void relink_end(struct registry *r);
struct peer_kind;
struct peer_ops;
/* One of ours beside the daemon; @argv is borrowed for life, @ops get @r. */
int relink_start_peer(struct registry *r, const struct peer_kind *kind, const struct peer_ops *ops,
		      const char *const *argv, size_t argc, struct peer **ret, struct err *e);

/* What a capture, or a machine going on, may take in all: a process that is up and answers no more is no reason to wait
 * for ever. Longer than a box takes to thaw by itself. Tests change it. */
extern uint64_t ask_deadline_ns;
/* -- ask.c: calls to the pager, the store and a box, all alike */
typedef void ask_fn(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m);
struct ask { /* a request being written; the first failure stays */
	struct buf b;
	int code;
	int fds[MSG_FDS_MAX]; /* borrowed */
	size_t nfds;
};
void ask_init(struct ask *a);
void ask_str(struct ask *a, const char *s);
void ask_u8(struct ask *a, uint8_t v);
void ask_u32(struct ask *a, uint32_t v);
void ask_u64(struct ask *a, uint64_t v);
void ask_raw(struct ask *a, const void *data, size_t len);
void ask_fd(struct ask *a, int fd);
/* Send; frees what @a holds. 0: @fn (may be NULL) will be called once. -errno: it will not. */
int ask_pager(struct registry *r, int type, struct ask *a, ask_fn *fn, void *arg);
int ask_store(struct registry *r, int type, struct ask *a, ask_fn *fn, void *arg);
/* -- storework.c */
/* ask_store() of what takes long: until @fn is called, which has to call store_work_done(), @w tells how far it is. */
int ask_store_work(struct registry *r, int type, struct ask *a, ask_fn *fn, void *arg, struct store_work *w);
void store_work_done(struct store_work *w);
/* Nobody wants it any more: it ends soon, as a rule with -ECANCELED. Nothing is under way: nothing. */
void store_work_cancel(struct registry *r, const struct store_work *w);
void store_work_heard(struct registry *r, struct msg *m);	       /* STORE_PROGRESS */
int store_work_add(const struct store_work *w, struct json_object *o); /* "done" and "total", once they are known */
int ask_netd(struct registry *r, int type, struct ask *a, ask_fn *fn, void *arg);
int ask_peer(struct peer *peer, int type, struct ask *a, ask_fn *fn, void *arg);
int ask_box(struct boxlink *k, int type, struct ask *a, ask_fn *fn, void *arg);
/* PAGER_ATTACH: @ranges as on the wire; @fds: userfaultfd (if there is one), mem, pagemap. */
struct attach {
	const char *machine, *template;
	uint64_t base, bytes;
	const struct buf *ranges;
	const int *fds; /* borrowed */
	size_t nfds;
};
int ask_attach(struct registry *r, const struct attach *at, ask_fn *fn, void *arg);

#endif
