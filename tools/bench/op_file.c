/* SPDX-License-Identifier: Apache-2.0 */
/* Single files, by the system calls that any program makes. ARGUMENT is a path.
 *
 *   stat    stat(2)
 *   read    open, read to the end, close
 *   write   open with O_TRUNC as a shell's `>` does, write --text, close
 *   list    opendir, readdir to the end, closedir */
#include "tools/bench/turns.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define READ_BYTES (128u * 1024u)

struct file {
	const char *path;
	const char *text;
	size_t len;
	char *buf;
};

static int file_open(const struct bench_opts *o, const char *arg, void **ret, struct err *e)
{
	struct file *f = calloc(1, sizeof(*f));

	if (!f)
		return err_set(e, -ENOMEM, "no memory");
	*f = (struct file){ .path = arg, .text = o->text, .len = strlen(o->text), .buf = malloc(READ_BYTES) };
	*ret = f;
	return f->buf ? 0 : err_set(e, -ENOMEM, "no memory");
}

static void file_close(void *op)
{
	struct file *f = op;

	free(f->buf);
	free(f);
}

static int stat_run(void *op, uint64_t *ret_ns, struct err *e)
{
	struct file *f = op;
	uint64_t began = bench_now_ns();
	struct stat st;

	if (stat(f->path, &st) < 0)
		return err_set(e, -errno, "%s: stat: %s", f->path, strerror(errno));
	*ret_ns = bench_now_ns() - began;
	return 0;
}

static int read_run(void *op, uint64_t *ret_ns, struct err *e)
{
	struct file *f = op;
	uint64_t began = bench_now_ns();
	AUTO_FD fd = open(f->path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return err_set(e, -errno, "%s: open: %s", f->path, strerror(errno));
	do
		n = read(fd, f->buf, READ_BYTES);
	while (n > 0);
	if (n < 0)
		return err_set(e, -errno, "%s: read: %s", f->path, strerror(errno));
	fd_close(&fd);
	*ret_ns = bench_now_ns() - began;
	return 0;
}

static int write_run(void *op, uint64_t *ret_ns, struct err *e)
{
	struct file *f = op;
	uint64_t began = bench_now_ns();
	AUTO_FD fd = open(f->path, O_WRONLY | O_TRUNC | O_CLOEXEC);

	if (fd < 0)
		return err_set(e, -errno, "%s: open: %s", f->path, strerror(errno));
	if (write(fd, f->text, f->len) != (ssize_t)f->len)
		return err_set(e, -EIO, "%s: write: %s", f->path, strerror(errno));
	fd_close(&fd);
	*ret_ns = bench_now_ns() - began;
	return 0;
}

static int list_run(void *op, uint64_t *ret_ns, struct err *e)
{
	struct file *f = op;
	uint64_t began = bench_now_ns();
	DIR *d = opendir(f->path);
	size_t n = 0;

	if (!d)
		return err_set(e, -errno, "%s: opendir: %s", f->path, strerror(errno));
	while (readdir(d))
		n++;
	closedir(d);
	*ret_ns = bench_now_ns() - began;
	return n ? 0 : err_set(e, -EIO, "%s: lists nothing", f->path);
}

const struct bench_op bench_op_stat = { "stat", file_open, stat_run, file_close, { 0 } };
const struct bench_op bench_op_read = { "read", file_open, read_run, file_close, { 0 } };
const struct bench_op bench_op_write = { "write", file_open, write_run, file_close, { 0 } };
const struct bench_op bench_op_list = { "list", file_open, list_run, file_close, { 0 } };
