/* SPDX-License-Identifier: Apache-2.0 */
/* crucible cp: files through the sandbox's fs/; directories in through `import`, out as the output of a tar in the
 * guest. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/command.h"
#include "tools/crucible/execute.h"
#include "tools/crucible/guestpath.h"
#include "tools/crucible/import.h"
#include "tools/crucible/pack.h"
#include "tools/crucible/permits.h"
#include "tools/crucible/sbx.h"

#define PIECE_BYTES (128u * 1024)

struct copying {
	struct sbx sbx;
	const struct mount *mount;
	int fs; /* O_PATH of run/<id>/fs */
	struct cp_operand src, dst;
	struct pack_count count;
	struct err *e;
};

static const char *guest_name(const struct cp_operand *o)
{
	return *o->path ? o->path : ".";
}

static int guest_fail(const struct copying *k, const struct cp_operand *o, int code)
{
	if (code == -EPERM && permits_explain(k->mount->fd, POLICY_FILES, k->sbx.id, k->e))
		return code;
	if (code == -ENOTCONN)
		return err_set(k->e, code,
			       "%s:/%s: the guest does not run; a command starts it again (crucible sandbox exec %s -- "
			       "true), or: echo start >%s/run/%s/ctl",
			       k->sbx.id, o->path, k->sbx.id, k->mount->path, k->sbx.id);
	return err_set(k->e, code, "%s:/%s: %s", k->sbx.id, o->path, strerror(-code));
}

static int local_fail(const struct copying *k, const char *path, int code)
{
	return err_set(k->e, code, "%s: %s", path, strerror(-code));
}

/* Bytes, mode and time of one file. */
static int copy_file(struct copying *k, int from, int to, const struct stat *st)
{
	static char piece[PIECE_BYTES];
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, st->st_mtim };
	int r;

	for (;;) {
		ssize_t n = read(from, piece, sizeof(piece));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return k->src.guest ? guest_fail(k, &k->src, -errno) : local_fail(k, k->src.path, -errno);
		if (n == 0)
			break;
		r = fd_write_all(to, piece, (size_t)n);
		if (r < 0)
			return k->dst.guest ? guest_fail(k, &k->dst, r) : local_fail(k, k->dst.path, r);
		k->count.bytes += (uint64_t)n;
	}
	/* Neither set-user-id out of a guest nor into one: that is no property of a copy. A pipe has no mode to keep.
	 */
	if (S_ISREG(st->st_mode) && (fchmod(to, st->st_mode & 0777) < 0 || futimens(to, times) < 0))
		return k->dst.guest ? guest_fail(k, &k->dst, -errno) : local_fail(k, k->dst.path, -errno);
	k->count.files++;
	return 0;
}

/* Where DST is a directory, the source's name goes behind it. */
static int place(struct copying *k, bool is_dir, bool exists)
{
	const char *base = cp_base_name(k->src.path);

	if (exists && is_dir && *base && cp_path_add(k->dst.path, base) < 0)
		return err_set(k->e, -ENAMETOOLONG, "%s: the name is too long", k->dst.path);
	if (k->dst.slash && !(exists && is_dir))
		return k->dst.guest ? guest_fail(k, &k->dst, exists ? -ENOTDIR : -ENOENT)
				    : local_fail(k, k->dst.path, exists ? -ENOTDIR : -ENOENT);
	return 0;
}

/* -- into the guest ------------------------------------------------------------------------------------------ */

static int file_in(struct copying *k, int from, const struct stat *st)
{
	AUTO_FD to = guest_open(k->fs, k->dst.path, O_WRONLY | O_CREAT | O_TRUNC, st->st_mode & 0777);
	int r;

	if (to < 0)
		return guest_fail(k, &k->dst, to);
	r = copy_file(k, from, to, st);
	/* What the guest could not take may be said only now. */
	if (r == 0 && close(take_fd(&to)) < 0)
		r = guest_fail(k, &k->dst, -errno);
	return r;
}

static int directory_in(struct copying *k)
{
	struct cp_operand parent = k->dst;
	struct stat st;
	char *slash = strrchr(parent.path, '/');
	int r;

	/* tar would make the missing ones: a misspelt path must not become a tree. */
	*(slash ? slash : parent.path) = '\0';
	r = guest_stat(k->fs, parent.path, &st);
	if (r < 0)
		return guest_fail(k, &parent, r);
	r = guest_stat(k->fs, k->dst.path, &st);
	if (r == 0 && !S_ISDIR(st.st_mode))
		return guest_fail(k, &k->dst, -ENOTDIR);
	return import_directory(&k->sbx, k->src.path, guest_name(&k->dst), &k->count, k->e);
}

