/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's answers to file operations, parsed. The agent is not trusted: each function reads one answer
 * (agent/proto.h, AG_FS_REP, what follows the code), checks it to its last byte and yields plain, sane values; nothing
 * behind this file looks at the guest's bytes again. Pointers in the results are borrowed from the message. Thread:
 * any. Blocks: no.
 *
 * Every parser returns 0 or -EIO: not an answer that an honest agent gives. */
#ifndef CRUCIBLE_GUESTREPLY_H
#define CRUCIBLE_GUESTREPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include "base/buf.h"
#include "base/wire.h"
#include "cruciblefs/guestlink.h"

/* The code of an answer as the host's kernel may see it: 0 or -errno. Some errnos are orders to the kernel rather than
 * answers and are never let through: ENOSYS switches an operation off for the whole mount, numbers beyond the table are
 * refused by /dev/fuse, so that the caller would hang. ELOOP becomes ESTALE: the agent follows no links, so a directory
 * of the path has become one, and the kernel, told ESTALE, walks the path again. */
int greply_code(int code);

/* A file as the guest has it. */
struct gattr {
	uint32_t type; /* S_IFREG, S_IFDIR, S_IFLNK, or 0: a FIFO, socket, device or nonsense, shown as an empty regular
			  file */
	uint32_t mode; /* permission bits, 07777 */
	uint32_t nlink;
	uint64_t ino;  /* the guest's: a hint for st_ino, never an identity */
	uint64_t size; /* <= INT64_MAX; 0 for type 0 */
	uint64_t blocks512;
	struct timespec atime, mtime, ctime;
};

int greply_attr(struct wire_rd *r, struct gattr *ret);
int greply_open(struct wire_rd *r, uint32_t *ret_handle,
		struct gattr *ret); /* OPEN, CREATE; a handle of 0 is refused */
int greply_readlink(struct wire_rd *r, struct glink *ret);
int greply_read(struct wire_rd *r, size_t asked, const uint8_t **ret_data, size_t *ret_len);
int greply_write(struct wire_rd *r, size_t asked, size_t *ret_written);
int greply_empty(struct wire_rd *r);
int greply_statfs(struct wire_rd *r, struct statvfs *ret);
int greply_xattr(struct wire_rd *r, const uint8_t **ret_data, size_t *ret_len);
/* The names of user.* alone, each with its NUL, appended to @out; the others are dropped. Also -ENOMEM. */
int greply_xattr_list(struct wire_rd *r, struct buf *out);

/* READDIR: greply_dir_begin() once, then greply_dir_next() while it returns 1 (0: no more in this answer). */
struct gdirent {
	uint64_t cookie;  /* where the guest goes on behind this entry; opaque */
	const char *name; /* not terminated */
	size_t name_len;
	bool ok; /* the name may be shown; else the entry is to be dropped */
	struct gattr attr;
};
int greply_dir_begin(struct wire_rd *r, bool *ret_end);
int greply_dir_next(struct wire_rd *r, struct gdirent *ret); /* 1, 0 or -EIO */

/* Nanoseconds since 1970 on the wire: two's complement, so that earlier times pass. */
uint64_t gtime_to_wire(const struct timespec *ts);

#endif
