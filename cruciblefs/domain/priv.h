/* SPDX-License-Identifier: Apache-2.0 */
/* Innards of the daemon's domain (sandbox.h is its face). How this works:
 *
 * The registry holds the sandboxes. A sandbox is a directory of the store, <store>/sandboxes/<uuid>/, with sandbox.json
 * (what must survive the daemon), disk.qcow2, and box/, which is all that its box sees: box/exec/<n>/ and
 * box/console.log. Invariants:
 *  1. What a file of the store says was written there before anybody could see it in the tree.
 *  2. A command is a directory exec/<n> with `cmd`; it has ended exactly when exec/<n>/result.json exists. Only the box
 * writes that file while a box lives (s->link != NULL), only the daemon while none does.
 *  3. A box lives exactly between start (start.c) and sandbox_down() (down.c), which always kills the cgroups before it
 * says so.
 *  4. `status` is derived where it can be: running is ready with a command that runs.
 * Files: registry.c (table), persist.c (sandbox.json), removal.c, sandbox.c (status, error, ctl, info), attr.c, start.c
 * and down.c (bringing a machine up, and down), lifecycle.c (the daemon's own beginning and end), boxlink.c (messages
 * with the box), exec.c (commands), upload.c, slot.c, fscall.c, journal.c, profile.c, health.c; view_priv.h has those
 * of views and policies. */
#ifndef CRUCIBLE_DOMAIN_PRIV_H
#define CRUCIBLE_DOMAIN_PRIV_H

#include <json-c/json.h>
#include <sys/stat.h>
#include "base/call.h"
#include "base/pool.h"
#include "cruciblefs/domain/config.h"
#include "cruciblefs/domain/domain.h"
#include "cruciblefs/domain/net.h"
#include "cruciblefs/launch/launch.h"
#include "cruciblefs/sandbox.h"
#include "vmm/box/box.h"
#include "vmm/engine.h"

struct attrs {			  /* what `from`, `limits/` and `env` hold */
	char from[80];		  /* "profile:NAME" */
	uint32_t num[ATTR_COUNT]; /* of the numeric ones */
	char *env;		  /* lines, malloc'd, or NULL */
	char *net_allow;	  /* the same, of net/allow */
};

struct execution {
	struct execution *prev, *next; /* by number */
	uint64_t n;
	enum exec_state state;
	bool beside; /* of a slot */
	bool live_stdin;
	bool sent; /* the box has it (or had, by its hello) */
	uint32_t uid, gid;
	uint64_t accepted_ns, changed_ns; /* wall clock */
};

struct slot {
	struct slot *next;
	char name[CFS_NAME_MAX + 1];
	uint64_t latest;  /* 0: none yet */
	uint32_t credit;  /* bytes that the box will still take for `latest` */
	bool eof;	  /* said for `latest`, or for the next before it began */
	struct buf early; /* live input before the first command */
};

struct boxlink;
struct start;
struct restore;
struct capture;
struct machine;
struct snapshot;
struct prepare;
struct storing;
struct diff;
struct fork;
struct peer;

struct sandbox {
	struct registry *reg;
	struct sandbox *prev, *next; /* in the registry, in order of creation */
	unsigned refs;
	bool gone;   /* out of the registry */
	bool hidden; /* never in it: the daemon's own (prepare.c) */
	char name[CFS_NAME_MAX + 1];
	char uuid[LAUNCH_UUID_LEN + 1];
	struct cfs_who owner;
	int dirfd;				     /* of <store>/sandboxes/<uuid>: the daemon's own */
	int boxfd;				     /* of box/ in it: what the box sees as /box */
	uint64_t created_ns, changed_ns, started_ns; /* wall clock; started: of the last machine, 0: never */
	struct waitq waitq;
	struct attrs attrs;
	char error[320];

	enum sandbox_status status;  /* never SBX_RUNNING: see sandbox_status() */
	unsigned nrunning, nwaiting; /* commands in EXEC_RUNNING; of the queue in EXEC_QUEUED */
	struct execution *first_exec, *last_exec;
	unsigned nexecs;
	uint64_t last_n;  /* highest number given */
	uint64_t latest;  /* of the queue */
	char *stdin_path; /* below dirfd: kept for the next command */
	struct slot *slots;
	unsigned nslots;
	unsigned leases;
	bool was_leased; /* when the daemon before us wrote it down */
	uint64_t spool_bytes;

