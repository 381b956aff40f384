/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's objects, as the files of the tree see them: the registry of sandboxes, one sandbox, its commands.
 * Everything runs on the loop's thread and nothing blocks (small files of the store are read and written in place).
 * Functions that change something take a struct cfs_who for ownership and the log, and fill a struct err whose words
 * also become the sandbox's `error` text (sandbox_fail() is called inside; callers need not).
 *
 * States (the words of `status`) and what is allowed:
 *   configured  attributes may be written; exec, ctl start, fs           -> starting, gone
 *   starting    exec (queued), ctl stop                                  -> ready, failed, stopped, gone
 *   ready       exec, ctl pause stop, fs                                 -> running, paused, stopped, failed, gone
 *   running     as ready; ctl kill signal                                -> ready, paused, stopped, failed, gone
 *   paused      exec (queued), ctl resume stop; fs: -EBUSY               -> ready, running, stopped, failed, gone
 *   stopped     attributes; exec and ctl start boot it again; fs: -ENOTCONN -> starting, gone
 *   failed      as stopped; `error` says why                             -> starting, gone
 * Disk and records stay over stop and start.
 */
#ifndef CRUCIBLE_SANDBOX_H
#define CRUCIBLE_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/buf.h"
#include "base/err.h"
#include "base/loop.h"
#include "base/waitq.h"
#include "base/wire.h"

#define CFS_NAME_MAX	63
#define CFS_SCRATCH_MAX (1024u * 1024) /* bytes of scratch files of one sandbox together */

struct view; /* view.h */

struct cfs_who { /* of a FUSE request */
	uid_t uid;
	gid_t gid;
	struct view *view; /* through which it came, borrowed; NULL: the whole tree */
};

/* 0; -EINVAL other characters or empty; -ENAMETOOLONG. */
int cfs_name_check(const char *name);

enum sandbox_status {
	SBX_CONFIGURED,
	SBX_STARTING,
	SBX_READY,
	SBX_RUNNING,
	SBX_PAUSED,
	SBX_STOPPED,
	SBX_FAILED,
	SBX_STATUS_COUNT
};
const char *sandbox_status_name(enum sandbox_status s);

struct registry;
struct sandbox;
struct execution;

/* -- registry ------------------------------------------------------------------------------------------ */

/* By its name in @view (NULL: in the whole tree's run/). Borrowed; NULL when there is none. */
struct sandbox *registry_find(struct registry *r, const struct view *view, const char *name);
/* Those of @view in order of creation: NULL starts, NULL ends. Not across changes of the registry. */
struct sandbox *registry_next(struct registry *r, const struct view *view, struct sandbox *after);
size_t registry_count(struct registry *r);
/* Make a sandbox, `configured`, with the defaults as far as the policies of @who permit. Errors: of cfs_name_check;
 * -EPERM a policy forbids it, or every profile; -ESTALE the view is dead; -EEXIST; -EDQUOT too many (by a policy, of
 * the uid, or in all); -ENOSPC below the disk floor; -EIO. */
int registry_create(struct registry *r, const char *name, const struct cfs_who *who, struct sandbox **ret,
		    struct err *e);
/* Gone from the tree at once; what runs is ended and removed behind. Its log stays. Waiters are woken, then the object
 * lives until its last ref. */
void registry_destroy(struct registry *r, struct sandbox *s, const struct cfs_who *who, const char *why);
/* The same, as rmdir: if @who may. Errors: -EPERM, -ESTALE, -ENOENT (registry_may(), view.h). */
int registry_remove(struct registry *r, struct sandbox *s, const struct cfs_who *who, struct err *e);
int registry_rename(struct registry *r, struct sandbox *s, const char *to, const struct cfs_who *who,
		    struct err *e); /* -EEXIST, name errors */

/* -- one sandbox --------------------------------------------------------------------------------------- */

struct sandbox *sandbox_ref(struct sandbox *s);
struct sandbox *sandbox_unref(struct sandbox *s); /* NULL is fine; returns NULL */
bool sandbox_gone(const struct sandbox *s); /* destroyed: every use is ENOENT (or ESTALE under open descriptors) */
const char *sandbox_name(const struct sandbox *s);
const char *sandbox_uuid(const struct sandbox *s);
struct cfs_who sandbox_owner(const struct sandbox *s);
enum sandbox_status sandbox_status(const struct sandbox *s);
const char *sandbox_error(const struct sandbox *s);   /* "" when there is none; no newline */
uint64_t sandbox_created_ns(const struct sandbox *s); /* wall clock */
uint64_t sandbox_changed_ns(
	const struct sandbox *s); /* wall clock of the last change of status, error or attributes: for mtime */
/* Woken at every change of status, of a command's state, of output, of the log: for parked readers and poll. Never
 * freed before the object. */
struct waitq *sandbox_waitq(struct sandbox *s);
int sandbox_dirfd(const struct sandbox *s); /* O_PATH of <store>/sandboxes/<uuid>; borrowed */

/* Record a failure in words: the text of `error`, a line of the log. */
void sandbox_fail(struct sandbox *s, const struct cfs_who *who, const struct err *e);

