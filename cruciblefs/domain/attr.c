/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of a sandbox: one table says name, range and default; `limits/`, `defaults/` and sandbox.json all follow
 * it. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "base/json.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "cruciblefs/domain/view_priv.h"

#define ENV_LINES_MAX 1024
#define ENV_BYTES_MAX (128 * 1024)

static const struct attr_info {
	const char *name;
	uint32_t min, max, fallback; /* numeric ones: max != 0 */
	bool any_time;		     /* may be written after the start */
} attr_table[] = {
	[ATTR_FROM] = { "from", 0, 0, 0, false },
	[ATTR_ENV] = { "env", 0, 0, 0, true },
	[ATTR_VCPUS] = { "vcpus", 1, 4, 1, false },
	[ATTR_MEMORY_MIB] = { "memory_mib", 96, 4096, 512, false },
	[ATTR_DISK_MIB] = { "disk_mib", 64, 65536, 4096, false },
	[ATTR_CPU_PERCENT] = { "cpu_percent", 0, 400, 0, false },
	[ATTR_IO_MBPS] = { "io_mbps", 0, 100000, 0, false },
	[ATTR_TIMEOUT_S] = { "timeout_s", 0, 31536000, 86400, true },
	[ATTR_EXEC_TIMEOUT_S] = { "exec_timeout_s", 0, 31536000, 60, false },
	[ATTR_OUTPUT_MIB] = { "output_mib", 1, 4096, 64, false },
	[ATTR_SPOOL_MIB] = { "spool_mib", 1, 65536, 1024, false },
	[ATTR_PIDS] = { "pids", 16, 1000000, 4096, false },
};
_Static_assert(ARRAY_LEN(attr_table) == ATTR_COUNT, "every attribute has its row");

const char attr_from_snapshot[] = "snapshot:";

void attr_range(enum sandbox_attr a, uint32_t *ret_min, uint32_t *ret_max)
{
	*ret_min = attr_table[a].min;
	*ret_max = attr_table[a].max;
}

const char *sandbox_attr_name(enum sandbox_attr a)
{
	return attr_table[a].name;
}

static bool is_number(enum sandbox_attr a)
{
	return attr_table[a].max != 0;
}

uint32_t sandbox_num(const struct sandbox *s, enum sandbox_attr a)
{
	return s->attrs.num[a];
}

void attrs_builtin(struct attrs *a)
{
	*a = (struct attrs){ .from = "profile:base" };
	for (unsigned i = 0; i < ATTR_COUNT; i++)
		a->num[i] = attr_table[i].fallback;
}

static char *copy_of(const char *text, int *code)
{
	char *copy = text ? strdup(text) : NULL;

	*code = text && !copy ? -ENOMEM : *code;
	return copy;
}

int attrs_copy(struct attrs *to, const struct attrs *from)
{
	int r = 0;
	char *env = copy_of(from->env, &r), *net_allow = copy_of(from->net_allow, &r);

	if (r < 0) {
		free(env);
		free(net_allow);
		return r;
	}
	attrs_fini(to);
	*to = *from;
	to->env = env;
	to->net_allow = net_allow;
	return 0;
}

int attrs_lend_net(struct attrs *to, const struct attrs *from)
{
	int r = 0;
	char *net_allow = copy_of(from->net_allow, &r);

	if (r < 0)
		return r;
	free(to->net_allow);
	to->net_allow = net_allow;
	return 0;
}

void attrs_fini(struct attrs *a)
{
	free(a->env);
	free(a->net_allow);
	a->env = a->net_allow = NULL;
}

int attrs_to_json(const struct attrs *a, struct json_object *o)
{
	if (json_object_object_add(o, "from", json_object_new_string(a->from)) < 0)
		return -ENOMEM;
	for (unsigned i = 0; i < ATTR_COUNT; i++) {
		if (is_number(i) && json_object_object_add(o, attr_table[i].name, json_object_new_int64(a->num[i])) < 0)
			return -ENOMEM;
	}
	if (a->env && json_object_object_add(o, "env", json_object_new_string(a->env)) < 0)
		return -ENOMEM;
	if (a->net_allow && json_object_object_add(o, "net_allow", json_object_new_string(a->net_allow)) < 0)
		return -ENOMEM;
	return 0;
}

