/* SPDX-License-Identifier: Apache-2.0 */
/* A list of rules: read, written, asked, compared. Lists are short (NET_RULES_MAX), so they are walked. */
#include "netpolicy/policy.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "netpolicy/policy_priv.h"

struct net_policy {
	atomic_uint refs;
	size_t n;
	struct net_rule rules[];
};

/* -- text ------------------------------------------------------------------------------------------------------- */

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

bool net_next_line(const char **text, size_t *len, const char **ret, size_t *ret_len)
{
	while (*len > 0) {
		const char *line = *text, *nl = memchr(line, '\n', *len);
		size_t n = nl ? (size_t)(nl - line) : *len, step = nl ? n + 1 : n;

		*text += step;
		*len -= step;
		while (n > 0 && blank(*line))
			line++, n--;
		while (n > 0 && blank(line[n - 1]))
			n--;
		if (n > 0 && *line != '#') {
			*ret = line;
			*ret_len = n;
			return true;
		}
	}
	return false;
}

static bool same_rule(const struct net_rule *a, const struct net_rule *b)
{
	if (a->kind != b->kind || a->port != b->port)
		return false;
	if (a->kind == NET_RULE_CIDR)
		return a->cidr.bits == b->cidr.bits && net_addr_equal(&a->cidr.addr, &b->cidr.addr);
	return strcmp(a->name, b->name) == 0;
}

static bool has_rule(const struct net_policy *p, const struct net_rule *r)
{
	for (size_t i = 0; i < p->n; i++)
		if (same_rule(&p->rules[i], r))
			return true;
	return false;
}

int net_policy_parse(const char *text, size_t len, const struct net_reach *reach, struct net_policy **ret,
		     struct err *e)
{
	const char *line, *at = text;
	size_t line_len, left = len, lines = 0;
	struct net_policy *p;
	int r;

	if (len > NET_LIST_MAX)
		return err_set(e, -E2BIG, "the list has %zu bytes, at most %u are taken", len, NET_LIST_MAX);
	while (net_next_line(&at, &left, &line, &line_len))
		lines++;
	if (lines > NET_RULES_MAX)
		lines = NET_RULES_MAX + 1; /* duplicates may make it fit */
	p = malloc(sizeof(*p) + lines * sizeof(p->rules[0]));
	if (!p)
		return err_set(e, -ENOMEM, "rules: no memory");
	atomic_init(&p->refs, 1);
	p->n = 0;
	while (net_next_line(&text, &len, &line, &line_len)) {
		struct net_rule rule;

		r = net_rule_parse(line, line_len, reach, &rule, e);
		if (r < 0) {
			free(p);
			return r;
		}
		if (has_rule(p, &rule))
			continue;
		if (p->n == NET_RULES_MAX) {
			free(p);
			return err_set(e, -E2BIG, "more than %u rules", NET_RULES_MAX);
		}
		p->rules[p->n++] = rule;
	}
	*ret = p;
	return 0;
}

struct net_policy *net_policy_ref(struct net_policy *p)
{
	if (p)
		atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
	return p;
}

struct net_policy *net_policy_unref(struct net_policy *p)
{
	if (p && atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) == 1)
		free(p);
	return NULL;
}

int net_policy_text(const struct net_policy *p, struct buf *out)
{
	char text[NET_RULE_TEXT];
	int r = 0;

	for (size_t i = 0; i < p->n && r == 0; i++) {
		net_rule_text(&p->rules[i], text);
		r = buf_addf(out, "%s\n", text);
	}
	return r;
}

bool net_policy_empty(const struct net_policy *p)
{
	return p->n == 0;
}

/* -- questions -------------------------------------------------------------------------------------------------- */

static bool name_allowed(const struct net_policy *p, const char *name, bool any_port, uint16_t port)
{
	char normal[NET_NAME_MAX + 1];

	if (!net_name_normal(name, strlen(name), normal))
		return false;
	for (size_t i = 0; i < p->n; i++)
		if (net_rule_covers_name(&p->rules[i], normal) && (any_port || net_rule_port(&p->rules[i], port)))
			return true;
	return false;
}

bool net_policy_resolves(const struct net_policy *p, const char *name)
{
	return name_allowed(p, name, true, 0);
}

bool net_policy_allows_name(const struct net_policy *p, const char *name, uint16_t port)
{
	return name_allowed(p, name, false, port);
}

bool net_policy_allows_addr(const struct net_policy *p, const struct net_addr *a, uint16_t port)
{
	for (size_t i = 0; i < p->n; i++) {
		const struct net_rule *r = &p->rules[i];

		if (r->kind == NET_RULE_CIDR && net_cidr_has(&r->cidr, a) && net_rule_port(r, port))
			return true;
	}
	return false;
}

/* Is all that @r allows of @name (NET_RULE_PRESET: one of its hosts) allowed by one rule of @most? */
static bool covered(const struct net_policy *most, const struct net_rule *r, const char *name)
{
	for (size_t i = 0; i < most->n; i++) {
		const struct net_rule *m = &most->rules[i];
		bool is;

		if (m->port && m->port != r->port)
			continue;
		if (r->kind == NET_RULE_CIDR)
			is = m->kind == NET_RULE_CIDR && net_cidr_within(&r->cidr, &m->cidr);
		else if (r->kind == NET_RULE_BELOW) /* *.a.b of *.a.b or *.b */
			is = m->kind == NET_RULE_BELOW && (strcmp(m->name, name) == 0 || net_rule_covers_name(m, name));
		else
			is = net_rule_covers_name(m, name);
		if (is)
			return true;
	}
	return false;
}

bool net_policy_within(const struct net_policy *p, const struct net_policy *most, struct err *e)
{
	for (size_t i = 0; i < p->n; i++) {
		const struct net_rule *r = &p->rules[i];
		const char *const one[] = { r->name, NULL };
		const char *const *name = r->kind == NET_RULE_PRESET ? net_preset(r->name) : one;

		while (*name && covered(most, r, *name))
			name++;
		if (*name) {
			char text[NET_RULE_TEXT];

			net_rule_text(r, text);
			err_set(e, -EPERM, "rule %s: more than is allowed here", text);
			return false;
		}
	}
	return true;
}
