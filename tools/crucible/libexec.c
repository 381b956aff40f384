/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/libexec.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int libexec_find(const char *name, char *out, size_t cap, struct err *e)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (n > 0) {
		self[n] = '\0';
		/* build/release/bin/crucible -> build/release/libexec/NAME */
		for (int up = 0; up < 2; up++) {
			slash = strrchr(self, '/');
			if (slash)
				*slash = '\0';
		}
		if ((size_t)snprintf(out, cap, "%s/libexec/%s", self, name) < cap && access(out, X_OK) == 0)
			return 0;
	}
	if ((size_t)snprintf(out, cap, "%s/%s", CRUCIBLE_LIBEXECDIR, name) < cap && access(out, X_OK) == 0)
		return 0;
	return err_set(
		e, -ENOENT,
		"%s is neither in %s nor in a build tree around this command: build or install crucible completely",
		name, CRUCIBLE_LIBEXECDIR);
}

void libexec_add_word(struct libexec_args *a, const char *word)
{
	/* Too many: cut off here, refused by libexec_become(). */
	if (a->n < LIBEXEC_ARGS_MAX)
		a->v[a->n] = word;
	a->n++;
}

void libexec_add(struct libexec_args *a, const char *flag, const char *value)
{
	if (!value)
		return;
	libexec_add_word(a, flag);
	libexec_add_word(a, value);
}

int libexec_become(const char *path, struct libexec_args *a, struct err *e)
{
	sigset_t none;

	if (a->n > LIBEXEC_ARGS_MAX)
		return err_set(e, -E2BIG, "more than %d arguments for %s", LIBEXEC_ARGS_MAX, path);
	a->v[a->n] = NULL;
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	fflush(NULL);
	execv(path, (char *const *)a->v);
	return err_set(e, -errno, "%s: %s", path, strerror(errno));
}