static int take_text(struct json_object *o, const char *key, char **at, struct err *e)
{
	const char *text = NULL;
	int r = json_get_str(o, key, &text, e);

	if (r < 0 || !text)
		return r;
	free(*at);
	*at = *text ? strdup(text) : NULL;
	return *at || !*text ? 0 : -ENOMEM;
}

int attrs_from_json(struct attrs *a, struct json_object *o, struct err *e)
{
	const char *text = NULL;
	int r;

	r = json_get_str(o, "from", &text, e);
	if (r < 0)
		return r;
	if (text && (size_t)snprintf(a->from, sizeof(a->from), "%s", text) >= sizeof(a->from))
		return err_set(e, -EINVAL, "from: too long");
	for (unsigned i = 0; i < ATTR_COUNT; i++) {
		uint64_t v = a->num[i];

		if (!is_number(i))
			continue;
		r = json_get_u64(o, attr_table[i].name, attr_table[i].min, attr_table[i].max, &v, e);
		if (r < 0)
			return r;
		a->num[i] = (uint32_t)v;
	}
	r = take_text(o, "env", &a->env, e);
	return r < 0 ? r : take_text(o, "net_allow", &a->net_allow, e);
}

static int show(const struct attrs *v, enum sandbox_attr a, struct buf *out)
{
	switch (a) {
	case ATTR_FROM:
		return buf_addf(out, "%s\n", v->from);
	case ATTR_ENV:
		return v->env ? buf_adds(out, v->env) : 0;
	default:
		return buf_addf(out, "%" PRIu32 "\n", v->num[a]);
	}
}

static int store_number(struct attrs *v, enum sandbox_attr a, const char *text, struct err *e)
{
	const struct attr_info *t = &attr_table[a];
	char *end;
	unsigned long long n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)text[0]) || errno || *end || n < t->min || n > t->max)
		return err_set(e, -EINVAL, "\"%.40s\" is not a whole number from %" PRIu32 " to %" PRIu32, text, t->min,
			       t->max);
	v->num[a] = (uint32_t)n;
	return 0;
}

static int store_from(struct attrs *v, const char *text, struct registry *r, const struct view *view, struct err *e)
{
	static const char prefix[] = "profile:";
	const char *name = text;

	if (!strncmp(text, attr_from_snapshot, strlen(attr_from_snapshot))) {
		name = text + strlen(attr_from_snapshot);
		if (cfs_name_check(name) < 0)
			return err_set(e, -EINVAL, "\"%.60s\" is not snapshot:NAME", text);
		if (!r || !registry_find_snapshot(r, view, name))
			return err_set(e, -EINVAL, "no snapshot \"%s\"; ls snapshots/ shows them", name);
		snprintf(v->from, sizeof(v->from), "%s%.63s", attr_from_snapshot, name);
		return 0;
	}
	/* The bare name of a profile is what people write first. */
	if (!strncmp(text, prefix, sizeof(prefix) - 1))
		name = text + sizeof(prefix) - 1;
	if (cfs_name_check(name) < 0)
		return err_set(e, -EINVAL, "\"%.60s\" is neither profile:NAME nor snapshot:NAME", text);
	if (r && !profile_exists(r, name))
		return err_set(e, -EINVAL, "no profile \"%s\" in the store; build it: crucible profile build %s", name,
			       name);
	snprintf(v->from, sizeof(v->from), "profile:%.63s", name);
	return 0;
}

static bool is_env_line(const char *line, size_t len)
{
	size_t i = 0;

	if (!len || !(isalpha((unsigned char)line[0]) || line[0] == '_'))
		return false;
	while (i < len && (isalnum((unsigned char)line[i]) || line[i] == '_'))
		i++;
	return i < len && line[i] == '=';
}

