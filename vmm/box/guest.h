/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's agent as typed calls. Everything it says is parsed and bounded here (guest_json.c); words and numbers
 * that get out of this interface are the guest's claims, but clean: no control characters, in range. Thread: the
 * loop's; nothing blocks but the reading of a source from disk.
 *
 * States: WAITING (the agent may tell stages) -> GREETED (guest_hello was sent) -> READY (on_ready) -> GONE (on_gone,
 * once). guest_call, guest_exec_*: READY only. READY, also while it is frozen, may be greeted anew. */
#ifndef CRUCIBLE_VMM_BOX_GUEST_H
#define CRUCIBLE_VMM_BOX_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "agent/proto.h"
#include "base/err.h"
#include "base/loop.h"
#include "vmm/box/source.h"

struct guest;

struct guest_identity { /* what HELLO tells the agent; numbers: 0 is none */
	const char *hostname, *instance;
	uint32_t root_mib, cpu_percent, pids;
	uint64_t memory_bytes;
	/* It was restored from a snapshot: its parent's name, and who it is now. NULL: not. */
	const char *clone_parent, *machine_id;
	bool net; /* it has a network */
	/* Restored, but it is nobody yet: another HELLO follows; file operations wait for that. As a clone: its
	 * commands stay frozen, and nothing but that HELLO may be sent. */
	bool rehearsal;
};

struct guest_inherited { /* a command of the machine that was snapshotted, which runs on */
	uint32_t stream;
	uint32_t pid;  /* 0: not told */
	char name[48]; /* guest_exec_req's */
};

struct guest_info {		/* what the agent answered; borrowed until return */
	const char *json;	/* its known members but for those inherited, written anew; less than 2 KiB */
	const char *unenforced; /* comma separated */
	const struct guest_inherited *inherited; /* of a clone */
	size_t ninherited;
};

struct guest_ops { /* from the loop; each may free the guest */
	/* The agent is there and says where the boot stands; also the sign that it will read a HELLO. */
	void (*on_stage)(void *arg, const char *words);
	void (*on_ready)(void *arg, const struct guest_info *info);
	/* Nothing works any more. @reason: -ECONNRESET (a port was closed), -EBADMSG (it broke the protocol), -ENOBUFS
	 * (it does not read its port), -ENOTCONN (it said so). Pending calls ended with -ENOTCONN before; execs get no
	 * further callback. */
	void (*on_gone)(void *arg, int reason, const char *words);
};

/* Takes both descriptors, also on failure. -ENOMEM, those of loop_add. */
int guest_new(struct loop *l, int control_fd, int bulk_fd, const struct guest_ops *ops, void *arg, struct guest **ret);
struct guest *guest_free(
	struct guest *g); /* NULL is fine; execs must be freed first; pending calls are dropped; returns NULL */
/* Begin an epoch: the clock, fresh entropy and @id. -EBUSY: unanswered still, or commands or calls are under way;
 * -EPIPE; -EIO no entropy. */
int guest_hello(struct guest *g, const struct guest_identity *id);
bool guest_ready(const struct guest *g);
/* CLOCK_MONOTONIC of the last frame from the agent's control port: whether it lives. */
uint64_t guest_heard_ns(const struct guest *g);
int guest_ping(struct guest *g);     /* makes a living agent be heard. -ENOTCONN, -ENOBUFS */
int guest_shutdown(struct guest *g); /* commands end, the guest powers off. -ENOTCONN, -ENOBUFS */

/* -- calls with an answer ---------------------------------------------------------------------- */

/* What may wait beyond those in flight (AG_FS_INFLIGHT_MAX): as many as the daemon hands over at once, and a RELEASE
 * for each handle. */
#define GUEST_CALLS_WAITING_MAX	  2048u
#define GUEST_CALLS_WAITING_BYTES (32u * 1024 * 1024)
/* 0 and the answer (borrowed), or -errno: the guest's own, -ETIMEDOUT, -ENOTCONN. Exactly once, never inside the call.
 */
typedef void guest_call_fn(void *arg, int code, const void *data, size_t len);
/* A file operation; @data: payload of AG_FS_REQ; copied; they reach the agent in the order of the calls. May be called
 * before READY: it waits, and its time counts from there. -EBUSY too many; -ENOTCONN; -ENOMEM. */
int guest_fs(struct guest *g, uint8_t op, const void *data, size_t len, uint32_t timeout_ms, guest_call_fn *fn,
	     void *arg);
