/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_view.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct view {
	struct registry *r;
	struct view *next; /* newest last */
	unsigned refs;
	bool gone, expired;
	char name[CFS_NAME_MAX + 1], uuid[40], error[320], ttl[32];
	struct cfs_who owner;
	struct policy *policy;
	uint64_t created_ns, changed_ns;
	struct waitq waitq;
};

struct bound {
	struct bound *next;
	struct registry *r;
	uid_t uid;
	struct policy *policy;
};

static struct view *views;
static struct bound *bounds;
static unsigned alive;

static void die(const char *what)
{
	fprintf(stderr, "fake view: %s\n", what);
	abort();
}

static void changed(struct view *v)
{
	v->changed_ns = wall_ns();
	waitq_wake(&v->waitq);
}

/* -- life -------------------------------------------------------------------------------------- */

struct view *fake_view_new(struct registry *r, struct loop *l, const char *name, const char *policy)
{
	static unsigned serial;
	struct view *v = calloc(1, sizeof(*v)), **at = &views;

	if (!v)
		die("no memory");
	v->r = r;
	v->refs = 1;
	snprintf(v->name, sizeof(v->name), "%s", name);
	snprintf(v->uuid, sizeof(v->uuid), "00000000-0000-4000-a000-%012u", ++serial);
	snprintf(v->ttl, sizeof(v->ttl), "none");
	v->created_ns = v->changed_ns = wall_ns();
	waitq_init(&v->waitq, l);
	if (policy && policy_parse(policy, strlen(policy), NULL, &v->policy, NULL) < 0)
		die(policy);
	while (*at)
		at = &(*at)->next;
	*at = v;
	alive++;
	return v;
}

void fake_view_remove(struct view *v)
{
	struct view **at = &views;

	while (*at != v)
		at = &(*at)->next;
	*at = v->next;
	v->gone = true;
	changed(v);
	view_unref(v);
}

void fake_view_expire(struct view *v)
{
	v->expired = true;
	changed(v);
}

struct view *view_ref(struct view *v)
{
	if (v)
		v->refs++;
	return v;
}

struct view *view_unref(struct view *v)
{
	if (!v || --v->refs)
		return NULL;
	assert(v->gone);
	policy_unref(v->policy);
	waitq_fini(&v->waitq);
	free(v);
	alive--;
	return NULL;
}

void fake_views_free(struct registry *r)
{
	for (struct view *v = views, *next; v; v = next) {
		next = v->next;
		if (v->r == r)
			fake_view_remove(v);
	}
	while (bounds)
		fake_policy_uid(r, bounds->uid, NULL);
}

unsigned fake_views_alive(void)
{
	return alive;
}

/* -- what is asked ------------------------------------------------------------------------------- */

struct view *registry_next_view(struct registry *r, struct view *after)
{
	struct view *v = after ? after->next : views;

	while (v && v->r != r)
		v = v->next;
	return v;
}

struct view *registry_find_view(struct registry *r, const char *name)
{
	struct view *v = registry_next_view(r, NULL);

	while (v && strcmp(v->name, name) != 0)
		v = registry_next_view(r, v);
	return v;
}

enum view_status view_status(const struct view *v)
{
	return !v->policy ? VIEW_NEW : v->expired ? VIEW_EXPIRED : VIEW_ACTIVE;
}
const char *view_status_name(enum view_status s)
{
	static const char *const words[] = { "new", "active", "expired" };

	return words[s];
}
bool view_dead(const struct view *v)
{
	return v->gone || view_status(v) != VIEW_ACTIVE;
}
bool view_gone(const struct view *v)
{
	return v->gone;
}
const char *view_name(const struct view *v)
{
	return v->name;
}
const char *view_uuid(const struct view *v)
{
	return v->uuid;
}
struct cfs_who view_owner(const struct view *v)
{
	return v->owner;
}
const char *view_error(const struct view *v)
{
	return v->error;
}
uint64_t view_created_ns(const struct view *v)
{
	return v->created_ns;
}
uint64_t view_changed_ns(const struct view *v)
{
	return v->changed_ns;
}
struct waitq *view_waitq(struct view *v)
{
	return &v->waitq;
}

