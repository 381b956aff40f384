/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/users.h"

#include <assert.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

#define FIELDS_MAX 7

struct line {
	const char *field[FIELDS_MAX];
	size_t len[FIELDS_MAX];
	size_t n;
};

/* Cut the line at @*text into its fields and move on. false at the end. */
static bool next_line(const char **text, struct line *ret)
{
	const char *p = *text, *end;

	if (*p == '\0')
		return false;
	end = strchrnul(p, '\n');
	ret->n = 0;
	while (ret->n < FIELDS_MAX) {
		const char *colon = memchr(p, ':', (size_t)(end - p));
		const char *stop = colon ? colon : end;

		ret->field[ret->n] = p;
		ret->len[ret->n++] = (size_t)(stop - p);
		if (!colon)
			break;
		p = colon + 1;
	}
	*text = *end ? end + 1 : end;
	return true;
}

static bool field_is(const struct line *l, size_t i, const char *word)
{
	return i < l->n && l->len[i] == strlen(word) && memcmp(l->field[i], word, l->len[i]) == 0;
}

/* A decimal id, and nothing else; (uid_t)-1 means "do not change" to the kernel and is none. */
static bool parse_id(const char *p, size_t len, uint32_t *ret)
{
	uint64_t v = 0;

	if (len == 0 || len > 10)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (p[i] < '0' || p[i] > '9')
			return false;
		v = v * 10 + (uint64_t)(p[i] - '0');
	}
	if (v >= UINT32_MAX)
		return false;
	*ret = (uint32_t)v;
	return true;
}

static void copy_field(const struct line *l, size_t i, char *out, size_t cap, const char *otherwise)
{
	if (i < l->n && l->len[i] > 0 && l->len[i] < cap)
		snprintf(out, cap, "%.*s", (int)l->len[i], l->field[i]);
	else
		snprintf(out, cap, "%s", otherwise);
}

int passwd_find(const char *text, const char *name, struct user *ret)
{
	bool by_id;
	uint32_t want = 0, uid, gid;
	struct line l;

	by_id = parse_id(name, strlen(name), &want);
	while (next_line(&text, &l)) {
		if (l.n < 4 || !parse_id(l.field[2], l.len[2], &uid) || !parse_id(l.field[3], l.len[3], &gid))
			continue;
		if (!field_is(&l, 0, name) && !(by_id && uid == want))
			continue;
		*ret = (struct user){ .uid = uid, .gid = gid };
		copy_field(&l, 0, ret->name, sizeof(ret->name), name);
		copy_field(&l, 5, ret->home, sizeof(ret->home), "/");
		copy_field(&l, 6, ret->shell, sizeof(ret->shell), "/bin/sh");
		return 1;
	}
	return 0;
}

int group_find(const char *text, const char *name, gid_t *ret)
{
	struct line l;
	uint32_t gid;

	while (next_line(&text, &l)) {
		if (!field_is(&l, 0, name) || l.n < 3 || !parse_id(l.field[2], l.len[2], &gid))
			continue;
		*ret = gid;
		return 1;
	}
	return 0;
}

/* Is @name one of the comma-separated members? */
static bool has_member(const struct line *l, const char *name)
{
	const char *p = l->field[3], *end = p + l->len[3];
	size_t len = strlen(name);

	while (p < end) {
		const char *comma = memchr(p, ',', (size_t)(end - p));
		const char *stop = comma ? comma : end;

		if ((size_t)(stop - p) == len && memcmp(p, name, len) == 0)
			return true;
		p = stop + 1;
	}
	return false;
}

void group_members(const char *text, struct user *u)
{
	struct line l;
	uint32_t gid;

	while (u->ngroups < USER_GROUPS_MAX && next_line(&text, &l))
		if (l.n >= 4 && parse_id(l.field[2], l.len[2], &gid) && has_member(&l, u->name) && gid != u->gid)
			u->groups[u->ngroups++] = gid;
}

/* A file below the guest's root, links followed inside of it only. An absent file reads as empty. */
static int read_guest(int root_fd, const char *path, char **ret, struct err *e)
{
	struct open_how how = {
		.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	AUTO_FD fd = (int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
	struct stat st;
	size_t len = 0;
	ssize_t n = 0;
	char *text;

	if (fd < 0 && errno != ENOENT && errno != ENOTDIR)
		return err_set(e, -errno, "/%s: %s", path, strerror(errno));
	if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)))
		return err_set(e, -EINVAL, "/%s: not a regular file", path);
	text = malloc(USER_FILE_MAX + 1);
	if (!text)
		return err_set(e, -ENOMEM, "/%s: no memory", path);
	while (fd >= 0 && len < USER_FILE_MAX && (n = read(fd, text + len, USER_FILE_MAX - len)) > 0)
		len += (size_t)n;
	if (n < 0) {
		err_set(e, -errno, "/%s: %s", path, strerror(errno));
		free(text);
		return e ? e->code : -EIO;
	}
	text[len] = '\0'; /* a NUL inside ends it earlier: fine */
	*ret = text;
	return 0;
}

/* A guest without an entry for it (an image with one program and nothing else) still has a root, and uids. */
static bool user_without_entry(const char *name, struct user *ret)
{
	uint32_t uid = 0;

	if (strcmp(name, "root") != 0 && !parse_id(name, strlen(name), &uid))
		return false;
	*ret = (struct user){ .uid = uid, .gid = 0, .shell = "/bin/sh" };
	snprintf(ret->name, sizeof(ret->name), "%s", uid ? name : "root");
	snprintf(ret->home, sizeof(ret->home), "%s", uid ? "/" : "/root");
	return true;
}

int user_find(int root_fd, const char *spec, struct user *ret, struct err *e)
{
	AUTO_FREE char *passwd = NULL;
	AUTO_FREE char *groups = NULL;
	const char *group = NULL;
	char name[64];
	uint32_t gid;
	int r;

	if (!spec || !*spec)
		spec = "root";
	group = strchr(spec, ':');
	r = snprintf(name, sizeof(name), "%.*s", group ? (int)(group - spec) : (int)strlen(spec), spec);
	if (r <= 0 || r >= (int)sizeof(name) || (group && !group[1]))
		return err_set(e, -EINVAL, "user %s: must be name or name:group", spec);
	r = read_guest(root_fd, "etc/passwd", &passwd, e);
	if (r < 0)
		return r;
	r = read_guest(root_fd, "etc/group", &groups, e);
	if (r < 0)
		return r;
	assert(passwd && groups); /* an absent file reads as empty */
	if (!passwd_find(passwd, name, ret) && !user_without_entry(name, ret))
		return err_set(e, -ENOENT, "user %s: not in the guest's /etc/passwd", name);
	if (!group) {
		group_members(groups, ret);
		return 0;
	}
	/* A group that is named replaces the user's own, and no other is added: as with `docker run --user`. */
	if (group_find(groups, group + 1, &gid) || parse_id(group + 1, strlen(group + 1), &gid))
		ret->gid = gid;
	else
		return err_set(e, -ENOENT, "group %s: not in the guest's /etc/group", group + 1);
	return 0;
}
