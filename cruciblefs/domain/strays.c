/* SPDX-License-Identifier: Apache-2.0 */
/* The pager outlives the daemon. What it was told of machines that waited in the pool, or of the daemon's own work,
 * nobody would take back after a kill: the next daemon finds their ids (a cgroup, a directory without sandbox.json, a
 * hidden sandbox) and does. A revived machine's disk has the machine's id. */
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "cruciblefs/domain/snapshot_priv.h"

#define STRAYS_MAX 16384u

void strays_add(struct registry *r, const char *id)
{
	void *more;

	if (strlen(id) != LAUNCH_UUID_LEN || r->nstrays >= STRAYS_MAX)
		return;
	for (size_t i = 0; i < r->nstrays; i++) {
		if (!strcmp(r->strays[i], id))
			return;
	}
	more = realloc(r->strays, (r->nstrays + 1) * sizeof(r->strays[0]));
	if (!more)
		return; /* it takes room until the store's disk is looked through */
	r->strays = more;
	memcpy(r->strays[r->nstrays++], id, sizeof(r->strays[0]));
}

/* A sandbox that was given the machine has its disk. */
static bool has_disk(const struct registry *r, const char *id)
{
	for (const struct sandbox *s = r->first; s; s = s->next) {
		if (!strcmp(s->disk, id))
			return true;
	}
	return false;
}

void strays_tell(struct registry *r)
{
	static const int types[] = { PAGER_DETACH, PAGER_DISK_UNEXPORT, PAGER_DISK_REMOVE };

	for (size_t i = 0; i < r->nstrays; i++) {
		if (registry_by_machine(r, r->strays[i]))
			continue; /* a directory that its sandbox had left when the daemon was killed */
		for (size_t k = 0; k < ARRAY_LEN(types); k++) {
			struct ask a;

			if (types[k] == PAGER_DISK_REMOVE && has_disk(r, r->strays[i]))
				continue;
			ask_init(&a);
			ask_str(&a, r->strays[i]);
			ask_pager(r, types[k], &a, NULL, NULL);
		}
	}
	strays_free(r);
}

void strays_free(struct registry *r)
{
	free(r->strays);
	r->strays = NULL;
	r->nstrays = 0;
}
