/* SPDX-License-Identifier: Apache-2.0 */
/* The programs that `setup` knows, and the block in the file of each. Thread: any. */
#ifndef CRUCIBLE_TOOLS_SETUP_H
#define CRUCIBLE_TOOLS_SETUP_H

#include <limits.h>
#include <stddef.h>
#include "base/err.h"
#include "base/json.h"

struct setup_client {
	const char *name;  /* of --client */
	const char *title; /* for people */
	const char *base;  /* environment variable of the directory that @file is in, "" the current one; HOME where it
			      is unset */
	const char *below; /* HOME: the part between HOME and @file */
	const char *file;
	const char *servers;	  /* the object in the file that holds a member for each server */
	const char *kind, *value; /* a member that the program wants besides command and args; or NULL */
};
extern const struct setup_client setup_clients[];
extern const size_t nsetup_clients;

/* Where its file is. -ENOENT HOME is not set; -ENAMETOOLONG. */
int setup_path(const struct setup_client *s, char out[PATH_MAX], struct err *e);
/* The words behind the program for the mount @mount: ["mcp","serve",...]. The program is started with an environment
 * and in a directory of its own: a mount that is not the default is named, from the root on. *ret is the caller's.
 * Errors: -ENOMEM; those of realpath(3). */
int setup_args(const char *mount, struct json_object **ret, struct err *e);
/* {SERVERS: {"crucible": {…}}} for the program @command with @args (a list of texts, borrowed). NULL: no memory. */
struct json_object *setup_block(const struct setup_client *s, const char *command, struct json_object *args);
/* Merge @block into the file @path: all else in it stays. What was there is kept as PATH.before-crucible, unless that
 * is there already. Errors: -EINVAL it is no plain JSON object (comments?); those of reading and writing, with words.
 */
int setup_merge(const struct setup_client *s, const char *path, struct json_object *block, struct err *e);

#endif
