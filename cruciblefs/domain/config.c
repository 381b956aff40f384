/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "cruciblefs/domain/config.h"
#include "cruciblefs/launch/launch.h"
#include "netpolicy/policy.h"
#include "netpolicy/resolver.h"

enum type { T_PATH, T_TEXT, T_LINES, T_U32, T_LEVEL, T_ACCEL, T_POLICY_UID, T_POLICY_GID };

static const struct setting {
	const char *key;
	enum type type;
	size_t offset, cap; /* cap: of texts */
	uint32_t min, max, fallback;
} settings[] = {
#define TEXT(type_, member) \
#member, type_, offsetof(struct config, member), sizeof(((struct config *)0)->member), 0, 0, 0
#define U32(member, min_, max_, fallback_) #member, T_U32, offsetof(struct config, member), 0, min_, max_, fallback_
	{ TEXT(T_PATH, mount) },
	{ TEXT(T_PATH, store) },
	{ TEXT(T_TEXT, qemu) },
	{ TEXT(T_TEXT, cgroup) },
	{ "log_level", T_LEVEL, offsetof(struct config, log_level), 0, 0, 0, LOG_L_INFO },
	{ "accel", T_ACCEL, offsetof(struct config, accel), 0, 0, 0, CONFIG_ACCEL_AUTO },
	{ U32(uid_base, 65536, 0x7fff0000u, LAUNCH_UID_BASE_DEFAULT) },
	{ U32(max_sandboxes, 1, 4096, 256) },
	{ U32(max_sandboxes_per_uid, 1, 4096, 64) },
	{ U32(memory_floor_mib, 0, 1u << 20, 512) },
	{ U32(overcommit_percent, 10, 10000, 400) },
	{ U32(disk_floor_mib, 0, 1u << 24, 512) },
	{ U32(logs_max_mib, 1, 1u << 20, 256) },
	{ U32(logs_keep_days, 1, 36500, 30) },
	{ U32(spool_total_mib, 1, 1u << 24, 16384) },
	{ U32(max_snapshots_per_uid, 1, 65536, 256) },
	{ U32(pool_size, 0, 256, 2) },
	{ U32(warm_size, 0, 64, 1) },
	{ U32(prepare, 0, 1, 1) },
	{ U32(template_percent, 1, 90, 25) },
	{ TEXT(T_LINES, net_upstream) },
	{ TEXT(T_LINES, net_private) },
	{ TEXT(T_LINES, net_allow_max) },
	{ "policy_uid", T_POLICY_UID, 0, 0, 0, 0, 0 },
	{ "policy_gid", T_POLICY_GID, 0, 0, 0, 0, 0 },
#undef TEXT
#undef U32
};

static const char *const accel_words[] = { "auto", "tcg", "kvm" };

void config_defaults(struct config *c)
{
	memset(c, 0, sizeof(*c));
	for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
		void *at = (char *)c + settings[i].offset;

		if (settings[i].type == T_U32)
			*(uint32_t *)at = settings[i].fallback;
	}
	c->log_level = LOG_L_INFO;
	c->accel = CONFIG_ACCEL_AUTO;
	snprintf(c->mount, sizeof(c->mount), "/crucible");
	snprintf(c->store, sizeof(c->store), "/var/lib/crucible");
}

static int set_text(const struct setting *s, char *at, const char *value, struct err *e)
{
	size_t len = strlen(value);

	if (len >= s->cap)
		return err_set(e, -EINVAL, "%s: longer than %zu bytes", s->key, s->cap - 1);
	if (s->type == T_PATH && value[0] != '/')
		return err_set(e, -EINVAL, "%s: \"%s\" is not an absolute path", s->key, value);
	memcpy(at, value, len + 1);
	/* "/a/b/" and "/a/b" are one place. */
	while (s->type == T_PATH && len > 1 && at[len - 1] == '/')
		at[--len] = '\0';
	return 0;
}

