/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/sbx.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/loop.h"
#include "base/name.h"
#include "tools/crucible/follow.h"
#include "tools/crucible/permits.h"
#include "tools/crucible/tree.h"

#define ENV_TEXT_MAX  (1024u * 1024)
#define LIST_TEXT_MAX (64u * 1024)

#define LIFETIME_SPARE_S 60 /* beyond the command's own deadline: boot, and passing the output on */

int sbx_id_check(const char *id, struct err *e)
{
	int r = name_check(id);

	_Static_assert(SBX_ID_MAX == NAME_LEN_MAX, "one length of names");
	if (r == -ENAMETOOLONG)
		return err_set(e, r, "\"%s\" is longer than %d characters", id, SBX_ID_MAX);
	return r < 0 ? err_set(e, r, "\"%s\" is no name: use A-Z a-z 0-9 . _ -, and begin with a letter or digit", id)
		     : 0;
}

static int explain(int code, const char *id, struct err *e)
{
	switch (code) {
	case -ENOENT:
		return err_set(e, code, "no sandbox \"%s\" (crucible sandbox ls lists them)", id);
	case -EACCES:
	case -EPERM:
		return err_set(e, code, "sandbox \"%s\" belongs to somebody else", id);
	case -EEXIST:
		return err_set(e, code, "there is a sandbox \"%s\" already", id);
	case -EDQUOT:
		return err_set(
			e, code,
			"there are as many sandboxes as the daemon, or the policy of this mount, permits; remove one: "
			"crucible rm ID");
	case -ENOSPC:
		return err_set(e, code, "the daemon's store is nearly full (crucible doctor shows it)");
	case -ENOMEM:
		return err_set(e, code, "the host has too little memory for one more sandbox");
	default:
		return err_set(e, code, "sandbox \"%s\": %s", id, strerror(-code));
	}
}

