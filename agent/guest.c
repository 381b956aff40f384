/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "agent/guest.h"

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
