/* SPDX-License-Identifier: Apache-2.0 */
/* The FUSE mount: made, replaced when its daemon has died, taken away. The only place that knows the mount point. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "cruciblefs/launch/launch_priv.h"

#define FSTYPE	 "fuse.crucible"
#define PROBE_MS 3000
#define DEAD_MAX 16 /* dead mounts on top of each other that are cleared away */

enum what_lives { LIVES_NOTHING, LIVES_OURS, LIVES_OTHER };

/* Compare a field of mountinfo, in which spaces and the like are octal escapes, with a plain path. */
static bool same_path(const char *field, size_t len, const char *path)
{
	size_t i = 0;

	while (i < len && *path) {
		char c = field[i++];

		if (c == '\\' && i + 3 <= len) {
			c = (char)((field[i] - '0') * 64 + (field[i + 1] - '0') * 8 + (field[i + 2] - '0'));
			i += 3;
		}
		if (c != *path++)
			return false;
	}
	return i == len && !*path;
}

/* What is mounted on @path itself, topmost: mountinfo lists it last. No file system is asked, so a dead or hung one
 * cannot hold us. */
static int what_is_mounted(const char *path, enum what_lives *ret, struct err *e)
{
	enum what_lives found = LIVES_NOTHING;
	AUTO_FREE char *text = NULL;
	char *save = NULL;
	int r = fd_slurp(AT_FDCWD, "/proc/self/mountinfo", 16u << 20, &text, NULL);

	if (r < 0)
		return err_set(e, r, "/proc/self/mountinfo: %s", strerror(-r));
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		const char *p = line, *dash = strstr(line, " - ");

		for (int field = 0; p && field < 4; field++) {
			p = strchr(p, ' ');
			p = p ? p + 1 : NULL;
		}
		if (p && dash && same_path(p, strcspn(p, " "), path))
			found = !strncmp(dash + 3, FSTYPE " ", strlen(FSTYPE) + 1) ? LIVES_OURS : LIVES_OTHER;
	}
	*ret = found;
	return 0;
}

/* Whether the daemon behind a mount of ours is gone (ENOTCONN). A living daemon that hangs would hold whoever asks, so
 * a child asks, and no answer counts as life. */
static int is_dead(const char *path, bool *ret, struct err *e)
{
	struct pollfd pfd = { .events = POLLIN };
	int fds[2], r;
	char dead = 0;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_set(e, -errno, "probe of the mount: pipe: %s", strerror(errno));
	pid = fork();
	if (pid < 0) {
		r = err_set(e, -errno, "probe of the mount: fork: %s", strerror(errno));
		fd_close(&fds[0]);
		fd_close(&fds[1]);
		return r;
	}
	if (pid == 0) {
		struct statfs st;

		/* Not stat(): attributes of the root may be cached, and then a dead mount looks alive. */
		dead = statfs(path, &st) < 0 && errno == ENOTCONN;
		_exit(write(fds[1], &dead, 1) != 1);
	}
	fd_close(&fds[1]);
	pfd.fd = fds[0];
	do {
		r = poll(&pfd, 1, PROBE_MS);
	} while (r < 0 && errno == EINTR);
	if (r > 0 && read(fds[0], &dead, 1) != 1)
		dead = 0;
	fd_close(&fds[0]);
	/* One that hangs in the kernel stays behind as a child of ours, to be reaped with the others. */
	kill(pid, SIGKILL);
	waitpid(pid, NULL, r > 0 ? 0 : WNOHANG);
	*ret = dead;
	return 0;
}

/* Clear dead mounts of ours off the place. -EBUSY when something lives there. */
static int clear_place(const char *path, struct err *e)
{
	enum what_lives lives = LIVES_NOTHING;
	bool dead = false;
	int r;

	for (int i = 0; i < DEAD_MAX; i++) {
		r = what_is_mounted(path, &lives, e);
		if (r < 0 || lives == LIVES_NOTHING)
			return r;
		if (lives == LIVES_OTHER)
			return err_set(e, -EBUSY, "mount %s: another file system is mounted there", path);
		r = is_dead(path, &dead, e);
		if (r < 0)
			return r;
		if (!dead)
			return err_set(e, -EBUSY, "mount %s: another crucible daemon serves it", path);
		if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
			return err_set(e, -errno, "mount %s: take the dead mount away: %s", path, strerror(errno));
	}
	return err_set(e, -EBUSY, "mount %s: more than %d dead mounts", path, DEAD_MAX);
}

int on_mount(struct launchd *d, struct msg *m, struct wire_rd *r, struct answer *a, struct err *e)
{
	const char *path = d->cfg.mount;
	AUTO_FD fuse = -1;
	char options[160];
	struct stat st;
	size_t len;
	const char *asked = wire_bytes(r, 4096, &len);
	int rc;

	(void)m;
	if (wire_done(r) < 0)
		return err_set(e, -EBADMSG, "mount: malformed");
	if (len != strlen(path) || memcmp(asked, path, len) != 0)
		return err_set(e, -EPERM, "mount: not the configured place, which is %s", path);
	rc = clear_place(path, e);
	if (rc < 0)
		return rc;
	if (lstat(path, &st) < 0)
		return err_set(e, -errno, "mount %s: %s", path, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return err_set(e, -ENOTDIR, "mount %s: not a directory", path);
	fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fuse < 0)
		return err_set(e, -errno, "/dev/fuse: %s", strerror(errno));
	/* user_id owns the connection's files in /sys/fs/fuse/connections: the daemon can abort its own. */
	snprintf(options, sizeof(options),
		 "fd=%d,rootmode=40000,user_id=%u,group_id=%u,default_permissions,allow_other", fuse, d->cfg.uid_base,
		 d->cfg.uid_base);
	if (mount("crucible", path, FSTYPE, MS_NOSUID | MS_NODEV | MS_NOEXEC, options) < 0)
		return err_set(e, -errno, "mount %s: %s", path, strerror(errno));
	a->fds[a->nfds++] = take_fd(&fuse);
	return 0;
}

int on_unmount(struct launchd *d, struct msg *m, struct wire_rd *r, struct answer *a, struct err *e)
{
	enum what_lives lives = LIVES_NOTHING;
	int rc;

	(void)m, (void)a;
	if (wire_done(r) < 0)
		return err_set(e, -EBADMSG, "unmount: malformed");
	rc = what_is_mounted(d->cfg.mount, &lives, e);
	if (rc < 0)
		return rc;
	if (lives != LIVES_OURS)
		return err_set(e, -EINVAL, "unmount %s: no mount of ours", d->cfg.mount);
	/* Lazily: whoever has a file open there must not keep the daemon from ending. */
	if (umount2(d->cfg.mount, MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
		return err_set(e, -errno, "unmount %s: %s", d->cfg.mount, strerror(errno));
	return 0;
}
