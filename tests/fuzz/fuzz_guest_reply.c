/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's answers to file operations: the first byte chooses the parser, the rest is the answer. What comes out
 * must keep the promises of guestreply.h and guestlink.h, whatever goes in. */
#include <stdlib.h>
#include <string.h>

#include "agent/proto.h"
#include "cruciblefs/guestreply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void check_attr(const struct gattr *a)
{
	must(a->type == S_IFREG || a->type == S_IFDIR || a->type == S_IFLNK || a->type == 0);
	must((a->mode & ~07777u) == 0 && a->size <= INT64_MAX && a->blocks512 <= INT64_MAX / 512);
	must(a->type != 0 || (a->size == 0 && a->blocks512 == 0));
	must(a->mtime.tv_nsec >= 0 && a->mtime.tv_nsec < 1000000000);
}

static void check_text(const char *text, unsigned depth)
{
	unsigned ups = 0;

	if (strcmp(text, ".") == 0)
		return;
	must(*text && strlen(text) <= GLINK_MAX);
	while (strncmp(text, "../", 3) == 0 || strcmp(text, "..") == 0) {
		ups++;
		text += text[2] ? 3 : 2;
	}
	must(ups <= depth);
	while (*text) {
		size_t n = strcspn(text, "/");

		must(gname_plain(text, n));
		text += n;
		if (*text)
			must(*++text != '\0');
	}
}

static void parse_link(struct wire_rd *r)
{
	struct glink l;

	if (greply_readlink(r, &l) < 0)
		return;
	for (unsigned depth = 0; depth < 4; depth++) {
		char text[GLINK_MAX + 1];
		size_t len;

		if (glink_text(&l, depth, "self", text, &len) < 0)
			continue;
		must(len == strlen(text));
		check_text(text, depth);
	}
}

static void parse_dir(struct wire_rd *r)
{
	struct gdirent d;
	bool end;

	if (greply_dir_begin(r, &end) < 0)
		return;
	while (greply_dir_next(r, &d) > 0) {
		check_attr(&d.attr);
		if (d.ok)
			must(d.name_len > 0 && d.name_len <= AG_NAME_MAX && gname_plain(d.name, d.name_len));
	}
}

static void parse_statfs(struct wire_rd *r)
{
	struct statvfs v;

	if (greply_statfs(r, &v) < 0)
		return;
	must(v.f_bsize >= 512 && v.f_blocks <= INT64_MAX / v.f_bsize && v.f_bfree <= v.f_blocks &&
	     v.f_bavail <= v.f_bfree);
	must(v.f_ffree <= v.f_files && v.f_namemax > 0 && v.f_namemax <= AG_NAME_MAX);
}

static void parse_xattrs(struct wire_rd *r)
{
	struct buf b;

	buf_init(&b, AG_PAYLOAD_MAX);
	if (greply_xattr_list(r, &b) == 0) {
		must(b.len == 0 || b.data[b.len - 1] == '\0');
		for (size_t at = 0; at < b.len; at += strlen((char *)b.data + at) + 1)
			must(strncmp((char *)b.data + at, "user.", 5) == 0 && b.data[at + 5]);
	}
	buf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire_rd r;
	struct gattr a;
	uint32_t handle;
	const uint8_t *bytes;
	size_t len;
	int code;

	if (size == 0 || size > AG_PAYLOAD_MAX)
		return 0;
	wire_rd_init(&r, data + 1, size - 1);
	switch (data[0] % 9) {
	case 0:
		if (greply_attr(&r, &a) == 0)
			check_attr(&a);
		break;
	case 1:
		if (greply_open(&r, &handle, &a) == 0)
			must(handle != 0 && a.type == S_IFREG);
		break;
	case 2:
		parse_link(&r);
		break;
	case 3:
		parse_dir(&r);
		break;
	case 4:
		if (greply_read(&r, 100, &bytes, &len) == 0)
			must(len <= 100);
		break;
	case 5:
		if (greply_write(&r, 100, &len) == 0)
			must(len <= 100);
		break;
	case 6:
		parse_statfs(&r);
		break;
	case 7:
		parse_xattrs(&r);
		break;
	default:
		code = greply_code((int)wire_u32(&r));
		must(code <= 0 && code > -134 && code != -38 && code != -40);
		greply_empty(&r);
	}
	return 0;
}
