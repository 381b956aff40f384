/* SPDX-License-Identifier: Apache-2.0 */
/* What the pager has to let go of. It is told at once; when it is away, or dies before it has removed a disk, the id is
 * kept and it is told when it is back. The pager outlives the daemon, and so does what it has of machines that waited
 * in the pool, or of the daemon's own work: the next daemon finds those ids (a cgroup, a directory without
 * sandbox.json, a hidden sandbox). All that are still to be told stand in state/strays, a line each, for the next
 * daemon. A revived machine's disk has the machine's id. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"
#include "cruciblefs/domain/snapshot_priv.h"

#define STRAYS_MAX 16384u

/* -- the list --------------------------------------------------------------------------------------------------------
 */

static void save(void *arg)
{
	struct registry *r = arg;
	struct buf b;
	int k = 0;

	r->strays_timer = 0;
	r->strays_changed = false;
	buf_init(&b, (size_t)STRAYS_MAX * (LAUNCH_UUID_LEN + 1) + 1);
	for (size_t i = 0; !k && i < r->nstrays; i++)
		k = buf_addf(&b, "%s\n", r->strays[i]);
	if (!k && b.len)
		k = fd_replace(r->state_fd, "strays", b.data, b.len, 0640, false);
	else if (!k && unlinkat(r->state_fd, "strays", 0) < 0 && errno != ENOENT)
		k = -errno;
	if (k < 0)
		log_warn("event=strays-not-saved error=\"%s\" next=continues", strerror(-k));
	buf_fini(&b);
}

/* Many come at once: written when all are there. */
static void changed(struct registry *r)
{
	if (!r->strays_changed)
		loop_defer(r->loop, save, r, &r->strays_timer);
	r->strays_changed = true;
}

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
	changed(r);
}

void strays_load(struct registry *r)
{
	AUTO_FREE char *text = NULL;
	size_t len = 0;

	if (fd_slurp(r->state_fd, "strays", (size_t)STRAYS_MAX * (LAUNCH_UUID_LEN + 1), &text, &len) < 0)
		return;
	for (size_t at = 0; at + LAUNCH_UUID_LEN < len; at += LAUNCH_UUID_LEN + 1) {
		char id[LAUNCH_UUID_LEN + 1] = { 0 };

		memcpy(id, text + at, LAUNCH_UUID_LEN);
		if (strspn(id, "0123456789abcdef-") == LAUNCH_UUID_LEN)
			strays_add(r, id);
	}
}

void strays_free(struct registry *r)
{
	loop_del(r->loop, &r->strays_timer);
	if (r->strays_changed)
		save(r);
	free(r->strays);
	r->strays = NULL;
	r->nstrays = 0;
}

/* -- telling ---------------------------------------------------------------------------------------------------------
 */

struct leaving { /* a disk whose removal is awaited */
	struct registry *reg;
	char id[LAUNCH_UUID_LEN + 1];
};

static void on_removed(void *arg, int code, const char *words, struct wire_rd *rd, struct msg *m)
{
	struct leaving *l = arg;

	(void)rd;
	(void)m;
	if (code < 0 && code != -ENOENT) {
		if (code != -EPIPE)
			log_warn("disk=%s event=not-removed error=\"%s\" next=tried-again", l->id, words);
		strays_add(l->reg, l->id);
	}
	free(l);
}

static int remove_disk(struct registry *r, const char *id)
{
	struct leaving *l = calloc(1, sizeof(*l));
	struct ask a;
	int k;

	ask_init(&a);
	ask_str(&a, id);
	if (!l)
		return ask_pager(r, PAGER_DISK_REMOVE, &a, NULL, NULL);
	l->reg = r;
	snprintf(l->id, sizeof(l->id), "%s", id);
	k = ask_pager(r, PAGER_DISK_REMOVE, &a, on_removed, l);
	if (k < 0)
		free(l);
	return k;
}

static int tell(struct registry *r, int type, const char *id)
{
	struct ask a;

	ask_init(&a);
	ask_str(&a, id);
	return ask_pager(r, type, &a, NULL, NULL);
}

void pager_let_go(struct registry *r, const char *id, unsigned what)
{
	int k = 0;

	if ((what & GO_MEMORY) && tell(r, PAGER_DETACH, id) < 0)
		k = -ENOTCONN;
	if ((what & GO_EXPORT) && tell(r, PAGER_DISK_UNEXPORT, id) < 0)
		k = -ENOTCONN;
	if ((what & GO_DISK) && remove_disk(r, id) < 0)
		k = -ENOTCONN;
	if (k < 0)
		strays_add(r, id);
}

/* A sandbox that was given the machine has its disk. */
static bool has_disk(const struct registry *r, const char *id)
{
	const struct sandbox *const lists[] = { r->first, r->hidden };

	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		for (const struct sandbox *s = lists[i]; s; s = s->next) {
			if (!strcmp(s->disk, id))
				return true;
		}
	}
	return false;
}

void strays_tell(struct registry *r)
{
	/* All machines before the first disk: one of them may have it open. */
	static const unsigned what[] = { GO_MEMORY, GO_EXPORT, GO_DISK };
	char(*list)[LAUNCH_UUID_LEN + 1] = r->strays;
	size_t n = r->nstrays;

	if (!n)
		return;
	r->strays = NULL; /* what fails comes back into it */
	r->nstrays = 0;
	for (size_t k = 0; k < ARRAY_LEN(what); k++) {
		for (size_t i = 0; i < n; i++) {
			/* A directory that its sandbox had left when the daemon was killed. */
			if (registry_by_machine(r, list[i]) || (what[k] == GO_DISK && has_disk(r, list[i])))
				continue;
			pager_let_go(r, list[i], what[k]);
		}
	}
	free(list);
	changed(r);
}
