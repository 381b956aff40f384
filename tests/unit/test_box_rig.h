/* SPDX-License-Identifier: Apache-2.0 */
/* A whole box between fakes, on one loop: the daemon, the monitor, the agent and the engine's process are this file;
 * the box is the real code, linked in or as the real program. Each fake does the right thing until a test tells it not
 * to. */
#ifndef CRUCIBLE_TESTS_BOX_RIG_H
#define CRUCIBLE_TESTS_BOX_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#include "agent/proto.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/msg.h"
#include "vmm/box/box_core.h"
#include "vmm/preload/preload.h"

#define RIG_WAIT_NS (20 * 1000000000ull) /* far beyond anything that works */
/* Run the loop until @cond holds; fail when it never does. */
#define UNTIL(r, cond)                                                           \
	do {                                                                     \
		uint64_t until_end_ = now_ns() + RIG_WAIT_NS;                    \
		while (!(cond) && now_ns() < until_end_)                         \
			assert_int_equal(loop_once((r)->loop, 20), 0);           \
		if (!(cond))                                                     \
			fail_msg("%s:%d: never: %s", __FILE__, __LINE__, #cond); \
	} while (0)

struct rig;

struct fake_exec { /* a command, as the agent knows it */
	struct fake_exec *next;
	struct rig *rig;
	uint32_t stream;
	struct buf json, script, in; /* what came */
	bool whole;		     /* the JSON is */
	bool script_eof, in_eof, begun, exited;
	uint32_t kills, last_signal;
	uint16_t rows, cols;
	uint64_t flood[2]; /* bytes of stdout and stderr that are still to be printed */
	uint32_t credit[2];
	uint64_t sent[2];
	char exit_json[600]; /* sent when all is printed; "" none */
};

struct heard { /* a message from the box */
	uint16_t type;
	uint32_t id;
	uint8_t *data;
	size_t len;
	int fds[4];
	size_t nfds;
};

enum rig_op { OP_PAUSE, OP_RESUME, OP_SAVE, OP_ASSIGN, OP_LOAD, OP_BALLOON, OP_COUNT };
#define RIG_MEM_BASE  0x7f0000000000ull
#define RIG_MEM_BYTES (256ull << 20)
#define RIG_SNAPSHOT  "a1e6e9a0-3c52-4b8e-8a58-0a6f0f3d9c11"

struct rig {
	uint32_t timeout_max_s; /* of EXEC; 0: none */
	struct loop *loop;
	char dir[200];
	int dirfd;
	struct box_tuning tuning;
	struct box_config config;

	/* the box: one of the two */
	struct box *box;
	pid_t pid;
	bool over;
	char over_words[600];

	/* the daemon */
	struct msgconn *daemon;
	int listener;
	loop_id listener_src;
	uint32_t last_id;
	uint64_t last_n;
	struct heard *heard;
	size_t nheard, heard_cap;
	bool daemon_gone;
	int state; /* of the last BOX_STATE; -1 */
	char state_words[600];

	/* the monitor */
	int mon;
	loop_id mon_src;
	char mon_in[8192];
	size_t mon_len;
	bool mon_silent; /* takes commands, answers nothing */
	unsigned int stops, conts, quits;

	/* the agent */
	int port[2];
	loop_id port_src[2];
	uint8_t *in[2];
	size_t in_len[2];
	struct buf out[2]; /* what the box has not read yet */
	uint32_t seq[2];
	int hellos;
	struct buf hello; /* the host's */
	bool deaf;	  /* stopped: reads nothing */
	bool obeys;	  /* kills and shutdowns have their effect */
	bool gives_credit;
	unsigned int pings, shutdowns, syncs;
	struct fake_exec *execs;
	size_t nexecs;					     /* ever */
	void (*on_exec)(struct rig *r, struct fake_exec *x); /* its script is whole, or it has an argv */
	void (*on_fs)(struct rig *r, const struct ag_frame *f);
	struct buf fs_ops; /* the operations that came, one byte each */

	bool freeze_fails, freeze_silent; /* FREEZE: says so; says nothing */
	bool frozen;			  /* and nothing but THAW or HELLO may come */
	bool hello_silent, ping_silent, rehearsal_silent;
	unsigned int trims, thaws;
	uint64_t spare;	   /* of its answer to SPARE */
	int spare_code;	   /* the same */
	bool spare_silent; /* it does not answer; the same of SYNC: sync_silent */
	bool sync_silent;
	const char *inherited; /* of its answer to a HELLO with "clone"; NULL none */

	/* the engine behind engine.h: test_box_rig_engine.c; only with rig_use_fake_engine() */
	const struct engine_ops *engine_ops;
	struct engine *engine;
	bool generic, engine_late;			   /* late: rig_engine_up() says when */
	int op_refuse[OP_COUNT];			   /* what the call returns */
	int op_fail[OP_COUNT];				   /* how it ends */
	bool op_hang[OP_COUNT];				   /* until rig_engine_answers(), rig_balloon_answers() */
	void (*on_balloon)(struct rig *r, uint64_t bytes); /* the guest is to have @bytes */
	unsigned int ops[OP_COUNT];
	char disk[130], loaded[64];
	struct buf trace; /* what happened, in order: "freeze pause save " … */

	/* its preload library */
	int mem;
	loop_id mem_src;
	bool mem_silent, mem_no_uffd, mem_had_template, mem_lost;
	int mem_code;
	unsigned int mem_orders;
	struct preload_order mem_order;
	uint64_t mem_base; /* RIG_MEM_BASE */
	int mem_fds[3], template_fd, state_fd;

	/* the engine's process */
	int console;
	int exit_fd; /* an eventfd in place of a pidfd; or -1 */
	pid_t engine_pid;
};

/* -- life -------------------------------------------------------------------------------------- */

/* Ready to be changed, not begun. @program: the real one instead of the library. */
struct rig *rig_new(bool program);
void rig_begin(struct rig *r); /* makes the box, sends START, waits for its HELLO */
void rig_boot(struct rig *r);  /* and until it is ready */
struct rig *rig_ready(void);   /* new, begun, booted; the library */
void rig_free(struct rig *r);
void rig_engine_dies(struct rig *r);

void rig_send_start(struct rig *r);

/* -- the engine -------------------------------------------------------------------------------- */

extern const struct engine_ops fake_engine_ops;
void rig_use_fake_engine(struct rig *r);
void rig_engine_up(struct rig *r);
void rig_engine_says(struct rig *r, enum engine_event ev, const char *detail);
void rig_engine_answers(struct rig *r); /* what hangs */
void rig_balloon_answers(struct rig *r);
bool rig_engine_runs(const struct rig *r);
void rig_mem_answers(struct rig *r); /* the order that was kept waiting */
uint32_t rig_request_fd(struct rig *r, enum box_type type, const void *data, size_t len, int fd);
uint32_t rig_ask_memory(struct rig *r, bool with_template);
uint32_t rig_ask_freeze(struct rig *r, uint32_t ms);
uint32_t rig_ask_load(struct rig *r, enum box_hold hold);
struct heard *rig_heard_reply(struct rig *r, uint32_t id); /* waits */
bool heard_fd_is(const struct heard *h, size_t nth, int fd);
bool rig_event(const struct rig *r, const char *part); /* a BOX_EVENT that holds it came */
void rig_trace(struct rig *r, const char *word);
void rig_traced(struct rig *r, const char *want); /* and forget it */

/* -- the daemon -------------------------------------------------------------------------------- */

void rig_send(struct rig *r, enum box_type type, uint32_t id, const void *data, size_t len);
uint32_t rig_request(struct rig *r, enum box_type type, const void *data, size_t len); /* its id */
/* Wait for the answer and return its code; @ret_words and @ret_data (behind the words) may be NULL; borrowed. */
int rig_reply(struct rig *r, uint32_t id, const char **ret_words, struct wire_rd *ret_data);
int rig_vm(struct rig *r, enum box_vm what, uint32_t grace_ms); /* request and its answer */
int rig_ctl(struct rig *r, uint64_t n, enum box_verb verb, uint32_t a, uint32_t b);
uint64_t rig_put(struct rig *r, const void *cmd, size_t len); /* the next number, its folder and its cmd */
void rig_put_stdin(struct rig *r, uint64_t n, const void *data, size_t len);
int rig_accept(struct rig *r, uint64_t n, uint8_t flags); /* EXEC and its answer */
uint64_t rig_exec(struct rig *r, const char *cmd);	  /* put and accepted */
struct heard *rig_find(struct rig *r, uint16_t type,
		       uint64_t n); /* the last message of a type that begins with @n; NULL none yet */
size_t rig_count(const struct rig *r, uint16_t type);
void rig_done(struct rig *r, uint64_t n);		   /* wait for its BOX_DONE */
struct json_object *rig_record(struct rig *r, uint64_t n); /* caller puts */
void rig_daemon_leaves(struct rig *r);			   /* closes; listens at the socket */
void rig_daemon_back(struct rig *r);			   /* until the box has connected */

/* What a record says: fails unless it does. */
void record_int(struct rig *r, uint64_t n, const char *key, int64_t want);
void record_true(struct rig *r, uint64_t n, const char *key, bool want);
void record_text(struct rig *r, uint64_t n, const char *key, const char *want);
void record_holds(struct rig *r, uint64_t n, const char *key, const char *part);

/* -- the agent --------------------------------------------------------------------------------- */

void agent_frame(struct rig *r, int port, uint8_t type, uint8_t flags, uint32_t stream, const void *data, size_t len);
void agent_raw(struct rig *r, int port, const void *data, size_t len);
void rig_listen(struct rig *r);			      /* after it was deaf */
void agent_frozen(struct rig *r, int port, int code); /* FROZEN */
void agent_stage(struct rig *r, const char *text);
struct fake_exec *agent_exec(struct rig *r, size_t nth); /* the nth command that came, if it still lives */
void exec_started(struct fake_exec *x);
void exec_print(struct fake_exec *x, enum ag_which which, const char *text); /* within the credit, checked */
void exec_flood(struct fake_exec *x, enum ag_which which, uint64_t bytes);   /* 'x', as the credit comes */
void exec_exit(struct fake_exec *x, int code);				     /* once all is printed */
void exec_killed(struct fake_exec *x, const char *signal, const char *more); /* more: further members of the JSON */
bool exec_json_has(const struct fake_exec *x, const char *part);
/* An on_exec: prints the script (or "argv") and ends with 0. */
void run_at_once(struct rig *r, struct fake_exec *x);
void monitor_says(struct rig *r, const char *line);
/* Innards: test_box_rig_agent.c for test_box_rig.c. */
#define RIG_IN_CAP (4 * (AG_HEADER_LEN + AG_PAYLOAD_MAX))
void rig_on_monitor(void *arg, uint32_t events);
void rig_on_control(void *arg, uint32_t events);
void rig_on_bulk(void *arg, uint32_t events);
void rig_on_memory(void *arg, uint32_t events);
void rig_make_files(struct rig *r);
void rig_close_files(struct rig *r);
void rig_exec_free(struct rig *r, struct fake_exec *x);
/* Descriptors open in this process. */
unsigned int open_fds(void);

#endif
