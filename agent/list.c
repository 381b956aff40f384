/* SPDX-License-Identifier: Apache-2.0 */
/* A directory is read whole, then sorted: an entry stands at its name, and what is below a directory at its name with a
 * "/", so that the whole list is in the order of the paths' bytes ("a", "a-b", "a/x"). Directories are opened one after
 * the other, by their path from the root: depth costs memory, no descriptors. No link is followed, no mount entered. */
#include "agent/list.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/proto.h"
#include "base/buf.h"
#include "base/fd.h"

#define OUT_MAX	    (64u * 1024)
#define LONGEST	    (4u * (AG_PATH_MAX + 1) + 256u) /* two paths, every byte escaped, and the numbers */
#define ENTRIES_MAX (4u * 1024 * 1024)		    /* of one directory */

struct entry {
	struct stat st;
	char *target; /* of a symbolic link */
	bool below;   /* not the entry, but what is below it; its name ends in "/" then */
	char name[];
};

struct entries {
	struct entry **list;
	size_t n, cap;
};

struct lister {
	int root_fd;
	struct buf out;
	char path[AG_PATH_MAX + 1]; /* of the present directory: "" or "usr/lib/" */
	size_t path_len;
	int code; /* the exit code so far; 2 ends it */
};

static void complain(struct lister *l, const char *name, const char *words)
{
	char line[512];
	int n = snprintf(line, sizeof(line), "list: /%.200s%.100s: %s\n", l->path, name, words);

	if (l->code == 0)
		l->code = 1;
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return; /* nobody may be reading: then nobody is told */
}

static void give_up(struct lister *l, const char *words)
{
	complain(l, "", words);
	l->code = 2;
}

/* -- output ------------------------------------------------------------------------- */

static void flush(struct lister *l)
{
	if (l->code < 2 && fd_write_all(STDOUT_FILENO, l->out.data, l->out.len) < 0)
		l->code = 2; /* the reader is gone */
	l->out.len = 0;
}

static void put_escaped(struct buf *b, const char *text, bool arrows)
{
	for (const char *p = text; *p; p++) {
		if (*p == '\n')
			buf_add(b, "\\n", 2);
		else if (*p == '\\' || (arrows && *p == '>'))
			buf_add(b, (char[]){ '\\', *p }, 2);
		else
			buf_add(b, p, 1);
	}
}

static char type_letter(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return 'f';
	case S_IFDIR:
		return 'd';
	case S_IFLNK:
		return 'l';
	case S_IFIFO:
		return 'p';
	case S_IFSOCK:
		return 's';
	case S_IFCHR:
		return 'c';
	default:
		return 'b';
	}
}

static void put_entry(struct lister *l, const struct entry *en)
{
	const struct stat *st = &en->st;
	bool device = S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode);
	uint64_t mtime_ns = (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec;

	if (l->out.len + LONGEST > OUT_MAX)
		flush(l);
	/* With that much room it can only fail for lack of memory. */
	if (buf_addf(&l->out, "%c %o %u %u %llu %lld /", type_letter(st->st_mode), st->st_mode & 07777u, st->st_uid,
		     st->st_gid, (unsigned long long)(device ? st->st_rdev : (uint64_t)st->st_size),
		     (long long)mtime_ns) < 0) {
		give_up(l, "no memory");
		return;
	}
	put_escaped(&l->out, l->path, S_ISLNK(st->st_mode));
	put_escaped(&l->out, en->name, S_ISLNK(st->st_mode));
	if (S_ISLNK(st->st_mode)) {
		buf_adds(&l->out, " -> ");
		put_escaped(&l->out, en->target ? en->target : "", false);
	}
	if (buf_adds(&l->out, "\n") < 0)
		give_up(l, "no memory");
}

/* -- one directory ------------------------------------------------------------------ */

static int by_name(const void *a, const void *b)
{
	return strcmp((*(struct entry *const *)a)->name, (*(struct entry *const *)b)->name);
}

static void entries_free(struct entries *all)
{
	for (size_t i = 0; i < all->n; i++) {
		free(all->list[i]->target);
		free(all->list[i]);
	}
	free(all->list);
}

