/* SPDX-License-Identifier: Apache-2.0 */
/* What files.c, files_name.c and files_io.c share. Each operation reads its arguments, checks that the request ends
 * there, acts, and appends its answer: 0 or -errno (what it appended before an error is dropped). */
#ifndef CRUCIBLE_AGENT_FILES_PRIV_H
#define CRUCIBLE_AGENT_FILES_PRIV_H

#include <fcntl.h>
#include <sys/stat.h>
#include "agent/files.h"
#include "base/wire.h"

/* Never waits: not for the other end of a FIFO, not for a terminal; and no link is followed. */
#define OPEN_ALWAYS (O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)

struct files {
	int root_fd, proc_fd;
	uint16_t generation;
	uint32_t next;		    /* where the search for a free slot begins */
	int fds[FILES_HANDLES_MAX]; /* -1: free */
};

/* A path argument. path_get() first, whatever happens then: path_close() at the end of the scope relies on it. */
struct path {
	char text[AG_PATH_MAX + 1];
	int dir;	  /* the parent; -1 before path_at() and after an error */
	const char *name; /* in it */
};
void path_close(struct path *p);
#define AUTO_PATH __attribute__((cleanup(path_close))) struct path
void path_get(struct wire_rd *r, struct path *p);
/* All arguments were read: was that the whole request? Then open the parent. */
int path_at(struct files *f, struct wire_rd *r, struct path *p);

int stat_at(const struct path *p, struct stat *ret);
int put_stat(struct buf *out, const struct stat *st);
int put_attr_at(const struct path *p, struct buf *out);
int put_attr_of(int fd, struct buf *out);

int handle_put(struct files *f, int *fd, uint32_t *ret);	    /* takes *fd when it succeeds; -ENFILE */
int *handle_slot(struct files *f, uint32_t handle);		    /* NULL: stale */
int handle_fd(struct files *f, uint32_t handle);		    /* -ESTALE */
int handle_at(struct files *f, struct wire_rd *r, uint32_t handle); /* as path_at() */

typedef int fs_op(struct files *f, struct wire_rd *r, struct buf *out);
fs_op fs_op_getattr, fs_op_setattr, fs_op_readlink, fs_op_mkdir, fs_op_unlink, fs_op_rmdir, fs_op_symlink, fs_op_rename,
	fs_op_link, fs_op_readdir, fs_op_open, fs_op_create, fs_op_fgetattr, fs_op_read, fs_op_write, fs_op_release,
	fs_op_fsync, fs_op_fallocate, fs_op_statfs, fs_op_getxattr, fs_op_setxattr, fs_op_listxattr, fs_op_removexattr;

#endif
