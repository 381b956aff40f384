/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of box.h as structs: what the daemon says is parsed here and nowhere else, what the box says is written
 * here. */
#ifndef CRUCIBLE_VMM_BOX_MESSAGE_H
#define CRUCIBLE_VMM_BOX_MESSAGE_H

#include "vmm/box/box.h"
#include "vmm/preload/preload.h"

#define BOX_FREEZE_MS_MAX 10000u /* the agent's own */
#define BOX_EXPORT_MAX	  128u
#define BOX_SNAPSHOT_MAX  40u

struct box_set { /* BOX_SET; each NULL when absent; malloc'd */
	char *name, *env;
};

struct box_msg {
	enum box_type type;
	union {
		struct box_config start;
		struct {
			uint64_t n;
			uint8_t flags;
			uint32_t uid;
			uint64_t accepted_wall_ns;
			uint32_t timeout_max_s; /* 0: none */
		} exec;
		struct {
			uint64_t n;
			bool eof;
			const uint8_t *data; /* borrowed */
			size_t len;
		} in;
		struct {
			uint64_t n;
			enum box_verb verb;
			uint32_t a, b;
		} ctl;
		struct {
			enum box_vm what;
			uint32_t grace_ms;
		} vm;
		struct box_set set;
		struct {
			uint8_t op;
			const uint8_t *data; /* borrowed */
			size_t len;
		} fs;
		struct { /* bytes 0: without a template; else whole pages, and ranges in order inside of them */
			uint64_t bytes;
			uint32_t n;
			struct preload_range ranges[PRELOAD_RANGES_MAX];
			char snapshot[BOX_SNAPSHOT_MAX]; /* whose template; "": none */
		} memory;
		struct {
			bool on;
		} net;
		struct {
			uint64_t bytes; /* whole pages */
		} reclaim;
		struct {
			uint32_t ms; /* 1 to BOX_FREEZE_MS_MAX */
		} freeze;
		struct {
			enum box_hold hold;
			char export_name[BOX_EXPORT_MAX]; /* printable, without quotes or blanks; not empty */
		} load;
	};
};
/* Parse one message of the daemon. -EBADMSG: not one; -EINVAL: a bad configuration (words); -ENOMEM. Thread: any.
 * Fuzzed. */
int box_msg_parse(uint16_t type, const void *data, size_t len, struct box_msg *ret, struct err *e);
void box_msg_fini(struct box_msg *m);

/* BOX_STATE, BOX_PROGRESS, BOX_DONE, BOX_STDIN_CREDIT and BOX_REPLY into @out: 0, -EFBIG, -ENOMEM. */
struct box_done {
	uint64_t n;
	int exit_code;
	const char *signal, *error;
	uint64_t duration_ms, spool_bytes;
};
int box_state_format(struct buf *out, enum box_state s, const char *words, const char *guest);
int box_progress_format(struct buf *out, uint64_t n, bool started, uint64_t stdout_bytes, uint64_t stderr_bytes);
int box_done_format(struct buf *out, const struct box_done *d);
int box_credit_format(struct buf *out, uint64_t n, uint32_t bytes);
int box_reply_format(struct buf *out, int code, const char *words, const void *data, size_t len);

#endif
