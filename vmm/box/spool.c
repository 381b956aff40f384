/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * `total` is what all commands hold: the finished ones in `done`, oldest first, and the running ones as they write. A
 * write that would go beyond the bound removes finished commands from the front until it fits; when there are none
 * left, the output is cut. Sizes are counted as bytes, not as blocks, and once: what somebody else does to these files
 * later does not matter to anything but the bound.
 */
#include "vmm/box/spool.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

struct done {
	uint64_t n, bytes;
};

struct spool {
	int dirfd;
	uint64_t max, total;
	uint32_t keep;
	spool_removed_fn *removed;
	void *arg;
	uint64_t last;
	struct done *done; /* ndone entries from `first` on, in an array of `cap` */
	size_t first, ndone, cap;
};

static const char *const file_name[] = { [SPOOL_STDOUT] = "stdout", [SPOOL_STDERR] = "stderr" };
static_assert(ARRAY_LEN(file_name) == SPOOL_WHICH_COUNT, "a stream without a file");

static int done_add(struct spool *s, struct done d)
{
	if (s->first + s->ndone == s->cap) {
		if (s->first > s->cap / 2) {
			memmove(s->done, s->done + s->first, s->ndone * sizeof(*s->done));
			s->first = 0;
		} else {
			size_t cap = s->cap ? s->cap * 2 : 64;
			struct done *grown = reallocarray(s->done, cap, sizeof(*grown));

			if (!grown)
				return -ENOMEM;
			s->done = grown;
			s->cap = cap;
		}
	}
	s->done[s->first + s->ndone++] = d;
	s->total += d.bytes;
	return 0;
}

/* -- folders ----------------------------------------------------------------------------------- */

static int open_exec(int dirfd, uint64_t n)
{
	char path[40];

	snprintf(path, sizeof(path), "exec/%" PRIu64, n);
	return openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Call @fn for each name of the folder @fd (taken). It may remove the name. */
static int each_name(int fd, void (*fn)(void *arg, int dirfd, const char *name), void *arg)
{
	DIR *d = fdopendir(fd);
	struct dirent *ent;

	if (!d) {
		int r = -errno;

		fd_close(&fd);
		return r;
	}
	while ((ent = readdir(d)))
		if (strcmp(ent->d_name, ".") != 0 && strcmp(ent->d_name, "..") != 0)
			fn(arg, dirfd(d), ent->d_name);
	closedir(d);
	return 0;
}

static void remove_name(void *arg, int dirfd, const char *name)
{
	(void)arg;
	unlinkat(dirfd, name, 0);
}

static void remove_folder(int dirfd, uint64_t n)
{
	int fd = open_exec(dirfd, n);
	char path[40];

	if (fd < 0)
		return;
	each_name(fd, remove_name, NULL);
	snprintf(path, sizeof(path), "exec/%" PRIu64, n);
	unlinkat(dirfd, path, AT_REMOVEDIR);
}

static void remove_oldest(struct spool *s)
{
	struct done d = s->done[s->first];

	s->first++;
	s->ndone--;
	s->total -= d.bytes < s->total ? d.bytes : s->total;
	remove_folder(s->dirfd, d.n);
	if (s->removed)
		s->removed(s->arg, d.n);
}

struct sizes {
	uint64_t bytes;
	bool finished;
};

static void add_size(void *arg, int dirfd, const char *name)
{
	struct sizes *z = arg;
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return;
	z->bytes += (uint64_t)st.st_size;
	z->finished |= strcmp(name, "result.json") == 0;
}

static struct sizes sizes_of(int dirfd, uint64_t n)
{
	struct sizes z = { 0 };
	int fd = open_exec(dirfd, n);

	if (fd >= 0)
		each_name(fd, add_size, &z);
	return z;
}

/* -- the start --------------------------------------------------------------------------------- */

struct scan {
	struct spool *spool;
	int code;
};

static void scan_name(void *arg, int dirfd, const char *name)
{
	struct scan *scan = arg;
	struct sizes z;
	char *end;
	uint64_t n;

	(void)dirfd;
	errno = 0;
	n = strtoull(name, &end, 10);
	if (*name < '1' || *name > '9' || *end || errno)
		return;
	z = sizes_of(scan->spool->dirfd, n);
	if (z.finished && done_add(scan->spool, (struct done){ n, z.bytes }) < 0)
		scan->code = -ENOMEM;
}

static int by_number(const void *a, const void *b)
{
	const struct done *x = a, *y = b;

	return x->n < y->n ? -1 : x->n > y->n;
}

int spool_new(int dirfd, uint64_t max_bytes, uint32_t keep, spool_removed_fn *removed, void *arg, struct spool **ret,
	      struct err *e)
{
	struct spool *s = calloc(1, sizeof(*s));
	struct scan scan = { .spool = s };
	int fd, r;

	if (!s)
		return err_set(e, -ENOMEM, "spool: no memory");
	*s = (struct spool){ .dirfd = dirfd, .max = max_bytes, .keep = keep, .removed = removed, .arg = arg };
	fd = openat(dirfd, "exec", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = fd < 0 ? -errno : each_name(fd, scan_name, &scan);
	if (r == 0)
		r = scan.code;
	if (r < 0 && r != -ENOENT) {
		spool_free(s);
		return err_set(e, r, "spool: exec: %s", err_name(r));
	}
	if (s->ndone > 0) {
		qsort(s->done, s->ndone, sizeof(*s->done), by_number);
		s->last = s->done[s->ndone - 1].n;
	}
	*ret = s;
	return 0;
}

struct spool *spool_free(struct spool *s)
{
	if (s)
		free(s->done);
	free(s);
	return NULL;
}

uint64_t spool_bytes(const struct spool *s)
{
	return s->total;
}

uint64_t spool_last(const struct spool *s)
{
	return s->last;
}

/* -- one command ------------------------------------------------------------------------------- */

#define RECORD_NEW "result.json.new"

void spool_close(struct spool_cmd *c)
{
	for (size_t i = 0; i < ARRAY_LEN(c->files); i++)
		fd_close(&c->files[i].fd);
	fd_close(&c->record_fd);
}

static int make_file(const struct spool *s, uint64_t n, const char *name, int flags)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "exec/%" PRIu64 "/%s", n, name);
	fd = openat(s->dirfd, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC | flags, 0640);
	return fd < 0 ? -errno : fd;
}