static int store_env(struct attrs *v, const char *text, size_t len, struct err *e)
{
	struct buf b;
	unsigned lines = 0;
	int r = 0;

	if (memchr(text, '\0', len))
		return err_set(e, -EINVAL, "a NUL byte");
	if (!json_is_utf8(text, len))
		return err_set(e, -EINVAL, "not UTF-8; a variable with other bytes can be set by the command itself");
	buf_init(&b, ENV_BYTES_MAX);
	for (const char *p = text, *end = text + len; p < end && !r;) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		size_t n = nl ? (size_t)(nl - p) : (size_t)(end - p);

		if (n) {
			if (!is_env_line(p, n))
				r = err_set(e, -EINVAL, "\"%.*s\" is not KEY=VALUE", n > 60 ? 60 : (int)n, p);
			else if (++lines > ENV_LINES_MAX)
				r = err_set(e, -EFBIG, "more than %d lines", ENV_LINES_MAX);
			else if ((r = buf_add(&b, p, n)) < 0 || (r = buf_add(&b, "\n", 1)) < 0)
				r = err_set(e, r, "more than %d bytes", ENV_BYTES_MAX);
		}
		p += n + 1;
	}
	if (!r) {
		char *copy = b.len ? strdup(buf_str(&b)) : NULL;

		if (b.len && !copy) {
			r = -ENOMEM;
		} else {
			free(v->env);
			v->env = copy;
		}
	}
	buf_fini(&b);
	return r;
}

static int store(struct attrs *v, enum sandbox_attr a, const char *text, size_t len, struct registry *r,
		 const struct view *view, struct err *e)
{
	AUTO_FREE char *copy = NULL;

	if (a == ATTR_ENV)
		return store_env(v, text, len, e);
	/* Callers say whose attribute it is. */
	if (len > 200)
		return err_set(e, -EINVAL, "a value of %zu bytes", len);
	copy = strndup(text, len);
	if (!copy)
		return -ENOMEM;
	return a == ATTR_FROM ? store_from(v, copy, r, view, e) : store_number(v, a, copy, e);
}

int sandbox_attr_show(struct sandbox *s, enum sandbox_attr a, struct buf *out)
{
	return show(&s->attrs, a, out);
}

static bool may_write(const struct sandbox *s, enum sandbox_attr a)
{
	if (attr_table[a].any_time)
		return true;
	/* A stopped machine starts anew and may do so with other limits; its disk stays what it is. */
	if (a == ATTR_FROM || a == ATTR_DISK_MIB)
		return s->status == SBX_CONFIGURED && !s->started_ns;
	return s->status == SBX_CONFIGURED || s->status == SBX_STOPPED || s->status == SBX_FAILED;
}

static bool attrs_same(const struct attrs *x, const struct attrs *y)
{
	return !strcmp(x->from, y->from) && !memcmp(x->num, y->num, sizeof(x->num)) &&
	       !strcmp(x->env ? x->env : "", y->env ? y->env : "") &&
	       !strcmp(x->net_allow ? x->net_allow : "", y->net_allow ? y->net_allow : "");
}

/* A machine that goes on from a snapshot is of that snapshot's shape, and has its limits until others are written. The
 * name is looked up once, here, where it is known who asks; a start goes by the uuid. On failure nothing has changed.
 */
int attrs_take_origin(struct sandbox *s, const struct cfs_who *who, bool of_defaults, struct err *e)
{
	struct snapshot *p = NULL;

	if (strncmp(s->attrs.from, attr_from_snapshot, strlen(attr_from_snapshot)) != 0) {
		s->parent[0] = s->parent_uuid[0] = '\0';
		return 0;
	}
	p = registry_find_snapshot(s->reg, of_defaults ? NULL : s->owner.view,
				   s->attrs.from + strlen(attr_from_snapshot));
	if (!p)
		return err_set(e, -ENOENT, "sandbox %s: from: the snapshot is gone", s->name);
	if (who->uid && who->uid != snapshot_owner(p).uid && !(of_defaults && !snapshot_owner(p).uid))
		return err_set(e, -EPERM,
			       "sandbox %s: from: snapshot %s is uid %u's; only its owner and root may use it", s->name,
			       snapshot_name(p), snapshot_owner(p).uid);
	/* What it may reach, too: never more than the snapshot, unless its owner writes so. */
	if (attrs_lend_net(&s->attrs, &p->attrs) < 0)
		return err_set(e, -ENOMEM, "sandbox %s: from: no memory", s->name);
	snapshot_lend(p, s);
	return 0;
}

int sandbox_attr_store(struct sandbox *s, enum sandbox_attr a, const char *text, size_t len, const struct cfs_who *who,
		       struct err *e)
{
	int r = sandbox_permits(s, who, POLICY_CREATE, attr_table[a].name, e);

