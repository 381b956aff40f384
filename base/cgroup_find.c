/* SPDX-License-Identifier: Apache-2.0 */
/* Which hierarchies this machine has, and where in them our base lies. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cgroup_priv.h"
#include "base/fd.h"

static const struct {
	const char *v1, *v2; /* what the controller is called there; NULL: not a controller there */
} ctl_name[] = {
	[CGROUP_MEMORY] = { "memory", "memory" }, [CGROUP_CPU] = { "cpu", "cpu" },
	[CGROUP_CPUACCT] = { "cpuacct", NULL },	  [CGROUP_PIDS] = { "pids", "pids" },
	[CGROUP_IO] = { "blkio", "io" },	  [CGROUP_FREEZER] = { "freezer", NULL },
};
_Static_assert(ARRAY_LEN(ctl_name) == CGROUP_CTL_COUNT, "a name for each controller");

/* Whether @word stands in @list between separators. */
static bool has_word(const char *list, const char *word, const char *separators)
{
	size_t len = strlen(word);

	while (*list) {
		size_t n = strcspn(list, separators);

		if (n == len && !strncmp(list, word, len))
			return true;
		list += n;
		list += strspn(list, separators);
	}
	return false;
}

/* Octal escapes of mountinfo (space is \040), undone in place. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' &&
		    s[3] <= '7') {
			*to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

/* The fields of one line that matter: "36 35 98:0 /root /mount opts tags… - type source superopts". */
struct mount_line {
	char *mount, *type, *super;
};

static bool parse_line(char *line, struct mount_line *ret)
{
	char *save = NULL, *word, *dash;
	int n;

	dash = strstr(line, " - ");
	if (!dash)
		return false;
	*dash = '\0';
	ret->mount = ret->super = NULL;
	for (n = 0, word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save), n++)
		if (n == 4)
			ret->mount = word;
	ret->type = strtok_r(dash + 3, " ", &save);
	strtok_r(NULL, " ", &save); /* source */
	ret->super = strtok_r(NULL, " ", &save);
	if (!ret->mount || !ret->type || !ret->super)
		return false;
	unescape(ret->mount);
	return true;
}

/* The path of our own cgroup on v2 ("0::/path"), or false when it is the root or unknown. */
static bool own_v2(const char *self_cgroup, char *ret, size_t cap)
{
	const char *p = self_cgroup;

	while (p && strncmp(p, "0::/", 4) != 0) {
		p = strchr(p, '\n');
		if (p)
			p++;
	}
	if (!p)
		return false;
	p += 4;
	if (*p == '\0' || *p == '\n' || strcspn(p, "\n") >= cap)
		return false;
	snprintf(ret, cap, "%.*s", (int)strcspn(p, "\n"), p);
	/* ".." is what the kernel shows for a place outside of our cgroup namespace. */
	return strncmp(ret, "..", 2) != 0;
}

