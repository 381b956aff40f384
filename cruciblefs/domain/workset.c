/* SPDX-License-Identifier: Apache-2.0 */
/* Which pages of a snapshot a machine touches first when it goes on from it. The pager has seen it once the first one
 * has run for some seconds; the list is kept beside snapshot.json and handed to each pager that does not know it,
 * before it is asked for the template: that is read in one batch then, not fault by fault. Losing it costs time,
 * nothing else.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"
#include "cruciblefs/domain/snapshot_priv.h"

#define LOOK_NS	  (3ull * 1000000000ull) /* the pager records for two seconds */
#define BYTES_MAX (256u * 1024)		 /* PG_WORKSET_MAX numbers of pages */

static void path_of(const struct snapshot *p, char out[LAUNCH_UUID_LEN + 16])
{
	snprintf(out, LAUNCH_UUID_LEN + 16, "%s/workset", p->uuid);
}

static int keep(struct snapshot *p, int fd)
{
	char path[LAUNCH_UUID_LEN + 16];
	AUTO_FREE char *list = NULL;
	struct stat st;

	path_of(p, path);
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < 0 || st.st_size > (off_t)BYTES_MAX)
		return -EFBIG;
	list = malloc((size_t)st.st_size + 1);
	if (!list)
		return -ENOMEM;
	if (pread(fd, list, (size_t)st.st_size, 0) != (ssize_t)st.st_size)
		return -EIO;
	return fd_replace(p->reg->snapshots_fd, path, list, (size_t)st.st_size, 0640, false);
}

static void on_list(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct snapshot *p = arg;
	struct registry *reg = p->reg;

	(void)r;
	if (!code && p->listed && !p->gone) {
		code = m->nfds < 1 ? -EBADMSG : keep(p, m->fds[0]);
		p->workset = code == 0 ? WORKSET_TOLD : p->workset; /* this pager has seen it itself */
		words = strerror(-code);
	}
	if (code < 0 && code != -EAGAIN && code != -EPIPE && code != -ENOENT)
		log_info("snapshot=%s uuid=%s event=no-workset error=\"%s\" next=continues", p->name, p->uuid, words);
	snapshot_unref(p);
	snapshots_sweep(reg); /* it may have been removed meanwhile */
}

static void look(void *arg)
{
	struct snapshot *p = arg;
	struct ask a;

	p->workset_timer = 0;
	if (p->gone)
		return;
	ask_init(&a);
	ask_str(&a, p->uuid);
	if (ask_pager(p->reg, PAGER_WORKSET, &a, on_list, snapshot_ref(p)) < 0)
		snapshot_unref(p);
}

void workset_learn(struct snapshot *p)
{
	if (p->workset == WORKSET_NONE && p->listed && !p->gone && !p->workset_timer)
		loop_timer(p->reg->loop, now_ns() + LOOK_NS, look, p, &p->workset_timer);
}

static void on_told(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	(void)arg;
	(void)r;
	(void)m;
	if (code < 0 && code != -EPIPE)
		log_warn("event=workset-refused error=\"%s\" next=continues", words);
}

void workset_tell(struct snapshot *p)
{
	char path[LAUNCH_UUID_LEN + 16];
	AUTO_FD fd = -1;
	struct ask a;

	if (p->workset == WORKSET_TOLD || p->workset == WORKSET_NONE)
		return;
	path_of(p, path);
	fd = openat(p->reg->snapshots_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	p->workset = fd < 0 ? WORKSET_NONE : WORKSET_TOLD;
	if (fd < 0)
		return;
	ask_init(&a);
	ask_str(&a, p->uuid);
	ask_fd(&a, fd);
	ask_pager(p->reg, PAGER_WORKSET_SET, &a, on_told, NULL); /* one that is away is asked for no template either */
}

void worksets_untold(struct registry *r)
{
	for (struct snapshot *p = r->first_snapshot; p; p = p->next)
		p->workset = p->workset == WORKSET_TOLD ? WORKSET_KEPT : p->workset;
}