	/* The machine. */
	char machine[LAUNCH_UUID_LEN + 1];  /* what the launcher calls it; "": none */
	struct start *start;		    /* being brought up: by a cold boot, or still choosing */
	struct restore *restore;	    /* being brought up from a snapshot */
	struct capture *capture;	    /* a snapshot of it is being taken */
	char disk[LAUNCH_UUID_LEN + 1];	    /* the pager's stack; "": none yet */
	char origin[LAUNCH_UUID_LEN + 1];   /* the snapshot that its disk is a difference to; "": its base image */
	char birth[LAUNCH_UUID_LEN + 1];    /* the snapshot that its disk was made from; "": its base image */
	char template[LAUNCH_UUID_LEN + 1]; /* the snapshot that its memory is a difference to; "": it booted cold */
	bool attached;			    /* the pager knows its memory */
	bool disk_only;			    /* a fork that boots its snapshot's disk */
	bool disk_unused;		    /* no guest has run on it: it goes with the machine */
	char base[160], bootid[80];	    /* disk image and kernel that it booted from, or whose guest did */
	char parent[CFS_NAME_MAX + 1], parent_uuid[LAUNCH_UUID_LEN + 1]; /* what it is a fork of; "": of none */
	char latest_snapshot[CFS_NAME_MAX + 1];
	struct boxlink *link; /* talking to its box */
	uint32_t slot;	      /* uids; valid while box_uid != 0 */
	uint32_t box_uid;     /* 0: no box */
	bool spawned;	      /* an engine may run */
	bool unproven;	      /* has a machine that waited in the pool and has not answered yet: commands wait here */
	bool fresh;	      /* lost such a one: the next machine is made for it */
	bool down_pending;    /* LAUNCH_KILL is under way */
	bool down_ran;	      /* the guest had been ready */
	bool stop_asked;      /* so that the end is `stopped`, not `failed` */
	char down_words[320]; /* why it goes down; "": an orderly stop */
	enum engine_accel accel;
	char *guest;	  /* the agent's hello, JSON */
	char *unenforced; /* of the host's side, comma separated */
	uint64_t epoch;
	struct fs_call *fs_first; /* outstanding and waiting */
	unsigned nfs;
	struct sandbox_net net;
	loop_id life_timer, adopt_timer, stop_timer;
	struct launch_stat stat; /* last known */
	bool stat_pending;
	uint64_t disk_own_bytes; /* what it holds of its own since its last freeze; last known, as the layers */
	uint32_t disk_layers;
	bool disk_asked;
};

/* A request to the store that takes long (storework.c). */
struct store_work {
	uint32_t id;	      /* of the request; 0: none is under way */
	uint64_t done, total; /* of what, the store knows; 0 of 0: it has told nothing yet */
};

/* The snapshots that machines are kept warm of, warm_size of each: the profile's prepared one that was used last, and
 * the user's that was forked last. */
enum warm_of { WARM_PREPARED, WARM_FORKED, WARM_KINDS };
struct warm_kind {
	char uuid[LAUNCH_UUID_LEN + 1]; /* "": none yet */
	uint32_t disk_mib;
	unsigned failures;
	uint64_t taken, missed; /* since the daemon's start, for metrics */
};

