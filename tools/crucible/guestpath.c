/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/guestpath.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

#define RACE_TRIES 64

static int take_guest_path(const char *path, struct cp_operand *o, struct err *e)
{
	size_t n = 0;

	if (path[0] != '/')
		return err_set(e, -EINVAL, "%s:%s: a path in a guest begins with /", o->id, path);
	for (const char *p = path; *p;) {
		size_t len;

		while (*p == '/')
			p++;
		len = strcspn(p, "/");
		if (len == 2 && !memcmp(p, "..", 2))
			return err_set(e, -EINVAL, "%s:%s: write the path without \"..\"", o->id, path);
		if (len == 0 || (len == 1 && *p == '.')) {
			o->slash = true;
			p += len;
			continue;
		}
		if (n + len + 2 > sizeof(o->path))
			return err_set(e, -ENAMETOOLONG, "%s: the path is longer than %d bytes", o->id, PATH_MAX - 1);
		if (n)
			o->path[n++] = '/';
		memcpy(o->path + n, p, len);
		n += len;
		p += len;
		o->slash = *p == '/';
	}
	o->path[n] = '\0';
	return 0;
}

int cp_operand_parse(const char *word, struct cp_operand *ret, struct err *e)
{
	struct cp_operand o = { 0 };
	const char *colon = strchr(word, ':');
	size_t len = strlen(word);
	int r = 0;

	if (colon && colon != word && (size_t)(colon - word) < strcspn(word, "/")) {
		o.guest = true;
		if ((size_t)(colon - word) > SBX_ID_MAX)
			return err_set(e, -ENAMETOOLONG,
				       "\"%s\": the sandbox's name is longer than %d characters (a local file? "
				       "write ./%s)",
				       word, SBX_ID_MAX, word);
		memcpy(o.id, word, (size_t)(colon - word));
		r = sbx_id_check(o.id, e);
		if (r == 0)
			r = take_guest_path(colon + 1, &o, e);
	} else if (len == 0) {
		r = err_set(e, -EINVAL, "an empty path");
	} else if (len >= sizeof(o.path)) {
		r = err_set(e, -ENAMETOOLONG, "the path is longer than %d bytes", PATH_MAX - 1);
	} else {
		memcpy(o.path, word, len + 1);
		o.slash = word[len - 1] == '/';
	}
	if (r == 0)
		*ret = o;
	return r;
}

const char *cp_base_name(char *path)
{
	size_t len = strlen(path);
	const char *slash, *name;

	while (len > 1 && path[len - 1] == '/')
		path[--len] = '\0';
	slash = strrchr(path, '/');
	name = slash ? slash + 1 : path;
	return !strcmp(name, ".") || !strcmp(name, "..") ? "" : name;
}

int cp_path_add(char path[PATH_MAX], const char *name)
{
	size_t len = strlen(path);
	bool slash = len > 0 && path[len - 1] != '/';

	if (len + slash + strlen(name) >= PATH_MAX)
		return -ENAMETOOLONG;
	if (slash)
		path[len++] = '/';
	memcpy(path + len, name, strlen(name) + 1);
	return 0;
}

int guest_open(int fs, const char *path, int flags, mode_t mode)
{
	struct open_how how = {
		.flags = (uint64_t)flags | O_CLOEXEC | (flags & O_PATH ? 0 : O_NOCTTY), /* strict: not beside O_PATH */
		.mode = flags & O_CREAT ? mode : 0,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
	};
	long fd = -1;

	/* EAGAIN: something was renamed while the kernel made sure of a ".."; it asks to try again. */
	for (int tries = 0; tries < RACE_TRIES; tries++) {
		fd = syscall(SYS_openat2, fs, *path ? path : ".", &how, sizeof(how));
		if (fd >= 0 || errno != EAGAIN)
			break;
	}
	/* Linux before 5.6: the tree's own rule, that no link of a guest leads out, must do. */
	if (fd < 0 && errno == ENOSYS)
		fd = openat(fs, *path ? path : ".", flags | O_CLOEXEC | O_NOCTTY, mode);
	return fd < 0 ? -errno : (int)fd;
}

int guest_stat(int fs, const char *path, struct stat *ret)
{
	AUTO_FD fd = guest_open(fs, path, O_PATH, 0);

	if (fd < 0)
		return fd;
	return fstatat(fd, "", ret, AT_EMPTY_PATH) < 0 ? -errno : 0;
}
