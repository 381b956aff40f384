/* SPDX-License-Identifier: Apache-2.0 */
/* How this works. What is written into `import` becomes, at the last close, a command of the sandbox's queue that
 * unpacks it; nobody says its number. It is one of those that came between a look at exec/latest before and one after:
 * those are few, and the ones whose `cmd` is an import are waited for. When somebody else imports at the same instant,
 * theirs is waited for too, and its failure is told as ours: better than to take theirs for ours. */
#include "tools/crucible/import.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/follow.h"
#include "tools/crucible/record.h"
#include "tools/crucible/tree.h"

/* The number that exec/latest leads to; 0: there is no command yet. */
static unsigned long long latest_exec(const struct sbx *s)
{
	char target[64];
	ssize_t n = readlinkat(s->dir, "exec/latest", target, sizeof(target) - 1);

	if (n <= 0)
		return 0;
	target[n] = '\0';
	return strtoull(target, NULL, 10);
}

static bool is_import(const struct sbx *s, unsigned long long n)
{
	AUTO_FREE char *text = NULL;
	char path[64];

	snprintf(path, sizeof(path), "exec/%llu/cmd", n);
	return tree_read(s->dir, path, &text, NULL) == 0 && strstr(text, "\"//import\"");
}

/* Until the record of command @n is there. */
static int await_record(const struct sbx *s, unsigned long long n, struct record *ret, struct err *e)
{
	struct follow f = { 0 };
	char path[64];
	AUTO_FD output = -1;

	/* poll(2) tells of a stream's end, too, and unlike `wait` it opens at once everywhere. */
	snprintf(path, sizeof(path), "exec/%llu/stdout", n);
	output = openat(s->dir, path, O_RDONLY | O_CLOEXEC);
	snprintf(path, sizeof(path), "exec/%llu/result.json", n);
	for (;;) {
		AUTO_FREE char *text = NULL;
		struct pollfd p = { .fd = output, .events = POLLIN };
		size_t len;
		int r = tree_read(s->dir, path, &text, &len);

		if (r == 0)
			return record_parse(text, len, ret, e);
		if (r != -ENOENT || faccessat(s->dir, "status", F_OK, 0) < 0)
			return err_set(e, r, "sandbox \"%s\": import: %s", s->id,
				       r == -ENOENT ? "it was removed" : strerror(-r));
		r = follow_wait(&f, &p, 1, 1, false);
		if (r < 0)
			return err_set(e, r, "poll: %s", strerror(-r));
	}
}

static int await_import(const struct sbx *s, unsigned long long n, struct err *e)
{
	char path[64], said[200] = "";
	struct record rec = { 0 };
	const char *words;
	int r = await_record(s, n, &rec, e);

	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "exec/%llu/stderr", n);
	if (record_exit_code(&rec, &words) != 0) {
		if (!*words && tree_word(s->dir, path, said, sizeof(said)) == 0)
			words = said;
		r = err_set(e, -EIO, "sandbox \"%s\": import: %s", s->id, *words ? words : "it failed in the guest");
	}
	record_fini(&rec);
	return r;
}

int import_directory(struct sbx *s, const char *dir, const char *path, struct pack_count *ret, struct err *e)
{
	AUTO_FD fd = openat(s->dir, "import", O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	unsigned long long before = latest_exec(s), after;
	bool found = false;
	int r;

	if (fd < 0)
		return err_set(e, -errno, "sandbox \"%s\": import: %s", s->id, strerror(errno));
	r = pack_directory(dir, path, fd, ret, e);
	/* The daemon's words are better than those that libarchive makes of its errno. */
	if (r == -EFBIG || r == -EBUSY || r == -ENOSPC || r == -EIO)
		tree_explain(s->dir, r, e, "sandbox \"%s\": import", s->id);
	/* What came so far is unpacked as far as it goes, as with any cp that fails half way. */
	if (r < 0)
		return r;
	fd_close(&fd);
	after = latest_exec(s);
	for (unsigned long long n = before + 1; n <= after && r == 0; n++) {
		if (!is_import(s, n))
			continue;
		found = true;
		r = await_import(s, n, e);
	}
	if (r == 0 && !found)
		r = tree_explain(s->dir, -EIO, e, "sandbox \"%s\": import: it was not taken", s->id);
	return r;
}
