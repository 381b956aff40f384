/* SPDX-License-Identifier: Apache-2.0 */
/* The two JSON texts between daemon and box: what a box is told at its start, and how it introduces itself. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "vmm/box/box.h"
#include "vmm/box/state.h"

#define OPEN_MAX_EXECS (BOX_QUEUE_MAX + BOX_BESIDE_MAX + 1)

static const char *const state_name[] = {
	[BOX_BOOTING] = "booting",   [BOX_READY] = "ready", [BOX_PAUSED] = "paused",
	[BOX_STOPPING] = "stopping", [BOX_GONE] = "gone",
};
static_assert(ARRAY_LEN(state_name) == BOX_STATE_COUNT, "a state without a name");

const char *box_state_name(enum box_state s)
{
	return s < BOX_STATE_COUNT ? state_name[s] : "?";
}

/* -- members by table -------------------------------------------------------------------------- */

/* One member of a struct: its key is the member's name. Strings live in arrays, numbers are uint32_t. */
enum kind { TEXTS, NUMBERS, FLAGS };
struct member {
	const char *key;
	enum kind kind;
	size_t offset, size;
};
#define TEXT(type, m)                                                              \
	{                                                                          \
#m, TEXTS, offsetof(struct type, m), sizeof(((struct type *)0)->m) \
	}
#define NUMBER(type, m)                                                 \
	{                                                               \
#m, NUMBERS, offsetof(struct type, m), sizeof(uint32_t) \
	}
#define FLAG(type, m)                                             \
	{                                                         \
#m, FLAGS, offsetof(struct type, m), sizeof(bool) \
	}

static const struct member config_members[] = {
	TEXT(box_config, uuid),
	TEXT(box_config, name),
	TEXT(box_config, engine),
	TEXT(box_config, accel),
	TEXT(box_config, network),
	TEXT(box_config, unenforced),
	NUMBER(box_config, boot_timeout_s),
	NUMBER(box_config, exec_timeout_s),
	NUMBER(box_config, output_mib),
	NUMBER(box_config, spool_mib),
	NUMBER(box_config, memory_mib),
	NUMBER(box_config, cpu_percent),
	NUMBER(box_config, pids),
	NUMBER(box_config, root_mib),
	FLAG(box_config, restore),
	FLAG(box_config, net),
	TEXT(box_config, parent),
	TEXT(box_config, machine_id),
};

static int copy_text(struct json_object *o, const char *key, char *out, size_t cap, struct err *e)
{
	const char *text = "";
	int r = json_get_str(o, key, &text, e);

	if (r < 0)
		return r;
	if (strlen(text) >= cap)
		return err_set(e, -EINVAL, "%s: longer than %zu bytes", key, cap - 1);
	memcpy(out, text, strlen(text) + 1);
	return 0;
}

static int member_parse(struct json_object *o, const struct member *m, void *base, struct err *e)
{
	char *at = (char *)base + m->offset;
	uint64_t v = 0;
	int r;

	if (m->kind == TEXTS)
		return copy_text(o, m->key, at, m->size, e);
	if (m->kind == FLAGS)
		return json_get_bool(o, m->key, (bool *)(void *)at, e);
	r = json_get_u64(o, m->key, 0, UINT32_MAX, &v, e);
	if (r == 0)
		memcpy(at, &(uint32_t){ (uint32_t)v }, sizeof(uint32_t));
	return r;
}

static int parse_object(const void *json, size_t len, struct json_object **ret, struct err *e)
{
	int r = json_parse(json, len, ret, e);

	if (r == 0 && !json_object_is_type(*ret, json_type_object))
		return err_set(e, -EINVAL, "not an object");
	return r;
}

/* Add @value (NULL: no memory) to @o. */
static int put(struct json_object *o, const char *key, struct json_object *value)
{
	if (!value)
		return -ENOMEM;
	if (json_object_object_add(o, key, value) < 0) {
		json_object_put(value);
		return -ENOMEM;
	}
	return 0;
}

static int put_text(struct json_object *o, const char *key, const char *text)
{
	return put(o, key, json_text(text, strlen(text)));
}

static int put_line(struct json_object *o, struct buf *out)
{
	const char *line = json_line(o);

	return line ? buf_adds(out, line) : -ENOMEM;
}

/* -- box_config -------------------------------------------------------------------------------- */

static int check_restore(const struct box_config *c, struct err *e)
{
	if (strspn(c->machine_id, "0123456789abcdef") != sizeof(c->machine_id) - 1)
		return err_set(e, -EINVAL, "machine_id: not 32 hexadecimal digits");
	return *c->parent ? 0 : err_set(e, -EINVAL, "restore without the name of a parent");
}