int sandbox_info_json(struct sandbox *s, struct buf *out); /* with the newline */
int sandbox_usage_json(struct sandbox *s, struct buf *out);

enum sandbox_attr {
	ATTR_FROM,
	ATTR_ENV,
	ATTR_VCPUS,
	ATTR_MEMORY_MIB,
	ATTR_DISK_MIB,
	ATTR_CPU_PERCENT,
	ATTR_IO_MBPS,
	ATTR_TIMEOUT_S,
	ATTR_EXEC_TIMEOUT_S,
	ATTR_OUTPUT_MIB,
	ATTR_SPOOL_MIB,
	ATTR_PIDS,
	ATTR_COUNT
};
/* One value and a newline (ENV: lines). */
int sandbox_attr_show(struct sandbox *s, enum sandbox_attr a, struct buf *out);
/* Set from a trimmed text. ENV: the whole list, lines. Errors: -EINVAL with words and the permitted range; -EBUSY after
 * the start (TIMEOUT_S excepted). */
int sandbox_attr_store(struct sandbox *s, enum sandbox_attr a, const char *text, size_t len, const struct cfs_who *who,
		       struct err *e);
/* The same names for `defaults/` (root only: -EPERM else; kept in the store). */
int registry_default_show(struct registry *r, enum sandbox_attr a, struct buf *out);
int registry_default_store(struct registry *r, enum sandbox_attr a, const char *text, size_t len,
			   const struct cfs_who *who, struct err *e);
const char *sandbox_attr_name(enum sandbox_attr a); /* "memory_mib" … */

/* One line of `ctl`: start stop kill kill-inherited "signal NAME" pause resume "extend SECONDS". Returns at once; the
 * work goes on behind. -EINVAL unknown word, -EBUSY not in this state, -ENOENT no command runs. */
int sandbox_ctl(struct sandbox *s, const char *line, const struct cfs_who *who, struct err *e);
extern const char sandbox_ctl_verbs[]; /* for reading `ctl`: one a line */

/* -- the network --------------------------------------------------------------------------------------- */

/* `net/allow`, `net/ports`: one rule, or port, a line (netpolicy/policy.h says what they are). Setting: the whole list,
 * or nothing of it. Lines of net/allow: "RULE" and "+RULE" add, "-RULE" removes what the lines before added; '#' begins
 * a remark. At any time; of a machine that runs, what is written next waits until it is so. -EINVAL with words, -E2BIG;
 * -EPERM, -EDQUOT net_allow_max; ports: -EEXIST twice in the list, -EADDRINUSE, -EACCES, -EADDRNOTAVAIL; those of the
 * store. */
int sandbox_net_allow_show(struct sandbox *s, struct buf *out);
int sandbox_net_allow_store(struct sandbox *s, const char *text, size_t len, const struct cfs_who *who, struct err *e);
int sandbox_net_ports_show(struct sandbox *s, struct buf *out);
int sandbox_net_ports_store(struct sandbox *s, const char *text, size_t len, const struct cfs_who *who, struct err *e);
/* Questions and connections, JSON lines; the caller closes. The sandbox's queue is woken when it has grown. */
int sandbox_net_log_open(struct sandbox *s, int *ret_fd);

/* -- commands -------------------------------------------------------------------------------------------- */

enum exec_state { EXEC_QUEUED, EXEC_RUNNING, EXEC_DONE };

/* An upload: what an open `cmd`, `stdin` or `import` gathers until its last close. Memory up to 64 KiB, then a file of
 * the store. */
struct upload;
enum upload_kind { UPLOAD_CMD, UPLOAD_STDIN, UPLOAD_IMPORT };
/* @slot: name of an exec slot, or NULL for the queue. -EMFILE: too many open of this uid; -ENOENT no such slot. */
int upload_new(struct sandbox *s, enum upload_kind kind, const char *slot, const struct cfs_who *who,
	       struct upload **ret, struct err *e);
/* Append. -EINVAL a NUL byte (cmd); -EFBIG over 8 MiB (cmd), over disk_mib (stdin, import); -EBUSY the queue is full;
 * -ENOSPC. */
int upload_write(struct upload *u, const void *data, size_t len, struct err *e);
uint64_t upload_size(const struct upload *u);
/* The last close. Nothing written: nothing happens. CMD: becomes a command with a number (also a wrong one: it ends at
 * once with its record); STDIN: kept for the next command; IMPORT: becomes a command that unpacks. Frees @u always. */
void upload_commit(struct upload *u);
void upload_abort(struct upload *u); /* NULL is fine */

uint64_t sandbox_latest_exec(const struct sandbox *s);		      /* of the queue; 0: none yet */
int sandbox_cmd_text(struct sandbox *s, uint64_t n, struct buf *out); /* the command as written */
struct execution *sandbox_exec(struct sandbox *s, uint64_t n);	      /* borrowed; NULL unknown or no longer kept */
struct execution *sandbox_exec_next(struct sandbox *s, struct execution *after); /* by number; NULL starts, NULL ends */
uint64_t exec_number(const struct execution *x);
enum exec_state exec_state(const struct execution *x);
const char *exec_status_name(const struct execution *x); /* queued running done */
uint64_t exec_changed_ns(const struct execution *x);	 /* wall clock; of result.json once done */
/* The record's text. -ENOENT before the end. */
int exec_record(struct sandbox *s, struct execution *x, struct buf *out);
/* A descriptor for reading the command (0), `stdout` (1) or `stderr` (2): a regular file, checked; output before its
 * first byte: an empty one. Caller closes. */
