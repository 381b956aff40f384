/* SPDX-License-Identifier: Apache-2.0 */
/* Our other programs: the daemon, the profile builder. */
#ifndef CRUCIBLE_TOOLS_LIBEXEC_H
#define CRUCIBLE_TOOLS_LIBEXEC_H

#include <stddef.h>
#include "base/err.h"

/* The path of program @name: in ../libexec beside the directory that we were started from (a build tree), else where it
 * was installed. Errors: -ENOENT with words. */
int libexec_find(const char *name, char *out, size_t cap, struct err *e);

#define LIBEXEC_ARGS_MAX 64
/* An argument vector that is put together piece by piece; texts are borrowed. */
struct libexec_args {
	const char *v[LIBEXEC_ARGS_MAX + 1];
	size_t n;
};
void libexec_add(struct libexec_args *a, const char *flag, const char *value); /* @value NULL: nothing is added */
void libexec_add_word(struct libexec_args *a, const char *word);

/* Become that program. Returns only on failure: -errno with words. */
int libexec_become(const char *path, struct libexec_args *a, struct err *e);

#endif