int box_config_parse(const void *json, size_t len, struct box_config *ret, struct err *e)
{
	AUTO_JSON *o = NULL;
	struct box_config c = { 0 };
	const char *env = NULL;
	int r = parse_object(json, len, &o, e);

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(config_members); i++)
		r = member_parse(o, &config_members[i], &c, e);
	if (r == 0)
		r = json_get_str(o, "env", &env, e);
	if (r == 0 && (!*c.uuid || !*c.name))
		r = err_set(e, -EINVAL, "no uuid or no name");
	if (r == 0 && c.restore)
		r = check_restore(&c, e);
	if (r < 0)
		return err_wrap(e, "box configuration");
	if (env) {
		c.env = strdup(env);
		if (!c.env)
			return err_set(e, -ENOMEM, "box configuration: no memory");
	}
	*ret = c;
	return 0;
}

static int member_format(struct json_object *o, const struct member *m, const char *at)
{
	uint32_t v = 0;

	if (m->kind == TEXTS)
		return put_text(o, m->key, at);
	if (m->kind == FLAGS)
		return put(o, m->key, json_object_new_boolean(*(const bool *)(const void *)at));
	memcpy(&v, at, sizeof(v));
	return put(o, m->key, json_object_new_uint64(v));
}

int box_config_format(const struct box_config *c, struct buf *out)
{
	AUTO_JSON *o = json_object_new_object();
	int r = o ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(config_members); i++) {
		const struct member *m = &config_members[i];
		const char *at = (const char *)c + m->offset;

		r = member_format(o, m, at);
	}
	if (r == 0 && c->env)
		r = put_text(o, "env", c->env);
	return r == 0 ? put_line(o, out) : r;
}

void box_config_fini(struct box_config *c)
{
	free(c->env);
	c->env = NULL;
}

/* -- box_hello --------------------------------------------------------------------------------- */

static int parse_state(struct json_object *o, enum box_state *ret, struct err *e)
{
	const char *name = "";
	int r = json_get_str(o, "state", &name, e);

	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_LEN(state_name); i++)
		if (strcmp(name, state_name[i]) == 0) {
			*ret = (enum box_state)i;
			return 0;
		}
	return err_set(e, -EINVAL, "state: unknown word");
}

static int parse_open(struct json_object *o, struct box_hello *h, struct err *e)
{
	struct json_object *list = NULL;
	int r = json_get_obj(o, "open", json_type_array, &list, e);
	size_t n = list ? json_object_array_length(list) : 0;

	if (r < 0 || n == 0)
		return r;
	if (n > OPEN_MAX_EXECS)
		return err_set(e, -EINVAL, "open: %zu commands", n);
	h->open = calloc(n, sizeof(*h->open));
	if (!h->open)
		return err_set(e, -ENOMEM, "no memory");
	for (size_t i = 0; i < n; i++) {
		struct json_object *v = json_object_array_get_idx(list, i);

		if (!json_object_is_type(v, json_type_int) || json_object_get_int64(v) <= 0)
			return err_set(e, -EINVAL, "open: not a number of a command");
		h->open[h->nopen++] = json_object_get_uint64(v);
	}
	return 0;
}

int box_hello_parse(const void *json, size_t len, struct box_hello *ret, struct err *e)
{
	AUTO_JSON *o = NULL;
	struct box_hello h = { 0 };
	int r = parse_object(json, len, &o, e);

	if (r == 0)
		r = copy_text(o, "uuid", h.uuid, sizeof(h.uuid), e);
	if (r == 0)
		r = parse_state(o, &h.state, e);
	if (r == 0)
		r = json_get_u64(o, "last_exec", 0, UINT64_MAX, &h.last_exec, e);
	if (r == 0)
		r = copy_text(o, "guest", h.guest, sizeof(h.guest), e);
	if (r == 0)
		r = json_get_bool(o, "pooled", &h.pooled, e);
	if (r == 0)
		r = parse_open(o, &h, e);
	if (r < 0) {
		box_hello_fini(&h);
		return err_wrap(e, "box hello");
	}
	*ret = h;
	return 0;
}

int box_hello_format(const struct box_hello *h, struct buf *out)
{
	AUTO_JSON *o = json_object_new_object();
	struct json_object *list;
	int r;

	if (!o)
		return -ENOMEM;
	r = put_text(o, "uuid", h->uuid);
	if (r == 0)
		r = put_text(o, "state", box_state_name(h->state));
	if (r == 0)
		r = put(o, "last_exec", json_object_new_uint64(h->last_exec));
	list = json_object_new_array();
	if (r == 0)
		r = put(o, "open", list);
	for (size_t i = 0; r == 0 && i < h->nopen; i++)
		if (json_object_array_add(list, json_object_new_uint64(h->open[i])) < 0)
			r = -ENOMEM;
	if (r == 0)
		r = put_text(o, "guest", h->guest);
	if (r == 0)
		r = put(o, "pooled", json_object_new_boolean(h->pooled));
	return r == 0 ? put_line(o, out) : r;
}

void box_hello_fini(struct box_hello *h)
{
	free(h->open);
	h->open = NULL;
	h->nopen = 0;
}