int exec_open_output(struct sandbox *s, struct execution *x, int which, int *ret_fd);
uint64_t exec_output_bytes(struct sandbox *s, struct execution *x, int which); /* held in the file now */

/* Slots: mkdir exec/NAME. A name of digits only is -EINVAL; -EEXIST; -EDQUOT beyond 256. */
int slot_create(struct sandbox *s, const char *name, const struct cfs_who *who, struct err *e);
int slot_remove(struct sandbox *s, const char *name, const struct cfs_who *who,
		struct err *e);				     /* kills what runs in it; -ENOENT */
const char *slot_next(struct sandbox *s, const char *after); /* names; NULL starts, NULL ends; borrowed */
bool slot_exists(struct sandbox *s, const char *name);
uint64_t slot_latest_exec(struct sandbox *s, const char *name); /* 0: none yet */
/* A line of a slot's ctl: eof, "resize ROWS COLS", "signal NAME", kill. */
int slot_ctl(struct sandbox *s, const char *name, const char *line, const struct cfs_who *who, struct err *e);
/* Live standard input of the command that runs (or will run next) in the slot. Takes what fits now, at least one byte,
 * into *ret_taken; -EAGAIN none fits: wait on the sandbox's waitq; -EPIPE the command has ended; before any command
 * bytes are kept for the first (to the window). */
int slot_stdin(struct sandbox *s, const char *name, const void *data, size_t len, size_t *ret_taken, struct err *e);
/* Bytes that slot_stdin() would take now, for poll(2); 0: it would say -EAGAIN. SIZE_MAX when it would say anything
 * else. */
size_t slot_stdin_room(struct sandbox *s, const char *name);

/* -- lease ------------------------------------------------------------------------------------------------ */
void sandbox_lease_open(struct sandbox *s);
void sandbox_lease_close(struct sandbox *s); /* the last one destroys the sandbox */

/* -- the guest's files ------------------------------------------------------------------------------------ */
struct fs_call;
/* The answer: @code 0 or -errno; @r: what follows the code in AG_FS_REP (agent/proto.h), untrusted, valid until return.
 * Exactly once, from the loop, never inside sandbox_fs(). */
typedef void fs_done_fn(void *arg, int code, struct wire_rd *r);
/* One file operation (enum ag_fs_op @op, payload as in agent/proto.h). Starts a configured sandbox; waits while it
 * boots. Deadline 5 s once the guest is ready (then -ETIMEDOUT). At once: -EBUSY paused, or too many outstanding;
 * -ENOTCONN stopped, failed; -ENOENT gone; -ENOMEM. */
int sandbox_fs(struct sandbox *s, uint8_t op, const void *payload, size_t len, const struct cfs_who *who,
	       fs_done_fn *fn, void *arg, struct fs_call **ret);
void fs_call_cancel(struct fs_call *c); /* the answer is not wanted: @fn will not be called (release handles of late
					   opens is done inside) */
/* Grows whenever handles of the guest become invalid (restart): a handle of an older number is -ESTALE. */
uint64_t sandbox_fs_epoch(const struct sandbox *s);

/* -- what lasts ------------------------------------------------------------------------------------------- */
/* Journals are files of JSON lines in the store; these open one for reading as @who may see it. Caller closes. */
int journal_open_events(struct registry *r, const struct cfs_who *who, int *ret_fd);
int journal_open_log(struct registry *r, const char *uuid, const struct cfs_who *who,
		     int *ret_fd); /* -ENOENT, -EACCES */
struct waitq *journal_waitq(struct registry *r);
/* logs/: the uuids (with owners) that have a log, and that @who may know of (NULL: all): in a view those of what was
 * made through it; outside all that were not made through one, and what else is the caller's own; to root all. @name is
 * "" where it is none of the caller's name space. Calls @fn for each; stops when it returns false. */
void journal_each_log(struct registry *r, const struct cfs_who *who,
		      bool (*fn)(void *arg, const char *uuid, uid_t owner, const char *name, uint64_t changed_ns),
		      void *arg);

/* In a view: of what was made through it. */
int registry_health_json(struct registry *r, const struct cfs_who *who, struct buf *out);
int registry_metrics(struct registry *r, const struct cfs_who *who, struct buf *out);
int registry_policy_json(struct registry *r, const struct cfs_who *who, struct buf *out);
/* Profiles of the store: names (NULL starts, NULL ends), and info.json's text. */
int profile_list(struct registry *r, bool (*fn)(void *arg, const char *name, uint64_t changed_ns), void *arg);
int profile_info_json(struct registry *r, const char *name, struct buf *out, uint64_t *ret_changed_ns); /* -ENOENT */
int sandbox_console_open(struct sandbox *s, int *ret_fd); /* an empty file before the first boot */

#endif