static int open_run(int root, struct err *e)
{
	int fd = openat(root, "run", O_PATH | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? err_set(e, -errno, "run: %s", strerror(errno)) : fd;
}

int sbx_open(int root, const char *id, struct sbx *ret, struct err *e)
{
	struct sbx s = SBX_NONE;
	int r = sbx_id_check(id, e);

	if (r < 0)
		return r;
	s.run = open_run(root, e);
	if (s.run < 0)
		return s.run;
	s.dir = openat(s.run, id, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (s.dir < 0) {
		r = explain(errno == ENOTDIR ? -ENOENT : -errno, id, e);
		sbx_close(&s);
		return r;
	}
	/* Everybody may enter, to see the status; what one comes for is the owner's. (ENOENT: its owner has hidden the
	 * file.) */
	if (faccessat(s.dir, "ctl", W_OK, AT_EACCESS) < 0 && errno == EACCES) {
		r = explain(-EACCES, id, e);
		sbx_close(&s);
		return r;
	}
	memcpy(s.id, id, strlen(id) + 1);
	*ret = s;
	return 0;
}

void sbx_fresh_name(const char *prefix, char out[SBX_ID_MAX + 1])
{
	uint32_t n = 0;

	/* Four bytes come whole; before the kernel has entropy this waits, which is right. */
	if (getrandom(&n, sizeof(n), 0) != sizeof(n))
		n = (uint32_t)now_ns() ^ ((uint32_t)getpid() << 16);
	snprintf(out, SBX_ID_MAX + 1, "%s%08x", prefix, n);
}

/* sshfs takes any failure of a mkdir, a limit's above all, for EEXIST. */
static int why_not_made(int run, const char *id, int code)
{
	struct stat st;

	return code == -EEXIST && fstatat(run, id, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT ? -EPERM : code;
}

/* mkdir, open, lease. The caller has blocked signals. */
static int make_held(struct sbx *s, bool lease)
{
	int r = 0;

	if (mkdirat(s->run, s->id, 0755) < 0)
		return why_not_made(s->run, s->id, -errno);
	s->dir = openat(s->run, s->id, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (s->dir < 0)
		r = -errno;
	if (r == 0 && lease) {
		s->lease = openat(s->dir, "lease", O_WRONLY | O_CLOEXEC); /* a reader does not hold it */
		if (s->lease < 0)
			r = -errno;
	}
	if (r < 0) {
		fd_close(&s->dir);
		unlinkat(s->run, s->id, AT_REMOVEDIR);
	}
	return r;
}

int sbx_make(int root, const char *id, const char *prefix, bool lease, struct sbx *ret, struct err *e)
{
	struct sbx s = SBX_NONE;
	sigset_t all, old;
	int r = id ? sbx_id_check(id, e) : 0;

	if (r < 0)
		return r;
	/* Who may make one and not remove it would be left with it. */
	if (lease && permits_explain(root, POLICY_DELETE, "a sandbox that goes with its command", e))
		return -EPERM;
	s.run = open_run(root, e);
	if (s.run < 0)
		return s.run;
	for (int tries = 0; tries < 8; tries++) {
		if (id)
			memcpy(s.id, id, strlen(id) + 1);
		else
			sbx_fresh_name(prefix, s.id);
		sigfillset(&all);
		sigprocmask(SIG_BLOCK, &all, &old);
		r = make_held(&s, lease);
		sigprocmask(SIG_SETMASK, &old, NULL);
		if (r != -EEXIST || id)
			break;
	}
	if (r < 0) {
		sbx_close(&s);
		if (r == -EPERM && permits_explain(root, POLICY_CREATE, "a sandbox", e))
			return r;
		/* Through sshfs a limit has no errno of its own. */
		if (r == -EPERM)
			return err_set(
				e, r,
				"sandbox \"%s\" was refused: a limit (policy.json tells yours, crucible doctor the host's), or no right to make any",
				s.id);
		return explain(r, s.id, e);
	}
	*ret = s;
	return 0;
}

static int set_number(struct sbx *s, const char *path, uint64_t value, struct err *e)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return tree_set(s->dir, path, text, e);
}

int sbx_set_env(struct sbx *s, const struct args_texts *env, struct err *e)
{
	struct buf text;
	int r = 0;

	buf_init(&text, ENV_TEXT_MAX);
	for (size_t i = 0; i < env->n && r == 0; i++) {
		const char *eq = strchr(env->v[i], '=');

		if (!eq || eq == env->v[i])
			r = err_set(e, -EINVAL, "--env: \"%s\" is not KEY=VALUE", env->v[i]);
		else if (strchr(env->v[i], '\n'))
			r = err_set(e, -EINVAL,
				    "--env: the value of %.*s holds a newline: set it in the command itself",
				    (int)(eq - env->v[i]), env->v[i]);
		else if (buf_addf(&text, "%s\n", env->v[i]) < 0)
			r = err_set(e, -E2BIG, "--env: more than 1 MiB");
	}
	if (r == 0 && text.len)
		r = tree_put(s->dir, "env", text.data, text.len, e);
	buf_fini(&text);
	return r;
}

/* A list of lines, each an option of its own; all of them in one write, so that all or none are taken. */
static int set_list(struct sbx *s, const char *path, const char *option, const struct args_texts *lines, struct err *e)
{
	struct buf text;
	int r = 0;

	if (!lines->n)
		return 0;
	buf_init(&text, LIST_TEXT_MAX);
	for (size_t i = 0; i < lines->n && r == 0; i++) {
		if (strchr(lines->v[i], '\n'))
			r = err_set(e, -EINVAL, "--%s: one line each: repeat the option", option);
		else if (buf_addf(&text, "%s\n", lines->v[i]) < 0)
			r = err_set(e, -E2BIG, "--%s: more than %u KiB in all", option, LIST_TEXT_MAX / 1024);
	}
	if (r == 0)
		r = tree_put(s->dir, path, text.data, text.len, e);
	buf_fini(&text);
	return r;
}

int sbx_set_up(struct sbx *s, const struct args *a, struct err *e)
{
	static const struct {
		enum opt_id id;
		const char *path;
	} numbers[] = {
		{ OPT_VCPUS, "limits/vcpus" },
		{ OPT_MEMORY, "limits/memory_mib" },
		{ OPT_DISK, "limits/disk_mib" },
	};
	char from[SBX_ID_MAX + sizeof("snapshot:")];
	int r = 0;

	if (a->given[OPT_FROM] + a->given[OPT_PROFILE] + a->given[OPT_SNAPSHOT] > 1)
		return err_set(e, -EINVAL, "--from, --profile and --snapshot say the same thing: give one of them");
	if (a->given[OPT_FROM])
		r = tree_set(s->dir, "from", a->text[OPT_FROM], e);
	if (a->given[OPT_PROFILE]) {
		r = sbx_id_check(a->text[OPT_PROFILE], e);
		if (r < 0)
			return err_wrap(e, "--profile");
		snprintf(from, sizeof(from), "profile:%s", a->text[OPT_PROFILE]);
		r = tree_set(s->dir, "from", from, e);
	}
	if (a->given[OPT_SNAPSHOT]) {
		r = sbx_id_check(a->text[OPT_SNAPSHOT], e);
		if (r < 0)
			return err_wrap(e, "--snapshot");
		snprintf(from, sizeof(from), "snapshot:%s", a->text[OPT_SNAPSHOT]);
		r = tree_set(s->dir, "from", from, e);
	}
	for (size_t i = 0; i < ARRAY_LEN(numbers) && r == 0; i++) {
		if (a->given[numbers[i].id])
			r = set_number(s, numbers[i].path, a->number[numbers[i].id], e);
	}
	if (r == 0)
		r = set_list(s, "net/allow", "net-allow", &a->texts[OPT_NET_ALLOW], e);
	if (r == 0)
		r = set_list(s, "net/ports", "publish", &a->texts[OPT_PUBLISH], e);
	if (r == 0 && a->given[OPT_LIFETIME])
		r = sbx_limit_lifetime(s, a->number[OPT_LIFETIME], e);
	return r;
}

int sbx_limit_lifetime(struct sbx *s, uint64_t ms, struct err *e)
{
	return set_number(s, "limits/timeout_s", (ms + 999) / 1000, e);
}

int sbx_stretch(struct sbx *s, uint64_t timeout_ms, struct err *e)
{
	uint64_t want_s = timeout_ms / 1000 + LIFETIME_SPARE_S;
	char text[32];
	int r = tree_word(s->dir, "limits/timeout_s", text, sizeof(text));

	if (r < 0)
		return err_set(e, r, "sandbox \"%s\": limits/timeout_s cannot be read", s->id);
	if (strtoull(text, NULL, 10) == 0 || strtoull(text, NULL, 10) >= want_s)
		return 0;
	r = set_number(s, "limits/timeout_s", want_s, e);
	/* A policy that does not permit more: the command ends with its sandbox at the latest. */
	return r == -EDQUOT ? 0 : r;
}

int sbx_remove_id(int root, const char *id, struct err *e)
{
	AUTO_FD run = -1;
	int r = sbx_id_check(id, e);

	if (r < 0)
		return r;
	run = open_run(root, e);
	if (run < 0)
		return run;
	if (unlinkat(run, id, AT_REMOVEDIR) == 0)
		return 0;
	r = -errno;
	return r == -EPERM && permits_explain(root, POLICY_DELETE, id, e) ? r : explain(r, id, e);
}

int sbx_remove(struct sbx *s, struct err *e)
{
	int r = unlinkat(s->run, s->id, AT_REMOVEDIR) < 0 ? -errno : 0;

	return r == 0 || r == -ENOENT ? 0 : explain(r, s->id, e);
}

void sbx_undo(struct sbx *s, struct err *e)
{
	if (sbx_remove(s, NULL) < 0)
		err_wrap(e, "sandbox \"%s\" was made, and stays, since you may not remove it", s->id);
}

int sbx_await(struct sbx *s, const char *word, unsigned timeout_ms, struct err *e)
{
	uint64_t end_ns = now_ns() + (uint64_t)timeout_ms * 1000000u;
	struct follow f = { 0 };
	char status[32];
	AUTO_FD log = -1;

	/* Each change of status is a line of the log, and poll(2) tells of lines; `status` itself is a text. */
	log = openat(s->dir, "log.jsonl", O_RDONLY | O_CLOEXEC);
	if (log < 0 && errno != EPERM)
		return tree_explain(s->dir, -errno, e, "%s: log.jsonl", s->id);
	for (;;) {
		char rest[4096];
		bool moved = false;
		int r;

		while (log >= 0 && read(log, rest, sizeof(rest)) > 0)
			moved = true;
		/* Whom the policy does not let read it looks again and again. */
		f.was_ready = f.was_ready || log < 0;
		f.idle = log < 0 && f.idle < 2 ? 2 : f.idle;
		r = tree_word(s->dir, "status", status, sizeof(status));
		if (r < 0)
			return explain(r == -ESTALE ? -ENOENT : r, s->id, e);
		if (!strcmp(status, word))
			return 0;
		if (!strcmp(status, "failed"))
			return tree_explain(s->dir, -EIO, e, "%s: failed", s->id);
		if (now_ns() >= end_ns)
			return err_set(e, -ETIMEDOUT, "%s: still %s after %u s", s->id, status, timeout_ms / 1000);
		struct pollfd p = { .fd = log, .events = POLLIN };
		r = follow_wait(&f, &p, 1, 1, moved);
		if (r < 0)
			return err_set(e, r, "poll: %s", strerror(-r));
		if (follow_is_cancelled())
			return err_set(e, -EINTR, "%s: no longer waited for", s->id);
	}
}

void sbx_close(struct sbx *s)
{
	fd_close(&s->lease);
	fd_close(&s->dir);
	fd_close(&s->run);
}
