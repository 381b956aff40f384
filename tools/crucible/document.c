/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/document.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/printable.h"
#include "tools/crucible/record.h"

/* All of it, or one byte more than a policy may have. */
static int read_all(int fd, struct buf *text)
{
	for (;;) {
		uint8_t *to;
		ssize_t n;
		int r = buf_reserve(text, text->max - text->len, &to);

		if (r < 0)
			return r;
		n = read(fd, to, text->max - text->len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0;
		text->len += (size_t)n;
		if (text->len == text->max)
			return 0;
	}
}

static void tell_faults(const char *name, struct buf *faults)
{
	char *at = faults->len ? buf_str(faults) : NULL, *line;

	while (at && (line = strsep(&at, "\n")))
		if (*line)
			fprintf(stderr, "crucible: %s: %s\n", name, printable_line(line));
}

static int check(const char *name, const struct buf *text, struct policy **ret, struct err *e)
{
	struct buf faults;
	int r;

	buf_init(&faults, 16u << 20); /* more than a document of that size can have */
	r = policy_parse((const char *)text->data, text->len, NULL, ret, &faults);
	if (r == -ENOMEM) {
		err_set(e, r, "%s: no memory", name);
	} else if (r < 0) {
		tell_faults(name, &faults);
		r = EXIT_CRUCIBLE;
	}
	buf_fini(&faults);
	return r;
}

int document_read(const char *file, struct buf *text, struct policy **ret, struct err *e)
{
	bool standard = !strcmp(file, "-");
	AUTO_FD own = standard ? -1 : open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	AUTO_FREE char *name = strdup(standard ? "standard input" : file);
	int r;

	if (!name)
		return err_set(e, -ENOMEM, "no memory");
	printable_line(name);
	if (!standard && own < 0)
		return err_set(e, -errno, "%s: %s", name, strerror(errno));
	r = read_all(standard ? STDIN_FILENO : own, text);
	return r < 0 ? err_set(e, r, "%s: %s", name, strerror(-r)) : check(name, text, ret, e);
}