int spool_open(struct spool *s, struct spool_cmd *c, uint64_t max)
{
	int r = 0;

	c->max = max;
	for (size_t i = 0; r >= 0 && i < ARRAY_LEN(c->files); i++)
		r = c->files[i].fd = make_file(s, c->n, file_name[i], O_APPEND);
	if (r >= 0)
		r = c->record_fd = make_file(s, c->n, RECORD_NEW, 0);
	if (r < 0)
		spool_close(c);
	return r < 0 ? r : 0;
}

int spool_record(struct spool *s, struct spool_cmd *c, const void *text, size_t len)
{
	char from[64], to[64];
	int r;

	if (c->record_fd < 0)
		return -ENOENT;
	snprintf(from, sizeof(from), "exec/%" PRIu64 "/" RECORD_NEW, c->n);
	snprintf(to, sizeof(to), "exec/%" PRIu64 "/result.json", c->n);
	r = fd_write_all(c->record_fd, text, len);
	if (r == 0 && renameat(s->dirfd, from, s->dirfd, to) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(s->dirfd, from, 0);
	else
		c->other += len;
	fd_close(&c->record_fd);
	return r;
}

/* Bytes that @c may still keep of @len. Makes room by removing what is finished. */
static size_t allowance(struct spool *s, const struct spool_cmd *c, const struct spool_file *f, size_t len)
{
	if (f->kept >= c->max)
		return 0;
	if (len > c->max - f->kept)
		len = (size_t)(c->max - f->kept);
	while (s->ndone > 0 && s->total + len > s->max)
		remove_oldest(s);
	if (s->total >= s->max)
		return 0;
	return len < s->max - s->total ? len : (size_t)(s->max - s->total);
}

int spool_write(struct spool *s, struct spool_cmd *c, enum spool_which which, const void *data, size_t len)
{
	struct spool_file *f = &c->files[which];
	const uint8_t *p = data;
	size_t keep = 0;

	f->bytes += len;
	/* What was cut once stays cut: a file with a hole in its middle would be a lie. */
	if (!f->truncated && f->fd >= 0)
		keep = allowance(s, c, f, len);
	if (keep < len)
		f->truncated = true;
	while (keep > 0) {
		ssize_t n = write(f->fd, p, keep);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			f->truncated = true;
			return -errno;
		}
		p += n;
		keep -= (size_t)n;
		f->kept += (uint64_t)n;
		s->total += (uint64_t)n;
	}
	return 0;
}

void spool_cut(struct spool *s, struct spool_cmd *c)
{
	for (size_t i = 0; i < ARRAY_LEN(c->files); i++) {
		struct spool_file *f = &c->files[i];

		if (f->fd < 0 || f->kept == 0 || ftruncate(f->fd, 0) < 0)
			continue;
		s->total -= f->kept < s->total ? f->kept : s->total;
		f->kept = 0;
		f->truncated = true;
	}
}

void spool_finish(struct spool *s, struct spool_cmd *c)
{
	uint64_t kept = c->files[SPOOL_STDOUT].kept + c->files[SPOOL_STDERR].kept;

	spool_close(c);
	if (c->other == 0) /* it never came to be read: its text is in the folder all the same */
		c->other = sizes_of(s->dirfd, c->n).bytes - kept;
	/* done_add() counts the whole command; what it wrote is counted already. No memory: it is kept, and forgotten
	 * here. */
	s->total -= kept < s->total ? kept : s->total;
	if (done_add(s, (struct done){ c->n, kept + c->other }) < 0)
		s->total += kept + c->other;
	while (s->ndone > 1 && (s->ndone > s->keep || s->total > s->max))
		remove_oldest(s);
}
