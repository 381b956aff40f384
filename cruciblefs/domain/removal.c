/* SPDX-License-Identifier: Apache-2.0 */
/* Removing a sandbox's directory, in the pool: unlinking large files may take long. It is renamed first, so that a
 * daemon that is killed meanwhile finds it and removes the rest at its next start. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"
#include "cruciblefs/domain/priv.h"

struct removal {
	struct pool_job job;
	int dirfd; /* of sandboxes/, own copy */
	char name[sizeof(REMOVAL_PREFIX) + LAUNCH_UUID_LEN];
	int result;
};

/* Boxes own files in there and may have been taken over: never follow a link, never leave the directory's own tree. */
static int remove_tree(int dirfd, const char *name, unsigned depth)
{
	int fd, r = 0;
	DIR *d;
	struct dirent *ent;

	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	if (depth > 64)
		return -ELOOP;
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	d = fdopendir(fd);
	if (!d) {
		r = -errno;
		fd_close(&fd);
		return r;
	}
	while ((ent = readdir(d))) {
		int k;

		if (!strcmp(ent->d_name, ".") || !strcmp(ent->d_name, ".."))
			continue;
		k = remove_tree(fd, ent->d_name, depth + 1);
		r = r ? r : k;
	}
	closedir(d);
	if (unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT && !r)
		r = -errno;
	return r;
}

static void removal_run(struct pool_job *job)
{
	struct removal *m = (struct removal *)job;

	m->result = remove_tree(m->dirfd, m->name, 0);
}

static void removal_done(struct pool_job *job)
{
	struct removal *m = (struct removal *)job;

	if (m->result < 0)
		log_warn("sandbox=%s event=not-removed error=\"%s\" next=tried-at-the-next-start", m->name,
			 strerror(-m->result));
	fd_close(&m->dirfd);
	free(m);
}

/* The first thing, and without asking for memory: from now on it is no sandbox, whatever fails after this. A name of
 * its own tells the next start; where that cannot be had, a directory without sandbox.json does (persist.c). */
static int disown_dir(struct registry *r, const char *uuid, const char *name)
{
	char path[LAUNCH_UUID_LEN + sizeof("/sandbox.json")];
	int code;

	if (renameat(r->sandboxes_fd, uuid, r->sandboxes_fd, name) == 0 || errno == ENOENT)
		return 0;
	code = -errno;
	snprintf(path, sizeof(path), "%.36s/sandbox.json", uuid);
	unlinkat(r->sandboxes_fd, path, 0);
	return code;
}

void registry_remove_dir(struct registry *r, const char *uuid)
{
	char name[sizeof(REMOVAL_PREFIX) + LAUNCH_UUID_LEN];
	struct removal *m;
	int code;

	snprintf(name, sizeof(name), "%s%.36s", REMOVAL_PREFIX, uuid);
	code = disown_dir(r, uuid, name);
	m = calloc(1, sizeof(*m));
	if (!m)
		return; /* the next start finds it */
	m->job = (struct pool_job){ .run = removal_run, .done = removal_done };
	memcpy(m->name, name, sizeof(name));
	m->dirfd = openat(r->sandboxes_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (m->dirfd < 0 || code < 0) {
		m->result = code < 0 ? code : -errno;
		removal_done(&m->job);
		return;
	}
	if (pool_submit(r->pool, &m->job) < 0) {
		/* The queue is full: better slow than a directory that nobody removes. */
		removal_run(&m->job);
		removal_done(&m->job);
	}
}