struct registry {
	struct loop *loop;
	struct config *cfg;
	struct launcher *launcher;
	struct pool *pool;
	int store_fd, sandboxes_fd, logs_fd, state_fd;
	struct sandbox *first, *last;
	size_t count;
	struct sandbox *hidden;		     /* linked by next */
	struct view *first_view, *last_view; /* view_priv.h */
	int views_fd, views_clock;
	loop_id views_clock_id, views_stop;
	bool freed; /* registry_free() is at work */
	struct snapshot *first_snapshot, *last_snapshot;
	int snapshots_fd;
	struct peer *pager;	  /* relink.c */
	char pager_degraded[192]; /* what it says of itself; "": nothing */
	struct peer *store;
	struct peer *netd;	   /* netpeer.c */
	char netd_words[192];	   /* why it does not take its configuration; "": it does */
	struct stat resolv_stat;   /* of the resolv.conf that it has */
	struct netd_stat net_stat; /* last known, of all sandboxes since it was started */
	bool net_stat_asked;
	bool netd_sweep;	/* it could not be told that a sandbox is no more */
	struct fork *forks;	/* batches that come up */
	struct storing *ingest; /* one is on its way into the store */
	loop_id ingest_timer, sweep_timer;
	loop_id diffs_timer;
	struct diff *diffs; /* the first one runs, the others wait */
	bool gc_wanted, gc_runs, verify_runs, stat_asked;
	struct store_work gc_work, verify_work;
	loop_id gc_timer;
	char *store_stat, *gc_outcome, *verify_outcome; /* JSON lines, or NULL */
	struct prepare *prepare;			/* a profile is being prepared */
	struct prepare_failure {
		char key[256];
		unsigned n;
	} prepare_failed[16]; /* the newest */
	unsigned nprepare_failed;
	struct machine *pool_machines; /* IDLE and MAKING ones */
	loop_id pool_timer;
	unsigned npool, pool_failures;
	uint32_t pool_memory_mib, pool_vcpus; /* the shape that was wanted last; 0: none yet */
	uint64_t pool_wanted_ns;	      /* when that was */
	struct revival *revivals;	      /* all that are not let go: revive.c */
	struct net_early *net_early;	      /* netearly.c */
	struct warm *warm;		      /* being warmed, or held; of both kinds */
	struct warm_kind warm_kinds[WARM_KINDS];
	char (*strays)[LAUNCH_UUID_LEN + 1];
	size_t nstrays;
	bool strays_changed;
	loop_id strays_timer;
	struct attrs defaults;
	struct engine_info engine;
	struct waitq journal_waitq;
	int events_fd;
	uint64_t seq, events_bytes;
	int listen_fd;
	loop_id listen_id, listen_timer, prune_timer;
	struct boxlink *greeting; /* accepted, not yet said who they are */
	uint64_t started_wall_ns;
	uint64_t host_memory_mib;
	uint64_t tsc_khz;
	struct upload *uploads; /* open ones */
	struct log_info *logs;	/* of every log that is kept */
	size_t nlogs;

	enum { TRIAL_NONE, TRIAL_PENDING, TRIAL_DONE } trial;
	struct trial_run *trial_run; /* while pending */
	enum engine_accel accel;
	char accel_reason[512];
	struct waitq trial_waitq;

	unsigned ndowns; /* LAUNCH_KILLs on their way, also of sandboxes that are in the table no more */
	bool shutting_down, peers_ended;
	uint64_t shutdown_by_ns; /* what is still being stored then is lost */
	loop_id shutdown_timer, shutdown_look;
	loop_fn *on_down; /* of registry_shutdown */
	void *on_down_arg;

	uint64_t n_created, n_destroyed, n_execs, n_failed_starts; /* since the daemon's start, for metrics */
	uint64_t pool_taken, pool_missed;
};

/* -- registry.c */
int registry_make_uuid(char out[LAUNCH_UUID_LEN + 1]); /* a random one; -EIO */
struct sandbox *registry_by_uuid(struct registry *r, const char *uuid);
struct sandbox *registry_by_machine(struct registry *r, const char *id);
struct sandbox *sandbox_new(struct registry *r); /* in no table yet; NULL: no memory */
void registry_insert(struct registry *r, struct sandbox *s);
void registry_check_shutdown(struct registry *r);
bool sandbox_comes_back(const struct sandbox *s); /* goes down to get another machine, if any (down.c) */
void registry_shutdown_looks(struct registry *r); /* the same behind this round: callers hold what it may free */
/* A sandbox with its directory, in no table and without sandbox.json. */
int sandbox_make(struct registry *r, const char *name, const struct attrs *attrs, const struct cfs_who *who,
		 struct sandbox **ret, struct err *e);
/* registry_create() of a fork of @p (NULL: of none). */
int registry_create_from(struct registry *r, const char *name, struct snapshot *p, const struct cfs_who *who,
			 struct sandbox **ret, struct err *e);
