/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/mcp/guard.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "policy/policy.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/tree.h"

int guard_init(struct guard *g, const struct args *flags, struct err *e)
{
	*g = (struct guard){ .args = flags };
	pthread_mutex_init(&g->lock, NULL);
	g->pending = calloc(GUARD_PENDING_MAX, sizeof(*g->pending));
	return g->pending ? 0 : err_set(e, -ENOMEM, "no memory");
}

void guard_fini(struct guard *g)
{
	free(g->pending);
	g->pending = NULL;
	permits_fini(&g->policy);
	pthread_mutex_destroy(&g->lock);
}

/* -- the policy
 * -------------------------------------------------------------------------------------------------------- */

void guard_refresh(struct guard *g, int root)
{
	struct permits now, old;
	unsigned before;

	if (permits_read(root, &now, NULL) < 0)
		return;
	pthread_mutex_lock(&g->lock);
	old = g->policy;
	before = g->known ? old.ops : POLICY_OPS_ALL;
	g->policy = now;
	g->known = true;
	g->changes += before != now.ops;
	pthread_mutex_unlock(&g->lock);
	permits_fini(&old);
}

bool guard_knows(struct guard *g)
{
	bool known;

	pthread_mutex_lock(&g->lock);
	known = g->known;
	pthread_mutex_unlock(&g->lock);
	return known;
}

unsigned guard_changes(struct guard *g)
{
	unsigned n;

	pthread_mutex_lock(&g->lock);
	n = g->changes;
	pthread_mutex_unlock(&g->lock);
	return n;
}

bool guard_permits(struct guard *g, unsigned ops)
{
	bool good;

	pthread_mutex_lock(&g->lock);
	good = !g->known || (g->policy.ops & ops) == ops;
	pthread_mutex_unlock(&g->lock);
	return good;
}

static uint64_t policy_max(struct guard *g, enum policy_max which)
{
	uint64_t max;

	pthread_mutex_lock(&g->lock);
	max = g->policy.max[which];
	pthread_mutex_unlock(&g->lock);
	return max;
}

