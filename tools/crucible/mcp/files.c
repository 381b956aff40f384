/* SPDX-License-Identifier: Apache-2.0 */
/* write_files, read_file, list_files: through the sandbox's fs/. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/buf.h"
#include "base/fd.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/guestpath.h"
#include "tools/crucible/mcp/call.h"

#define READ_DEFAULT (1024u * 1024)
#define READ_MAX     (4u * 1024 * 1024)
#define PIECE	     65536	 /* of reading */
#define GROUPS	     (64 * 1024) /* of base64 that are decoded at once, in letters */
#define ENTRIES_MAX  2000
#define START_TRIES  12 /* of 5 s each: the first use of fs/ starts the machine, and may be a cold boot */

static int explain(struct call *c, const char *path, int code)
{
	const char *words = code == -ENOTCONN ? "the guest does not run" : strerror(-code);

	if (code == -EPERM && permits_explain(c->cli.mount.fd, POLICY_FILES, path, &c->cli.err))
		return code;
	return err_set(&c->cli.err, code, "path: %s: %s", path, words);
}

/* "/a/b" -> "a/b", without empty parts and "." */
static int parse_path(struct call *c, const struct sbx *s, const char *path, struct cp_operand *ret)
{
	AUTO_FREE char *word = NULL;
	int r;

	if (path[0] != '/')
		return err_set(&c->cli.err, -EINVAL, "path: \"%s\" is not absolute", path);
	if (asprintf(&word, "%s:%s", s->id, path) < 0) {
		word = NULL;
		return err_set(&c->cli.err, -ENOMEM, "no memory");
	}
	r = cp_operand_parse(word, ret, &c->cli.err);
	return r < 0 ? err_wrap(&c->cli.err, "path") : 0;
}

