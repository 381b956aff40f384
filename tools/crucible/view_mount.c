/* SPDX-License-Identifier: Apache-2.0 */
/* crucible mount: a view of the tree for an agent, and where the agent finds it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "tools/crucible/bind.h"
#include "tools/crucible/command.h"
#include "tools/crucible/document.h"
#include "tools/crucible/printable.h"
#include "tools/crucible/tree.h"
#include "tools/crucible/view.h"

/* "1000" or "1000:1000" */
static int parse_owner(const char *text, uid_t *ret_uid, gid_t *ret_gid, struct err *e)
{
	unsigned long id[2] = { 0, (gid_t)-1 };
	const char *p = text;

	for (size_t i = 0; i < ARRAY_LEN(id); i++) {
		size_t len = strspn(p, "0123456789");

		/* The last number means "leave it" to chown(2). */
		if (!len || len > 10 || (id[i] = strtoul(p, NULL, 10)) >= (uid_t)-1)
			break;
		p += len;
		if (!*p) {
			*ret_uid = (uid_t)id[0];
			*ret_gid = (gid_t)id[1];
			return 0;
		}
		if (*p++ != ':')
			break;
	}
	return err_set(e, -EINVAL, "--owner: \"%s\" is not UID or UID:GID, in numbers (id -u NAME tells one)", text);
}

/* What the command line asks for, read before anything is made. */
struct plan {
	const char *path; /* where it is mounted */
	int dir;	  /* of bind_open() */
	bool make;	  /* else the view is there */
	struct buf policy;
	uid_t uid;
	gid_t gid;
};

static int set_policy(struct view *v, const struct buf *policy, struct err *e)
{
	struct buf faults;
	char *line;
	int r;

	buf_init(&faults, TREE_TEXT_MAX);
	r = view_set_policy(v, (const char *)policy->data, policy->len, &faults, e);
	line = r < 0 && faults.len ? buf_str(&faults) : NULL;
	if (line) {
		line[strcspn(line, "\n")] = '\0';
		fprintf(stderr, "crucible: %s\n", printable_line(line));
		err_set(e, r, "the policy was refused; no view was made");
	}
	buf_fini(&faults);
	return r;
}

/* The ttl comes before the policy: there is never a tree without its end. */
static int set_up(struct cli *c, struct view *v, const struct plan *p)
{
	const struct args *a = &c->args;
	int r = 0;

	if (a->given[OPT_TTL])
		r = view_set_ttl(v, a->number[OPT_TTL], &c->err);
	if (r == 0 && p->make)
		r = set_policy(v, &p->policy, &c->err);
	if (r == 0 && a->given[OPT_OWNER])
		r = view_set_owner(v, p->uid, p->gid, &c->err);
	return r;
}

static int bind_view(struct cli *c, struct view *v, const struct plan *p, struct json_object **ret_info)
{
	AUTO_FD tree = view_open_tree(v, &c->err);
	int r = tree < 0 ? tree : 0;

	if (r == 0 && c->json)
		r = tree_json(v->dir, "info.json", ret_info, &c->err);
	return r < 0 ? r : bind_make(tree, p->dir, p->path, &c->err);
}

static int mount_view(struct cli *c, const struct plan *p)
{
	const char *name = c->args.text[OPT_VIEW_NAME];
	struct view v = VIEW_NONE;
	AUTO_JSON *info = NULL;
	struct err left = { 0 };
	int r = p->make ? view_make(c->mount.fd, name, &v, &c->err) : view_open(c->mount.fd, name, &v, &c->err);

	if (r < 0)
		return r;
	r = set_up(c, &v, p);
	if (r == 0)
		r = bind_view(c, &v, p, &info);
	if (r < 0 && p->make && view_remove(&v, &left) < 0)
		fprintf(stderr, "crucible: %s; it is still there\n", printable_line(left.msg));
	if (r == 0 && c->json)
		r = print_json(c, json_object_get(info));
	else if (r == 0)
		puts(v.id);
	view_close(&v);
	return r;
}

/* A signal between mkdir and the mount would leave a view that nobody knows of. Nothing in between waits for anybody
 * but the daemon. */
static int mount_view_whole(struct cli *c, const struct plan *p)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
	sigset_t held, old;
	int r;

	sigemptyset(&held);
	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		sigaddset(&held, signals[i]);
	sigprocmask(SIG_BLOCK, &held, &old);
	r = mount_view(c, p);
	sigprocmask(SIG_SETMASK, &old, NULL);
	return r;
}

/* Its faults are known before anything is made; but the daemon may find more, as ranges that the host does not permit.
 */
static int read_policy(const char *file, struct buf *text, struct err *e)
{
	struct policy *p = NULL;
	int r = document_read(file, text, &p, e);

	policy_unref(p);
	return r > 0 ? err_set(e, -EINVAL, "the policy has faults; no view was made") : r;
}

static int read_plan(struct cli *c, struct plan *p)
{
	const struct args *a = &c->args;
	int r = 0;

	if (!p->make && !a->given[OPT_VIEW_NAME])
		return err_set(&c->err, -EINVAL,
			       "--policy: missing; it says what the view permits (or name a view that is "
			       "there: --name NAME)");
	if (a->given[OPT_VIEW_NAME])
		r = sbx_id_check(a->text[OPT_VIEW_NAME], &c->err);
	if (r == 0 && a->given[OPT_OWNER])
		r = parse_owner(a->text[OPT_OWNER], &p->uid, &p->gid, &c->err);
	if (r == 0 && p->make)
		r = read_policy(a->text[OPT_POLICY], &p->policy, &c->err);
	if (r == 0)
		r = p->dir = bind_open(p->path, &c->err);
	if (r == -ENOENT && p->dir == r)
		err_set(&c->err, r, "%s does not exist; make it: mkdir %s", p->path, p->path);
	return r < 0 ? r : bind_check(p->dir, p->path, c->mount.fd, &c->err);
}

int cmd_mount(struct cli *c)
{
	struct plan p = { .path = c->args.words[0], .dir = -1, .make = c->args.given[OPT_POLICY] };
	int r;

	buf_init(&p.policy, DOCUMENT_CAP);
	r = read_plan(c, &p);
	if (r == 0)
		r = mount_view_whole(c, &p);
	fd_close(&p.dir);
	buf_fini(&p.policy);
	return r;
}
