/* SPDX-License-Identifier: Apache-2.0 */
/* Policies of the configuration: those that policy_uid and policy_gid bind to a user or a group, and what net_allow_max
 * is as one. */
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "base/json.h"
#include "cruciblefs/domain/config.h"

#define FILE_FAULTS_MAX (16u * 1024)

static const char *key_of(bool of_gid)
{
	return of_gid ? "policy_gid" : "policy_uid";
}

static struct config_policy *find(const struct config *c, bool of_gid, uint32_t id)
{
	for (size_t i = 0; i < c->npolicies; i++) {
		if (c->policies[i].of_gid == of_gid && c->policies[i].id == id)
			return &c->policies[i];
	}
	return NULL;
}

const struct policy *config_policy(const struct config *c, bool of_gid, uint32_t id)
{
	const struct config_policy *p = find(c, of_gid, id);

	return p ? p->policy : NULL;
}

int config_bind_policy(struct config *c, bool of_gid, const char *value, struct err *e)
{
	const char *key = key_of(of_gid), *file;
	struct config_policy *more;
	char *end;
	unsigned long id;

	errno = 0;
	id = strtoul(value, &end, 10);
	file = end + strspn(end, " \t");
	/* The last number is nobody's: (uid_t)-1. */
	if (!isdigit((unsigned char)value[0]) || errno || id >= UINT32_MAX || file == end || file[0] != '/')
		return err_set(e, -EINVAL, "%s: \"%s\" is not a number and the absolute path of a policy's file", key,
			       value);
	if (find(c, of_gid, (uint32_t)id))
		return err_set(e, -EINVAL, "%s: %lu has %s already", key, id, find(c, of_gid, (uint32_t)id)->file);
	if (c->npolicies == CONFIG_POLICIES_MAX)
		return err_set(e, -EINVAL, "%s: more than %u policies; bind one to a group", key, CONFIG_POLICIES_MAX);
	more = reallocarray(c->policies, c->npolicies + 1, sizeof(*more));
	if (!more)
		return err_set(e, -ENOMEM, "%s: no memory", key);
	c->policies = more;
	more[c->npolicies] = (struct config_policy){ .of_gid = of_gid, .id = (uint32_t)id, .file = strdup(file) };
	if (!more[c->npolicies].file)
		return err_set(e, -ENOMEM, "%s: no memory", key);
	c->npolicies++;
	return 0;
}

/* Each fault with its file. */
static void tell(struct buf *faults, const struct config_policy *p, struct buf *of_file, const char *words)
{
	const char *text = buf_str(of_file);

	if (!text || !*text)
		text = words;
	for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
		buf_addf(faults, "%s: %.*s\n", p->file, (int)strcspn(text, "\n"), text);
}

static int read_one(struct config_policy *p, const struct net_reach *reach, struct buf *of_file)
{
	AUTO_FREE char *text = NULL;
	size_t len = 0;
	int r = fd_slurp(AT_FDCWD, p->file, POLICY_TEXT_MAX, &text, &len);

	p->policy = policy_unref(p->policy);
	return r < 0 ? r : policy_parse(text, len, reach, &p->policy, of_file);
}

int config_read_policies(struct config *c, struct buf *faults, struct err *e)
{
	struct net_cidr opened[CONFIG_NET_RANGES_MAX];
	struct net_reach reach = { .opened = opened };
	struct buf of_file;
	int code = config_net_private(c, opened, &reach.nopened, e);

	if (code < 0)
		return code;
	buf_init(&of_file, FILE_FAULTS_MAX);
	for (size_t i = 0; i < c->npolicies; i++) {
		struct config_policy *p = &c->policies[i];
		int r;

		buf_reset(&of_file);
		r = read_one(p, &reach, &of_file);
		if (r < 0)
			tell(faults, p, &of_file, strerror(-r));
		if (r < 0 && !code)
			code = err_set(e, r, "%s %u: %s is no policy that can be read: %s", key_of(p->of_gid), p->id,
				       p->file, strerror(-r));
	}
	buf_fini(&of_file);
	return code;
}

/* {"net_allow_max": […]} of the setting's lines. Operations it names none, so it permits all but admin: that is not the
 * host's to give. */
static struct json_object *as_document(const char *lines)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	if (!o || !list || json_object_object_add(o, "net_allow_max", list) < 0) {
		json_object_put(list);
		json_object_put(o);
		return NULL;
	}
	for (size_t n; *lines; lines += n + (lines[n] == '\n')) {
		struct json_object *rule;

		n = strcspn(lines, "\n");
		rule = json_object_new_string_len(lines, (int)n);
		if (!rule || json_object_array_add(list, rule) < 0) {
			json_object_put(rule);
			json_object_put(o);
			return NULL;
		}
	}
	return o;
}

int config_host_policy(struct config *c, struct err *e)
{
	struct policy *p = NULL;
	AUTO_JSON *o = NULL;
	struct buf faults;
	const char *line;
	int r;

	if (!c->net_limited) {
		c->net_policy = policy_unref(c->net_policy);
		return 0;
	}
	o = as_document(c->net_allow_max);
	line = o ? json_line(o) : NULL;
	if (!line)
		return err_set(e, -ENOMEM, "net_allow_max: no memory");
	buf_init(&faults, FILE_FAULTS_MAX);
	r = policy_parse(line, strlen(line), NULL, &p, &faults);
	if (r < 0) {
		const char *words = buf_str(&faults);

		err_set(e, r, "%.*s", words ? (int)strcspn(words, "\n") : 0, words ? words : "");
	}
	buf_fini(&faults);
	if (r < 0)
		return r;
	policy_unref(c->net_policy);
	c->net_policy = p;
	return 0;
}

void config_fini(struct config *c)
{
	for (size_t i = 0; i < c->npolicies; i++) {
		free(c->policies[i].file);
		policy_unref(c->policies[i].policy);
	}
	free(c->policies);
	c->policies = NULL;
	c->npolicies = 0;
	c->net_policy = policy_unref(c->net_policy);
}
