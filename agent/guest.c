/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/guest.h"
#include "base/fd.h"

void unenforced_add(struct unenforced *u, const char *fmt, ...)
{
	char line[sizeof(u->text[0])];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	for (size_t i = 0; i < u->n; i++)
		if (strcmp(u->text[i], line) == 0)
			return;
	if (u->n == UNENFORCED_MAX) {
		snprintf(u->text[UNENFORCED_MAX - 1], sizeof(u->text[0]), "and more");
		return;
	}
	memcpy(u->text[u->n++], line, sizeof(line));
}

int guest_write_own(const struct guest *g, const char *name, const char *text)
{
	char path[64], want[256], target[256];
	ssize_t n;

	snprintf(path, sizeof(path), "etc/%s", name);
	snprintf(want, sizeof(want), "%s/%s", g->scripts_path, name);
	n = g->scripts_fd < 0 ? -1 : readlinkat(g->root_fd, path, target, sizeof(target));
	if (n < 0 || (size_t)n != strlen(want) || memcmp(target, want, (size_t)n) != 0)
		return 1;
	return fd_replace(g->scripts_fd, name, text, strlen(text), 0444, false);
}