/* -- lists -----------------------------------------------------------------------------------------------------------
 */

static int check_upstream(const char *word, struct err *e)
{
	char addr[NET_ADDR_TEXT + 1], *end;
	const char *hash = strchr(word, '#');
	size_t n = hash ? (size_t)(hash - word) : strlen(word);
	struct net_addr a;
	unsigned long port = hash ? strtoul(hash + 1, &end, 10) : 53;

	snprintf(addr, sizeof(addr), "%.*s", (int)(n < sizeof(addr) ? n : 0), word);
	if (net_addr_parse(addr, &a) < 0)
		return err_set(e, -EINVAL, "net_upstream: \"%s\" is not ADDRESS or ADDRESS#PORT", word);
	if (hash && (!isdigit((unsigned char)hash[1]) || *end || port < 1 || port > 65535))
		return err_set(e, -EINVAL, "net_upstream: \"%s\": a port is a number from 1 to 65535", word);
	return 0;
}

int config_net_private(const struct config *c, struct net_cidr out[CONFIG_NET_RANGES_MAX], size_t *ret_n, struct err *e)
{
	char word[64];
	size_t n = 0;

	for (const char *p = c->net_private; *p; p += strcspn(p, "\n") + 1) {
		size_t len = strcspn(p, "\n");

		if (n == CONFIG_NET_RANGES_MAX)
			return err_set(e, -E2BIG, "net_private: more than %u ranges", CONFIG_NET_RANGES_MAX);
		snprintf(word, sizeof(word), "%.*s", (int)(len < sizeof(word) ? len : sizeof(word)), p);
		if (net_cidr_parse(word, &out[n++], e) < 0) {
			err_wrap(e, "net_private");
			return -EINVAL;
		}
	}
	*ret_n = n;
	return 0;
}

/* Words with blanks or commas between them. A list that is given anew takes the place of the one before. */
static int set_lines(struct config *c, const struct setting *s, char *at, const char *value, struct err *e)
{
	AUTO_FREE char *text = strdup(value), *old = strdup(at);
	struct net_cidr ranges[CONFIG_NET_RANGES_MAX];
	size_t used = 0, words = 0, n;
	int r = 0;

	if (!text || !old)
		return err_set(e, -ENOMEM, "%s: no memory", s->key);
	at[0] = '\0';
	for (char *next = text, *word; !r && (word = strsep(&next, ", \t"));) {
		size_t len = strlen(word);

		if (!len)
			continue;
		if (used + len + 2 > s->cap)
			r = err_set(e, -EINVAL, "%s: longer than %zu bytes", s->key, s->cap - 1);
		else if (at == c->net_upstream && ++words > RESOLVER_UPSTREAMS_MAX)
			r = err_set(e, -EINVAL, "net_upstream: more than %u", RESOLVER_UPSTREAMS_MAX);
		else if (at == c->net_upstream)
			r = check_upstream(word, e);
		if (!r)
			used += (size_t)snprintf(at + used, s->cap - used, "%s\n", word);
	}
	if (!r && at == c->net_private)
		r = config_net_private(c, ranges, &n, e);
	if (r < 0)
		snprintf(at, s->cap, "%s", old);
	else if (at == c->net_allow_max)
		c->net_limited = true;
	return r;
}