/* -- persist.c */
int sandbox_save(struct sandbox *s, struct err *e); /* sandbox.json; errors of fd_replace */
int sandbox_open_dirs(struct registry *r, struct sandbox *s);
int registry_load(struct registry *r, struct err *e); /* every sandbox; what cannot be read is logged and left alone */
int registry_load_defaults(struct registry *r, struct err *e);
/* -- removal.c */
#define REMOVAL_PREFIX ".gone-" /* a sandbox's directory on its way out: prefix and uuid */
void registry_remove_dir(struct registry *r, const char *uuid); /* by the pool */
/* -- sandbox.c */
struct json_object *lines_array(const char *text); /* NULL is fine; NULL: no memory */
void sandbox_changed(struct sandbox *s);	   /* mtime and wake */
bool sandbox_inherits(struct sandbox *s);	   /* commands run in it that its snapshot had */
void sandbox_set_status(struct sandbox *s, enum sandbox_status st);
void sandbox_set_error(struct sandbox *s, const char *words); /* "" clears */
uint32_t sandbox_num(const struct sandbox *s, enum sandbox_attr a);
/* -- usage.c */
void sandbox_ask_stat(struct sandbox *s); /* newer numbers of its engine, behind */
/* -- attr.c */
extern const char attr_from_snapshot[];					    /* "snapshot:", what `from` begins with */
void attr_range(enum sandbox_attr a, uint32_t *ret_min, uint32_t *ret_max); /* of a number */
void attrs_builtin(struct attrs *a);
int attrs_copy(struct attrs *to, const struct attrs *from); /* -ENOMEM */
void attrs_fini(struct attrs *a);
int attrs_lend_net(struct attrs *to, const struct attrs *from); /* the list; -ENOMEM */
int attrs_to_json(const struct attrs *a, struct json_object *o);
/* `from` names a snapshot: of which uuid, if @who may use it. @of_defaults: root wrote it there for everybody, so one
 * of root's is everybody's. -ENOENT, -EPERM. */
int attrs_take_origin(struct sandbox *s, const struct cfs_who *who, bool of_defaults, struct err *e);
int attrs_from_json(struct attrs *a, struct json_object *o, struct err *e);
/* sandbox_attr_store() whatever the operations of @who: of ctl, which has its own. */
int sandbox_attr_set(struct sandbox *s, enum sandbox_attr a, const char *text, size_t len, const struct cfs_who *who,
		     struct err *e);
/* -- attr_permit.c */
/* What a sandbox is made with obeys the policies of @who: a size beyond them is lowered (@shape: else it is -EDQUOT, as
 * of a snapshot's, which cannot be another), a time always is. -EDQUOT also when no sandbox is so small. */
int attrs_lower(struct attrs *a, struct registry *r, const struct cfs_who *who, bool shape, struct err *e);
/* `from` of the defaults, where it is not permitted to @who, becomes the first profile that is. -EPERM there is none.
 */
int attrs_choose_origin(struct attrs *a, struct registry *r, const struct cfs_who *who, struct err *e);
/* May @who have written what stands in @s now? -EPERM, -EDQUOT */
int attr_written_permitted(struct sandbox *s, enum sandbox_attr a, const struct cfs_who *who, struct err *e);
/* -- start.c */
int start_orders(struct sandbox *s, struct snapshot *p_or_null); /* BOX_START */
void start_began(struct sandbox *s);
bool start_room_for(struct registry *r, uint32_t memory_mib); /* for what nobody has asked for yet */
void start_cold(struct sandbox *s);			      /* a start that could not go on from a snapshot */
int sandbox_start(struct sandbox *s, const struct cfs_who *who, struct err *e); /* at once; the rest behind */
void start_let_go(struct sandbox *s); /* a start on its way is not wanted any more; none is fine */
/* -- down.c */
void sandbox_stop(struct sandbox *s, uint32_t grace_ms); /* at once; the rest behind */
/* The machine is no more (or must not be): kill its cgroups, then settle everything. @words: why, "" for an orderly
 * stop. */
void sandbox_down(struct sandbox *s, const char *words);
void sandbox_life_timer(struct sandbox *s); /* (re)arm from timeout_s */
/* -- boxlink.c */
/* Takes @fd. Of a sandbox, of a machine that is no sandbox's yet, or of neither: then the hello says whose it is. */
int boxlink_new(struct registry *r, struct sandbox *s, struct machine *m, int fd, struct boxlink **ret, struct err *e);
void boxlink_give(struct boxlink *k, struct sandbox *s); /* the machine's becomes the sandbox's: s->link */
struct boxlink *boxlink_free(struct boxlink *k);	 /* pending calls end with -ENOTCONN */
typedef call_fn boxlink_fn;				 /* base/call.h */
/* @fn NULL: no reply is wanted. */
int boxlink_call(struct boxlink *k, enum box_type type, const void *data, size_t len, boxlink_fn *fn, void *arg);
int boxlink_call_fds(struct boxlink *k, enum box_type type, const void *data, size_t len, const int *fds, size_t nfds,
		     boxlink_fn *fn, void *arg);