static struct entry *entries_add(struct entries *all, const char *name, const struct stat *st, bool below)
{
	size_t len = strlen(name) + 2;
	struct entry *en;

	if (all->n == all->cap) {
		size_t cap = all->cap ? 2 * all->cap : 32;
		struct entry **list = cap > ENTRIES_MAX ? NULL : reallocarray(all->list, cap, sizeof(struct entry *));

		if (!list)
			return NULL;
		all->list = list;
		all->cap = cap;
	}
	en = calloc(1, sizeof(*en) + len);
	if (!en)
		return NULL;
	en->st = *st;
	en->below = below;
	snprintf(en->name, len, "%s%s", name, below ? "/" : "");
	all->list[all->n++] = en;
	return en;
}

static bool is_left_out(const struct lister *l, const char *name)
{
	static const char *const top[] = { "proc", "sys", "dev", "run" };

	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return true;
	for (size_t i = 0; i < ARRAY_LEN(top); i++)
		if (l->path_len == 0 && strcmp(name, top[i]) == 0)
			return true;
	return false;
}

/* 0, or -ENOMEM. */
static int take_name(struct lister *l, int dir_fd, dev_t dev, const char *name, struct entries *all)
{
	char target[AG_PATH_MAX + 1];
	struct entry *en;
	struct stat st;
	ssize_t n;

	if (is_left_out(l, name) || fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
		return 0;
	if (S_ISDIR(st.st_mode) && st.st_dev != dev)
		return 0;
	if (l->path_len + strlen(name) > AG_PATH_MAX) {
		complain(l, name, "has a path that is too long");
		return 0;
	}
	en = entries_add(all, name, &st, false);
	if (!en || (S_ISDIR(st.st_mode) && !entries_add(all, name, &st, true)))
		return -ENOMEM;
	if (!S_ISLNK(st.st_mode))
		return 0;
	n = readlinkat(dir_fd, name, target, sizeof(target));
	en->target = n < 0 ? NULL : strndup(target, (size_t)n);
	return 0;
}

/* Its descriptor, the file system it is on, or -errno. */
static int open_dir(const struct lister *l, dev_t *ret_dev)
{
	struct open_how how = {
		.flags = O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
	};
	AUTO_FD fd = (int)syscall(SYS_openat2, l->root_fd, l->path_len ? l->path : ".", &how, sizeof(how));
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	*ret_dev = st.st_dev;
	return take_fd(&fd);
}

static void read_dir(struct lister *l, struct entries *all)
{
	dev_t dev = 0;
	AUTO_FD fd = open_dir(l, &dev);
	DIR *d;

	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP || fd == -EXDEV)
		return; /* gone, another one, or mounted upon */
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		complain(l, "", strerror(fd < 0 ? -fd : errno));
		return;
	}
	for (struct dirent *de; l->code < 2 && (de = readdir(d));)
		if (take_name(l, fd, dev, de->d_name, all) < 0)
			give_up(l, "no memory");
	take_fd(&fd);
	closedir(d);
}

static void list_dir(struct lister *l)
{
	struct entries all = { 0 };
	size_t len = l->path_len;

	read_dir(l, &all);
	if (all.n)
		qsort(all.list, all.n, sizeof(struct entry *), by_name);
	for (size_t i = 0; i < all.n && l->code < 2; i++) {
		const struct entry *en = all.list[i];

		if (!en->below) {
			put_entry(l, en);
			continue;
		}
		/* Its own name had room. */
		if (len + strlen(en->name) > AG_PATH_MAX) {
			complain(l, en->name, "what is below has a path that is too long");
			continue;
		}
		l->path_len = len + strlen(en->name);
		memcpy(l->path + len, en->name, strlen(en->name) + 1);
		list_dir(l); /* as deep as a path has names: 2048 at most */
		l->path_len = len;
		l->path[len] = '\0';
	}
	entries_free(&all);
}

int list_run(int root_fd)
{
	struct lister *l = calloc(1, sizeof(*l));
	int code;

	if (!l)
		return 2;
	l->root_fd = root_fd;
	buf_init(&l->out, OUT_MAX);
	list_dir(l);
	flush(l);
	code = l->code;
	buf_fini(&l->out);
	free(l);
	return code;
}
