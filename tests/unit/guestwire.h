/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the kernel (fusewire.h) to the files of a fake guest (fake_guest.h), all in one thread. The session's
 * root holds `fs`, the guest's tree, and `other`, that of a second guest. */
#ifndef CRUCIBLE_TESTS_GUESTWIRE_H
#define CRUCIBLE_TESTS_GUESTWIRE_H

#include "fusewire.h"
#include "fake_guest.h"
#include "fake_view.h"

extern struct fw *gw;		  /* the wire */
extern struct sandbox *g, *other; /* the guests */

int gw_setup(void **state);
int gw_teardown(void **state); /* also: nothing is open in the guests any more, nothing refers to them */

/* The guest's own file system, behind the daemon's back. @name below its root. */
const char *gw_path(const char *name);
void gw_put(const char *name, const char *text);
void gw_get(const char *name, char *buf, size_t cap);

/* Lookups from the guest's root: the node id of @path, or the test fails; or the error. */
uint64_t gw_node(const char *path);
int gw_error(const char *path);
/* The answer to READLINK of a node; or the error. */
int gw_readlink(uint64_t node, char *buf, size_t cap);
/* Open or create; the handle. */
uint64_t gw_open(uint64_t node, int flags, unsigned *ret_flags);

/* An answer of the guest that a twist makes up. */
void gw_say(struct buf *answer, int code);
void gw_say_attr(struct buf *answer, uint32_t mode, uint64_t ino, uint64_t size);

#endif
