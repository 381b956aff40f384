/* SPDX-License-Identifier: Apache-2.0 */
/* Paths of the host's file requests: plain names from the guest's root, never out of it. Thread: the file server's. */
#ifndef CRUCIBLE_AGENT_PATHS_H
#define CRUCIBLE_AGENT_PATHS_H

#include <stdbool.h>
#include "agent/proto.h"

/* The form that proto.h demands: "" or names joined by single '/', none of them "." or "..".
 * 0, -EINVAL, or -ENAMETOOLONG (a name over AG_NAME_MAX). */
int path_check(const char *path);

/* Open the directory that @path's last name stands in (O_PATH), following no link on the way, and point *ret_name at
 * that name inside @path; the root is "." in itself. Returns the descriptor or -errno (-ELOOP: a link on the way). */
int path_parent(int root_fd, const char *path, const char **ret_name);

/* Is there nothing at @path, links on the way followed inside the root, the last name not? One call; false when in
 * doubt. */
bool path_absent(int root_fd, const char *path);

/* Follow every link in @path, the last name included, inside the root: plain names from it, and what came of it. ".."
 * is walked as well. As link_resolve() otherwise. */
enum link_state { LINK_RESOLVED, LINK_DANGLING, LINK_LOOP };
int path_follow(int root_fd, const char *path, char *out, enum link_state *ret);

/* What the link at @path, with the text @target, leads to inside the root: plain names from it. @out has AG_PATH_MAX +
 * 1 bytes. Errors: -ENAMETOOLONG, and those of looking names up, absence excepted. */
int link_resolve(int root_fd, const char *path, const char *target, char *out, enum link_state *ret);

#endif
