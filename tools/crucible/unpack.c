/* SPDX-License-Identifier: Apache-2.0 */
/* The way out: a stream that a guest wrote becomes files of ours. Everything in it is hostile.
 *
 * Three layers, each enough: names and types are checked here before libarchive sees them; libarchive refuses "..",
 * absolute names, and to go through links; and what is made gets no owner, no set-user-id bit and no device. */
#include "tools/crucible/pack.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/libarchive.h"
#include "tools/crucible/printable.h"

#define BLOCK_BYTES (64 * 1024)
/* No EXTRACT_UNLINK: a link in the way is an error, not something to be replaced. */
#define SECURE \
	(ARCHIVE_EXTRACT_SECURE_SYMLINKS | ARCHIVE_EXTRACT_SECURE_NODOTDOT | ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS)

bool unpack_path_is_plain(const char *path)
{
	if (*path == '/' || !*path)
		return false;
	while (*path) {
		size_t len = strcspn(path, "/");

		if (len == 2 && !memcmp(path, "..", 2))
			return false;
		path += len;
		path += strspn(path, "/");
	}
	return true;
}

bool unpack_link_stays_inside(const char *path, const char *target)
{
	size_t depth = 0;
	bool named = false; /* a plain name came: what follows may itself be a link, so ".." is no longer counted on */

	if (*target == '/' || !*target)
		return false;
	for (const char *p = path; *p; p += strspn(p, "/")) {
		size_t len = strcspn(p, "/");

		if (!(len == 1 && *p == '.') && p[len + strspn(p + len, "/")])
			depth++; /* a directory that it lies in */
		p += len;
	}
	for (const char *p = target; *p; p += strspn(p, "/")) {
		size_t len = strcspn(p, "/");

		if (len == 2 && !memcmp(p, "..", 2)) {
			if (named || depth == 0)
				return false;
			depth--;
		} else if (!(len == 1 && *p == '.')) {
			named = true;
		}
		p += len;
	}
	return true;
}

static int fail(struct archive *a, const char *what, struct err *e)
{
	int code = la.archive_errno(a) > 0 ? -la.archive_errno(a) : -EBADMSG;

	return err_set(e, code, "%s: %s", what, la.archive_error_string(a) ?: strerror(-code));
}

/* 1: make it. 0: leave it out. -EBADMSG: no tar of ours names such a thing. */
static int judge(struct archive_entry *entry, struct err *e)
{
	const char *path = la.archive_entry_pathname(entry), *hard = la.archive_entry_hardlink(entry),
		   *soft = la.archive_entry_symlink(entry);

	if (!path || !unpack_path_is_plain(path))
		return err_set(e, -EBADMSG, "the guest's tar names \"%.200s\": refused", path ?: "");
	if (hard)
		return unpack_path_is_plain(hard)
			       ? 1
			       : err_set(e, -EBADMSG, "the guest's tar links to \"%.200s\": refused", hard);
	switch (la.archive_entry_filetype(entry)) {
	case AE_IFREG:
	case AE_IFDIR:
		return 1;
	case AE_IFLNK:
		return soft && unpack_link_stays_inside(path, soft);
	default:
		return 0;
	}
}

static int copy_data(struct archive *in, struct archive *out, const char *name, struct pack_count *count, struct err *e)
{
	for (;;) {
		const void *block;
		int64_t offset;
		size_t len;
		int r = la.archive_read_data_block(in, &block, &len, &offset);

		if (r == ARCHIVE_EOF)
			return 0;
		if (r < ARCHIVE_WARN)
			return fail(in, "the guest's tar", e);
		if (la.archive_write_data_block(out, block, len, offset) < ARCHIVE_WARN)
			return fail(out, name, e);
		count->bytes += len;
	}
}

static int make(struct archive *in, struct archive *out, struct archive_entry *entry, struct pack_count *count,
		struct err *e)
{
	const char *name = la.archive_entry_pathname(entry);
	int r = 0;

	la.archive_entry_set_mode(entry, la.archive_entry_filetype(entry) | (la.archive_entry_perm(entry) & 0777));
	if (la.archive_write_header(out, entry) < ARCHIVE_WARN)
		return fail(out, name, e);
	if (la.archive_entry_size(entry) > 0)
		r = copy_data(in, out, name, count, e);
	if (r == 0 && la.archive_write_finish_entry(out) < ARCHIVE_WARN)
		r = fail(out, name, e);
	count->files++;
	return r;
}

static int unpack_all(struct archive *in, struct archive *out, struct pack_count *count, struct err *e)
{
	for (;;) {
		struct archive_entry *entry;
		int r = la.archive_read_next_header(in, &entry);

		if (r == ARCHIVE_EOF)
			return 0;
		if (r < ARCHIVE_WARN)
			return fail(in, "the guest's tar", e);
		r = judge(entry, e);
		if (r > 0)
			r = make(in, out, entry, count, e);
		else if (r == 0)
			count->skipped++;
		if (r < 0)
			return r;
	}
}

int unpack_directory(int fd, int dir, struct pack_count *ret, struct err *e)
{
	struct archive *in, *out;
	struct pack_count count = { 0 };
	AUTO_FD back = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int r = libarchive_load(e);

	if (r < 0)
		return r;
	in = la.archive_read_new();
	out = la.archive_write_disk_new();
	if (!in || !out) {
		r = err_set(e, -ENOMEM, "no memory");
		goto out;
	}
	la.archive_read_support_format_tar(in);
	la.archive_write_disk_set_options(out, ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_TIME | SECURE);
	if (fchdir(dir) < 0)
		r = err_set(e, -errno, "the directory to copy to: %s", strerror(errno));
	else if (la.archive_read_open_fd(in, fd, BLOCK_BYTES) != ARCHIVE_OK)
		r = fail(in, "the guest's tar", e);
	else
		r = unpack_all(in, out, &count, e);
	/* Directories get their modes and times here. */
	if (r == 0 && la.archive_write_close(out) < ARCHIVE_WARN)
		r = fail(out, "the directory to copy to", e);
	if (back >= 0 && fchdir(back) < 0 && r == 0)
		r = err_set(e, -errno, "back to the working directory: %s", strerror(errno));
	if (r == 0)
		*ret = count;
out:
	la.archive_read_free(in);
	la.archive_write_free(out);
	return r;
}
