/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's side of FUSE for tests: raw requests over a socketpair to a session with the tree over the fake domain.
 * Everything runs in one thread: a call sends, runs the loop until it is idle, and looks for the answer. Numbers and
 * names of opcodes as in <linux/fuse.h>. Every function ends the test (cmocka's fail) when the protocol itself is
 * violated. */
#ifndef CRUCIBLE_TESTS_FUSEWIRE_H
#define CRUCIBLE_TESTS_FUSEWIRE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include "cruciblefs/session.h"
#include "fake_domain.h"

struct fw_answer {
	uint64_t unique;
	int error; /* 0 or -errno */
	size_t len;
	char *data; /* NULL when empty */
};

struct fw {
	struct loop *loop;
	struct registry *reg;
	struct cfs_session *cs;
	int fd;
	uint64_t unique; /* of the latest request */
	uid_t uid;	 /* whose requests they are */
	pid_t pid;
	bool ended;		   /* the session said so */
	struct fw_answer *answers; /* not fetched yet */
	size_t nanswers, cap;
	uint64_t *polls; /* handles that were told by FUSE_NOTIFY_POLL */
	size_t npolls;
	uint32_t init_flags; /* what the session answered to INIT */
	uint32_t max_background;
};

struct fw *fw_new(const struct cfs_limits *limits); /* with the tree; limits may be NULL */
struct fw *fw_new_with(const struct cfs_limits *limits,
		       int (*install)(struct cfs_session *cs, struct err *e)); /* with another root */
struct fw *fw_free(struct fw *w); /* NULL is fine; whatever is open or parked is left to the session */

int fw_setup(void **state); /* for cmocka: *state is a struct fw */
int fw_teardown(void **state);

/* -- raw ------------------------------------------------------------------------------------------------ */
uint64_t fw_send(struct fw *w, uint32_t opcode, uint64_t nodeid, const void *a, size_t alen, const void *b,
		 size_t blen);
void fw_run(struct fw *w);			 /* until idle; takes answers in */
void fw_wait(struct fw *w, int ms);		 /* the same, but waits that long for something to happen */
bool fw_answered(struct fw *w, uint64_t unique); /* keeps it */
/* Fetch an answer: its error, with its data in *ret (freed by the next fw_take; NULL allowed). Fails when it is not
 * there. */
int fw_take(struct fw *w, uint64_t unique, const struct fw_answer **ret);
int fw_call(struct fw *w, uint32_t opcode, uint64_t nodeid, const void *a, size_t alen, const void *b, size_t blen,
	    const struct fw_answer **ret);
uint64_t fw_start_open(struct fw *w, uint64_t nodeid, int flags); /* without waiting for the answer */
uint64_t fw_start_read(struct fw *w, uint64_t nodeid, uint64_t fh, int flags, uint64_t off, uint32_t size);
uint64_t fw_start_write(struct fw *w, uint64_t nodeid, uint64_t fh, int flags, uint64_t off, const void *data,
			size_t len);
void fw_interrupt(struct fw *w, uint64_t unique);
void fw_forget(struct fw *w, uint64_t nodeid, uint64_t n);

/* -- one operation each; 0 or -errno ----------------------------------------------------------------------- */
int fw_lookup(struct fw *w, uint64_t dir, const char *name, struct fuse_entry_out *ret);
int fw_walk(struct fw *w, const char *path,
	    struct fuse_entry_out *ret); /* "run/a/status"; "" is the root; follows no links */
int fw_getattr(struct fw *w, uint64_t nodeid, struct fuse_attr *ret);
int fw_setattr(struct fw *w, uint64_t nodeid, uint32_t valid, uint64_t fh, uint64_t size, uint32_t mode, uint32_t uid);
int fw_readlink(struct fw *w, const char *path, char *buf, size_t cap);
int fw_open(struct fw *w, uint64_t nodeid, int flags, struct fuse_open_out *ret);
int fw_create(struct fw *w, uint64_t dir, const char *name, int flags, mode_t mode, struct fuse_entry_out *ret_e,
	      struct fuse_open_out *ret_o);
/* -1 - n never: the bytes read, or -errno. */
long fw_read(struct fw *w, uint64_t nodeid, uint64_t fh, int flags, uint64_t off, void *buf, uint32_t size);
long fw_write(struct fw *w, uint64_t nodeid, uint64_t fh, int flags, uint64_t off, const void *data, size_t len);
int fw_flush(struct fw *w, uint64_t nodeid, uint64_t fh);
void fw_release(struct fw *w, uint64_t nodeid, uint64_t fh);
int fw_poll(struct fw *w, uint64_t nodeid, uint64_t fh, uint64_t kh, bool notify, uint32_t *ret_events);
int fw_mkdir(struct fw *w, const char *path);
int fw_rmdir(struct fw *w, const char *path);
int fw_unlink(struct fw *w, const char *path);
int fw_symlink(struct fw *w, const char *path, const char *target);
int fw_mknod(struct fw *w, const char *path, mode_t mode);
int fw_rename(struct fw *w, const char *from, const char *to, unsigned flags);
/* The names of a directory, sorted, each followed by a space: ". .. a b ". Types are checked against a lookup of each
 * name. */
int fw_list(struct fw *w, const char *path, char *buf, size_t cap);

/* -- as programs do it --------------------------------------------------------------------------------------- */
/* A whole file, at most cap - 1 bytes and a NUL. Checks that LOOKUP, GETATTR and read agree on the length (streams:
 * when they say so). */
long fw_cat(struct fw *w, const char *path, char *buf, size_t cap);
/* `printf text > path`: open with O_TRUNC (create when absent), one write, flush, release. The first error of open or
 * write. */
int fw_put(struct fw *w, const char *path, const char *text);
int fw_put_bytes(struct fw *w, const char *path, int flags, const void *data, size_t len);

#endif
