/* SPDX-License-Identifier: Apache-2.0 */
/* The way in: a local directory becomes the stream that the sandbox's `import` takes. */
#include "tools/crucible/pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/crucible/libarchive.h"

#define BLOCK_BYTES (64 * 1024)

struct packing {
	struct archive *in, *out;
	struct archive_entry_linkresolver *links;
	const char *dir, *prefix;
	size_t dir_len;
	int fd;
	bool failed; /* nothing more is written, not even the end that libarchive writes by itself */
	struct pack_count count;
};

static int fail(struct archive *a, const char *what, struct err *e)
{
	int code = la.archive_errno(a) > 0 ? -la.archive_errno(a) : -EIO;

	return err_set(e, code, "%s: %s", what, la.archive_error_string(a) ?: strerror(-code));
}

static la_ssize_t on_write(struct archive *a, void *arg, const void *data, size_t len)
{
	struct packing *p = arg;
	ssize_t n;

	if (p->failed)
		return (la_ssize_t)len;
	do
		n = write(p->fd, data, len);
	while (n < 0 && errno == EINTR);
	if (n < 0) {
		p->failed = true;
		la.archive_set_error(a, errno, "%s", strerror(errno));
	}
	return n;
}

/* "dir/sub/file" -> "prefix/sub/file", and nothing of the owner or of the host but mode and time. */
static int rename_entry(const struct packing *p, struct archive_entry *entry)
{
	const char *path = la.archive_entry_pathname(entry);
	const char *rest;
	char *renamed;

	if (!path || strncmp(path, p->dir, p->dir_len) != 0)
		return -EINVAL;
	rest = path + p->dir_len;
	if (asprintf(&renamed, "%s%s%s", p->prefix, *rest && *rest != '/' ? "/" : "", rest) < 0)
		return -ENOMEM;
	la.archive_entry_set_pathname(entry, renamed);
	free(renamed);
	la.archive_entry_set_uid(entry, 0);
	la.archive_entry_set_gid(entry, 0);
	la.archive_entry_set_uname(entry, NULL);
	la.archive_entry_set_gname(entry, NULL);
	la.archive_entry_unset_atime(entry);
	la.archive_entry_unset_ctime(entry);
	la.archive_entry_unset_birthtime(entry);
	la.archive_entry_sparse_clear(entry);
	return 0;
}

static int write_bytes(struct packing *p, const void *data, size_t len, struct err *e)
{
	const char *at = data;

	while (len > 0) {
		la_ssize_t n = la.archive_write_data(p->out, at, len);

		if (n < 0)
			return fail(p->out, "import", e);
		if (n == 0)
			return 0; /* the file has grown since its header was written: the rest is not its */
		at += n;
		len -= (size_t)n;
		p->count.bytes += (uint64_t)n;
	}
	return 0;
}

/* Holes come as gaps between blocks. A file that shrank is filled up with zeros by libarchive. */
static int copy_data(struct packing *p, const char *name, struct err *e)
{
	static const char zeros[BLOCK_BYTES];
	int64_t at = 0;

	for (;;) {
		const void *block;
		int64_t offset;
		size_t len;
		int r = la.archive_read_data_block(p->in, &block, &len, &offset);

		if (r == ARCHIVE_EOF)
			return 0;
		if (r < ARCHIVE_WARN)
			return fail(p->in, name, e);
		r = 0;
		while (r == 0 && at < offset) {
			size_t gap = offset - at < BLOCK_BYTES ? (size_t)(offset - at) : BLOCK_BYTES;

			r = write_bytes(p, zeros, gap, e);
			at += (int64_t)gap;
		}
		if (r == 0)
			r = write_bytes(p, block, len, e);
		if (r < 0)
			return r;
		at += (int64_t)len;
	}
}

static int add_entry(struct packing *p, struct archive_entry *entry, struct err *e)
{
	struct archive_entry *spare = NULL;
	char *name = strdup(la.archive_entry_pathname(entry) ?: "?");
	int r = name ? rename_entry(p, entry) : -ENOMEM;

	if (r < 0) {
		err_set(e, r, "%s: %s", name ?: p->dir, strerror(-r));
		goto out;
	}
	la.archive_entry_linkify(p->links, &entry, &spare);
	if (!entry)
		goto out;
	if (la.archive_write_header(p->out, entry) < ARCHIVE_WARN) {
		r = fail(p->out, "import", e);
		goto out;
	}
	p->count.files++;
	if (la.archive_entry_filetype(entry) == AE_IFREG && la.archive_entry_size(entry) > 0 &&
	    !la.archive_entry_hardlink(entry))
		r = copy_data(p, name, e);
out:
	free(name);
	return r;
}

static int pack_all(struct packing *p, struct err *e)
{
	struct archive_entry *entry = la.archive_entry_new();
	int r = entry ? 0 : err_set(e, -ENOMEM, "no memory");

	while (r == 0) {
		__LA_MODE_T type;
		int got = la.archive_read_next_header2(p->in, entry);

		if (got == ARCHIVE_EOF)
			break;
		if (got < ARCHIVE_WARN) {
			r = fail(p->in, p->dir, e);
			break;
		}
		la.archive_read_disk_descend(p->in);
		type = la.archive_entry_filetype(entry);
		if (type == AE_IFREG || type == AE_IFDIR || type == AE_IFLNK)
			r = add_entry(p, entry, e);
		else
			p->count.skipped++;
	}
	la.archive_entry_free(entry);
	return r;
}

int pack_directory(const char *dir, const char *prefix, int fd, struct pack_count *ret, struct err *e)
{
	struct packing p = { .dir = dir, .prefix = prefix, .dir_len = strlen(dir), .fd = fd };
	int r = libarchive_load(e);

	if (r < 0)
		return r;
	p.in = la.archive_read_disk_new();
	p.out = la.archive_write_new();
	p.links = la.archive_entry_linkresolver_new();
	if (!p.in || !p.out || !p.links) {
		r = err_set(e, -ENOMEM, "no memory");
		goto out;
	}
	la.archive_read_disk_set_symlink_hybrid(p.in); /* @dir itself may be one */
	la.archive_read_disk_set_behavior(p.in, ARCHIVE_READDISK_NO_XATTR | ARCHIVE_READDISK_NO_ACL |
							ARCHIVE_READDISK_NO_FFLAGS);
	la.archive_write_set_format_pax_restricted(p.out);
	la.archive_entry_linkresolver_set_strategy(p.links, la.archive_format(p.out));
	la.archive_write_set_bytes_per_block(p.out, BLOCK_BYTES);
	la.archive_write_set_bytes_in_last_block(p.out, 1);
	if (la.archive_read_disk_open(p.in, dir) != ARCHIVE_OK)
		r = fail(p.in, dir, e);
	else if (la.archive_write_open(p.out, &p, NULL, on_write, NULL) != ARCHIVE_OK)
		r = fail(p.out, "import", e);
	else
		r = pack_all(&p, e);
	if (r == 0 && la.archive_write_close(p.out) != ARCHIVE_OK)
		r = fail(p.out, "import", e);
	if (r == 0)
		*ret = p.count;
out:
	la.archive_entry_linkresolver_free(p.links);
	p.failed = p.failed || r < 0;
	la.archive_write_free(p.out);
	la.archive_read_free(p.in);
	return r;
}
