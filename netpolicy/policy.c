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

/* Is each host that @r names by @name (a preset: one of its hosts) one that @m names, too? Whatever the ports. */
static bool hosts_covered(const struct net_rule *m, const struct net_rule *r, const char *name)
{
	if (r->kind == NET_RULE_CIDR)
		return m->kind == NET_RULE_CIDR && net_cidr_within(&r->cidr, &m->cidr);
	if (r->kind == NET_RULE_BELOW) /* *.a.b of *.a.b or *.b */
		return m->kind == NET_RULE_BELOW && (strcmp(m->name, name) == 0 || net_rule_covers_name(m, name));
	return net_rule_covers_name(m, name);
}

/* Is all that @r allows of @name (NET_RULE_PRESET: one of its hosts) allowed by one rule of @most? */
static bool covered(const struct net_policy *most, const struct net_rule *r, const char *name)
{
	for (size_t i = 0; i < most->n; i++) {
		const struct net_rule *m = &most->rules[i];

		if ((!m->port || m->port == r->port) && hosts_covered(m, r, name))
			return true;
	}
	return false;
}

static bool rule_within(const struct net_rule *r, const struct net_policy *most)
{
	const char *const one[] = { r->name, NULL };
	const char *const *name = r->kind == NET_RULE_PRESET ? net_preset(r->name) : one;

	while (*name && covered(most, r, *name))
		name++;
	return !*name;
}

bool net_policy_within(const struct net_policy *p, const struct net_policy *most, struct err *e)
{
	for (size_t i = 0; i < p->n; i++) {
		char text[NET_RULE_TEXT];

		if (rule_within(&p->rules[i], most))
			continue;
		net_rule_text(&p->rules[i], text);
		err_set(e, -EPERM, "rule %s: more than is allowed here", text);
		return false;
	}
	return true;
}

/* -- what two lists have in common ------------------------------------------------------------------------------ */

static void add_new(struct net_policy *p, const struct net_rule *r)
{
	if (p->n < NET_RULES_MAX && !rule_within(r, p))
		p->rules[p->n++] = *r;
}

static void add_those_within(struct net_policy *p, const struct net_policy *from, const struct net_policy *most)
{
	for (size_t i = 0; i < from->n; i++)
		if (rule_within(&from->rules[i], most))
			add_new(p, &from->rules[i]);
}

/* Neither is a preset. Hosts and ports of two rules are nested or apart, so what both allow is one rule or none. */
static void add_meeting(struct net_policy *p, const struct net_rule *a, const struct net_rule *b)
{
	struct net_rule r;

	if (a->port && b->port && a->port != b->port)
		return;
	r = *a;
	r.port = a->port ? a->port : b->port;
	if (!hosts_covered(b, &r, r.name)) {
		memcpy(r.name, b->name, sizeof(r.name));
		r.kind = b->kind;
		r.cidr = b->cidr;
		if (!hosts_covered(a, &r, r.name))
			return;
	}
	add_new(p, &r);
}

/* The rules that @r stands for: itself, or the names of a preset. Returns how many; *ret: the first, in @names or @r.
 */
static size_t names_of(const struct net_rule *r, struct net_rule names[NET_PRESET_MAX], const struct net_rule **ret)
{
	const char *const *host = r->kind == NET_RULE_PRESET ? net_preset(r->name) : NULL;
	size_t n = 0;

	*ret = host ? names : r;
	for (; host && *host && n < NET_PRESET_MAX; host++) {
		names[n] = (struct net_rule){ .kind = NET_RULE_NAME };
		memcpy(names[n++].name, *host, strlen(*host) + 1);
	}
	return host ? n : 1;
}

int net_policy_both(const struct net_policy *a, const struct net_policy *b, struct net_policy **ret)
{
	struct net_policy *p = malloc(sizeof(*p) + NET_RULES_MAX * sizeof(p->rules[0])), *fit;
	struct net_rule some[NET_PRESET_MAX], others[NET_PRESET_MAX];
	const struct net_rule *x, *y;

	if (!p)
		return -ENOMEM;
	atomic_init(&p->refs, 1);
	p->n = 0;
	add_those_within(p, a, b); /* whole rules first: they stay as they were written */
	add_those_within(p, b, a);
	for (size_t i = 0; i < a->n; i++) {
		size_t nx = names_of(&a->rules[i], some, &x);

		for (size_t k = 0; k < b->n; k++) {
			size_t ny = names_of(&b->rules[k], others, &y);

			for (size_t m = 0; m < nx * ny; m++)
				add_meeting(p, &x[m / ny], &y[m % ny]);
		}
	}
	fit = realloc(p, sizeof(*p) + p->n * sizeof(p->rules[0]));
	*ret = fit ? fit : p;
	return 0;
}
