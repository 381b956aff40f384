/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * Paths are "<base>/<path>/<file>" below the descriptor of a hierarchy's mount point. The base is made again with every
 * group, because another process of ours that ends may have removed the empty base a moment ago.
 *
 * Order over the trees: made first to last, removed last to first; listed from the first. So what exists anywhere is
 * listed.
 *
 * Killing: v2 has one file for it, which also meets what forks meanwhile. On v1 the group is frozen, its processes,
 * which now cannot fork or end and so keep their pids, get the signal, and it is thawed to let them die of it. A pid of
 * 0 in a list is a process that our pid namespace does not see; kill(0) would be ourselves.
 */
#include "base/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cgroup_priv.h"
#include "base/fd.h"

#define FILE_CAP  (1024 * 1024) /* of a cgroup's file; a list of pids is the longest */
#define DEPTH_MAX 8

const struct cgroup_tree *cgroup_tree_of(const struct cgroup_root *c, enum cgroup_ctl ctl)
{
	return c->tree_of[ctl] < 0 ? NULL : &c->trees[c->tree_of[ctl]];
}

static int full_path(char out[PATH_MAX], const struct cgroup_tree *t, const char *path, const char *file)
{
	int n = snprintf(out, PATH_MAX, "%s/%s%s%s", t->base, path, file ? "/" : "", file ? file : "");

	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

int cgroup_file_open(const struct cgroup_tree *t, const char *path, const char *file, int flags)
{
	char full[PATH_MAX];
	int r = full_path(full, t, path, file);

	if (r < 0)
		return r;
	r = openat(t->root_fd, full, flags | O_CLOEXEC | O_NOFOLLOW);
	return r < 0 ? -errno : r;
}

int cgroup_file_put(const struct cgroup_tree *t, const char *path, const char *file, const char *text)
{
	AUTO_FD fd = cgroup_file_open(t, path, file, O_WRONLY | O_TRUNC);

	return fd < 0 ? fd : fd_write_all(fd, text, strlen(text));
}

int cgroup_file_get(const struct cgroup_tree *t, const char *path, const char *file, char **ret_text)
{
	char full[PATH_MAX];
	int r = full_path(full, t, path, file);

	return r < 0 ? r : fd_slurp(t->root_fd, full, FILE_CAP, ret_text, NULL);
}

/* -- the base ---------------------------------------------------------------------------------- */

/* v2 lets a group have either processes or limited groups below it: ours, the daemon and its kind, go into a leaf.
 * Twice, for one that was started meanwhile. What cannot be moved shows as a limit that cannot be set. */
static void move_into_leaf(const struct cgroup_tree *t)
{
	char leaf[PATH_MAX], *save = NULL;

	if (full_path(leaf, t, "daemon", NULL) < 0)
		return;
	mkdirat(t->root_fd, leaf, 0755);
	for (int i = 0; i < 2; i++) {
		AUTO_FREE char *pids = NULL;

		if (cgroup_file_get(t, ".", "cgroup.procs", &pids) < 0)
			return;
		for (char *p = strtok_r(pids, "\n", &save); p; p = strtok_r(NULL, "\n", &save))
			cgroup_file_put(t, "daemon", "cgroup.procs", p);
	}
}

static bool name_ok(const char *name)
{
	size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

	return n > 0 && n <= 64 && name[n] == '\0';
}

int cgroup_root_new(const char *name, unsigned int flags, struct cgroup_root **ret, struct err *e)
{
	AUTO_FREE char *mounts = NULL;
	AUTO_FREE char *self = NULL;
	struct cgroup_root *c;
	int r;

	if (!name_ok(name))
		return err_set(e, -EINVAL, "cgroup name: 1 to 64 of A-Z a-z 0-9 . _ -");
	r = fd_slurp(AT_FDCWD, "/proc/self/mountinfo", 16u << 20, &mounts, NULL);
	if (r < 0)
		return err_set(e, r, "/proc/self/mountinfo: %s", strerror(-r));
	r = fd_slurp(AT_FDCWD, "/proc/self/cgroup", FILE_CAP, &self, NULL);
	if (r < 0)
		return err_set(e, r, "/proc/self/cgroup: %s", strerror(-r));
	c = calloc(1, sizeof(*c));
	if (!c)
		return err_set(e, -ENOMEM, "cgroups: no memory");
	r = cgroup_find(c, name, flags, mounts, self, e);
	if (r < 0) {
		cgroup_root_free(c);
		return r;
	}
	for (size_t i = 0; i < c->ntrees; i++)
		if (c->trees[i].delegated)
			move_into_leaf(&c->trees[i]);
	*ret = c;
	return 0;
}

struct cgroup_root *cgroup_root_free(struct cgroup_root *c)
{
	for (size_t i = 0; c && i < c->ntrees; i++)
		fd_close(&c->trees[i].root_fd);
	free(c);
	return NULL;
}

void cgroup_root_remove(struct cgroup_root *c)
{
	for (size_t i = c->ntrees; i-- > 0;)
		if (!c->trees[i].delegated)
			unlinkat(c->trees[i].root_fd, c->trees[i].base, AT_REMOVEDIR);
}

/* -- making ------------------------------------------------------------------------------------- */

/* Let groups right below @dir have the controllers. One by one: one that is refused must not take the others along.
 * What is refused shows when its limit is set. */
static void switch_on(const struct cgroup_root *c, const struct cgroup_tree *t, const char *dir)
{
	static const struct {
		enum cgroup_ctl ctl;
		const char *text;
	} on[] = {
		{ CGROUP_MEMORY, "+memory" },
		{ CGROUP_CPU, "+cpu" },
		{ CGROUP_PIDS, "+pids" },
		{ CGROUP_IO, "+io" },
	};
	char file[PATH_MAX];

	if (snprintf(file, sizeof(file), "%s/cgroup.subtree_control", dir) >= (int)sizeof(file))
		return;
	for (size_t i = 0; i < ARRAY_LEN(on); i++) {
		AUTO_FD fd = -1;

		if (cgroup_tree_of(c, on[i].ctl) != t)
			continue;
		fd = openat(t->root_fd, file, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
		if (fd >= 0)
			(void)!fd_write_all(fd, on[i].text, strlen(on[i].text));
	}
}

static int make_in(const struct cgroup_root *c, const struct cgroup_tree *t, const char *path)
{
	char full[PATH_MAX], *end;
	int r = full_path(full, t, path, NULL);

	if (r < 0)
		return r;
	if (t->v2 && !t->delegated)
		switch_on(c, t, ".");
	end = full + strlen(t->base); /* the base first, then level by level */
	for (;;) {
		char was = *end;

		*end = '\0';
		if (mkdirat(t->root_fd, full, 0755) < 0 && errno != EEXIST)
			return -errno;
		if (was == '\0')
			return 0;
		if (t->v2)
			switch_on(c, t, full);
		*end = was;
		end += 1 + strcspn(end + 1, "/");
	}
}

int cgroup_make(struct cgroup_root *c, const char *path, struct err *e)
{
	for (size_t i = 0; i < c->ntrees; i++) {
		int r = -ENOENT;

		/* Again when the level above was removed between two steps. */
		for (int tries = 0; r == -ENOENT && tries < 3; tries++)
			r = make_in(c, &c->trees[i], path);
		if (r < 0)
			return err_set(e, r, "cgroup %s: make: %s", path, strerror(-r));
	}
	return 0;
}

/* -- entering ----------------------------------------------------------------------------------- */

int cgroup_entry_open(struct cgroup_root *c, const char *path, struct cgroup_entry *ret, struct err *e)
{
	struct cgroup_entry entry = { .born_fd = -1 };

	for (size_t i = 0; i < c->ntrees; i++) {
		const struct cgroup_tree *t = &c->trees[i];
		int fd = t->v2 ? cgroup_file_open(t, path, NULL, O_RDONLY | O_DIRECTORY)
			       : cgroup_file_open(t, path, "cgroup.procs", O_WRONLY);

		if (fd < 0) {
			cgroup_entry_close(&entry);
			return err_set(e, fd, "cgroup %s: open: %s", path, strerror(-fd));
		}
		if (t->v2)
			entry.born_fd = fd;
		else
			entry.procs[entry.nprocs++] = fd;
	}
	*ret = entry;
	return 0;
}

int cgroup_entry_join(const struct cgroup_entry *entry, struct err *e)
{
	for (size_t i = 0; i < entry->nprocs; i++) {
		int r = fd_write_all(entry->procs[i], "0", 1); /* 0: the writer */

		if (r < 0)
			return err_set(e, r, "cgroup: enter: %s", strerror(-r));
	}
	return 0;
}

void cgroup_entry_close(struct cgroup_entry *entry)
{
	fd_close(&entry->born_fd);
	while (entry->nprocs > 0)
		fd_close(&entry->procs[--entry->nprocs]);
}

/* -- walking ------------------------------------------------------------------------------------ */

/* Call @fn for each name of a folder right below a group; -ENOENT when there is no such group. */
static int each_below(const struct cgroup_tree *t, const char *path, cgroup_list_fn *fn, void *arg)
{
	int fd = cgroup_file_open(t, path, NULL, O_RDONLY | O_DIRECTORY), r = 0;
	const struct dirent *d;
	DIR *dir;

	if (fd < 0)
		return fd;
	dir = fdopendir(fd);
	if (!dir) {
		fd_close(&fd);
		return -ENOMEM;
	}
	while (r == 0 && (d = readdir(dir)))
		if (d->d_type == DT_DIR && strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
			r = fn(arg, d->d_name);
	closedir(dir);
	return r;
}

/* A walk over a group and all below it, the deeper ones first. */
struct walk {
	const struct cgroup_tree *tree;
	char path[PATH_MAX];
	int depth;
	int (*fn)(struct walk *w);
	int signo;	/* kill_group(): what to send */
	uint64_t found; /* kill_group(): processes met */
};

static int walk_step(void *arg, const char *name)
{
	struct walk *w = arg;
	size_t len = strlen(w->path), name_len = strlen(name);
	int r;

	if (w->depth == DEPTH_MAX || len + 1 + name_len >= sizeof(w->path))
		return -ENAMETOOLONG;
	if (name[0]) {
		w->path[len] = '/';
		memcpy(w->path + len + 1, name, name_len + 1);
	}
	w->depth++;
	r = each_below(w->tree, w->path, walk_step, w);
	if (r == 0)
		r = w->fn(w);
	w->depth--;
	w->path[len] = '\0';
	return r == -ENOENT || r == -ENODEV ? 0 : r; /* gone under our feet: as it should be */
}

static int walk_tree(struct walk *w, const struct cgroup_tree *t, const char *path)
{
	w->tree = t;
	w->depth = 0;
	if (strlen(path) >= sizeof(w->path))
		return -ENAMETOOLONG;
	memcpy(w->path, path, strlen(path) + 1);
	return walk_step(w, "");
}

int cgroup_list(struct cgroup_root *c, cgroup_list_fn *fn, void *arg)
{
	int r = c->ntrees ? each_below(&c->trees[0], ".", fn, arg) : 0;

	return r == -ENOENT ? 0 : r;
}

int cgroup_pids(struct cgroup_root *c, const char *path, pid_t *ret, size_t cap, size_t *ret_n)
{
	AUTO_FREE char *pids = NULL;
	char *save = NULL;
	size_t n = 0;
	int r = c->ntrees ? cgroup_file_get(&c->trees[0], path, "cgroup.procs", &pids) : -ENOENT;

	if (r < 0)
		return r;
	for (const char *p = strtok_r(pids, "\n", &save); p && n < cap; p = strtok_r(NULL, "\n", &save)) {
		long pid = strtol(p, NULL, 10);

		if (pid > 0) /* 0: of another pid namespace */
			ret[n++] = (pid_t)pid;
	}
	*ret_n = n;
	return 0;
}

/* -- killing ------------------------------------------------------------------------------------ */

static int kill_group(struct walk *w)
{
	AUTO_FREE char *pids = NULL;
	char *save = NULL;
	int r = cgroup_file_get(w->tree, w->path, "cgroup.procs", &pids);

	if (r < 0)
		return r;
	for (char *p = strtok_r(pids, "\n", &save); p; p = strtok_r(NULL, "\n", &save)) {
		long pid = strtol(p, NULL, 10);

		if (pid <= 1 || pid == getpid())
			continue;
		w->found++;
		if (w->signo)
			kill((pid_t)pid, w->signo);
	}
	return 0;
}

/* v2: one write, and one file that tells whether anybody is left. */
static int kill_v2(const struct cgroup_tree *t, const char *path, uint64_t *ret_found)
{
	AUTO_FREE char *events = NULL;
	struct walk w = { .fn = kill_group, .signo = SIGKILL };
	int r = cgroup_file_put(t, path, "cgroup.kill", "1");

	if (r == -ENOENT) /* no such group, or a kernel before 5.14 */
		r = walk_tree(&w, t, path);
	if (r < 0)
		return r;
	r = cgroup_file_get(t, path, "cgroup.events", &events);
	if (r < 0)
		return r;
	*ret_found = strstr(events, "populated 1") != NULL;
	return 0;
}

/* Give the freezer two milliseconds, which is ten times what it needs. A process that sleeps in the kernel can hold it
 * longer; the signal then meets it, and the caller comes back for what it may have forked. */
static void freeze(const struct cgroup_tree *t, const char *path)
{
	const struct timespec pause = { .tv_nsec = 100000 };

	if (cgroup_file_put(t, path, "freezer.state", "FROZEN") < 0)
		return;
	for (int i = 0; i < 20; i++) {
		AUTO_FREE char *is = NULL;

		if (cgroup_file_get(t, path, "freezer.state", &is) < 0 || !strncmp(is, "FROZEN", 6))
			return;
		nanosleep(&pause, NULL);
	}
}

/* Frozen, signalled, thawed. */
static int kill_v1(const struct cgroup_root *c, const struct cgroup_tree *t, const char *path, uint64_t *ret_found)
{
	bool freezes = cgroup_tree_of(c, CGROUP_FREEZER) == t;
	struct walk w = { .fn = kill_group, .signo = SIGKILL };
	int r;

	if (freezes)
		freeze(t, path);
	r = walk_tree(&w, t, path);
	if (freezes)
		cgroup_file_put(t, path, "freezer.state", "THAWED");
	*ret_found = w.found;
	return r;
}

int cgroup_kill(struct cgroup_root *c, const char *path, struct err *e)
{
	const struct cgroup_tree *freezer = cgroup_tree_of(c, CGROUP_FREEZER);
	uint64_t found, all = 0;
	int r;

	/* The tree that kills best goes first; the others then find nobody, or one that never got there. */
	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < c->ntrees; i++) {
			const struct cgroup_tree *t = &c->trees[i];

			if ((pass == 0) != (t->v2 || t == freezer))
				continue;
			found = 0;
			r = t->v2 ? kill_v2(t, path, &found) : kill_v1(c, t, path, &found);
			if (r < 0 && r != -ENOENT && r != -ENODEV)
				return err_set(e, r, "cgroup %s: kill: %s", path, strerror(-r));
			all += found;
		}
	}
	return all > 0;
}

static int remove_group(struct walk *w)
{
	char full[PATH_MAX];
	int r = full_path(full, w->tree, w->path, NULL);

	if (r < 0)
		return r;
	return unlinkat(w->tree->root_fd, full, AT_REMOVEDIR) < 0 ? -errno : 0;
}

int cgroup_remove(struct cgroup_root *c, const char *path, struct err *e)
{
	struct walk w = { .fn = remove_group };

	for (size_t i = c->ntrees; i-- > 0;) {
		int r = walk_tree(&w, &c->trees[i], path);

		if (r < 0)
			return err_set(e, r, "cgroup %s: remove: %s", path, strerror(-r));
	}
	return 0;
}
