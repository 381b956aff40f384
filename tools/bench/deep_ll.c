/* SPDX-License-Identifier: Apache-2.0 */
/* deep_ll: what libfuse's example hello_ll is, with entries deeper down and one that can be written.
 *
 *   deep_ll [FUSE options] MOUNTPOINT
 *
 *   hello           as there
 *   run/a/status    as deep as a control file of a sandbox
 *   run/a/ctl       takes any write and forgets it
 *
 * It is a stand-in of our own, written for comparison: libfuse's example ends at the first level and is read only. It
 * does as little as that one: fixed nodes, all timeouts 0, libfuse's own loop. */
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdlib.h>
#include <string.h>

struct fixed {
	fuse_ino_t parent;
	const char *name;
	mode_t mode;
	const char *text;
};

/* Node N is entry N - 1. */
static const struct fixed nodes[] = {
	{ 0, "", S_IFDIR | 0755, NULL },
	{ 1, "hello", S_IFREG | 0444, "Hello World!\n" },
	{ 1, "run", S_IFDIR | 0755, NULL },
	{ 3, "a", S_IFDIR | 0755, NULL },
	{ 4, "status", S_IFREG | 0444, "configured\n" },
	{ 4, "ctl", S_IFREG | 0644, "start\n" },
};
#define NODES (sizeof(nodes) / sizeof(nodes[0]))

static int stat_of(fuse_ino_t ino, struct stat *st)
{
	const struct fixed *n;

	if (ino == 0 || ino > NODES)
		return -ENOENT;
	n = &nodes[ino - 1];
	memset(st, 0, sizeof(*st));
	st->st_ino = ino;
	st->st_mode = n->mode;
	st->st_nlink = n->text ? 1 : 2;
	st->st_size = n->text ? (off_t)strlen(n->text) : 0;
	return 0;
}

static void deep_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { 0 };

	for (size_t i = 1; i < NODES; i++) {
		if (nodes[i].parent != parent || strcmp(nodes[i].name, name) != 0)
			continue;
		e.ino = i + 1;
		stat_of(e.ino, &e.attr);
		fuse_reply_entry(req, &e);
		return;
	}
	fuse_reply_err(req, ENOENT);
}

static void deep_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	if (stat_of(ino, &st) < 0)
		fuse_reply_err(req, ENOENT);
	else
		fuse_reply_attr(req, &st, 0.0);
}

static void deep_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi)
{
	(void)attr;
	(void)to_set;
	deep_getattr(req, ino, fi);
}

static void deep_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (ino == 0 || ino > NODES || !nodes[ino - 1].text)
		fuse_reply_err(req, EISDIR);
	else
		fuse_reply_open(req, fi);
}

static void deep_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	const char *text = nodes[ino - 1].text;
	size_t len = strlen(text);

	(void)fi;
	if ((size_t)off >= len)
		fuse_reply_buf(req, NULL, 0);
	else
		fuse_reply_buf(req, text + off, len - (size_t)off < size ? len - (size_t)off : size);
}

static void deep_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	(void)ino;
	(void)buf;
	(void)off;
	(void)fi;
	fuse_reply_write(req, size);
}

static const struct fuse_lowlevel_ops deep_ops = {
	.lookup = deep_lookup,
	.getattr = deep_getattr,
	.setattr = deep_setattr,
	.open = deep_open,
	.read = deep_read,
	.write = deep_write,
};

int main(int argc, char *argv[])
{
	struct fuse_args args = FUSE_ARGS_INIT(argc, argv);
	struct fuse_cmdline_opts opts;
	struct fuse_session *se = NULL;
	int ret = 1;

	if (fuse_parse_cmdline(&args, &opts) != 0 || !opts.mountpoint)
		return 1;
	se = fuse_session_new(&args, &deep_ops, sizeof(deep_ops), NULL);
	if (!se)
		goto out;
	if (fuse_set_signal_handlers(se) == 0 && fuse_session_mount(se, opts.mountpoint) == 0) {
		fuse_daemonize(opts.foreground);
		ret = fuse_session_loop(se) < 0;
		fuse_session_unmount(se);
	}
	fuse_remove_signal_handlers(se);
	fuse_session_destroy(se);
out:
	free(opts.mountpoint);
	fuse_opt_free_args(&args);
	return ret;
}
