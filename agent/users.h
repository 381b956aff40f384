/* SPDX-License-Identifier: Apache-2.0 */
/* "name[:group]" by the guest's own /etc/passwd and /etc/group: no name service, no libc state, bounded. Both files are
 * written by whoever is root in the guest. Thread: any; meant for the child between fork and exec: a read can hang on
 * what the guest mounted there. */
#ifndef CRUCIBLE_AGENT_USERS_H
#define CRUCIBLE_AGENT_USERS_H

#include <stddef.h>
#include <sys/types.h>
#include "base/err.h"

#define USER_GROUPS_MAX 256u
#define USER_FILE_MAX	(1024u * 1024)

struct user {
	uid_t uid;
	gid_t gid;
	gid_t groups[USER_GROUPS_MAX]; /* supplementary ones, beside gid; more are left out */
	size_t ngroups;
	char name[64], home[256], shell[128]; /* a uid without an entry: its number, "/", "/bin/sh" */
};

/* Find @spec ("root", "1000", "www-data:www-data", "1000:0"; NULL or "" is root) below @root_fd. A bare uid without an
 * entry has gid 0, no groups and home "/". Errors: -EINVAL (empty or odd), -ENOENT (no such user or group; words name
 * it), those of reading a file that exists. */
int user_find(int root_fd, const char *spec, struct user *ret, struct err *e);

/* The parsers alone, over texts in memory. Return 1 found, 0 not. */
int passwd_find(const char *text, const char *name, struct user *ret);
int group_find(const char *text, const char *name, gid_t *ret);
void group_members(const char *text, struct user *u); /* fills groups */

#endif
