/* SPDX-License-Identifier: Apache-2.0 */
/* What policies permit. Those that apply to somebody: the view's that they come through, the ones that the
 * configuration binds to their uid and to their gid, the host's (net_allow_max). Each must permit what is done, and the
 * smallest maximum counts. What a maximum is counted over differs: see permit_one_more(). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/fd.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "cruciblefs/domain/view_priv.h"

enum scope { OF_VIEW, OF_UID, OF_GID, OF_HOST };

struct permit { /* the scopes stand beside the set's policies */
	struct policy_set set;
	enum scope scope[POLICY_SET_MAX];
};

static void add(struct permit *t, const struct policy *p, enum scope scope)
{
	if (!p)
		return;
	t->scope[t->set.n] = scope;
	t->set.of[t->set.n++] = p;
}

static void collect(struct registry *r, const struct cfs_who *who, struct permit *ret)
{
	*ret = (struct permit){ 0 };
	if (who->view)
		add(ret, who->view->policy, OF_VIEW);
	add(ret, config_policy(r->cfg, false, who->uid), OF_UID);
	add(ret, config_policy(r->cfg, true, who->gid), OF_GID);
	add(ret, r->cfg->net_policy, OF_HOST);
}

void registry_policies(struct registry *r, const struct cfs_who *who, struct policy_set *ret)
{
	struct permit t;

	collect(r, who, &t);
	*ret = t.set;
}

static struct policy_set only(const struct permit *t, size_t i)
{
	return (struct policy_set){ .of = { t->set.of[i] }, .n = 1 };
}

/* For words. */
static const char *whose(const struct permit *t, size_t i, const struct cfs_who *who, char out[48])
{
	switch (t->scope[i]) {
	case OF_VIEW:
		return "the policy of this view";
	case OF_UID:
		snprintf(out, 48, "the policy of uid %u", who->uid);
		return out;
	case OF_GID:
		snprintf(out, 48, "the policy of gid %u", who->gid);
		return out;
	case OF_HOST:
		break;
	}
	return "this host's settings";
}

/* -- operations ------------------------------------------------------------------------------------------------------
 */

/* The host's policy is about networks only: it makes nobody root, and takes that from nobody. */
int permit_admin(struct registry *r, const struct cfs_who *who, struct err *e)
{
	struct permit t, bound = { 0 };

	collect(r, who, &t);
	for (size_t i = 0; i < t.set.n; i++) {
		if (t.scope[i] != OF_HOST)
			add(&bound, t.set.of[i], t.scope[i]);
	}
	if (bound.set.n ? policy_set_names_admin(&bound.set) : !who->uid && !who->view)
		return 0;
	return err_set(e, -EPERM, "only root may, and whose policy names admin");
}

int registry_may(struct registry *r, const struct cfs_who *who, enum policy_op op, struct err *e)
{
	struct permit t;
	char words[48];

	if (who->view && view_dead(who->view))
		return err_set(e, -ESTALE, "the view %s", view_gone(who->view) ? "was removed" : "has expired");
	if (op == POLICY_ADMIN)
		return permit_admin(r, who, e);
	collect(r, who, &t);
	for (size_t i = 0; i < t.set.n; i++) {
		struct policy_set one = only(&t, i);

		if (!policy_set_allows(&one, op))
			return err_set(e, -EPERM,
				       "%s does not permit the operation \"%s\"; policy.json shows what it permits",
				       whose(&t, i, who, words), policy_op_name(op));
	}
	return 0;
}

int sandbox_permits(struct sandbox *s, const struct cfs_who *who, enum policy_op op, const char *step, struct err *e)
{
	int k;

	if (!who || s->hidden)
		return 0;
	k = who->view && who->view != s->owner.view ? err_set(e, -ENOENT, "it is not of this view")
						    : registry_may(s->reg, who, op, e);
	if (k < 0)
		err_wrap(e, "sandbox %s: %s", s->name, step);
	return k;
}

/* -- numbers ---------------------------------------------------------------------------------------------------------
 */

uint64_t permit_max(struct registry *r, const struct cfs_who *who, enum policy_max which)
{
	struct permit t;

	collect(r, who, &t);
	return policy_set_max(&t.set, which);
}

