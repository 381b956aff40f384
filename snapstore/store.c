/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a store: opening it, its lock, its format. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include "snapstore/snap_priv.h"

#define FORMAT_WORD "crucible-snapstore "

static int open_folder(int dirfd, const char *name, bool make, int *ret, struct err *e)
{
	if (make && mkdirat(dirfd, name, SNAP_DIR_MODE) < 0 && errno != EEXIST)
		return err_set(e, -errno, "snapstore %s: making it: %s", name, err_name(-errno));
	*ret = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*ret < 0)
		return err_set(e, -errno, "snapstore %s: %s", name, err_name(-errno));
	return 0;
}

static int lock(struct snap *s, struct err *e)
{
	s->lock_fd = openat(s->dirfd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, SNAP_FILE_MODE);
	if (s->lock_fd < 0)
		return err_set(e, -errno, "snapstore: its lock: %s", err_name(-errno));
	if (flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return err_set(e, errno == EWOULDBLOCK ? -EBUSY : -errno, "snapstore: another process writes to it");
	return 0;
}

static int check_format(struct snap *s, struct err *e)
{
	static const char ours[] = FORMAT_WORD "1\n";
	AUTO_FREE char *text = NULL;
	unsigned long major;
	size_t len;
	char *end;
	int r = fd_slurp(s->dirfd, "format", 64, &text, &len);

	if (r == -ENOENT && s->write) {
		r = fd_replace(s->dirfd, "format", ours, sizeof(ours) - 1, SNAP_FILE_MODE, true);
		return r < 0 ? err_set(e, r, "snapstore: writing its format: %s", err_name(r)) : 0;
	}
	if (r < 0)
		return err_set(e, r, "snapstore: its format: %s", err_name(r));
	if (strncmp(text, FORMAT_WORD, strlen(FORMAT_WORD)) != 0)
		return err_set(e, -EBADMSG, "snapstore: the file `format` is not one of ours");
	major = strtoul(text + strlen(FORMAT_WORD), &end, 10);
	if ((*end != '\n' && *end != '.') || major < 1)
		return err_set(e, -EBADMSG, "snapstore: the file `format` is not one of ours");
	if (major > SNAP_FORMAT)
		return err_set(e, -EPROTONOSUPPORT, "snapstore: its format is %lu, this version knows %u", major,
			       SNAP_FORMAT);
	return 0;
}

static int open_all(struct snap *s, int dirfd, const char *name, struct err *e)
{
	bool make = s->write;
	int r = open_folder(dirfd, name, make, &s->dirfd, e);

	if (r == 0 && make)
		r = lock(s, e);
	if (r == 0)
		r = check_format(s, e);
	if (r == 0)
		r = open_folder(s->dirfd, "packs", make, &s->packs_fd, e);
	if (r == 0)
		r = open_folder(s->dirfd, "manifests", make, &s->manifests_fd, e);
	if (r == 0)
		r = hasher_init(&s->hash, e);
	if (r == 0)
		r = snap_refresh(s, e);
	return r;
}

int snap_open(int dirfd, const char *name, enum snap_mode mode, struct snap **ret, struct err *e)
{
	struct snap *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return err_set(e, -ENOMEM, "snapstore: no memory");
	s->dirfd = s->packs_fd = s->manifests_fd = s->lock_fd = -1;
	s->write = mode == SNAP_WRITE;
	packs_init(&s->packs);
	s->last.bytes = malloc(FRAME_MAX);
	s->last.raw = malloc(FRAME_RAW_MAX);
	r = nodes_init(&s->nodes);
	if (r < 0 || !s->last.bytes || !s->last.raw)
		r = err_set(e, -ENOMEM, "snapstore: no memory");
	else
		r = open_all(s, dirfd, name, e);
	if (r < 0) {
		snap_close(s);
		return r;
	}
	*ret = s;
	return 0;
}

struct snap *snap_close(struct snap *s)
{
	if (!s)
		return NULL;
	snap_batch_abort(s->batch);
	pack_unref(s->last.pack);
	packs_fini(&s->packs);
	nodes_fini(&s->nodes);
	hasher_fini(&s->hash);
	free(s->last.bytes);
	free(s->last.raw);
	fd_close(&s->packs_fd);
	fd_close(&s->manifests_fd);
	fd_close(&s->lock_fd);
	fd_close(&s->dirfd);
	free(s);
	return NULL;
}

int snap_refresh(struct snap *s, struct err *e)
{
	struct stat st;
	int r;

	if (fstat(s->packs_fd, &st) < 0)
		return err_set(e, -errno, "packs: %s", err_name(-errno));
	/* The time is taken before the scan: what comes during it makes the next one look again. */
	if (!s->packs.bad[0] && st.st_mtim.tv_sec == s->scanned.tv_sec && st.st_mtim.tv_nsec == s->scanned.tv_nsec)
		return 0;
	r = packs_scan(s, e);
	if (r == 0)
		s->scanned = st.st_mtim;
	return r;
}
