/* SPDX-License-Identifier: Apache-2.0 */
/* crucible fork: sandboxes that go on from a snapshot.
 *
 * A number can be written into the snapshot's `fork`, too; but what the file then reads as are the names of the last
 * batch, which may be somebody else's by now. So we number them ourselves and write names: all are made or none, and
 * when another one took a name first we number anew. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/fd.h"
#include "tools/crucible/command.h"
#include "tools/crucible/fork.h"
#include "tools/crucible/sbx.h"
#include "tools/crucible/snapshot.h"
#include "tools/crucible/tree.h"

#define NAME_TRIES 16

#define NUMBERS_MAX 8192 /* more than there can be sandboxes */

struct numbers {
	const char *id;
	bool taken[NUMBERS_MAX + 1];
};

static int look_at_name(void *arg, int parent, const char *name)
{
	struct numbers *x = arg;
	size_t len = strlen(x->id);
	const char *digits = name + len + 1;
	unsigned long v;

	(void)parent;
	if (strncmp(name, x->id, len) != 0 || name[len] != '-' || !*digits || *digits == '0' || strlen(digits) > 6 ||
	    strspn(digits, "0123456789") != strlen(digits))
		return 0;
	v = strtoul(digits, NULL, 10);
	if (v <= NUMBERS_MAX)
		x->taken[v] = true;
	return 0;
}

int fork_number(int root, const char *id, size_t n, struct fork_batch *ret, struct err *e)
{
	struct numbers x = { .id = id };
	int r = tree_list(root, "run", look_at_name, &x);

	if (r < 0)
		return err_set(e, r, "run: %s", strerror(-r));
	ret->n = 0;
	for (unsigned v = 1; ret->n < n && v <= NUMBERS_MAX; v++) {
		if (!x.taken[v])
			snprintf(ret->names[ret->n++], sizeof(ret->names[0]), "%s-%u", id, v);
	}
	return ret->n == n ? 0 : err_set(e, -EDQUOT, "there are too many forks of \"%s\"", id);
}

static int take_names(struct cli *c, struct fork_batch *b)
{
	const struct args_texts *names = &c->args.texts[OPT_NAMES];

	if (c->args.given[OPT_FORKS] && c->args.number[OPT_FORKS] != names->n)
		return err_set(&c->err, -EINVAL, "--count says %llu, but there are %zu names: leave --count out",
			       (unsigned long long)c->args.number[OPT_FORKS], names->n);
	if (names->n > FORKS_MAX)
		return err_set(&c->err, -EINVAL, "--name: more than %d at once", FORKS_MAX);
	for (b->n = 0; b->n < names->n; b->n++) {
		int r = sbx_id_check(names->v[b->n], &c->err);

		if (r < 0)
			return r;
		snprintf(b->names[b->n], sizeof(b->names[0]), "%s", names->v[b->n]);
	}
	return 0;
}

/* One write: all of them, or none. Blocks until they answer. */
static int make(struct cli *c, struct snapshot *s, const struct fork_batch *b)
{
	struct err words = { 0 };
	struct buf text;
	int r = 0;

	buf_init(&text, sizeof(b->names) + sizeof("--disk-only\n"));
	if (c->args.given[OPT_DISK_ONLY])
		r = buf_adds(&text, "--disk-only\n");
	for (size_t i = 0; i < b->n && r == 0; i++)
		r = buf_addf(&text, "%s\n", b->names[i]);
	if (r == 0)
		r = tree_write(s->dir, "fork", text.data, text.len);
	buf_fini(&text);
	if (r < 0) {
		tree_explain(s->dir, r, &words, "snapshot \"%s\": fork", s->id);
		err_set(&c->err, r, "%s", words.msg);
	}
	return r;
}

static int print(struct cli *c, const struct fork_batch *b)
{
	AUTO_JSON *all = json_object_new_array();

	for (size_t i = 0; i < b->n; i++) {
		struct json_object *info = NULL;
		char path[SBX_ID_MAX + sizeof("run/")];
		AUTO_FD dir = -1;
		int r;

		if (!c->json) {
			puts(b->names[i]);
			continue;
		}
		snprintf(path, sizeof(path), "run/%s", b->names[i]);
		dir = openat(c->mount.fd, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		r = dir < 0 ? err_set(&c->err, -errno, "%s: %s", path, strerror(errno))
			    : tree_info(dir, b->names[i], &info, &c->err);
		if (r < 0)
			return r;
		json_object_array_add(all, info);
	}
	return c->json ? print_json(c, json_object_get(all)) : 0;
}

int cmd_fork(struct cli *c)
{
	const struct args *a = &c->args;
	uint64_t n = a->given[OPT_FORKS] ? a->number[OPT_FORKS] : 1;
	bool numbered = !a->given[OPT_NAMES];
	struct fork_batch b = { 0 };
	struct snapshot s;
	int r;

	if (n < 1 || n > FORKS_MAX)
		return err_set(&c->err, -EINVAL, "--count: from 1 to %d", FORKS_MAX);
	r = numbered ? 0 : take_names(c, &b);
	if (r == 0)
		r = snapshot_open(c->mount.fd, a->words[0], &s, &c->err);
	if (r < 0)
		return r;
	for (int tries = 0; tries < NAME_TRIES; tries++) {
		if (numbered)
			r = fork_number(c->mount.fd, s.id, n, &b, &c->err);
		if (r == 0)
			r = make(c, &s, &b);
		if (r != -EEXIST || !numbered)
			break;
	}
	snapshot_close(&s);
	return r < 0 ? r : print(c, &b);
}
