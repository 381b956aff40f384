/* SPDX-License-Identifier: Apache-2.0 */
/* net/allow: a text of lines becomes a list of rules in their one form. "RULE" and "+RULE" add, "-RULE" removes what
 * the lines before have added; a line that begins with '#' is nothing. What a rule may be says netpolicy/policy.h; how
 * much of the world a sandbox may have, the policies of its owner and of who writes (permit.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "cruciblefs/domain/view_priv.h"

#define RULE_MAX (NET_NAME_MAX + 16u)

/* What may be named: root's net_private, but not the host's own addresses. */
struct reach {
	struct net_reach r;
	struct net_cidr opened[CONFIG_NET_RANGES_MAX];
	struct net_addr *own;
};

static int reach_init(struct reach *x, const struct config *c, struct err *e)
{
	size_t nown = 0;
	int k;

	*x = (struct reach){ .own = NULL };
	k = config_net_private(c, x->opened, &x->r.nopened, e);
	if (!k)
		k = net_own_addresses(&x->own, &nown, e);
	x->r.opened = x->opened;
	x->r.own = x->own;
	x->r.nown = nown;
	return k;
}

static void reach_fini(struct reach *x)
{
	free(x->own);
}

/* -- lines --------------------------------------------------------------------------------------------------------- */

/* Where the line @rule is in @list; its length or more: nowhere. */
static size_t find(const struct buf *list, const char *rule, size_t len)
{
	size_t at = 0;

	while (at < list->len) {
		const char *line = (const char *)list->data + at;
		size_t n = (size_t)((const char *)memchr(line, '\n', list->len - at) - line);

		if (n == len && !memcmp(line, rule, len))
			return at;
		at += n + 1;
	}
	return at;
}

static int apply_line(struct buf *list, unsigned *count, const char *line, size_t len, const struct net_reach *reach,
		      struct err *e)
{
	bool removes = *line == '-', is_signed = removes || *line == '+';
	char rule[RULE_MAX];
	size_t at, n;
	int k;

	line += is_signed;
	len -= is_signed;
	while (len && (*line == ' ' || *line == '\t'))
		line++, len--;
	k = net_rule_normal(line, len, reach, rule, sizeof(rule), e);
	if (k < 0)
		return k;
	n = strlen(rule);
	at = find(list, rule, n);
	if (removes && at >= list->len)
		return err_set(e, -EINVAL, "-%s: it is not in the list; read net/allow", rule);
	if (removes) {
		memmove(list->data + at, list->data + at + n + 1, list->len - at - n - 1);
		list->len -= n + 1;
		--*count;
		return 0;
	}
	if (at < list->len)
		return 0;
	if (++*count > NET_RULES_MAX)
		return err_set(e, -E2BIG, "more than %u rules; use *.DOMAIN for many names of one", NET_RULES_MAX);
	k = buf_add(list, rule, n);
	if (!k)
		k = buf_adds(list, "\n");
	return k == -EFBIG ? err_set(e, -E2BIG, "more than %u bytes", NET_LIST_MAX)
	       : k < 0	   ? err_set(e, k, "%s", strerror(-k))
			   : 0;
}

static int apply(struct buf *list, const char *text, size_t len, const struct net_reach *reach, struct err *e)
{
	unsigned count = 0;
	const char *line;
	size_t n;
	int k = 0;

	while (!k && net_next_line(&text, &len, &line, &n))
		k = apply_line(list, &count, line, n, reach, e);
	return k;
}

/* -- what it may have ---------------------------------------------------------------------------------------------- */

static int permitted(struct sandbox *s, const struct cfs_who *who, const char *text, size_t len,
		     const struct net_reach *reach, struct err *e)
{
	struct net_policy *p = NULL;
	int k = net_policy_parse(text, len, reach, &p, e);

	if (!k)
		k = permit_net(s, who, p, e);
	net_policy_unref(p);
	return k;
}

int net_list_check(struct sandbox *s, struct err *e)
{
	struct reach x;
	int k;

	if (!s->attrs.net_allow)
		return 0;
	k = s->hidden ? 0 : registry_may(s->reg, &s->owner, POLICY_NETWORK, e);
	if (k < 0)
		return k;
	k = reach_init(&x, s->reg->cfg, e);
	if (!k)
		k = permitted(s, NULL, s->attrs.net_allow, strlen(s->attrs.net_allow), &x.r, e);
	reach_fini(&x);
	return k;
}

/* -- the file ------------------------------------------------------------------------------------------------------ */

int sandbox_net_allow_show(struct sandbox *s, struct buf *out)
{
	return s->attrs.net_allow ? buf_adds(out, s->attrs.net_allow) : 0;
}

static int parse(struct sandbox *s, const struct cfs_who *who, const char *text, size_t len, char **ret, struct err *e)
{
	struct reach x;
	struct buf list;
	int k = reach_init(&x, s->reg->cfg, e);

	buf_init(&list, NET_LIST_MAX);
	if (!k)
		k = apply(&list, text, len, &x.r, e);
	if (!k)
		k = permitted(s, who, list.len ? (const char *)list.data : "", list.len, &x.r, e);
	if (!k && list.len) {
		*ret = buf_str(&list) ? strdup(buf_str(&list)) : NULL;
		k = *ret ? 0 : err_set(e, -ENOMEM, "no memory");
	}
	buf_fini(&list);
	reach_fini(&x);
	return k;
}

static size_t lines_of(const char *text)
{
	size_t n = 0;

	for (; text && *text; text++)
		n += *text == '\n';
	return n;
}

int sandbox_net_allow_store(struct sandbox *s, const char *text, size_t len, const struct cfs_who *who, struct err *e)
{
	char *next = NULL, *old = s->attrs.net_allow;
	int k = sandbox_permits(s, who, POLICY_NETWORK, "net/allow", e);

	if (k < 0) {
		sandbox_fail(s, who, e);
		return k;
	}
	k = parse(s, who, text, len, &next, e);
	if (k < 0) {
		err_wrap(e, "sandbox %s: net/allow", s->name);
		sandbox_fail(s, who, e);
		return k;
	}
	if (!strcmp(next ? next : "", old ? old : "")) {
		free(next);
		if (s->net.state == NET_BROKEN)
			net_changed(s); /* written again: tried again */
		return 0;
	}
	s->attrs.net_allow = next;
	k = sandbox_save(s, e);
	if (k < 0) {
		/* What the store does not hold must not be seen, nor let anything through. */
		s->attrs.net_allow = old;
		free(next);
		sandbox_fail(s, who, e);
		return k;
	}
	free(old);
	net_log_change(s, who, "net/allow", lines_of(next));
	sandbox_changed(s);
	net_changed(s);
	return 0;
}
