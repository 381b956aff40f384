/* SPDX-License-Identifier: Apache-2.0 */
/* The host's side of the wire for tests: starts the real agent on two socketpairs, below a directory of its own, and
 * speaks frames to it. Every wait has a limit; what is late fails the test. */
#ifndef TEST_AGENT_HARNESS_H
#define TEST_AGENT_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
/* */
#include <cmocka.h>
#include <json-c/json.h>

#include "agent/proto.h"
#include "base/buf.h"
#include "base/wire.h"

#define PATIENCE_MS 20000
#define STREAMS_MAX 64

enum { CONTROL, BULK };

struct port {
	int fd;
	uint32_t seq_out, seq_in;
	struct buf in, out;
};

/* What came for one exec stream. */
struct cmd {
	uint32_t stream; /* 0: free */
	struct buf out, err;
	uint64_t stdin_credit, script_credit; /* bytes that may be sent */
	uint64_t unreturned[2];
	bool keep_credit; /* a slow reader: give none back */
	bool started;
	char script[256];	  /* its path, of AG_EXEC_STARTED */
	struct json_object *exit; /* of AG_EXIT */
};

struct fsrep {
	uint32_t id;
	uint8_t op;
	int code;
	struct buf data; /* behind the code */
};

struct host {
	pid_t pid;
	char root[160], cgroup[256]; /* cgroup: "" when none can be made */
	struct port port[2];
	uint32_t next_stream, next_fs;
	struct cmd cmd[STREAMS_MAX];
	struct fsrep fs[AG_FS_INFLIGHT_MAX];
	size_t nfs;
	struct json_object *hello;
	struct buf bye;
	unsigned pongs, synced, spares;
	uint8_t spare_is[12]; /* the last one's payload */
	bool pumping;
	bool stale;	    /* frames of the older epoch may still come on bulk */
	bool freezing;	    /* FREEZE was sent, and nothing since */
	unsigned frozen[2]; /* FROZEN frames that came since then, on each port */
	int frozen_code;
	bool silent;  /* FROZEN has come on both: whatever comes now fails the test */
	bool cloning; /* HELLO with "clone" was sent out of silence: the first frames must be the new epoch's */
};

/* cmocka set-up and tear-down of one test: *state is the host, with HELLO exchanged. The tear-down checks that the
 * agent ends by itself with exit code 0 when its ports close, and that nothing is left of what it made. */
int agent_setup(void **state);
int agent_setup_without_cgroup(void **state);
int agent_teardown(void **state);
/* With a directory of plain files in place of a cgroup: what is to be frozen is frozen when the test says so, by
 * fake_frozen(). No commands can be run. */
int agent_setup_fake_cgroup(void **state);
void fake_frozen(struct host *h, bool frozen);
/* Set-up without HELLO. */
int agent_setup_silent(void **state);
void host_hello(struct host *h, uint64_t epoch); /* send it, wait for the answer */
/* FREEZE, and its answer: 0 with all quiet, or -ETIMEDOUT. */
int host_freeze(struct host *h, uint32_t ms);
void host_thaw(struct host *h);
/* HELLO with "clone", after host_freeze(). Commands stay: what they print is counted anew. */
void host_clone(struct host *h, uint64_t epoch, const char *machine_id);
void host_clone_send(struct host *h, uint64_t epoch, const char *members); /* only send it; JSON members of HELLO */
void host_clone_wait(struct host *h);
#define CLONE_FORK "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
void host_forget(struct host *h); /* all commands: their epoch is over */

/* The cause of a skip (a static text); a failure when CRUCIBLE_MUST_RUN=1. Does not return. */
void skip_because(const char *cause);
/* What main() returns: 1, 77 with the last cause when some were skipped, 0. */
int tests_end(int failed);

void host_send(struct host *h, int port, uint8_t type, uint8_t flags, uint32_t stream, const void *data, size_t len);
void host_send_raw(struct host *h, int port, const void *data, size_t len);
/* Take frames until @done(arg) or PATIENCE_MS are over (fails). */
void host_until(struct host *h, bool (*done)(struct host *h, void *arg), void *arg);
/* Take what is there, for at most @ms; for tests of what must not come. */
void host_pump(struct host *h, int ms);

/* Commands. The JSON is that of AG_EXEC. */
struct cmd *cmd_open(struct host *h, const char *json_fmt, ...) __attribute__((format(printf, 2, 3)));
struct cmd *cmd_script(struct host *h, const char *json_members, const char *script);
void cmd_write(struct host *h, struct cmd *c, enum ag_which which, const void *data, size_t len,
	       bool eof);			    /* obeys credit */
void cmd_wait(struct host *h, struct cmd *c);	    /* EXIT and all the bytes it counts */
struct cmd *sh(struct host *h, const char *script); /* run and wait */
int64_t cmd_int(const struct cmd *c, const char *key);
bool cmd_bool(const struct cmd *c, const char *key);
const char *cmd_str(const struct cmd *c, const char *key);
const char *cmd_out(struct cmd *c); /* text */
const char *cmd_err(struct cmd *c);

/* File requests: @args was filled by wire_put_*; it is emptied. */
struct fsrep *fs_call(struct host *h, uint8_t op, struct buf *args);
uint32_t fs_send(struct host *h, uint8_t op, struct buf *args);
struct fsrep *fs_wait(struct host *h, uint32_t id);
void put_args(struct buf *b, const char *fmt, ...); /* s: string, u: u32, U: u64, b: u8, B: data, len */

int open_fds(pid_t pid);	   /* how many descriptors it has */
long resident_kib(pid_t pid);	   /* anonymous memory */
bool memory_can_be_measured(void); /* not under a sanitizer, which needs its own */

#endif
