/* SPDX-License-Identifier: Apache-2.0 */
/* The file operations of AG_FS_REQ: decode, act below one root directory, encode. Runs in the file server, a child
 * process of the agent (fsserver.h), because any of them can hang on what the guest mounted. Blocks: yes. No operation
 * follows a symbolic link, at the last step or before, and none leaves the root. */
#ifndef CRUCIBLE_AGENT_FILES_H
#define CRUCIBLE_AGENT_FILES_H

#include <stddef.h>
#include <stdint.h>
#include "agent/proto.h"
#include "base/buf.h"

#define FILES_HANDLES_MAX 1024u

struct files;
/* @root_fd, @proc_fd: borrowed for life. @generation: part of every handle, so that one of an older server is -ESTALE.
 * Errors: -ENOMEM. */
int files_new(int root_fd, int proc_fd, uint16_t generation, struct files **ret);
struct files *files_free(struct files *f); /* NULL is fine; returns NULL */
/* Close all handles; those given out before are -ESTALE from now on. */
void files_reset(struct files *f, uint16_t generation);

/* Answer one request into @out (emptied first): i32 0 or -errno, then the answer. A payload that cannot be decoded is
 * -EINVAL. Handles: -ESTALE of another generation or released; -ENFILE beyond FILES_HANDLES_MAX. */
void files_handle(struct files *f, uint8_t op, const void *payload, size_t len, struct buf *out);

#endif