int view_info_json(struct view *v, struct buf *out)
{
	return buf_addf(out, "{\"name\":\"%s\",\"uuid\":\"%s\"}\n", v->name, v->uuid);
}

/* -- what is set ---------------------------------------------------------------------------------- */

static int may_administer(struct view *v, const struct cfs_who *who, struct err *e)
{
	return registry_may(v->r, who, POLICY_ADMIN, e);
}

int view_policy_show(const struct view *v, struct buf *out)
{
	return v->policy ? policy_text(v->policy, out) : -ENOENT;
}

int view_policy_store(struct view *v, const char *text, size_t len, const struct cfs_who *who, struct err *e)
{
	struct policy *p = NULL;
	struct buf faults;
	int r = may_administer(v, who, e);

	if (r < 0)
		return r;
	buf_init(&faults, 4096);
	r = policy_parse(text, len, NULL, &p, &faults);
	if (r < 0) {
		char *words = (char *)buf_str(&faults);

		for (char *nl = words; nl && (nl = strchr(nl, '\n'));)
			*nl = ';';
		err_set(e, r, "view %s: policy: %s", v->name, words ? words : "no memory");
		snprintf(v->error, sizeof(v->error), "%s", e->msg);
	} else {
		policy_unref(v->policy);
		v->policy = p;
		v->error[0] = '\0';
	}
	buf_fini(&faults);
	changed(v);
	return r;
}

int view_ttl_show(const struct view *v, struct buf *out)
{
	return buf_addf(out, "%s\n", v->ttl);
}

int view_ttl_store(struct view *v, const char *text, size_t len, const struct cfs_who *who, struct err *e)
{
	int r = may_administer(v, who, e);

	if (r < 0)
		return r;
	if (len >= sizeof(v->ttl) || (strcmp(text, "none") != 0 && text[strspn(text, "0123456789")])) {
		err_set(e, -EINVAL, "view %s: ttl: \"%.40s\" is no time", v->name, text);
		snprintf(v->error, sizeof(v->error), "%s", e->msg);
		changed(v);
		return -EINVAL;
	}
	snprintf(v->ttl, sizeof(v->ttl), "%s", text);
	v->expired = !strcmp(text, "0"); /* for trying the end on a real mount */
	changed(v);
	return 0;
}

int view_chown(struct view *v, uid_t uid, gid_t gid, const struct cfs_who *who, struct err *e)
{
	if (who->uid)
		return err_set(e, -EPERM, "view %s: only root may give it away", v->name);
	v->owner = (struct cfs_who){ .uid = uid, .gid = gid };
	return 0;
}

/* -- policies --------------------------------------------------------------------------------------- */

void fake_policy_uid(struct registry *r, uid_t uid, const char *policy)
{
	struct bound **at = &bounds, *b;

	while (*at && ((*at)->r != r || (*at)->uid != uid))
		at = &(*at)->next;
	b = *at;
	if (b) {
		*at = b->next;
		policy_unref(b->policy);
		free(b);
	}
	if (!policy)
		return;
	b = calloc(1, sizeof(*b));
	if (!b || policy_parse(policy, strlen(policy), NULL, &b->policy, NULL) < 0)
		die(policy);
	b->r = r;
	b->uid = uid;
	b->next = bounds;
	bounds = b;
}

void registry_policies(struct registry *r, const struct cfs_who *who, struct policy_set *ret)
{
	*ret = (struct policy_set){ 0 };
	if (who->view && who->view->policy)
		ret->of[ret->n++] = who->view->policy;
	for (struct bound *b = bounds; b; b = b->next)
		if (b->r == r && b->uid == who->uid)
			ret->of[ret->n++] = b->policy;
}

int registry_may(struct registry *r, const struct cfs_who *who, enum policy_op op, struct err *e)
{
	struct policy_set set;

	if (who->view && view_dead(who->view))
		return err_set(e, -ESTALE, "view %s has ended", who->view->name);
	registry_policies(r, who, &set);
	if (op == POLICY_ADMIN ? set.n ? policy_set_names_admin(&set) : who->uid == 0 : policy_set_allows(&set, op))
		return 0;
	return err_set(e, -EPERM, "%s: the policy of %s does not permit it", policy_op_name(op),
		       who->view ? who->view->name : "this user");
}