static int copy_in(struct copying *k)
{
	AUTO_FD from = open(k->src.path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	struct stat st, to;
	int r;

	if (from < 0 || fstat(from, &st) < 0)
		return local_fail(k, k->src.path, -errno);
	if (k->src.slash && !S_ISDIR(st.st_mode))
		return local_fail(k, k->src.path, -ENOTDIR);
	r = guest_stat(k->fs, k->dst.path, &to);
	if (r < 0 && r != -ENOENT)
		return guest_fail(k, &k->dst, r);
	/* A directory that is not there yet may well be named with a slash behind it. */
	if (S_ISDIR(st.st_mode) && r == -ENOENT)
		k->dst.slash = false;
	r = place(k, r == 0 && S_ISDIR(to.st_mode), r == 0);
	if (r < 0)
		return r;
	return S_ISDIR(st.st_mode) ? directory_in(k) : file_in(k, from, &st);
}

/* -- out of it ------------------------------------------------------------------------------------------------- */

static int file_out(struct copying *k)
{
	AUTO_FD from = guest_open(k->fs, k->src.path, O_RDONLY | O_NONBLOCK, 0);
	AUTO_FD to = -1;
	struct stat st;

	if (from < 0 || fstat(from, &st) < 0)
		return guest_fail(k, &k->src, from < 0 ? from : -errno);
	to = open(k->dst.path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, st.st_mode & 0777);
	if (to < 0)
		return local_fail(k, k->dst.path, -errno);
	return copy_file(k, from, to, &st);
}

static int unpack_from_guest(struct copying *k, int dir, int *ret_signal)
{
	char source[PATH_MAX + 2];
	const char *const argv[] = { "tar", "-cf", "-", "-C", source, ".", NULL };
	AUTO_FD tar = -1;
	struct slot t;
	int r;

	snprintf(source, sizeof(source), "/%s", k->src.path);
	r = execute_captured(&k->sbx, argv, &t, ret_signal, k->e);
	if (r < 0)
		return r;
	tar = openat(t.dir, "stdout", O_RDONLY | O_CLOEXEC);
	r = tar < 0 ? err_set(k->e, -errno, "exec/%s/stdout: %s", t.name, strerror(errno))
		    : unpack_directory(tar, dir, &k->count, k->e);
	slot_remove(&t);
	return r;
}

static int directory_out(struct copying *k, int *ret_signal)
{
	AUTO_FD dir = -1;
	bool made = mkdir(k->dst.path, 0777) == 0;
	int r;

	if (!made && errno != EEXIST)
		return local_fail(k, k->dst.path, -errno);
	dir = open(k->dst.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return local_fail(k, k->dst.path, -errno);
	r = unpack_from_guest(k, dir, ret_signal);
	if (r < 0 && made)
		rmdir(k->dst.path); /* unless something came */
	return r;
}

static int copy_out(struct copying *k, int *ret_signal)
{
	struct stat from, to;
	bool exists = stat(k->dst.path, &to) == 0;
	int r;

	if (!exists && errno != ENOENT)
		return local_fail(k, k->dst.path, -errno);
	r = guest_stat(k->fs, k->src.path, &from);
	if (r < 0)
		return guest_fail(k, &k->src, r);
	if (k->src.slash && !S_ISDIR(from.st_mode))
		return guest_fail(k, &k->src, -ENOTDIR);
	if (S_ISDIR(from.st_mode) && !exists)
		k->dst.slash = false;
	r = place(k, exists && S_ISDIR(to.st_mode), exists);
	if (r < 0)
		return r;
	return S_ISDIR(from.st_mode) ? directory_out(k, ret_signal) : file_out(k);
}

/* -- */

static int report(struct cli *c, const struct copying *k)
{
	struct json_object *o;

	if (k->count.skipped)
		fprintf(stderr, "crucible: %llu left out: sockets, devices, FIFOs%s\n",
			(unsigned long long)k->count.skipped,
			k->src.guest ? ", or symbolic links that lead out of the directory" : "");
	if (!c->json)
		return 0;
	o = json_object_new_object();
	if (o) {
		json_object_object_add(o, "files", json_object_new_uint64(k->count.files));
		json_object_object_add(o, "bytes", json_object_new_uint64(k->count.bytes));
		json_object_object_add(o, "skipped", json_object_new_uint64(k->count.skipped));
	}
	return print_json(c, o);
}

int cmd_cp(struct cli *c)
{
	struct copying k = { .sbx = SBX_NONE, .mount = &c->mount, .fs = -1, .e = &c->err };
	int signo = 0, r;

	r = cp_operand_parse(c->args.words[0], &k.src, &c->err);
	if (r == 0)
		r = cp_operand_parse(c->args.words[1], &k.dst, &c->err);
	if (r < 0)
		return r;
	if (k.src.guest == k.dst.guest)
		return err_set(&c->err, -EINVAL, "cp needs one path of this machine and one of a sandbox (ID:/path)%s",
			       k.src.guest ? "; copy to this machine first" : "");
	r = sbx_open(c->mount.fd, k.src.guest ? k.src.id : k.dst.id, &k.sbx, &c->err);
	if (r < 0)
		return r;
	k.fs = openat(k.sbx.dir, "fs", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (k.fs < 0)
		r = guest_fail(&k, k.src.guest ? &k.src : &k.dst, -errno);
	else
		r = k.src.guest ? copy_out(&k, &signo) : copy_in(&k);
	if (r == -EINTR && signo)
		r = EXIT_SIGNAL + signo;
	else if (r == 0)
		r = report(c, &k);
	fd_close(&k.fs);
	sbx_close(&k.sbx);
	return r;
}