/* The directories above the last component. */
static int make_parents(int fs, const char *path)
{
	char part[PATH_MAX];

	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		AUTO_FD parent = -1;
		char *last;

		snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
		last = strrchr(part, '/');
		if (last)
			*last++ = '\0';
		parent = guest_open(fs, last ? part : "", O_PATH | O_DIRECTORY, 0);
		if (parent < 0)
			return parent;
		if (mkdirat(parent, last ? last : part, 0755) < 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

static int open_started(struct call *c, int fs, const char *path, int flags, mode_t mode)
{
	int r = -ETIMEDOUT;

	for (int tries = 0; tries < START_TRIES && r == -ETIMEDOUT && !atomic_load(&c->cancelled); tries++)
		r = guest_open(fs, path, flags, mode);
	return r;
}

int open_guest_file(struct call *c, struct sbx *s, const char *path, int flags, mode_t mode)
{
	struct cp_operand o;
	AUTO_FD fs = -1;
	int r = parse_path(c, s, path, &o);

	if (r < 0)
		return r;
	fs = openat(s->dir, "fs", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fs < 0)
		return explain(c, path, -errno);
	r = open_started(c, fs, o.path, flags, mode);
	if (r == -ENOENT && flags & O_CREAT) {
		r = make_parents(fs, o.path);
		if (r == 0)
			r = guest_open(fs, o.path, flags, mode);
	}
	return r < 0 ? explain(c, path, r) : r;
}

/* -- write_files ------------------------------------------------------------------------------------------------ */

static int parse_mode(struct call *c, struct json_object *o, const char *path, mode_t *ret)
{
	const char *text = fields_text(o, "mode");
	char *end;
	unsigned long v;

	if (!text)
		return 0;
	v = strtoul(text, &end, 8);
	if (!*text || *end || v > 07777 || text[0] == '-')
		return err_set(&c->cli.err, -EINVAL, "mode: \"%s\" of %s is not octal, as 0755", text, path);
	*ret = (mode_t)v;
	return 0;
}

/* What is to be written: borrowed from the arguments. */
struct content {
	const char *text;
	size_t len;
	bool base64;
	size_t bytes; /* of the file */
};

static int parse_content(struct call *c, struct json_object *o, const char *path, struct content *ret)
{
	struct json_object *content = NULL, *base64 = NULL, *v;

	json_object_object_get_ex(o, "content", &content);
	json_object_object_get_ex(o, "base64", &base64);
	if (!content == !base64)
		return err_set(&c->cli.err, -EINVAL, "content, base64: %s needs one of them", path);
	v = content ?: base64;
	*ret = (struct content){ .text = json_object_get_string(v), .base64 = base64 != NULL };
	ret->bytes = ret->len = (size_t)json_object_get_string_len(v);
	if (base64 && base64_check(ret->text, ret->len, &ret->bytes) < 0)
		return err_set(&c->cli.err, -EINVAL, "base64: that of %s is none", path);
	return 0;
}

static int write_content(int fd, const struct content *data)
{
	AUTO_FREE uint8_t *piece = NULL; /* not on the stack: sixteen of these would stay */
	int r = 0;

	if (!data->base64)
		return fd_write_all(fd, data->text, data->len);
	piece = malloc(GROUPS / 4 * 3);
	if (!piece)
		return -ENOMEM;
	for (size_t at = 0; at < data->len && r == 0; at += GROUPS) {
		size_t left = data->len - at;

		r = fd_write_all(fd, piece, base64_decode(data->text + at, left < GROUPS ? left : GROUPS, piece));
	}
	return r;
}

static int write_file(struct call *c, struct sbx *s, struct json_object *o, uint64_t *ret_bytes)
{
	const char *path = fields_text(o, "path");
	struct content data = { 0 };
	mode_t mode = 0644;
	AUTO_FD fd = -1;
	int r = parse_mode(c, o, path, &mode);

	if (r == 0)
		r = parse_content(c, o, path, &data);
	if (r < 0)
		return r;
	fd = open_guest_file(c, s, path, O_WRONLY | O_CREAT | O_TRUNC, mode & 0777);
	if (fd < 0)
		return fd;
	r = write_content(fd, &data);
	if (r == 0 && fields_text(o, "mode") && fchmod(fd, mode) < 0)
		r = -errno;
	/* What the guest could not take may be said only now. */
	if (r == 0 && close(take_fd(&fd)) < 0)
		r = -errno;
	*ret_bytes += data.bytes;
	return r < 0 ? explain(c, path, r) : 0;
}

int write_files(struct call *c, struct sbx *s, uint64_t *ret_files, uint64_t *ret_bytes)
{
	struct json_object *list = NULL;
	uint64_t files = 0, bytes = 0;
	int r = 0;

	json_object_object_get_ex(c->in, "files", &list);
	for (size_t i = 0; r == 0 && list && i < json_object_array_length(list); i++) {
		r = call_check(c);
		if (r == 0)
			r = write_file(c, s, json_object_array_get_idx(list, i), &bytes);
		if (r < 0 && r != -ECANCELED)
			return err_wrap(&c->cli.err, "files[%zu]", i);
		files++;
	}
	*ret_files = files;
	*ret_bytes = bytes;
	return r;
}

int tool_write_files(struct call *c)
{
	uint64_t files = 0, bytes = 0;
	struct sbx s;
	int r = open_sandbox(c, &s);

	if (r < 0)
		return r;
	r = write_files(c, &s, &files, &bytes);
	sbx_close(&s);
	if (r < 0)
		return r;
	c->result = json_object_new_object();
	if (c->result && fields_put(c->result, "files", json_object_new_uint64(files)) == 0 &&
	    fields_put(c->result, "bytes", json_object_new_uint64(bytes)) == 0)
		return 0;
	return err_set(&c->cli.err, -ENOMEM, "no memory");
}

/* -- read_file -------------------------------------------------------------------------------------------------- */

int put_content(struct json_object *o, const char *key, struct buf *bytes)
{
	bool text = json_is_utf8(bytes->data, bytes->len) && !(bytes->len && memchr(bytes->data, 0, bytes->len));
	struct buf encoded;
	int r = 0;

	if (!text) {
		buf_init(&encoded, READ_MAX * 2);
		r = base64_add(&encoded, bytes->data, bytes->len);
		buf_fini(bytes);
		*bytes = encoded;
	}
	if (r == 0)
		r = fields_put(
			o, key,
			json_object_new_string_len(bytes->len ? (const char *)bytes->data : "", (int)bytes->len));
	buf_fini(bytes);
	return r < 0 ? r : fields_put(o, "base64", json_object_new_boolean(!text));
}

/* A character that the limit cut in two makes no text binary. */
static size_t whole_characters(const uint8_t *data, size_t len)
{
	for (size_t cut = 0; cut < 4 && cut < len; cut++) {
		if (json_is_utf8(data, len - cut))
			return len - cut;
	}
	return len;
}

int tool_read_file(struct call *c)
{
	struct json_object *v;
	size_t max = json_object_object_get_ex(c->in, "max_bytes", &v) ? (size_t)json_object_get_uint64(v)
								       : READ_DEFAULT;
	const char *path = call_text(c, "path");
	bool truncated = false;
	struct buf text;
	size_t bytes;
	AUTO_FD fd = -1;
	struct sbx s;
	int r = open_sandbox(c, &s);

	if (r < 0)
		return r;
	buf_init(&text, READ_MAX + 1 + PIECE);
	fd = open_guest_file(c, &s, path, O_RDONLY | O_NONBLOCK, 0);
	r = fd < 0 ? fd : 0;
	while (r == 0 && text.len <= max) {
		uint8_t *to;
		ssize_t n;

		if (buf_reserve(&text, PIECE, &to) < 0) {
			r = err_set(&c->cli.err, -ENOMEM, "no memory");
			break;
		}
		n = read(fd, to, PIECE);
		if (n < 0 && errno == EINTR && !atomic_load(&c->cancelled))
			continue;
		if (n < 0)
			r = explain(c, path, -errno);
		if (n <= 0)
			break;
		text.len += (size_t)n;
	}
	if (text.len > max) {
		truncated = true;
		text.len = whole_characters(text.data, max);
	}
	if (r == 0) {
		bytes = text.len;
		c->result = json_object_new_object();
		if (!c->result || fields_put(c->result, "path", json_object_new_string(path)) < 0 ||
		    put_content(c->result, "content", &text) < 0 ||
		    fields_put(c->result, "bytes", json_object_new_uint64(bytes)) < 0 ||
		    fields_put(c->result, "truncated", json_object_new_boolean(truncated)) < 0)
			r = err_set(&c->cli.err, -ENOMEM, "no memory");
	}
	buf_fini(&text);
	sbx_close(&s);
	return r;
}

/* -- list_files ------------------------------------------------------------------------------------------------- */

static const char *type_of(mode_t mode)
{
	return S_ISREG(mode) ? "file" : S_ISDIR(mode) ? "directory" : S_ISLNK(mode) ? "link" : "other";
}

static int add_entry(struct json_object *list, int dir, const char *name)
{
	struct json_object *o = json_object_new_object();
	struct stat st = { 0 };
	char mode[8] = "";

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		snprintf(mode, sizeof(mode), "%04o", st.st_mode & 07777u);
	if (o && fields_put(o, "name", json_text(name, strlen(name))) == 0 &&
	    fields_put(o, "type", json_object_new_string(type_of(st.st_mode))) == 0 &&
	    fields_put(o, "size", json_object_new_int64(st.st_size)) == 0 &&
	    fields_put(o, "mode", json_object_new_string(mode)) == 0 && json_object_array_add(list, o) == 0)
		return 0;
	json_object_put(o);
	return -ENOMEM;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(fields_text(*(struct json_object *const *)a, "name"),
		      fields_text(*(struct json_object *const *)b, "name"));
}

int tool_list_files(struct call *c)
{
	AUTO_JSON *list = json_object_new_array();
	const char *path = call_text(c, "path");
	bool truncated = false;
	struct dirent *d;
	DIR *stream = NULL;
	struct sbx s;
	int fd = -1, r = open_sandbox(c, &s);

	if (r < 0)
		return r;
	fd = open_guest_file(c, &s, path, O_RDONLY | O_DIRECTORY, 0);
	sbx_close(&s);
	if (fd < 0)
		return fd;
	stream = fdopendir(fd);
	if (!stream) {
		r = explain(c, path, -errno);
		close(fd);
		return r;
	}
	r = list ? 0 : -ENOMEM;
	while (r == 0 && (errno = 0, d = readdir(stream)) != NULL) {
		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
			continue;
		if (json_object_array_length(list) >= ENTRIES_MAX || atomic_load(&c->cancelled)) {
			truncated = true;
			break;
		}
		r = add_entry(list, fd, d->d_name);
	}
	if (r == 0 && !d && errno)
		r = -errno;
	closedir(stream);
	if (r < 0)
		return explain(c, path, r);
	json_object_array_sort(list, by_name);
	c->result = json_object_new_object();
	if (c->result && fields_put(c->result, "entries", json_object_get(list)) == 0 &&
	    fields_put(c->result, "truncated", json_object_new_boolean(truncated)) == 0)
		return 0;
	return err_set(&c->cli.err, -ENOMEM, "no memory");
}