int guest_sync(struct guest *g, uint32_t timeout_ms, guest_call_fn *fn, void *arg); /* the same; READY only */
/* The network of one that has none yet; the same; data: str words. */
int guest_net(struct guest *g, uint32_t timeout_ms, guest_call_fn *fn, void *arg);
/* How much free memory it can spare; the same; data: u64 bytes. */
int guest_spare(struct guest *g, uint32_t timeout_ms, guest_call_fn *fn, void *arg);
/* Give unused blocks back, drop caches; the same. */
int guest_trim(struct guest *g, uint32_t timeout_ms, guest_call_fn *fn, void *arg);

/* -- quiet, for a snapshot (guest_freeze.c) ------------------------------------------------------ */

/* Freeze all commands and be silent, within @ms; @margin_ms: for the answer. @fn: 0: from now on nothing is under way
 * on either port, and what is sent waits; -ETIMEDOUT: it goes on as before; -ENOTCONN. Never inside the call, once.
 * -ENOTCONN; -EBUSY: under way, or the answer to one that was given up may still come; -ENOMEM. */
int guest_freeze(struct guest *g, uint32_t ms, uint32_t margin_ms, guest_call_fn *fn, void *arg);
bool guest_frozen(const struct guest *g);
/* Go on; a freeze that is under way is given up without a call of its @fn. None: nothing happens. on_gone may be called
 * from here. */
void guest_thaw(struct guest *g);

/* -- commands ---------------------------------------------------------------------------------- */

struct guest_exec;

struct guest_exec_req {		/* borrowed, but for the sources */
	char *const *argv;	/* NULL: a script */
	char *const *env;	/* KEY=VALUE, NULL-ended */
	const char *cwd, *user; /* or NULL */
	const char *name;	/* for the guest's cgroup */
	uint64_t timeout_ns;	/* 0: none */
	bool tty;
	uint16_t rows, cols;
	struct source script; /* taken, also on failure */
	struct source in;     /* the same: standard input, if has_stdin and not live */
	bool has_stdin, live_stdin;
};

struct guest_usage_text {
	char json[512]; /* an object, its members not checked; "" when it was too long */
};

struct guest_exit {
	int exit_code;	 /* 0..255, or -1 */
	char signal[16]; /* "SIGKILL", or "" */
	bool timed_out, oom_killed;
	char error[320];
	uint64_t stdout_bytes, stderr_bytes, duration_ns;
	struct guest_usage_text usage;
};

struct guest_exec_ops {					   /* from the loop; none may free the guest */
	void (*on_started)(void *arg, const char *script); /* script: its path in the guest, or "" */
	/* Output; consumed when it returns. @which: AG_STDOUT or AG_STDERR. */
	void (*on_output)(void *arg, enum ag_which which, const uint8_t *data, size_t len);
	/* The process has ended: its output may still be under way. */
	void (*on_exit)(void *arg, const struct guest_exit *x);
	/* It has ended and all of its output has come: nothing follows. May free the exec. */
	void (*on_end)(void *arg);
	void (*on_stdin_credit)(void *arg, uint32_t bytes); /* live: so much more may be written */
};

/* Open a command. -E2BIG: arguments and environment do not fit into a request, words; -ENOTCONN, -ENOBUFS, -ENOMEM. */
int guest_exec_new(struct guest *g, struct guest_exec_req *req, const struct guest_exec_ops *ops, void *arg,
		   struct guest_exec **ret, struct err *e);
/* One that the guest inherited (@stream of guest_info), from its HELLO on. Its output, its end and a kill are as with
 * others; it takes no input. -ENOMEM. */
int guest_exec_adopt(struct guest *g, uint32_t stream, const struct guest_exec_ops *ops, void *arg,
		     struct guest_exec **ret);
struct guest_exec *guest_exec_free(struct guest_exec *x); /* NULL is fine; tells the agent to forget it; returns NULL */
int guest_exec_kill(struct guest_exec *x);		  /* the whole tree. These: -ENOTCONN, -ENOBUFS */
int guest_exec_signal(struct guest_exec *x, uint32_t signo);
int guest_exec_resize(struct guest_exec *x, uint16_t rows, uint16_t cols);
/* Live standard input. -ENOBUFS beyond the credit (nothing was taken); -EPIPE after eof, or not live; -ENOMEM. */
int guest_exec_stdin(struct guest_exec *x, const void *data, size_t len, bool eof);
bool guest_exec_input_failed(const struct guest_exec *x);   /* a source could not be read: the guest saw an early end */
uint32_t guest_exec_stdin_room(const struct guest_exec *x); /* the credit now; 0 when not live */

#endif