	if (r < 0) {
		sandbox_fail(s, who, e);
		return r;
	}
	return sandbox_attr_set(s, a, text, len, who, e);
}

int sandbox_attr_set(struct sandbox *s, enum sandbox_attr a, const char *text, size_t len, const struct cfs_who *who,
		     struct err *e)
{
	struct attrs old = { 0 };
	char parent[sizeof(s->parent)], parent_uuid[sizeof(s->parent_uuid)];
	int r;

	memcpy(parent, s->parent, sizeof(parent));
	memcpy(parent_uuid, s->parent_uuid, sizeof(parent_uuid));
	if (!may_write(s, a)) {
		r = err_set(e, -EBUSY, "sandbox %s: %s%s cannot change once it has started; %s", s->name,
			    is_number(a) ? "limits/" : "", attr_table[a].name,
			    a == ATTR_FROM || a == ATTR_DISK_MIB ? "make another one"
								 : "stop it first (echo stop > ctl)");
		goto fail;
	}
	r = attrs_copy(&old, &s->attrs);
	if (r < 0)
		goto fail;
	r = store(&s->attrs, a, text, len, s->reg, s->owner.view, e);
	if (r < 0 && e->code)
		err_wrap(e, "sandbox %s: %s%s", s->name, is_number(a) ? "limits/" : "", attr_table[a].name);
	if (!r && a == ATTR_FROM)
		r = attrs_take_origin(s, who, false, e);
	if (!r) {
		r = attr_written_permitted(s, a, who, e);
		if (!r && a == ATTR_FROM)
			r = net_list_check(s, e); /* that of the snapshot */
		if (r < 0)
			err_wrap(e, "sandbox %s: %s%s", s->name, is_number(a) ? "limits/" : "", attr_table[a].name);
	}
	if (!r && attrs_same(&old, &s->attrs) && !strcmp(parent_uuid, s->parent_uuid)) {
		attrs_fini(&old);
		return 0;
	}
	if (!r)
		r = sandbox_save(s, e);
	if (r < 0) {
		/* What is refused, or the store does not hold, must not be seen. */
		attrs_fini(&s->attrs);
		s->attrs = old;
		memcpy(s->parent, parent, sizeof(parent));
		memcpy(s->parent_uuid, parent_uuid, sizeof(parent_uuid));
		goto fail;
	}
	attrs_fini(&old);
	if (a == ATTR_TIMEOUT_S)
		sandbox_life_timer(s);
	if (a == ATTR_ENV)
		boxlink_set(s);
	sandbox_changed(s);
	return 0;
fail:
	if (e && !e->code)
		err_set(e, r, "sandbox %s: %s: %s", s->name, attr_table[a].name, strerror(-r));
	sandbox_fail(s, who, e);
	return r;
}

int registry_default_show(struct registry *r, enum sandbox_attr a, struct buf *out)
{
	return show(&r->defaults, a, out);
}

int registry_default_store(struct registry *r, enum sandbox_attr a, const char *text, size_t len,
			   const struct cfs_who *who, struct err *e)
{
	struct attrs next = { 0 };
	AUTO_JSON *o = NULL;
	const char *line;
	int k;

	k = registry_may(r, who, POLICY_ADMIN, e);
	if (k < 0) {
		err_wrap(e, "defaults/%s", attr_table[a].name);
		return k;
	}
	k = attrs_copy(&next, &r->defaults);
	if (!k) {
		k = store(&next, a, text, len, r, NULL, e);
		if (k < 0 && e->code)
			err_wrap(e, "defaults/%s", attr_table[a].name);
	}
	if (!k) {
		o = json_object_new_object();
		k = o ? attrs_to_json(&next, o) : -ENOMEM;
	}
	if (!k) {
		line = json_line(o);
		k = fd_replace(r->state_fd, "defaults.json", line, strlen(line), 0640, true);
	}
	if (k < 0) {
		attrs_fini(&next);
		return e && e->code ? k : err_set(e, k, "defaults/%s: %s", attr_table[a].name, strerror(-k));
	}
	attrs_fini(&r->defaults);
	r->defaults = next;
	return 0;
}