int permit_amount(struct registry *r, const struct cfs_who *who, enum policy_max which, uint64_t wanted, struct err *e)
{
	bool endless = which == POLICY_MAX_TIMEOUT_S && !wanted;
	uint64_t max = permit_max(r, who, which);
	struct permit t;
	char words[48], amount[24];

	if (!max || (!endless && wanted <= max))
		return 0;
	collect(r, who, &t);
	snprintf(amount, sizeof(amount), "%" PRIu64, wanted);
	for (size_t i = 0; i < t.set.n; i++) {
		struct policy_set one = only(&t, i);

		if (policy_set_max(&one, which) == max)
			return err_set(e, -EDQUOT, "%s is more than %s permits: %s is %" PRIu64,
				       endless ? "0 (no end)" : amount, whose(&t, i, who, words),
				       policy_max_name(which), max);
	}
	return 0;
}

static bool counts(enum scope scope, const struct cfs_who *who, const struct cfs_who *owner)
{
	switch (scope) {
	case OF_VIEW:
		return owner->view == who->view;
	case OF_UID:
		return owner->uid == who->uid;
	case OF_GID:
		return owner->gid == who->gid;
	case OF_HOST:
		break;
	}
	return true;
}

static size_t count(struct registry *r, enum scope scope, const struct cfs_who *who, enum policy_max which)
{
	size_t n = 0;

	if (which == POLICY_MAX_SANDBOXES) {
		for (const struct sandbox *s = r->first; s; s = s->next)
			n += counts(scope, who, &s->owner);
		return n;
	}
	/* Removed ones that something still stands on take as much room. */
	for (const struct snapshot *p = r->first_snapshot; p; p = p->next)
		n += !p->hidden && !p->removing && counts(scope, who, &p->owner);
	return n;
}

int permit_one_more(struct registry *r, const struct cfs_who *who, enum policy_max which, struct err *e)
{
	struct permit t;
	char words[48];

	collect(r, who, &t);
	for (size_t i = 0; i < t.set.n; i++) {
		struct policy_set one = only(&t, i);
		uint64_t max = policy_set_max(&one, which);

		if (max && count(r, t.scope[i], who, which) >= max)
			return err_set(e, -EDQUOT, "%s is %" PRIu64 " by %s, and so many there are; remove one first",
				       policy_max_name(which), max, whose(&t, i, who, words));
	}
	return 0;
}

/* -- profiles, network -----------------------------------------------------------------------------------------------
 */

int permit_profile(struct registry *r, const struct cfs_who *who, const char *name, struct err *e)
{
	struct permit t;
	char words[48];

	collect(r, who, &t);
	for (size_t i = 0; i < t.set.n; i++) {
		struct policy_set one = only(&t, i);

		if (!policy_set_allows_profile(&one, name))
			return err_set(e, -EPERM,
				       "%s does not permit profile \"%s\"; allow_profiles in policy.json names those "
				       "that may be used",
				       whose(&t, i, who, words), name);
	}
	return 0;
}

int permit_net(struct sandbox *s, const struct cfs_who *who, const struct net_policy *wanted, struct err *e)
{
	const struct cfs_who *const both[] = { who, &s->owner };
	int k = 0;

	for (size_t i = 0; !k && i < ARRAY_LEN(both); i++) {
		struct permit t;

		if (!both[i])
			continue;
		collect(s->reg, both[i], &t);
		k = policy_set_net_check(&t.set, wanted, e);
	}
	return k;
}

/* Which rule it is that is beyond a list, does not matter: only an empty list is -EPERM. */
int permit_any_net(struct sandbox *s, const struct cfs_who *who, struct err *e)
{
	static const char some[] = "a.example";
	static const struct net_reach nothing;
	struct net_policy *p = NULL;
	struct err why = { 0 };
	int k = net_policy_parse(some, sizeof(some) - 1, &nothing, &p, &why);

	if (!k)
		k = permit_net(s, who, p, &why);
	net_policy_unref(p);
	return k == -EDQUOT ? 0 : k < 0 ? err_set(e, k, "%s", why.msg) : 0;
}
