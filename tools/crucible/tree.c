/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/tree.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/printable.h"

#define WORDS_MAX sizeof(((struct err *)NULL)->msg)

int tree_read(int dir, const char *path, char **ret, size_t *ret_len)
{
	return fd_slurp(dir, path, TREE_TEXT_MAX, ret, ret_len);
}

int tree_word(int dir, const char *path, char *out, size_t cap)
{
	AUTO_FREE char *text = NULL;
	char *start, *end;
	int r = tree_read(dir, path, &text, NULL);

	if (r < 0)
		return r;
	for (start = text; isspace((unsigned char)*start); start++)
		;
	end = start + strcspn(start, "\n");
	while (end > start && isspace((unsigned char)end[-1]))
		end--;
	if ((size_t)(end - start) >= cap)
		return -ENOBUFS;
	memcpy(out, start, (size_t)(end - start));
	out[end - start] = '\0';
	printable_line(out);
	return 0;
}

int tree_json(int dir, const char *path, struct json_object **ret, struct err *e)
{
	AUTO_FREE char *text = NULL;
	AUTO_JSON *o = NULL;
	size_t len;
	int r = tree_read(dir, path, &text, &len);

	if (r == -EPERM)
		return tree_explain(dir, r, e, "%s", path);
	if (r < 0)
		return err_set(e, r, "%s: %s", path, strerror(-r));
	r = json_parse(text, len, &o, e);
	if (r < 0) {
		err_wrap(e, "%s", path);
		return r;
	}
	if (!json_object_is_type(o, json_type_object))
		return err_set(e, -EINVAL, "%s: no JSON object", path);
	*ret = o;
	o = NULL;
	return 0;
}

int tree_info(int dir, const char *id, struct json_object **ret, struct err *e)
{
	AUTO_JSON *o = NULL;
	char status[32];
	int r = tree_json(dir, "info.json", ret, e);

	if (r != -EPERM)
		return r;
	o = json_object_new_object();
	r = tree_word(dir, "status", status, sizeof(status));
	if (r == 0 && (!o || fields_put(o, "id", json_object_new_string(id)) < 0 ||
		       fields_put(o, "status", json_object_new_string(status)) < 0))
		r = -ENOMEM;
	if (r < 0)
		return err_set(e, r, "%s: status: %s", id, strerror(-r));
	*ret = o;
	o = NULL;
	return 0;
}

/* *ret_opened: a failure is the write's, or the close's, and not the open's. */
static int write_to(int dir, const char *path, const void *data, size_t len, bool *ret_opened)
{
	AUTO_FD fd = -1;
	int r;

	fd = openat(dir, path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	*ret_opened = fd >= 0;
	if (fd < 0)
		return -errno;
	r = fd_write_all(fd, data, len);
	if (r < 0)
		return r;
	/* Control files answer in write(2); files of a guest may have more to say at the end. */
	return close(take_fd(&fd)) < 0 && errno != EINTR ? -errno : 0;
}

int tree_write(int dir, const char *path, const void *data, size_t len)
{
	bool opened;

	return write_to(dir, path, data, len, &opened);
}

/* The daemon's words of the last failure, if there are any. */
static bool take_words(int dir, int code, struct err *e)
{
	char words[WORDS_MAX] = "";

	if (tree_word(dir, "error", words, sizeof(words)) < 0 || !words[0])
		return false;
	err_set(e, code, "%s", words);
	return true;
}

int tree_put(int dir, const char *path, const void *data, size_t len, struct err *e)
{
	bool opened;
	int r = write_to(dir, path, data, len, &opened);

	/* The kernel says this of an open. Whoever was let in and is refused then was refused by the daemon. */
	if (r == -EACCES && opened && take_words(dir, r, e))
		return r;
	return r < 0 ? tree_explain(dir, r, e, "%s", path) : 0;
}

int tree_set(int dir, const char *path, const char *value, struct err *e)
{
	AUTO_FREE char *line = NULL;
	int n = asprintf(&line, "%s\n", value);

	if (n < 0) {
		line = NULL;
		return err_set(e, -ENOMEM, "no memory");
	}
	return tree_put(dir, path, line, (size_t)n, e);
}

/* The kernel answers these itself, or they say that there is nobody who could have left words. */
static bool is_from_daemon(int code)
{
	static const int others[] = { ENOENT, EACCES, EROFS, ENOTDIR, EISDIR,	   ELOOP,
				      EMFILE, ENFILE, EINTR, ESTALE,  ECONNABORTED };

	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		if (code == -others[i])
			return false;
	}
	return true;
}

int tree_explain(int dir, int code, struct err *e, const char *fmt, ...)
{
	char what[WORDS_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	if (is_from_daemon(code) && take_words(dir, code, e))
		return code;
	if (code == -ENOTCONN || code == -ECONNABORTED)
		return err_set(e, code, "%s: the guest, or the daemon, is gone", what);
	if (code == -ESTALE)
		return err_set(e, code, "%s: it has been removed, or the view of this mount has ended", what);
	return err_set(e, code, "%s: %s", what, strerror(-code));
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int tree_list(int dir, const char *path, int (*fn)(void *arg, int parent, const char *name), void *arg)
{
	char **names = NULL;
	size_t n = 0;
	struct dirent *d;
	DIR *stream;
	int r = 0, fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	stream = fdopendir(fd);
	if (!stream) {
		r = -errno;
		close(fd);
		return r;
	}
	while (r == 0 && (errno = 0, d = readdir(stream)) != NULL) {
		char **grown;

		if (d->d_name[0] == '.')
			continue;
		grown = reallocarray(names, n + 1, sizeof(*names));
		if (grown)
			names = grown;
		if (!grown || !(names[n] = strdup(d->d_name)))
			r = -ENOMEM;
		else
			n++;
	}
	if (r == 0 && errno)
		r = -errno;
	if (n > 1)
		qsort(names, n, sizeof(*names), by_name);
	for (size_t i = 0; i < n; i++) {
		if (r == 0)
			r = fn(arg, dirfd(stream), names[i]);
		free(names[i]);
	}
	free(names);
	closedir(stream);
	return r;
}
