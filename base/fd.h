/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors: owned by one variable, closed at the end of its scope, handed over visibly. */
#ifndef CRUCIBLE_BASE_FD_H
#define CRUCIBLE_BASE_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* Close *@fd if it is >= 0 and set it to -1. errno is preserved. */
void fd_close(int *fd);
#define AUTO_FD __attribute__((cleanup(fd_close))) int

/* Take the descriptor out of its owner: returns *@fd and sets it to -1. */
int take_fd(int *fd);

void free_ptr(void *pp); /* free(*(void **)pp), for AUTO_FREE */
#define AUTO_FREE __attribute__((cleanup(free_ptr)))

/* Write or read all of @len bytes on a blocking descriptor, going on after EINTR and short counts.
 * Returns 0 or -errno; fd_read_all returns -ENODATA when the end comes first. */
int fd_write_all(int fd, const void *buf, size_t len);
int fd_read_all(int fd, void *buf, size_t len);
int fd_pwrite_all(int fd, const void *buf, size_t len, uint64_t off);

int fd_set_nonblock(int fd, bool on); /* 0 or -errno */
int fd_set_cloexec(int fd, bool on);  /* 0 or -errno */

/* Read a whole file below @dirfd, at most @cap bytes, into malloc'd memory with a NUL behind it.
 * No symbolic link at the last step is followed; anything but a regular file is -EINVAL; longer than
 * @cap is -EFBIG. Errors: those of open and read, -ENOMEM. */
int fd_slurp(int dirfd, const char *path, size_t cap, char **ret_text, size_t *ret_len);

/* Replace a file below @dirfd in one step: written beside it, fsync'd when @sync, renamed over it. On any
 * error the old file stands and nothing is left beside it. Errors: those of open, write, fsync, rename. */
int fd_replace(int dirfd, const char *path, const void *data, size_t len, mode_t mode, bool sync);

#endif