int config_set(struct config *c, const char *key, const char *value, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
		const struct setting *s = &settings[i];
		void *at = (char *)c + s->offset;

		if (strcmp(s->key, key))
			continue;
		switch (s->type) {
		case T_PATH:
		case T_TEXT:
			return set_text(s, at, value, e);
		case T_LINES:
			return set_lines(c, s, at, value, e);
		case T_POLICY_UID:
		case T_POLICY_GID:
			return config_bind_policy(c, s->type == T_POLICY_GID, value, e);
		case T_LEVEL:
			if (log_level_parse(value, at) < 0)
				return err_set(e, -EINVAL, "log_level: \"%s\" is none of err, warn, info, debug",
					       value);
			return 0;
		case T_ACCEL:
			for (unsigned k = 0; k < ARRAY_LEN(accel_words); k++) {
				if (!strcmp(accel_words[k], value)) {
					*(enum config_accel *)at = k;
					return 0;
				}
			}
			return err_set(e, -EINVAL, "accel: \"%s\" is none of auto, tcg, kvm", value);
		case T_U32: {
			char *end;
			unsigned long v;

			errno = 0;
			v = strtoul(value, &end, 10);
			if (errno || end == value || *end || !isdigit((unsigned char)value[0]) || v < s->min ||
			    v > s->max)
				return err_set(e, -EINVAL, "%s: \"%s\" is not a number from %u to %u", key, value,
					       s->min, s->max);
			*(uint32_t *)at = (uint32_t)v;
			return 0;
		}
		}
	}
	return err_set(e, -EINVAL, "\"%s\" is no setting; crucible.conf(5) lists them", key);
}

static char *trim(char *s)
{
	char *end;

	while (isspace((unsigned char)*s))
		s++;
	end = s + strlen(s);
	while (end > s && isspace((unsigned char)end[-1]))
		*--end = '\0';
	return s;
}

int config_load(struct config *c, const char *path, struct err *e)
{
	AUTO_FREE char *text = NULL;
	size_t len;
	unsigned line = 0;
	int r = fd_slurp(AT_FDCWD, path, 1 << 20, &text, &len);

	if (r < 0)
		return err_set(e, r, "%s: %s", path, strerror(-r));
	for (char *next = text, *row; (row = strsep(&next, "\n"));) {
		char *eq;

		line++;
		row = trim(row);
		if (!*row || *row == '#')
			continue;
		eq = strchr(row, '=');
		if (!eq)
			return err_set(e, -EINVAL, "%s:%u: not \"key = value\"", path, line);
		*eq = '\0';
		r = config_set(c, trim(row), trim(eq + 1), e);
		if (r < 0) {
			err_wrap(e, "%s:%u", path, line);
			return r;
		}
	}
	return 0;
}

/* Its rules may name what net_private opens, which may stand behind it. */
static int check_allow_max(struct config *c, struct err *e)
{
	struct net_cidr opened[CONFIG_NET_RANGES_MAX];
	struct net_reach reach = { .opened = opened };
	struct net_policy *p = NULL;
	int r = config_net_private(c, opened, &reach.nopened, e);

	if (!r)
		r = net_policy_parse(c->net_allow_max, strlen(c->net_allow_max), &reach, &p, e);
	if (r < 0)
		err_wrap(e, "net_allow_max");
	net_policy_unref(p);
	return r < 0 ? r : config_host_policy(c, e);
}

bool config_is_inside(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !strncmp(path, dir, n) && (path[n] == '\0' || path[n] == '/' || dir[n - 1] == '/');
}

int config_finish(struct config *c, struct err *e)
{
	if (config_is_inside(c->store, c->mount))
		return err_set(
			e, -EINVAL,
			"store %s is inside the mount %s: the daemon would wait for itself; choose --store elsewhere",
			c->store, c->mount);
	if (config_is_inside(c->mount, c->store))
		return err_set(e, -EINVAL, "mount %s is inside the store %s: choose --mount elsewhere", c->mount,
			       c->store);
	if (check_allow_max(c, e) < 0)
		return -EINVAL;
	if (strchr(c->cgroup, '/'))
		return err_set(e, -EINVAL, "cgroup: \"%s\" is a name, not a path", c->cgroup);
	if (!c->cgroup[0]) {
		/* One daemon per store, so one cgroup per store: FNV-1a of its path keeps the name short. */
		uint32_t h = 2166136261u;

		for (const char *p = c->store; *p; p++)
			h = (h ^ (unsigned char)*p) * 16777619u;
		snprintf(c->cgroup, sizeof(c->cgroup), "crucible-%08x", h);
	}
	return 0;
}
