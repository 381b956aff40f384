/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/mount.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "tools/crucible/bind.h"
#include "tools/crucible/tree.h"

const char *mount_path(const char *flag)
{
	const char *path = flag;

	if (!path)
		path = getenv("CRUCIBLE_MOUNT");
	return path && *path ? path : MOUNT_DEFAULT;
}

bool mount_is_view(const char *path, struct bind *ret)
{
	AUTO_FD fd = open(path, O_PATH | O_CLOEXEC);

	return fd >= 0 && bind_find(fd, path, -1, ret, NULL) == 0;
}

/* The daemon is gone. A view's mount point is no place for another one. */
static int explain_dead(const char *path, struct err *e)
{
	struct bind b;

	if (mount_is_view(path, &b)) {
		bool elsewhere = *b.tree && strcmp(b.tree, MOUNT_DEFAULT) != 0;

		return err_set(
			e, -ENOTCONN,
			"the daemon of view \"%s\" on %s has ended; as root, start that of the tree again, then: "
			"crucible umount --keep %s; crucible mount %s%s%s--name %s %s",
			b.view, path, path, elsewhere ? "--mount " : "", elsewhere ? b.tree : "", elsewhere ? " " : "",
			b.view, path);
	}
	return err_set(e, -ENOTCONN,
		       "the daemon of %s has ended; start it again, as root: crucible daemon --mount %s (with the same "
		       "--store, if it had one)",
		       path, path);
}

static int explain_ended(const char *path, struct err *e)
{
	struct bind b;

	if (mount_is_view(path, &b))
		return err_set(
			e, -ESTALE,
			"view \"%s\" on %s has ended: its time is over, or it was removed; if it is still there, "
			"root gives it more: echo 2h >%s/views/%s/ttl",
			b.view, path, *b.tree ? b.tree : MOUNT_DEFAULT, b.view);
	return err_set(e, -ESTALE,
		       "the view that is mounted on %s has ended: its time is over, or it was removed; if it is still "
		       "there, root gives it more: echo 2h >" MOUNT_DEFAULT "/views/NAME/ttl",
		       path);
}

static int explain(int code, const char *path, struct err *e)
{
	switch (code) {
	case -ENOENT:
		return err_set(e, code, "%s does not exist; start the daemon, as root: crucible daemon --mount %s",
			       path, path);
	case -ENOTCONN:
	case -ECONNABORTED:
		return explain_dead(path, e);
	case -EMEDIUMTYPE:
		return err_set(
			e, code,
			"%s is no crucible mount; start the daemon, as root: crucible daemon --mount %s (or name the mount: "
			"--mount DIR, or CRUCIBLE_MOUNT)",
			path, path);
	case -ESTALE:
		return explain_ended(path, e);
	case -EACCES:
		return err_set(e, code, "%s: you may not enter this directory", path);
	default:
		return err_set(e, code, "%s: %s", path, strerror(-code));
	}
}

int mount_open(const char *flag, struct mount *ret, struct err *e)
{
	struct mount m = { .fd = -1, .path = mount_path(flag) };
	AUTO_FD fd = -1;
	AUTO_FD run = -1;
	int r;

	fd = open(m.path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return explain(-errno, m.path, e);
	r = tree_word(fd, "version", m.version, sizeof(m.version));
	if (r == -ENOENT || r == -EINVAL || r == -ENOBUFS || (r == 0 && !m.version[0]))
		r = -EMEDIUMTYPE;
	if (r < 0)
		return explain(r, m.path, e);
	/* Many a source tree holds a file `version`. */
	run = openat(fd, "run", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (run < 0)
		return explain(errno == ENOENT || errno == ENOTDIR ? -EMEDIUMTYPE : -errno, m.path, e);
	m.fd = take_fd(&fd);
	*ret = m;
	return 0;
}

void mount_close(struct mount *m)
{
	fd_close(&m->fd);
}
