/* SPDX-License-Identifier: Apache-2.0 */
/* libarchive reads the stream and writes the disk. What it is not trusted with is where it writes. It works from the
 * root as its current directory; names lose their leading "/" and "./"; links that lie on the way (/bin, /var/run) are
 * followed here, inside the root (paths.h), so that what libarchive gets has none; it is told to refuse links and ".."
 * all the same, which settles every race. */
#include "agent/import.h"

#include <archive.h>
#include <archive_entry.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/paths.h"

#define COMPLAINTS_MAX 100u
#define BLOCK	       (64u * 1024)
#define NAME_CAP       4096u
#define NOT_TAR	       "this is not a tar stream"
#define EXTRACT_FLAGS                                                                                  \
	(ARCHIVE_EXTRACT_OWNER | ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_XATTR | \
	 ARCHIVE_EXTRACT_SECURE_SYMLINKS | ARCHIVE_EXTRACT_SECURE_NODOTDOT | ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS)

struct import {
	int root_fd;
	struct archive *in, *disk;
	unsigned complaints;
};

static void complain(struct import *i, const char *name, const char *words)
{
	char line[512];
	int n;

	if (++i->complaints > COMPLAINTS_MAX + 1)
		return;
	if (i->complaints == COMPLAINTS_MAX + 1)
		n = snprintf(line, sizeof(line), "import: more complaints follow, not shown\n");
	else
		n = snprintf(line, sizeof(line), "import: %.200s%s%.200s\n", name, *name ? ": " : "",
			     words ? words : "failed");
	/* Nobody may be reading: then nobody is told. */
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return;
}

/* The name below the root; "" for the root itself. */
static const char *relative(const char *name)
{
	while (name[0] == '/' || (name[0] == '.' && (name[1] == '/' || name[1] == '\0')))
		name++;
	return name;
}

/* Replace the links in the first @len bytes of a relative @name by what they lead to, there already or not. A loop
 * stays: it is refused. */
static void follow(struct import *i, char name[NAME_CAP], size_t len)
{
	char prefix[NAME_CAP], resolved[AG_PATH_MAX + 1];
	const char *rest = name + len; /* "" or "/last" */
	enum link_state state;
	size_t n;

	memcpy(prefix, name, len);
	prefix[len] = '\0';
	if (path_follow(i->root_fd, prefix, resolved, &state) < 0 || state == LINK_LOOP)
		return;
	n = strlen(resolved);
	if (n == 0 && *rest == '/')
		rest++;
	if (n + strlen(rest) >= NAME_CAP)
		return;
	memmove(name + n, rest, strlen(rest) + 1);
	memcpy(name, resolved, n);
}

static bool has_dotdot(const char *name)
{
	for (const char *p = name; (p = strstr(p, "..")); p += 2)
		if ((p == name || p[-1] == '/') && (p[2] == '/' || p[2] == '\0'))
			return true;
	return false;
}

/* @from as a path that libarchive may work with, into @to. A directory may stand behind a link itself. */
static void make_name(struct import *i, const char *from, bool is_dir, char to[NAME_CAP])
{
	const char *slash;
	size_t len;

	snprintf(to, NAME_CAP, "%s", relative(from));
	for (len = strlen(to); len > 0 && to[len - 1] == '/'; len--)
		to[len - 1] = '\0';
	if (has_dotdot(to))
		return; /* libarchive refuses it, in words */
	slash = strrchr(to, '/');
	if (is_dir)
		follow(i, to, len);
	else if (slash)
		follow(i, to, (size_t)(slash - to));
}

/* Make names what they should be; false: nothing to unpack. */
static bool set_names(struct import *i, struct archive_entry *e)
{
	const char *name = archive_entry_pathname(e), *link = archive_entry_hardlink(e);
	char copy[NAME_CAP];

	if (!name || strlen(name) >= sizeof(copy))
		return true; /* libarchive's own words follow */
	make_name(i, name, archive_entry_filetype(e) == AE_IFDIR, copy);
	if (copy[0] == '\0')
		return false;
	archive_entry_copy_pathname(e, copy);
	if (link && strlen(link) < sizeof(copy)) {
		make_name(i, link, false, copy);
		archive_entry_copy_hardlink(e, copy);
	}
	return true;
}

/* ARCHIVE_OK, or worse: then the words are in @i->disk or @i->in. */
static int copy_data(struct import *i, struct archive **ret_bad)
{
	const void *block;
	size_t len;
	la_int64_t off;
	int r;

	for (;;) {
		*ret_bad = i->in;
		r = archive_read_data_block(i->in, &block, &len, &off);
		if (r == ARCHIVE_EOF)
			return ARCHIVE_OK;
		if (r < ARCHIVE_WARN)
			return r;
		*ret_bad = i->disk;
		r = (int)archive_write_data_block(i->disk, block, len, off);
		if (r < ARCHIVE_WARN)
			return r;
	}
}

/* false: the stream itself is damaged. */
static bool unpack(struct import *i, struct archive_entry *e)
{
	struct archive *bad = i->disk;
	char name[256];
	int r;

	if (!set_names(i, e))
		return true;
	snprintf(name, sizeof(name), "%s", archive_entry_pathname(e) ? archive_entry_pathname(e) : "?");
	r = archive_write_header(i->disk, e);
	if (r >= ARCHIVE_WARN && r != ARCHIVE_OK)
		complain(i, name, archive_error_string(i->disk));
	if (r >= ARCHIVE_WARN && archive_entry_size(e) > 0)
		r = copy_data(i, &bad);
	if (r < ARCHIVE_WARN) {
		complain(i, name, archive_error_string(bad));
		return bad != i->in;
	}
	r = archive_write_finish_entry(i->disk);
	if (r != ARCHIVE_OK)
		complain(i, name, archive_error_string(i->disk));
	return true;
}

static int run(struct import *i)
{
	struct archive_entry *e;
	size_t entries = 0;
	int r;

	for (;; entries++) {
		r = archive_read_next_header(i->in, &e);
		if (r == ARCHIVE_EOF)
			break;
		if (r < ARCHIVE_WARN) {
			complain(i, "", entries ? archive_error_string(i->in) : NOT_TAR);
			return 2;
		}
		if (!unpack(i, e))
			return 2;
	}
	/* Directories get their times and modes now. */
	if (archive_write_close(i->disk) != ARCHIVE_OK)
		complain(i, "", archive_error_string(i->disk));
	return i->complaints ? 1 : 0;
}

int import_run(int root_fd)
{
	struct import i = { .root_fd = root_fd, .in = archive_read_new(), .disk = archive_write_disk_new() };
	int r;

	umask(0);
	if (fchdir(root_fd) < 0 || !i.in || !i.disk) {
		complain(&i, "", "cannot begin: no memory, or no root directory");
		return 2;
	}
	archive_read_support_format_tar(i.in);
	archive_read_support_filter_gzip(i.in);
	archive_write_disk_set_options(i.disk, EXTRACT_FLAGS);
	if (archive_read_open_fd(i.in, STDIN_FILENO, BLOCK) != ARCHIVE_OK) {
		complain(&i, "", NOT_TAR); /* it looks at the first bytes already */
		r = 2;
	} else {
		r = run(&i);
	}
	archive_write_free(i.disk);
	archive_read_free(i.in);
	return r;
}
