/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/bind.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/tree.h"

#define MOUNTINFO     "/proc/self/mountinfo"
#define MOUNTINFO_MAX (16u * 1024 * 1024)
#define GONE	      "//deleted" /* the kernel's, behind a path that has no name any more */

int bind_open(const char *path, struct err *e)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS };
	int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));

	if (fd >= 0)
		return fd;
	switch (errno) {
	case ENOENT:
		return err_set(e, -ENOENT, "%s does not exist", path);
	case ENOTDIR:
		return err_set(e, -ENOTDIR, "%s is no directory", path);
	case ELOOP:
		return err_set(e, -ELOOP,
			       "%s goes through a symbolic link, which somebody could turn; name the "
			       "directory itself, as realpath(1) does",
			       path);
	default:
		return err_set(e, -errno, "%s: %s", path, strerror(errno));
	}
}

static int found_one(void *arg, int parent, const char *name)
{
	(void)arg, (void)parent, (void)name;
	return 1;
}

int bind_check(int dir, const char *path, int root, struct err *e)
{
	struct stat here, mount;
	int r;

	if (fstatat(dir, "", &here, AT_EMPTY_PATH) < 0 && (errno == ENOTCONN || errno == ESTALE))
		return err_set(e, -errno,
			       "%s: what is mounted there is dead; take it away first: crucible umount --keep %s", path,
			       path);
	if (fstatat(dir, "", &here, AT_EMPTY_PATH) < 0 || fstatat(root, "", &mount, AT_EMPTY_PATH) < 0)
		return err_set(e, -errno, "%s: %s", path, strerror(errno));
	if (here.st_dev == mount.st_dev)
		return err_set(e, -EINVAL,
			       "%s is in the mount itself, or is one of its views already (crucible umount %s "
			       "takes one away)",
			       path, path);
	r = tree_list(dir, ".", found_one, NULL);
	if (r > 0)
		return err_set(e, -ENOTEMPTY, "%s is not empty; name an empty directory", path);
	return r < 0 ? err_set(e, r, "%s: %s", path, strerror(-r)) : 0;
}

static int refused(const char *path, struct err *e)
{
	switch (errno) {
	case EPERM:
		return err_set(e, -EPERM, "%s: only root may mount views and take them away", path);
	case ENOSYS:
		return err_set(e, -ENOSYS, "%s: this kernel is older than 5.6; mount --bind does the same", path);
	default:
		return err_set(e, -errno, "%s: mount: %s", path, strerror(errno));
	}
}

