/* SPDX-License-Identifier: Apache-2.0 */
/* A launcher of the same build with a store, a mount point and a cgroup name of its own, and the test program itself as
 * all that it starts. Failures end the test (cmocka's assertions). */
#ifndef CRUCIBLE_TESTS_LAUNCH_FIX_H
#define CRUCIBLE_TESTS_LAUNCH_FIX_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cruciblefs/launch/launch_priv.h"

#define UID_BASE    0x71000000u
#define DEADLINE_NS 20000000000u
#define UUID_A	    "0f0e0d0c-0b0a-4908-8706-050403020100"
#define UUID_B	    "1f0e0d0c-0b0a-4908-8706-050403020100"

struct exit_seen {
	char uuid[LAUNCH_UUID_LEN + 1];
	enum launch_kind kind;
	int status;
};

struct fix {
	char dir[64], store[96], mnt[96], cgroup[32], preload[96];
	pid_t pid;
	int fd; /* the daemon's end, until launcher_new() */
	struct loop *loop;
	struct launcher *l;
	struct exit_seen exits[64];
	size_t nexits;
	bool gone;
	/* the last answer */
	bool answered;
	int code;
	char words[320];
	uint8_t payload[4096];
	size_t payload_len;
	int answer_fd;
};

/* What main() becomes when it is started as "probe": argv[1] is what to do: sleep, report, serve, exit N, forbidden,
 * connect, forks. */
void fix_probe(int argc, char **argv) __attribute__((noreturn));

int fix_setup(void **state);	/* a store with UUID_A and UUID_B, and a launcher */
int fix_teardown(void **state); /* nothing of them is left: checked */
/* @engine: a program other than this one; NULL. After a stop, with the same store and cgroup name. */
void fix_start_launcher(struct fix *f, const char *engine);
void fix_stop_launcher(struct fix *f);

/* Run the loop until *@flag. */
void fix_until(struct fix *f, const bool *flag);
/* One request with its answer in f->code, words, payload, answer_fd; returns the code. */
int fix_call(struct fix *f, enum launch_type type, const struct buf *b, const int *fds, size_t nfds);
int fix_call_str(struct fix *f, enum launch_type type, const char *s);
int fix_call_slot(struct fix *f, enum launch_type type, uint32_t slot);
launcher_fn fix_on_answer; /* for a call of the test's own: fills those and sets f->answered */
uint32_t fix_new_slot(struct fix *f);
struct launch_spawn fix_spawn_of(enum launch_kind kind, uint32_t slot, const char *uuid, const char *what);
/* @unenforced: 64 bytes or NULL. */
int fix_spawn(struct fix *f, const struct launch_spawn *s, const int *fds, size_t nfds, pid_t *ret_pid,
	      char *unenforced);
/* What a probe said: whether there is that line; how many begin so; what holds for all that is started; its pid's
 * oom_score_adj as the kernel writes it. */
bool fix_says(const char *text, const char *line);
unsigned int fix_count_lines(const char *text, const char *start);
void fix_common_checks(const char *text);
void fix_oom_adj(pid_t pid, char out[16]);
#define assert_says(text, line)                                         \
	do {                                                            \
		if (!fix_says(text, line))                              \
			fail_msg("no line \"%s\" in:\n%s", line, text); \
	} while (0)

/* Start a probe and return what it says up to the line "end". */
pid_t fix_spawn_reporting(struct fix *f, const struct launch_spawn *s, char *out, size_t cap);

#endif
