/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * Slot s is held by a write lock on byte s of a file, owned by an open file description: by whoever has a descriptor of
 * it, here and in the box and the engine that inherited it. The kernel lets go with the last of them, so a slot is free
 * exactly when all are gone, after any crash, and for every daemon on the machine alike. Each slot has an open file
 * description of its own; with a shared one, one sandbox would hold the slots of all.
 *
 * The file goes when nobody needs it: whoever gets a lock on all of it may unlink it. Someone who opened it before
 * that, and locks a byte of it after, would hold a slot of a file that no one else looks at; therefore a lock counts
 * only when the path still leads to the locked file, and what it finds wholly locked it opens again.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "cruciblefs/launch/launch_priv.h"

#define SLOTS_FILE LAUNCH_RUN_DIR "/slots"
#define TRIES	   200 /* 1 ms apart: another launcher cleans up in microseconds */

int slots_init(struct slots *s, struct err *e)
{
	if (mkdir(LAUNCH_RUN_DIR, 0755) < 0 && errno != EEXIST)
		return err_set(e, -errno, LAUNCH_RUN_DIR ": mkdir: %s", strerror(errno));
	s->fds = malloc(LAUNCH_SLOTS_MAX * sizeof(*s->fds));
	if (!s->fds)
		return err_set(e, -ENOMEM, "slots: no memory");
	for (size_t i = 0; i < LAUNCH_SLOTS_MAX; i++)
		s->fds[i] = -1;
	s->next = 0;
	return 0;
}

/* Lock @len bytes from @start, all of them when 0. -EAGAIN: somebody has one of them. */
static int lock(int fd, off_t start, off_t len)
{
	struct flock fl = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = len };

	if (fcntl(fd, F_OFD_SETLK, &fl) == 0)
		return 0;
	return errno == EACCES ? -EAGAIN : -errno;
}

/* Whether somebody has the lock on the whole file, to remove it. */
static bool is_being_removed(int fd, off_t at)
{
	struct flock fl = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 1 };

	return fcntl(fd, F_OFD_GETLK, &fl) == 0 && fl.l_type != F_UNLCK && fl.l_len == 0;
}

static bool path_leads_to(int fd)
{
	struct stat by_fd, by_path;

	return fstat(fd, &by_fd) == 0 && lstat(SLOTS_FILE, &by_path) == 0 && by_fd.st_ino == by_path.st_ino &&
	       by_fd.st_dev == by_path.st_dev;
}

/* One look through the slots: 0 and the locked descriptor; -EAGAIN all are taken; -ESTALE look again. */
static int try_alloc(struct slots *s, uint32_t *ret_slot, int *ret_fd)
{
	AUTO_FD fd = open(SLOTS_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	int r = -EAGAIN;

	if (fd < 0 && errno == ENOENT) {
		mkdir(LAUNCH_RUN_DIR, 0755); /* the other launcher took the folder along */
		return -ESTALE;
	}
	if (fd < 0)
		return -errno;
	for (uint32_t i = 0; i < LAUNCH_SLOTS_MAX; i++) {
		uint32_t slot = (s->next + i) % LAUNCH_SLOTS_MAX;

		if (s->fds[slot] >= 0)
			continue;
		r = lock(fd, slot, 1);
		if (r == -EAGAIN && is_being_removed(fd, slot))
			return -ESTALE;
		if (r == -EAGAIN)
			continue;
		if (r < 0)
			return r;
		if (!path_leads_to(fd))
			return -ESTALE;
		*ret_slot = slot;
		*ret_fd = take_fd(&fd);
		return 0;
	}
	return -EAGAIN;
}

int slots_alloc(struct slots *s, uint32_t *ret_slot, struct err *e)
{
	const struct timespec ms = { .tv_nsec = 1000000 };
	uint32_t slot = 0;
	int fd = -1, r = -ESTALE;

	for (int tries = 0; r == -ESTALE && tries < TRIES; tries++) {
		if (tries)
			nanosleep(&ms, NULL);
		r = try_alloc(s, &slot, &fd);
	}
	if (r == -EAGAIN || r == -ESTALE)
		return err_set(e, -EAGAIN, "all %u slots are taken", LAUNCH_SLOTS_MAX);
	if (r < 0)
		return err_set(e, r, SLOTS_FILE ": %s", strerror(-r));
	s->fds[slot] = fd;
	s->next = (slot + 1) % LAUNCH_SLOTS_MAX;
	*ret_slot = slot;
	return 0;
}

int slots_fd(const struct slots *s, uint32_t slot)
{
	return slot < LAUNCH_SLOTS_MAX ? s->fds[slot] : -1;
}

int slots_free(struct slots *s, uint32_t slot, struct err *e)
{
	if (slots_fd(s, slot) < 0)
		return err_set(e, -EINVAL, "slot %u is not allocated", slot);
	fd_close(&s->fds[slot]);
	return 0;
}

void slots_fini(struct slots *s)
{
	AUTO_FD fd = -1;

	if (!s->fds)
		return;
	for (size_t i = 0; i < LAUNCH_SLOTS_MAX; i++)
		fd_close(&s->fds[i]);
	free(s->fds);
	s->fds = NULL;
	fd = open(SLOTS_FILE, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0 && lock(fd, 0, 0) == 0 && path_leads_to(fd))
		unlink(SLOTS_FILE);
	fd_close(&fd);
	rmdir(LAUNCH_RUN_DIR); /* fails while anything is in it */
}
