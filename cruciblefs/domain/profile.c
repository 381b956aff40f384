/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles as the builder left them in the store: profiles/<name>/{root.img,info.json}, boot/<bootid>/. Read only. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "cruciblefs/domain/priv.h"

static int profile_dir(struct registry *r, const char *name, int *ret_fd)
{
	char path[128];
	int fd;

	if (cfs_name_check(name) < 0)
		return -ENOENT;
	snprintf(path, sizeof(path), "profiles/%s", name);
	fd = openat(r->store_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

bool profile_exists(struct registry *r, const char *name)
{
	AUTO_FD fd = -1;

	return profile_dir(r, name, &fd) == 0 && faccessat(fd, "root.img", R_OK, 0) == 0;
}

static int read_info(int dirfd, struct profile *p, struct err *e)
{
	AUTO_FREE char *text = NULL;
	AUTO_JSON *o = NULL;
	const char *id = NULL, *base = NULL;
	size_t len;
	int r = fd_slurp(dirfd, "info.json", 1 << 20, &text, &len);

	if (r < 0)
		return err_set(e, r, "info.json: %s", strerror(-r));
	r = json_parse(text, len, &o, e);
	if (!r)
		r = json_get_str(o, "bootid", &id, e);
	if (!r)
		r = json_get_str(o, "base", &base, e);
	if (r < 0)
		return r;
	if (!id || cfs_name_check(id) < 0 || strlen(id) >= sizeof(p->bootid))
		return err_set(e, -EINVAL, "info.json: no usable bootid");
	if (!base || strlen(base) >= sizeof(p->base) || strchr(base, '/') || base[0] == '.')
		return err_set(e, -EINVAL, "info.json: no usable base (built by an older version)");
	snprintf(p->bootid, sizeof(p->bootid), "%s", id);
	snprintf(p->base, sizeof(p->base), "%s", base);
	return 0;
}

int profile_open(struct registry *r, const char *name, struct profile *ret, struct err *e)
{
	AUTO_FD dir = -1;
	AUTO_FD img = -1;
	char path[256];
	struct profile p = { .base_fd = -1 };
	struct stat st = { 0 };
	int k = profile_dir(r, name, &dir);

	if (!k) {
		img = openat(dir, "root.img", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (img < 0 || fstat(img, &st) < 0)
			k = -errno;
	}
	if (k == -ENOENT)
		return err_set(e, k, "profile %s is not built; build it: crucible profile build %s", name, name);
	if (k < 0)
		return err_set(e, k, "profile %s: %s", name, strerror(-k));
	k = read_info(dir, &p, e);
	if (k < 0) {
		err_wrap(e, "profile %s; build it anew: crucible profile build %s", name, name);
		return k;
	}
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "boot/%s/%s", p.bootid, i ? "initramfs" : "vmlinux");
		if (faccessat(r->store_fd, path, R_OK, 0) < 0)
			return err_set(e, -ENOENT,
				       "profile %s: the store has no %s; build it anew: crucible profile build %s",
				       name, path, name);
	}
	snprintf(p.name, sizeof(p.name), "%s", name);
	p.base_bytes = (uint64_t)st.st_size;
	p.base_fd = take_fd(&img);
	*ret = p;
	return 0;
}

int profile_list(struct registry *r, bool (*fn)(void *arg, const char *name, uint64_t changed_ns), void *arg)
{
	int fd = openat(r->store_fd, "profiles", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *ent;

	if (!d) {
		int k = -errno;

		fd_close(&fd);
		return k == -ENOENT ? 0 : k;
	}
	while ((ent = readdir(d))) {
		char path[300];
		struct stat st;

		if (cfs_name_check(ent->d_name) < 0)
			continue;
		snprintf(path, sizeof(path), "%s/info.json", ent->d_name);
		if (fstatat(dirfd(d), path, &st, 0) < 0)
			continue;
		if (!fn(arg, ent->d_name, (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec))
			break;
	}
	closedir(d);
	return 0;
}

int profile_info_json(struct registry *r, const char *name, struct buf *out, uint64_t *ret_changed_ns)
{
	AUTO_FD dir = -1;
	AUTO_FREE char *text = NULL;
	struct stat st;
	size_t len = 0;
	int k = profile_dir(r, name, &dir);

	if (!k)
		k = fd_slurp(dir, "info.json", 1 << 20, &text, &len);
	if (!k && fstatat(dir, "info.json", &st, 0) < 0)
		k = -errno;
	if (!k)
		k = buf_add(out, text, len);
	if (!k && (!len || text[len - 1] != '\n'))
		k = buf_adds(out, "\n");
	if (!k && ret_changed_ns)
		*ret_changed_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
	return k;
}
