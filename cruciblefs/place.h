/* SPDX-License-Identifier: Apache-2.0 */
/* What the FUSE layer itself remembers of one sandbox (and, once, of everything outside of sandboxes): which names are
 * hidden, the scratch files, and for each file a hash of its content and the time at which that changed. All in memory:
 * it is gone with the sandbox or the daemon. Thread: the loop's. */
#ifndef CRUCIBLE_PLACE_H
#define CRUCIBLE_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sandbox;
struct scratch;
struct stamp;

struct cfs_place {
	unsigned refs;
	struct sandbox *sbx;  /* a reference; NULL outside of sandboxes */
	struct stamp *stamps; /* open addressing by inode number; cap is 0 or a power of two */
	size_t nstamps, stamps_cap;
	uint64_t serial;	 /* grows when a name is hidden, shown, made or removed: for the directory's mtime */
	struct scratch *scratch; /* scratch.c: those that have a name */
	size_t scratch_bytes, nscratch; /* of all that live, also of open ones without a name */
};

/* Takes a reference of @sbx. NULL: no memory. */
struct cfs_place *place_new(struct sandbox *sbx);
struct cfs_place *place_ref(struct cfs_place *p);
struct cfs_place *place_unref(
	struct cfs_place *p); /* NULL is fine; returns NULL. May end the sandbox: not from inside a waitq */

/* The time at which the content of file @ino became one with hash @hash. When it is a new one: @changed_ns if that is
 * later than the time before, else now. */
uint64_t place_mtime(struct cfs_place *p, uint64_t ino, uint64_t hash, uint64_t changed_ns);
bool place_hidden(const struct cfs_place *p, uint64_t ino);
int place_hide(struct cfs_place *p, uint64_t ino, bool hidden); /* -ENOMEM */

uint64_t place_hash(const void *data, size_t len); /* of a content, for place_mtime() */

#endif
