/* SPDX-License-Identifier: Apache-2.0 */
/* A machine without crucible around it: an engine with arguments from a file, and the guest's agent spoken to over its
 * ports. Thread: one. All calls block, at most a minute. */
#ifndef CRUCIBLE_TOOLS_BENCH_BARE_H
#define CRUCIBLE_TOOLS_BENCH_BARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define BARE_ARGS_MAX 256

/* What a folder tells:
 *   argv      arguments, each ended by NUL; the program first
 *   disk.new  a disk that is copied for each start; without it `disk` is used as it is, again and again
 *   state     where the machine goes on, or not there
 * The descriptors of the machine: 3 monitor, 4 control, 5 bulk, 6 console, 7 its disk, 8 state. */
struct bare_kind {
	const char *dir; /* borrowed for ever */
	char *text;
	char *argv[BARE_ARGS_MAX + 1];
	int disk_new, disk, state; /* -1: not there */
	uint64_t ram_bytes;	   /* of -m */
	bool shared;		   /* the state is without the RAM: -incoming defer, and the monitor is told */
};

enum bare_port { BARE_MONITOR, BARE_CONTROL, BARE_BULK, BARE_PORT_COUNT };

struct bare {
	pid_t pid; /* 0: none */
	int port[BARE_PORT_COUNT];
	int disk;			  /* a copy, open; -1: the kind's own */
	uint32_t seq[BARE_PORT_COUNT];	  /* of our next frame */
	uint32_t stream;		  /* of the last script */
	uint8_t in[96 * 1024], said[256]; /* control; what a monitor's line begins with */
	size_t in_len;
};

int bare_kind_open(const char *dir, struct bare_kind *ret, struct err *e);
void bare_kind_close(struct bare_kind *k);

/* The copy of the disk, so that it is not timed. */
int bare_prepare(const struct bare_kind *k, struct bare *b, struct err *e);
int bare_start(const struct bare_kind *k, struct bare *b, struct err *e);
void bare_end(struct bare *b); /* kills it; also for one that was never started */

/* Until the agent has said anything, or (@words) that. */
int bare_hear_stage(struct bare *b, const char *words, struct err *e);
/* A new epoch. Sent at once; the machine need not be there yet. */
int bare_say_hello(struct bare *b, struct err *e);
int bare_hear_hello(struct bare *b, struct err *e);
/* A shell script to its end. -EIO when its exit code is not 0. */
int bare_script(struct bare *b, const char *text, struct err *e);
/* A command of the monitor and its answer (one line of JSON; @cap bytes). @fd: goes along, or -1. */
int bare_monitor(struct bare *b, const char *json, int fd, char *ret, size_t cap, struct err *e);

#endif