/* Of two limits, 0 being none. */
static uint64_t smaller(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

/* -- the flags
 * ----------------------------------------------------------------------------------------------------------- */

/* Call @fn for each word of "a, b"; true when it returned true for one. */
static bool any_word(const char *list, bool (*fn)(const char *word, size_t len, const char *arg), const char *arg)
{
	while (list && *list) {
		size_t len;

		list += strspn(list, ", \t");
		len = strcspn(list, ", \t");
		if (len && fn(list, len, arg))
			return true;
		list += len;
	}
	return false;
}

static bool is_word(const char *word, size_t len, const char *arg)
{
	return strlen(arg) == len && !memcmp(word, arg, len);
}

bool guard_lists(const char *list, const char *word)
{
	return any_word(list, is_word, word);
}

bool guard_permits_tool(const struct guard *g, const char *name)
{
	if (g->args->given[OPT_TOOLS] && !guard_lists(g->args->text[OPT_TOOLS], name))
		return false;
	return !guard_lists(g->args->text[OPT_DENY_TOOLS], name);
}

bool guard_permits_profile(struct guard *g, const char *name)
{
	const char *list = g->args->text[OPT_ALLOW_PROFILES];
	bool good = !list || guard_lists(list, name);

	pthread_mutex_lock(&g->lock);
	good = good && (!g->policy.profiles || guard_lists(g->policy.profiles, name));
	pthread_mutex_unlock(&g->lock);
	return good;
}

#define NET_FIELD  "net_allow_max: "
#define FAULTS_MAX 4096 /* more than the words of an error hold */

/* A policy's document with this list alone. NULL: no memory. */
static struct json_object *net_document(const char *list)
{
	struct json_object *o = json_object_new_object(), *rules = json_object_new_array();
	bool good = o && rules && fields_put(o, "net_allow_max", json_object_get(rules)) == 0;

	for (size_t len; good && *(list += strspn(list, ", \t")); list += len) {
		struct json_object *rule;

		len = strcspn(list, ", \t");
		rule = json_object_new_string_len(list, (int)len);
		good = rule && json_object_array_add(rules, rule) == 0;
		if (!good)
			json_object_put(rule);
	}
	json_object_put(rules);
	if (good)
		return o;
	json_object_put(o);
	return NULL;
}

/* "net_allow_max: this\nnet_allow_max: that\n" as one line. */
static void tell_faults(char *faults, struct err *e)
{
	char *rest = NULL, *line = strtok_r(faults, "\n", &rest);

	err_set(e, -EINVAL, "--net-allow-max: ");
	for (const char *between = ""; line; line = strtok_r(NULL, "\n", &rest), between = "; ") {
		struct err old = *e;

		if (!strncmp(line, NET_FIELD, strlen(NET_FIELD)))
			line += strlen(NET_FIELD);
		err_set(e, old.code, "%s%s%s", old.msg, between, line);
	}
}

int guard_check_net_max(const struct args *flags, struct err *e)
{
	AUTO_JSON *o = net_document(flags->text[OPT_NET_ALLOW_MAX] ?: "");
	const char *text = o ? json_line(o) : NULL;
	struct policy *p = NULL;
	struct err words = { 0 };
	struct buf faults;
	int r;

	if (!text)
		return err_set(e, -ENOMEM, "no memory");
	buf_init(&faults, FAULTS_MAX);
	/* What the host opens is the daemon's to know: it refuses the rest when a list is written. */
	r = policy_parse(text, strlen(text), NULL, &p, &faults);
	policy_unref(p);
	if (r == -ENOMEM) {
		err_set(e, r, "no memory");
	} else if (r < 0) {
		tell_faults(buf_str(&faults), &words);
		err_set(e, r, "%s", words.msg);
	}
	buf_fini(&faults);
	return r;
}

int guard_check_default(const struct args *flags, int root, struct err *e)
{
	const char *name = flags->text[OPT_DEFAULT_PROFILE];
	AUTO_FD profiles = -1;

	if (!flags->given[OPT_DEFAULT_PROFILE])
		return 0;
	profiles = openat(root, "profiles", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (profiles < 0 || faccessat(profiles, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
		return 0;
	return err_set(e, -ENOENT, "--default-profile: there is no profile \"%s\" (crucible profile ls tells what is)",
		       name);
}

/* The first permitted one serves where none is named. NULL: the daemon has one that the policy permits. */
static const char *default_profile(struct guard *g, char out[SBX_ID_MAX + 1])
{
	const char *list = g->args->text[OPT_ALLOW_PROFILES];

	if (g->args->given[OPT_DEFAULT_PROFILE])
		return g->args->text[OPT_DEFAULT_PROFILE];
	if (!list)
		return NULL;
	*out = '\0';
	for (size_t len; *(list += strspn(list, ", \t")); list += len) {
		char word[SBX_ID_MAX + 1];

		len = strcspn(list, ", \t");
		snprintf(word, sizeof(word), "%.*s", (int)len, list);
		if (!*out || guard_permits_profile(g, word))
			memcpy(out, word, sizeof(word));
		if (guard_permits_profile(g, word))
			break;
	}
	return out;
}

int guard_origin(struct guard *g, struct args *a, struct err *e)
{
	const char *list = g->args->text[OPT_ALLOW_PROFILES], *profile;
	static _Thread_local char first[SBX_ID_MAX + 1]; /* @a borrows it for the time of the call */

	if (list && a->given[OPT_FROM])
		return err_set(e, -EPERM, "image: the operator permits profiles only: %s", list);
	if (!a->given[OPT_PROFILE] && !a->given[OPT_FROM] && !a->given[OPT_SNAPSHOT]) {
		profile = default_profile(g, first);
		a->given[OPT_PROFILE] = profile != NULL;
		a->text[OPT_PROFILE] = profile;
	}
	if (!a->given[OPT_PROFILE] || guard_permits_profile(g, a->text[OPT_PROFILE]))
		return 0;
	if (list)
		return err_set(e, -EPERM, "profile: \"%s\" is not permitted; the operator permits: %s",
			       a->text[OPT_PROFILE], list);
	return err_set(e, -EPERM,
		       "profile: \"%s\" is not permitted by the policy of this mount (list_profiles tells what is)",
		       a->text[OPT_PROFILE]);
}

/* "host" permits "host" and "host:443"; "*.d" permits "a.d", "*.a.d" and these with a port; all else only itself. */
static bool permits_host(const char *word, size_t len, const char *line)
{
	size_t n = strlen(line), host = strcspn(line, ":");

	if (len == n && !strncasecmp(word, line, n))
		return true;
	/* An address with colons, a port behind the permitted name: only as it stands. */
	if (memchr(word, ':', len) || (line[host] && strchr(line + host + 1, ':')))
		return false;
	if (line[host] && (!line[host + 1] || line[host + 1 + strspn(line + host + 1, "0123456789")]))
		return false;
	if (word[0] == '*' && len > 2 && word[1] == '.')
		return host > len - 1 && !strncasecmp(line + host - (len - 1), word + 1, len - 1);
	return line[host] && host == len && !strncasecmp(word, line, len);
}

static bool is_blank(const char *list)
{
	return !list[strspn(list, ", \t")];
}

/* Whoever asks for a network: does the policy permit one at all? */
static int check_network(struct guard *g, const char *what, struct err *e)
{
	bool none;

	pthread_mutex_lock(&g->lock);
	none = g->known && (g->policy.no_network || !(g->policy.ops & POLICY_NETWORK));
	pthread_mutex_unlock(&g->lock);
	return none ? err_set(e, -EPERM, "%s: the policy of this mount permits no network", what) : 0;
}

int guard_publish(struct guard *g, const struct args_texts *ports, struct err *e)
{
	if (ports->n && g->args->given[OPT_NET_ALLOW_MAX] && is_blank(g->args->text[OPT_NET_ALLOW_MAX]))
		return err_set(e, -EPERM, "publish: the operator permits no network");
	return ports->n ? check_network(g, "publish", e) : 0;
}

static int check_host(const struct guard *g, const char *line, struct err *e)
{
	const char *list = g->args->text[OPT_NET_ALLOW_MAX];

	if (!g->args->given[OPT_NET_ALLOW_MAX] || any_word(list, permits_host, line))
		return 0;
	return err_set(e, -EPERM, "net_allow: \"%s\" is not permitted; the operator permits: %s", line,
		       is_blank(list) ? "no network" : list);
}

int guard_net(struct guard *g, const struct args_texts *lines, struct err *e)
{
	int r = lines->n ? check_network(g, "net_allow", e) : 0;

	for (size_t i = 0; i < lines->n && r == 0; i++)
		r = check_host(g, lines->v[i], e);
	return r;
}

int guard_net_of(const struct guard *g, int dir, struct err *e)
{
	AUTO_FREE char *text = NULL;
	char *line, *rest;
	int r;

	if (!g->args->given[OPT_NET_ALLOW_MAX])
		return 0;
	r = tree_read(dir, "net/allow", &text, NULL);
	if (r < 0)
		return err_set(e, r, "net/allow: %s", strerror(-r));
	for (line = strtok_r(text, "\n", &rest); line && r == 0; line = strtok_r(NULL, "\n", &rest))
		r = check_host(g, line, e);
	return r;
}

uint64_t guard_fork_lifetime_ms(const struct guard *g)
{
	return g->args->number[OPT_MAX_TIMEOUT];
}

uint64_t guard_timeout_ms(struct guard *g, uint64_t ms)
{
	uint64_t policy_s = policy_max(g, POLICY_MAX_TIMEOUT_S);

	return smaller(ms,
		       smaller(g->args->number[OPT_MAX_TIMEOUT], policy_s < UINT64_MAX / 1000 ? policy_s * 1000 : 0));
}

int guard_forks(struct guard *g, uint64_t count, struct err *e)
{
	uint64_t policy = policy_max(g, POLICY_MAX_FORK);

	if (g->args->given[OPT_MAX_FORK] && count > g->args->number[OPT_MAX_FORK])
		return err_set(e, -EPERM, "count: %llu forks at once; the operator permits %llu",
			       (unsigned long long)count, (unsigned long long)g->args->number[OPT_MAX_FORK]);
	if (policy && count > policy)
		return err_set(e, -EDQUOT, "count: %llu forks at once; the policy of this mount permits %llu",
			       (unsigned long long)count, (unsigned long long)policy);
	return 0;
}

struct counting {
	struct guard *g;
	uid_t uid;
	uint64_t n; /* sandboxes of ours in run/ that are not pending */
};

static bool is_pending(const struct guard *g, const char *name)
{
	for (size_t i = 0; i < g->npending; i++) {
		if (!strcmp(g->pending[i], name))
			return true;
	}
	return false;
}

static int count_one(void *arg, int parent, const char *name)
{
	struct counting *c = arg;
	struct stat st;

	if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid == c->uid && !is_pending(c->g, name))
		c->n++;
	return 0;
}

int guard_admit(struct guard *g, int root, const char (*names)[SBX_ID_MAX + 1], size_t n, struct err *e)
{
	struct counting c = { .g = g, .uid = geteuid() };
	uint64_t max = g->args->number[OPT_MAX_SANDBOXES], there;
	int r;

	if (!g->args->given[OPT_MAX_SANDBOXES])
		return 0;
	pthread_mutex_lock(&g->lock);
	r = tree_list(root, "run", count_one, &c);
	there = c.n + g->npending;
	if (r < 0)
		err_set(e, r, "run: %s", strerror(-r));
	else if (there + n > max || g->npending + n > GUARD_PENDING_MAX)
		r = err_set(e, -EDQUOT,
			    "the operator permits %llu sandboxes at once, and %llu are there: delete one first",
			    (unsigned long long)max, (unsigned long long)there);
	else
		for (size_t i = 0; i < n; i++)
			memcpy(g->pending[g->npending++], names[i], sizeof(names[i]));
	pthread_mutex_unlock(&g->lock);
	return r;
}

void guard_settle(struct guard *g, const char (*names)[SBX_ID_MAX + 1], size_t n)
{
	pthread_mutex_lock(&g->lock);
	for (size_t k = 0; k < n; k++) {
		for (size_t i = 0; i < g->npending; i++) {
			if (strcmp(g->pending[i], names[k]) != 0)
				continue;
			g->npending--;
			memmove(g->pending[i], g->pending[g->npending], sizeof(g->pending[i]));
			break;
		}
	}
	pthread_mutex_unlock(&g->lock);
}