int bind_make(int tree, int dir, const char *path, struct err *e)
{
	AUTO_FD copy = open_tree(tree, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	if (copy < 0 || move_mount(copy, "", dir, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return refused(path, e);
	return 0;
}

/* "/views/NAME/tree" -> NAME */
static int parse_root(char *path, char ret_view[SBX_ID_MAX + 1])
{
	static const char before[] = "/views/", behind[] = "/tree";
	size_t len = strlen(path);

	if (len > sizeof(GONE) - 1 && !strcmp(path + len - (sizeof(GONE) - 1), GONE))
		path[len -= sizeof(GONE) - 1] = '\0';
	if (len < sizeof(before) + sizeof(behind) - 1 || strncmp(path, before, sizeof(before) - 1) != 0 ||
	    strcmp(path + len - (sizeof(behind) - 1), behind) != 0)
		return -EINVAL;
	path[len - (sizeof(behind) - 1)] = '\0';
	path += sizeof(before) - 1;
	if (sbx_id_check(path, NULL) < 0)
		return -EINVAL;
	memcpy(ret_view, path, strlen(path) + 1);
	return 0;
}

enum { LINE_ID, LINE_PARENT, LINE_DEVICE, LINE_ROOT, LINE_AT, LINE_FIELDS };

/* The fields of @line, in place. */
static bool parse_line(char *line, char *ret[LINE_FIELDS])
{
	size_t n = 0;

	while (n < LINE_FIELDS && (ret[n] = strsep(&line, " ")))
		n++;
	return n == LINE_FIELDS;
}

/* The fields of the mount @id in @text, which is cut up there. */
static int find_line(char *text, uint64_t id, char *ret[LINE_FIELDS])
{
	char *rest;

	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		if (parse_line(line, ret) && strtoull(ret[LINE_ID], NULL, 10) == id)
			return 0;
	}
	return -ENOENT;
}

int bind_parse(const char *mountinfo, uint64_t id, char ret_view[SBX_ID_MAX + 1])
{
	AUTO_FREE char *text = strdup(mountinfo);
	char *fields[LINE_FIELDS];
	int r = text ? find_line(text, id, fields) : -ENOMEM;

	return r < 0 ? r : parse_root(fields[LINE_ROOT], ret_view);
}

int bind_parse_tree(const char *mountinfo, uint64_t id, char *out, size_t cap)
{
	AUTO_FREE char *text = strdup(mountinfo);
	AUTO_FREE char *all = NULL;
	char *view[LINE_FIELDS], *fields[LINE_FIELDS], *rest;
	int r = text ? find_line(text, id, view) : -ENOMEM;

	if (r < 0)
		return r;
	all = strdup(mountinfo);
	if (!all)
		return -ENOMEM;
	for (char *line = strtok_r(all, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		if (!parse_line(line, fields) || strcmp(fields[LINE_DEVICE], view[LINE_DEVICE]) != 0 ||
		    strcmp(fields[LINE_ROOT], "/") != 0 || strchr(fields[LINE_AT], '\\'))
			continue;
		return (size_t)snprintf(out, cap, "%s", fields[LINE_AT]) < cap ? 0 : -ENAMETOOLONG;
	}
	return -ENOENT;
}

/* What the kernel knows without asking anybody. */
static int look(int dir, const char *path, struct statx *ret)
{
	if (statx(dir, path, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC, STATX_INO | STATX_MNT_ID, ret) <
	    0)
		return -errno;
	return ret->stx_mask & STATX_MNT_ID ? 0 : -ENOSYS;
}

/* Numbers are made of uuids, so a later view of the same name has another one, and a later daemon's (whose file system
 * is another one) the same. Another kind of file system has no such number, but for one in 2^63. */
static bool is_same(int root, const struct statx *here, const char *view)
{
	char path[SBX_ID_MAX + sizeof("views//tree")];
	struct statx there;

	snprintf(path, sizeof(path), "views/%s/tree", view);
	return look(root, path, &there) == 0 && there.stx_ino == here->stx_ino;
}

int bind_find(int dir, const char *path, int root, struct bind *ret, struct err *e)
{
	AUTO_FREE char *mountinfo = NULL;
	struct bind b = { 0 };
	struct statx here;
	int r = look(dir, "", &here);

	if (r == -ENOSYS)
		return err_set(e, r, "%s: this kernel is older than 5.8; umount(8) does the same", path);
	if (r < 0)
		return err_set(e, r, "%s: %s", path, strerror(-r));
	if (!(here.stx_attributes & STATX_ATTR_MOUNT_ROOT))
		return err_set(e, -EINVAL, "%s: nothing is mounted there", path);
	r = fd_slurp(AT_FDCWD, MOUNTINFO, MOUNTINFO_MAX, &mountinfo, NULL);
	if (r < 0)
		return err_set(e, r, MOUNTINFO ": %s", strerror(-r));
	r = bind_parse(mountinfo, here.stx_mnt_id, b.view);
	if (r < 0)
		return err_set(e, -EINVAL, "%s: what is mounted there is no view", path);
	if (bind_parse_tree(mountinfo, here.stx_mnt_id, b.tree, sizeof(b.tree)) < 0)
		b.tree[0] = '\0';
	b.same = root >= 0 && is_same(root, &here, b.view);
	*ret = b;
	return 0;
}

int bind_undo(int dir, const char *path, struct err *e)
{
	char self[40];

	/* There is no umount of a descriptor; this is the mount that it shows, whatever became of its path. */
	snprintf(self, sizeof(self), "/proc/self/fd/%d", dir);
	return umount2(self, MNT_DETACH) < 0 ? refused(path, e) : 0;
}
