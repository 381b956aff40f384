/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes on their way into the guest: a script or a standard input. Small ones are in memory, large ones are read from a
 * file as the guest takes them. Embedded: a zeroed one holds nothing. Thread: the owner's. */
#ifndef CRUCIBLE_VMM_BOX_SOURCE_H
#define CRUCIBLE_VMM_BOX_SOURCE_H

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

#define SOURCE_MEMORY_MAX (64u * 1024) /* more than this does not stay in memory */

struct source {
	char *mem;	  /* malloc'd; or NULL */
	int fd;		  /* without mem: the file; 0: none */
	uint64_t at, len; /* bytes given out, bytes in all */
};

/* All of the regular file @path below @dirfd. Errors: those of open and fstat; -EINVAL not a regular file. */
int source_open(struct source *s, int dirfd, const char *path);
/* @mem of @len bytes; taken, also on failure. Above SOURCE_MEMORY_MAX it moves to a file without a name in the folder
 * @dirfd. Errors: those of open and write (-ENOSPC). */
int source_memory(struct source *s, char *mem, size_t len, int dirfd);
void source_fini(struct source *s);
/* The next bytes, at most @cap: their number; 0 at the end; -EIO. A file that has become shorter ends early. Blocks: on
 * the disk. */
long source_read(struct source *s, uint8_t *buf, size_t cap);

#endif
