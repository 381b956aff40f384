/* SPDX-License-Identifier: Apache-2.0 */
/* Directories as tar streams, by libarchive. Thread: one at a time (unpacking changes the working directory and changes
 * it back). */
#ifndef CRUCIBLE_TOOLS_PACK_H
#define CRUCIBLE_TOOLS_PACK_H

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

struct pack_count {
	uint64_t files, bytes; /* packed or unpacked */
	uint64_t skipped;      /* sockets, devices, FIFOs; out of a guest: links that lead out of the directory */
};

/* Write the directory @dir (local) as a tar stream to @fd; its files are called @prefix, @prefix/…, and belong to root.
 * Links are not followed. Blocks. Errors: those of reading (with the file's name) and of writing to @fd; -ENOPKG no
 * libarchive. */
int pack_directory(const char *dir, const char *prefix, int fd, struct pack_count *ret, struct err *e);

/* Unpack the tar stream @fd, which a guest wrote, into the directory @dir (a descriptor). Nothing outside of it is made
 * or changed: names that are absolute or hold ".." are an error, links are never written through; only files,
 * directories and links that stay inside are made, they are the caller's, and set-user-id bits are dropped. Blocks.
 * Errors: -EBADMSG no tar, or a name as above; -ENOPKG no libarchive; those of writing. */
int unpack_directory(int fd, int dir, struct pack_count *ret, struct err *e);

/* For tests. Is @path relative and without ".."? Does the link @path (relative, plain) with @target stay inside the top
 * directory? */
bool unpack_path_is_plain(const char *path);
bool unpack_link_stays_inside(const char *path, const char *target);

#endif
