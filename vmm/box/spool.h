/* SPDX-License-Identifier: Apache-2.0 */
/* The output of commands on disk: exec/<n>/stdout and stderr below the sandbox's folder. Bounded thrice: bytes of one
 * file, bytes of all commands together (then the oldest finished ones are removed, folder and all), and the number of
 * finished ones. Thread: the loop's. Blocks on the disk: writes go to the page cache, nothing is fsync'd. */
#ifndef CRUCIBLE_VMM_BOX_SPOOL_H
#define CRUCIBLE_VMM_BOX_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

enum spool_which { SPOOL_STDOUT, SPOOL_STDERR, SPOOL_WHICH_COUNT };

struct spool;
struct spool_file {	/* one stream of one command */
	int fd;		/* -1: closed */
	uint64_t kept;	/* bytes in the file */
	uint64_t bytes; /* bytes that came */
	bool truncated;
};
struct spool_cmd { /* the output of one running command; embedded; SPOOL_CMD_INIT before spool_open() */
	uint64_t n;
	uint64_t max;	/* bytes that each file may have */
	uint64_t other; /* bytes of what else lies in its folder: the caller adds its text and its input */
	int record_fd;	/* where the record will be written; -1: none */
	struct spool_file files[SPOOL_WHICH_COUNT];
};
#define SPOOL_CMD_INIT                                                   \
	{                                                                \
		.record_fd = -1, .files = { { .fd = -1 }, { .fd = -1 } } \
	}

/* Called for a finished command that was removed to make room. */
typedef void spool_removed_fn(void *arg, uint64_t n);

/* @dirfd: the sandbox's folder, borrowed for life. Finds what an earlier box of the same sandbox left. Commands without
 * a result.json are not looked at: they are to run, or the daemon's. Errors: -ENOMEM, those of reading folders. */
int spool_new(int dirfd, uint64_t max_bytes, uint32_t keep, spool_removed_fn *removed, void *arg, struct spool **ret,
	      struct err *e);
struct spool *spool_free(struct spool *s); /* NULL is fine; returns NULL */
uint64_t spool_bytes(const struct spool *s);
uint64_t spool_last(const struct spool *s); /* the highest finished command found by spool_new(), 0: none */

/* Make the files of command @c->n: both outputs, empty, and one for its record, so that no file has to be made when the
 * command ends: on some disks that takes a millisecond. Errors: those of open (-ENOSPC, -ENOENT no such folder);
 * nothing is open then. */
int spool_open(struct spool *s, struct spool_cmd *c, uint64_t max);
/* Take @len more bytes: what is beyond a bound is counted, not kept, and `truncated` says so. -ENOSPC, -EDQUOT, -EIO:
 * the disk took only a part or nothing; it is counted too. */
int spool_write(struct spool *s, struct spool_cmd *c, enum spool_which which, const void *data, size_t len);
/* Give the space of its output back: the record needs it more. */
void spool_cut(struct spool *s, struct spool_cmd *c);
/* Write the record, @len bytes, into the file that was made for it and put it in its place. Errors: -ENOENT there is
 * none; those of write and rename; the file is then gone. */
int spool_record(struct spool *s, struct spool_cmd *c, const void *text, size_t len);
/* The command has ended and its record stands: close its files, count it among the finished, keep to the bounds. */
void spool_finish(struct spool *s, struct spool_cmd *c);
void spool_close(struct spool_cmd *c); /* close its files and nothing else: nobody will hear of it again */

#endif