static bool is_delegated(int root_fd, const char *path)
{
	static const char *const attr[] = { "user.delegate", "trusted.delegate" };
	AUTO_FD fd = openat(root_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char v[2];

	for (size_t i = 0; fd >= 0 && i < ARRAY_LEN(attr); i++)
		if (fgetxattr(fd, attr[i], v, sizeof(v)) == 1 && v[0] == '1')
			return true;
	return false;
}

/* Where our groups go on v2. Only a cgroup that its maker gave away is taken over: a login session's belongs to the
 * session manager, and the processes of the user in it must stay where they are. */
static void settle_base(struct cgroup_tree *t, const char *name, const char *self_cgroup)
{
	char own[PATH_MAX - 16], *slash;

	snprintf(t->base, sizeof(t->base), "crucible-%s", name);
	t->delegated = false;
	if (!t->v2 || !own_v2(self_cgroup, own, sizeof(own)))
		return;
	/* Started again inside of the leaf that we made (or that systemd's DelegateSubgroup=daemon made). */
	slash = strrchr(own, '/');
	if (slash && !strcmp(slash, "/daemon")) {
		*slash = '\0';
		if (!is_delegated(t->root_fd, own))
			*slash = '/';
	}
	if (!is_delegated(t->root_fd, own))
		return;
	snprintf(t->base, sizeof(t->base), "%s", own);
	t->delegated = true;
}

/* Take a mounted hierarchy into the list unless it is there; its index, or -1. */
static int add_tree(struct cgroup_root *c, const char *mount, bool v2, const char *name, const char *self_cgroup)
{
	struct cgroup_tree *t = &c->trees[c->ntrees];

	if (c->ntrees == CGROUP_TREES_MAX)
		return -1;
	t->root_fd = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (t->root_fd < 0)
		return -1;
	t->v2 = v2;
	settle_base(t, name, self_cgroup);
	return (int)c->ntrees++;
}

typedef void mount_fn(struct cgroup_root *c, const struct mount_line *m, const char *name, const char *self_cgroup);

static void take_v2(struct cgroup_root *c, const struct mount_line *m, const char *name, const char *self_cgroup)
{
	AUTO_FREE char *have = NULL;
	const struct cgroup_tree *t;
	struct cgroup_tree top;
	int at;

	if (strcmp(m->type, "cgroup2") != 0 || c->ntrees > 0)
		return;
	at = add_tree(c, m->mount, true, name, self_cgroup);
	if (at < 0)
		return;
	t = &c->trees[at];
	/* What can be switched on below the base: its own list when it was given to us, else the root's. */
	top = *t;
	if (!t->delegated)
		snprintf(top.base, sizeof(top.base), ".");
	if (cgroup_file_get(&top, ".", "cgroup.controllers", &have) < 0)
		return;
	for (size_t i = 0; i < CGROUP_CTL_COUNT; i++)
		if (ctl_name[i].v2 && has_word(have, ctl_name[i].v2, " \n"))
			c->tree_of[i] = at;
	/* The clock of a group runs on v2 whether or not the controller is there. */
	c->tree_of[CGROUP_CPUACCT] = at;
}

static void take_v1(struct cgroup_root *c, const struct mount_line *m, const char *name, const char *self_cgroup)
{
	int at = -1;

	if (strcmp(m->type, "cgroup") != 0)
		return;
	for (size_t i = 0; i < CGROUP_CTL_COUNT; i++) {
		/* The freezer is for killing, which v2 does better. */
		if (c->tree_of[i] >= 0 || !has_word(m->super, ctl_name[i].v1, ","))
			continue;
		if (i == CGROUP_FREEZER && c->ntrees > 0 && c->trees[0].v2)
			continue;
		if (at < 0)
			at = add_tree(c, m->mount, false, name, self_cgroup);
		if (at >= 0)
			c->tree_of[i] = at;
	}
}

static int each_mount(struct cgroup_root *c, const char *mountinfo, mount_fn *fn, const char *name,
		      const char *self_cgroup)
{
	AUTO_FREE char *copy = strdup(mountinfo);
	char *save = NULL;
	struct mount_line m;

	if (!copy)
		return -ENOMEM; /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it does not know AUTO_FREE */
	for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (parse_line(line, &m))
			fn(c, &m, name, self_cgroup);
	return 0;
}

int cgroup_find(struct cgroup_root *c, const char *name, unsigned int flags, const char *mountinfo,
		const char *self_cgroup, struct err *e)
{
	int r = 0;

	c->ntrees = 0;
	for (size_t i = 0; i < CGROUP_CTL_COUNT; i++)
		c->tree_of[i] = -1;
	if (!(flags & CGROUP_V1_ONLY))
		r = each_mount(c, mountinfo, take_v2, name, self_cgroup);
	if (r == 0)
		r = each_mount(c, mountinfo, take_v1, name, self_cgroup);
	return r < 0 ? err_set(e, r, "cgroups: no memory") : 0;
}
