/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

#define LINKS_MAX 40 /* as the kernel's own walk */

static bool is_dots(const char *name, size_t len)
{
	return (len == 1 && name[0] == '.') || (len == 2 && name[0] == '.' && name[1] == '.');
}

int path_check(const char *path)
{
	if (*path == '\0')
		return 0;
	for (const char *p = path;; p++) {
		size_t len = strcspn(p, "/");

		if (len == 0 || is_dots(p, len))
			return -EINVAL;
		if (len > AG_NAME_MAX)
			return -ENAMETOOLONG;
		p += len;
		if (*p == '\0')
			return 0;
	}
}

static int open_dir(int root_fd, const char *path)
{
	struct open_how how = {
		.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS,
	};
	int fd = (int)syscall(SYS_openat2, root_fd, *path ? path : ".", &how, sizeof(how));

	return fd < 0 ? -errno : fd;
}

bool path_absent(int root_fd, const char *path)
{
	const struct open_how how = {
		.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	int fd = (int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
	bool absent = fd < 0 && errno == ENOENT;

	fd_close(&fd);
	return absent;
}

int path_parent(int root_fd, const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	char dir[AG_PATH_MAX + 1] = "";
	int r = path_check(path);

	if (r < 0)
		return r;
	if (slash) {
		memcpy(dir, path, (size_t)(slash - path));
		dir[slash - path] = '\0';
	}
	*ret_name = *path == '\0' ? "." : slash ? slash + 1 : path;
	return open_dir(root_fd, dir);
}

/* -- links -------------------------------------------------------------------------- */

/* A walk: `at` is where it stands (plain names), `rest` what is still to go. */
struct walk {
	int root_fd;
	char at[AG_PATH_MAX + 1];
	char rest[2 * AG_PATH_MAX + 2];
	unsigned links;
	bool absent; /* names that do not exist were appended: nothing is looked up any more */
};

static void walk_up(struct walk *w)
{
	char *slash = strrchr(w->at, '/');

	*(slash ? slash : w->at) = '\0';
}

static int walk_push(struct walk *w, const char *name, size_t len)
{
	size_t used = strlen(w->at);

	if (len > AG_NAME_MAX || used + 1 + len > AG_PATH_MAX)
		return -ENAMETOOLONG;
	if (used)
		w->at[used++] = '/';
	memcpy(w->at + used, name, len);
	w->at[used + len] = '\0';
	return 0;
}

/* Put @target in front of what is left to walk. */
static int walk_link(struct walk *w, const char *target)
{
	size_t len = strlen(target), rest = strlen(w->rest);

	if (len + 1 + rest >= sizeof(w->rest))
		return -ENAMETOOLONG;
	memmove(w->rest + len + 1, w->rest, rest + 1);
	memcpy(w->rest, target, len);
	w->rest[len] = '/';
	if (target[0] == '/')
		w->at[0] = '\0';
	return 0;
}

/* One name down from `at`: a link is put into `rest`, anything else appended to `at`. */
static int walk_down(struct walk *w, const char *name, size_t len)
{
	char one[AG_NAME_MAX + 1], target[AG_PATH_MAX + 1];
	AUTO_FD dir = -1;
	struct stat st;
	ssize_t n;

	if (w->absent || len > AG_NAME_MAX)
		return walk_push(w, name, len);
	memcpy(one, name, len);
	one[len] = '\0';
	dir = open_dir(w->root_fd, w->at);
	if (dir < 0 && dir != -ENOENT && dir != -ENOTDIR)
		return dir;
	if (dir < 0 || fstatat(dir, one, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0) {
		if (dir >= 0 && errno != ENOENT && errno != ENOTDIR)
			return -errno;
		w->absent = true;
		return walk_push(w, one, len);
	}
	if (!S_ISLNK(st.st_mode))
		return walk_push(w, one, len);
	if (++w->links > LINKS_MAX)
		return -ELOOP;
	n = readlinkat(dir, one, target, sizeof(target));
	if (n < 0)
		return -errno;
	if ((size_t)n == sizeof(target))
		return -ENAMETOOLONG;
	target[n] = '\0';
	return walk_link(w, target);
}

static int walk_run(struct walk *w)
{
	while (w->rest[0]) {
		size_t len = strcspn(w->rest, "/"), skip = len + strspn(w->rest + len, "/");
		char name[AG_PATH_MAX + 1];
		int r = 0;

		if (len > AG_PATH_MAX)
			return -ENAMETOOLONG;
		memcpy(name, w->rest, len);
		name[len] = '\0';
		memmove(w->rest, w->rest + skip, strlen(w->rest + skip) + 1);
		if (len == 2 && is_dots(name, len))
			walk_up(w);
		else if (len > 0 && !is_dots(name, len))
			r = walk_down(w, name, len);
		if (r < 0)
			return r;
	}
	return 0;
}

static int walk_end(struct walk *w, int r, char *out, enum link_state *ret)
{
	if (r < 0 && r != -ELOOP)
		return r;
	*ret = r == -ELOOP ? LINK_LOOP : w->absent ? LINK_DANGLING : LINK_RESOLVED;
	memcpy(out, w->at, strlen(w->at) + 1);
	return 0;
}

int path_follow(int root_fd, const char *path, char *out, enum link_state *ret)
{
	struct walk w = { .root_fd = root_fd };
	AUTO_FD dir = -1;
	int r;

	/* Mostly there is no link at all, and it is a directory: then one call tells. */
	if (path_check(path) == 0)
		dir = open_dir(root_fd, path);
	if (dir >= 0) {
		*ret = LINK_RESOLVED;
		memcpy(out, path, strlen(path) + 1);
		return 0;
	}
	r = walk_link(&w, path);
	return walk_end(&w, r < 0 ? r : walk_run(&w), out, ret);
}

int link_resolve(int root_fd, const char *path, const char *target, char *out, enum link_state *ret)
{
	struct walk w = { .root_fd = root_fd, .links = 1 /* the link itself */ };
	int r;

	memcpy(w.at, path, strlen(path) + 1);
	walk_up(&w);
	r = walk_link(&w, target);
	return walk_end(&w, r < 0 ? r : walk_run(&w), out, ret);
}
