/* SPDX-License-Identifier: Apache-2.0 */
/* A view's tree where an agent finds it: a bind mount, made and found on descriptors, so that nobody who can change
 * names on the way leads it elsewhere. Needs CAP_SYS_ADMIN, which the kernel checks. Thread: any. */
#ifndef CRUCIBLE_TOOLS_BIND_H
#define CRUCIBLE_TOOLS_BIND_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "tools/crucible/sbx.h"

/* Open the directory @path, or what is mounted there, O_PATH. No symbolic link is followed at any step: whoever owns a
 * folder on the way could turn it. Works on the bind of a daemon that is gone. Returns a descriptor (the caller's) or
 * -errno with words: -ENOENT, -ENOTDIR, -ELOOP a link, -EACCES, -ENOSYS a kernel before 5.6. */
int bind_open(const char *path, struct err *e);

/* May a view be mounted on @dir, of bind_open()? It must be empty, and no part of the mount @root. @path is for words.
 * Errors: -ENOTEMPTY, -EINVAL, those of reading it. */
int bind_check(int dir, const char *path, int root, struct err *e);

/* Mount the directory @tree (O_PATH) on @dir. Flags (nosuid, nodev, noexec) are those of the mount that @tree is of.
 * Errors: -EPERM no privilege; -ESTALE the view is dead; -ENOSYS; those of open_tree and move_mount, with words. */
int bind_make(int tree, int dir, const char *path, struct err *e);

/* What is mounted at @dir, of bind_open(). */
struct bind {
	char view[SBX_ID_MAX + 1];
	bool same; /* views/@view/tree of the mount asked about is this one, and not a later one of that name */
	char tree[PATH_MAX]; /* where the whole tree of that daemon is mounted; "" not here */
};
/* @root: of the mount to compare with, or -1: not asked. Asks nothing of the daemon whose tree is mounted there, which
 * may be gone. Errors: -EINVAL nothing is mounted exactly there, or no view; those of reading /proc/self/mountinfo. */
int bind_find(int dir, const char *path, int root, struct bind *ret, struct err *e);

/* Take away what is mounted at @dir, also when it is in use: it goes when nobody uses it any more. -EPERM. */
int bind_undo(int dir, const char *path, struct err *e);

/* The view whose tree is the mount @id, by the text of /proc/PID/mountinfo. -ENOENT no such mount; -EINVAL it shows
 * something else. */
int bind_parse(const char *mountinfo, uint64_t id, char ret_view[SBX_ID_MAX + 1]);
/* Where the whole of the file system is mounted that the mount @id shows a part of. A path with blanks, which the text
 * has escaped, is passed over. -ENOENT none; -ENAMETOOLONG. */
int bind_parse_tree(const char *mountinfo, uint64_t id, char *out, size_t cap);

#endif
