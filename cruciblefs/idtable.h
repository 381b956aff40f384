/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers for pointers that are handed to the kernel and come back: an index and a generation, so that a number of
 * something that is gone finds nothing. Node ids and file handles are such numbers. Embedded; zeroed memory is an empty
 * table. Thread: the owner's. */
#ifndef CRUCIBLE_IDTABLE_H
#define CRUCIBLE_IDTABLE_H

#include <stddef.h>
#include <stdint.h>

struct idtable_slot;
struct idtable {
	struct idtable_slot *slots;
	uint32_t nslots, free_head; /* free_head: index + 1, 0 none */
	uint32_t count;		    /* living numbers */
};

/* A number for @p (not NULL); never 0 and never 1. Errors: -ENOMEM; -ENFILE more than @max living ones. */
int idtable_add(struct idtable *t, void *p, uint32_t max, uint64_t *ret_id);
void *idtable_find(const struct idtable *t, uint64_t id); /* NULL: nothing by that number */
void idtable_del(struct idtable *t, uint64_t id);
/* Any living pointer at or after *@at (start with 0; moved on), NULL at the end. Deleting what was returned is fine. */
void *idtable_each(const struct idtable *t, uint32_t *at);
void idtable_fini(struct idtable *t);

#endif