int boxlink_vm(struct boxlink *k, enum box_vm verb, uint32_t grace_ms, boxlink_fn *fn, void *arg);
int boxlink_ctl(struct boxlink *k, uint64_t n, enum box_verb verb, uint32_t a, uint32_t b, boxlink_fn *fn, void *arg);
void boxlink_ready(struct sandbox *s); /* its guest answers, and nothing else is waited for */
/* Tell a running box the sandbox's name and environment, for the commands to come. */
void boxlink_set(struct sandbox *s);
int boxlink_listen(struct registry *r, struct err *e);
void boxlink_unlisten(struct registry *r);
/* -- exec.c */
struct execution *exec_add(struct sandbox *s, uint64_t n, enum exec_state st);
void exec_send_all(struct sandbox *s); /* what the box has not got yet, in order */
void exec_set_state(struct sandbox *s, struct execution *x, enum exec_state st);
void exec_forget_old(struct sandbox *s); /* frees entries of ended ones: keep no pointer over it */
bool exec_any_waits(const struct sandbox *s);
/* No box will end them: records with that error. @only_sent: those that no box ever got stay queued. */
void exec_lose_all(struct sandbox *s, const char *words, bool only_sent);
bool exec_has_record(struct sandbox *s, uint64_t n);
int open_empty_for_box(int dirfd, const char *name, int *ret_fd);
void exec_tell_error(struct sandbox *s, uint64_t n, const char *words);
int exec_load(struct sandbox *s, struct err *e); /* from the store */
void exec_free_all(struct sandbox *s);
int exec_accept(struct sandbox *s, const char *slot, const struct cfs_who *who, const void *text, size_t len,
		const char *tmp_path, const char *stdin_path, struct err *e);
/* -- slot.c */
struct slot *slot_find(struct sandbox *s, const char *name);
struct slot *slot_of_exec(struct sandbox *s, uint64_t n);
void slot_credit(struct sandbox *s, uint64_t n, uint32_t bytes);
void slot_began(struct sandbox *s, struct slot *t);
void slot_free_all(struct sandbox *s);
/* -- fscall.c */
void fs_send_waiting(struct sandbox *s);       /* the guest is ready */
void fs_fail_all(struct sandbox *s, int code); /* the guest is gone */
/* -- journal.c */
int journal_open(struct registry *r, struct err *e);
void journal_close(struct registry *r);
#define JOURNAL_VIEW_PREFIX "events-view-"
/* One record: @extra (taken, may be NULL) members are added. @s may be NULL. Failures are logged, never returned: a
 * full disk must not stop work. */
void journal_add(struct registry *r, struct sandbox *s, const struct cfs_who *who, const char *event,
		 struct json_object *extra);
/* The same of something else that belongs to @owner. */
void journal_add_of(struct registry *r, const struct cfs_who *owner, const struct cfs_who *who, const char *event,
		    struct json_object *extra);
int journal_log_open(struct sandbox *s, struct err *e); /* at creation: the log's companion file */
void journal_log_renamed(struct sandbox *s);
void journal_prune(struct registry *r);
/* A line, without its newline, behind a file below @dirfd; one beyond @max becomes "<path>.1" first. */
void journal_append(int dirfd, const char *path, const char *line, uint64_t max);
/* -- profile.c */
struct profile {
	char name[64], bootid[80];
	char base[160]; /* its file below the pager's bases/ */
	int base_fd;	/* the same, read-only; owned */
	uint64_t base_bytes;
};
int profile_open(struct registry *r, const char *name, struct profile *ret,
		 struct err *e); /* -ENOENT with the mending command */
bool profile_exists(struct registry *r, const char *name);
/* -- trial_run.c */
/* Begin the trial unless there was one. Ends with TRIAL_DONE and a wake, now or later; TRIAL_NONE stays while the store
 * has no kernel. */
void trial_begin(struct registry *r);
void trial_end(struct registry *r); /* the daemon ends: no answer is wanted */
/* -- host.c */
uint64_t host_available_mib(void);
int host_disk_free_mib(int fd, uint64_t *ret);

#endif
