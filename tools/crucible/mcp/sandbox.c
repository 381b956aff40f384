/* SPDX-License-Identifier: Apache-2.0 */
/* create_sandbox, stop_sandbox, delete_sandbox, inspect_sandbox, list_sandboxes, logs, list_profiles, list_images. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/logs.h"
#include "tools/crucible/mcp/call.h"
#include "tools/crucible/tree.h"

#define NAME_TRIES 8
#define LOG_BYTES  (256u * 1024) /* of one answer */

int open_sandbox(struct call *c, struct sbx *ret)
{
	return sbx_open(c->cli.mount.fd, call_text(c, "sandbox_id"), ret, &c->cli.err);
}

/* mkdir, counted. */
static int make_admitted(struct call *c, const char *prefix, bool lease, struct sbx *ret)
{
	const char *given = c->cli.args.text[OPT_NAME];
	char name[1][SBX_ID_MAX + 1] = { "" };
	int r = given ? sbx_id_check(given, &c->cli.err) : 0;

	for (int tries = 0; r == 0 && tries < NAME_TRIES; tries++) {
		if (given)
			memcpy(name[0], given, strlen(given) + 1);
		else
			sbx_fresh_name(prefix, name[0]);
		r = guard_admit(c->guard, c->cli.mount.fd, name, 1, &c->cli.err);
		if (r < 0)
			return r;
		r = sbx_make(c->cli.mount.fd, name[0], NULL, lease, ret, &c->cli.err);
		guard_settle(c->guard, name, 1);
		if (r != -EEXIST || given)
			break;
	}
	return r;
}

/* "image" and "pull" are attributes of what the tree calls `from`. */
static int take_image(struct call *c, char **ret_from)
{
	const char *image = call_text(c, "image");
	struct args *a = &c->cli.args;

	if ((image != NULL) + a->given[OPT_PROFILE] + a->given[OPT_SNAPSHOT] > 1)
		return err_set(&c->cli.err, -EINVAL, "profile, image, snapshot: give one of them");
	if (!image) {
		if (call_text(c, "pull"))
			return err_set(&c->cli.err, -EINVAL, "pull: only with image");
		return 0;
	}
	if (faccessat(c->cli.mount.fd, "images", F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
		return err_set(&c->cli.err, -EOPNOTSUPP,
			       "image: this version has no images yet: give a profile (list_profiles tells which)");
	if (asprintf(ret_from, "image:%s", image) < 0) {
		*ret_from = NULL;
		return err_set(&c->cli.err, -ENOMEM, "no memory");
	}
	a->given[OPT_FROM] = true;
	a->text[OPT_FROM] = *ret_from;
	return 0;
}

int make_sandbox(struct call *c, const char *prefix, bool lease, struct sbx *ret)
{
	struct args *a = &c->cli.args;
	AUTO_FREE char *from = NULL;
	int r = take_image(c, &from);

	if (r == 0)
		r = guard_origin(c->guard, a, &c->cli.err);
	if (r == 0)
		r = guard_net(c->guard, &a->texts[OPT_NET_ALLOW], &c->cli.err);
	if (r == 0)
		r = guard_publish(c->guard, &a->texts[OPT_PUBLISH], &c->cli.err);
	if (r == 0)
		r = make_admitted(c, prefix, lease, ret);
	if (r < 0)
		return r;
	r = sbx_set_up(ret, a, &c->cli.err);
	if (r == 0 && call_text(c, "pull"))
		r = tree_set(ret->dir, "pull", call_text(c, "pull"), &c->cli.err);
	if (r == 0)
		r = guard_net_of(c->guard, ret->dir, &c->cli.err);
	if (r < 0) {
		sbx_undo(ret, &c->cli.err);
		sbx_close(ret);
	}
	return r;
}

static void take_lifetime(struct call *c)
{
	struct json_object *v;
	double s = json_object_object_get_ex(c->in, "timeout_s", &v) ? json_object_get_double(v) : 0;
	uint64_t ms = s > 0 && s < 1e9 ? (uint64_t)(s * 1000.0) : 0;

	ms = guard_timeout_ms(c->guard, ms);
	c->cli.args.given[OPT_LIFETIME] = v != NULL || ms != 0;
	c->cli.args.number[OPT_LIFETIME] = ms;
}

int tool_create(struct call *c)
{
	struct sbx s;
	int r;

	take_lifetime(c);
	r = make_sandbox(c, "sbx-", false, &s);
	if (r < 0)
		return r;
	r = sbx_set_env(&s, &c->cli.args.texts[OPT_ENV], &c->cli.err);
	if (r == 0)
		r = tree_info(s.dir, s.id, &c->result, &c->cli.err);
	if (r < 0)
		sbx_undo(&s, &c->cli.err);
	sbx_close(&s);
	return r;
}

int tool_list(struct call *c)
{
	return call_command(c, cmd_sandbox_ls, "sandboxes");
}

int tool_inspect(struct call *c)
{
	int r = call_word(c, call_text(c, "sandbox_id"));

	return r < 0 ? r : call_command(c, cmd_sandbox_inspect, NULL);
}

static int tell(struct call *c, const char *key, struct json_object *v)
{
	c->result = json_object_new_object();
	if (c->result && fields_put(c->result, "sandbox_id", json_object_new_string(call_text(c, "sandbox_id"))) == 0 &&
	    fields_put(c->result, key, v) == 0)
		return 0;
	return err_set(&c->cli.err, -ENOMEM, "no memory");
}

int tool_stop(struct call *c)
{
	int r = call_word(c, call_text(c, "sandbox_id"));

	if (r == 0)
		r = call_command(c, cmd_stop, NULL);
	json_object_put(c->result);
	c->result = NULL;
	return r < 0 ? r : tell(c, "status", json_object_new_string("stopped"));
}

int tool_delete(struct call *c)
{
	int r = sbx_remove_id(c->cli.mount.fd, call_text(c, "sandbox_id"), &c->cli.err);

	return r < 0 ? r : tell(c, "deleted", json_object_new_boolean(true));
}

/* -- logs -------------------------------------------------------------------------------------------------------- */

static int add_records(struct call *c, struct buf *text, const char *source, struct json_object *records,
		       size_t *ret_used)
{
	uint8_t *start = text->data, *newline;
	size_t left = text->len;

	(void)c;
	while (left && (newline = memchr(start, '\n', left))) {
		size_t len = (size_t)(newline - start);
		struct json_object *o = NULL;

		if (len && json_parse((char *)start, len, &o, NULL) == 0 && json_object_is_type(o, json_type_object) &&
		    logs_is_of(fields_text(o, "event") ?: "", source)) {
			if (json_object_array_add(records, o) != 0) {
				json_object_put(o);
				return -ENOMEM;
			}
			o = NULL;
		}
		json_object_put(o);
		start = newline + 1;
		left -= len + 1;
	}
	*ret_used = text->len - left;
	return 0;
}

int tool_logs(struct call *c)
{
	const char *id = call_text(c, "sandbox_id");
	uint64_t since = fields_number(c->in, "since");
	AUTO_JSON *records = json_object_new_array();
	AUTO_FD fd = -1;
	struct buf text;
	size_t used = 0;
	int r = sbx_id_check(id, &c->cli.err);

	if (r < 0)
		return r;
	fd = logs_open(c->cli.mount.fd, id);
	if (fd < 0)
		return err_set(&c->cli.err, fd, "sandbox_id: there is no log of \"%s\": %s", id, strerror(-fd));
	buf_init(&text, LOG_BYTES);
	while (r == 0) {
		uint8_t *to;
		ssize_t n;

		if (buf_reserve(&text, 16384, &to) < 0)
			break; /* the rest with the next call */
		n = pread(fd, to, 16384, (off_t)(since + text.len));
		if (n < 0)
			r = err_set(&c->cli.err, -errno, "the log of \"%s\": %s", id, strerror(errno));
		if (n <= 0)
			break;
		text.len += (size_t)n;
	}
	if (r == 0 && (!records || add_records(c, &text, call_text(c, "source") ?: "all", records, &used) < 0))
		r = err_set(&c->cli.err, -ENOMEM, "no memory");
	buf_fini(&text);
	if (r < 0)
		return r;
	c->result = json_object_new_object();
	if (c->result && fields_put(c->result, "records", json_object_get(records)) == 0 &&
	    fields_put(c->result, "next_offset", json_object_new_uint64(since + used)) == 0)
		return 0;
	return err_set(&c->cli.err, -ENOMEM, "no memory");
}

/* -- what one may start from -------------------------------------------------------------------------------------- */

int tool_list_profiles(struct call *c)
{
	struct json_object *list;
	int r = call_command(c, cmd_profile_ls, "profiles");

	if (r < 0 || !json_object_object_get_ex(c->result, "profiles", &list))
		return r;
	for (size_t i = json_object_array_length(list); i-- > 0;) {
		const char *name = fields_text(json_object_array_get_idx(list, i), "name") ?: "";

		if (!guard_permits_profile(c->guard, name))
			json_object_array_del_idx(list, i, 1);
	}
	return 0;
}

static int add_name(void *arg, int parent, const char *name)
{
	(void)parent;
	return json_object_array_add(arg, json_object_new_string(name)) == 0 ? 0 : -ENOMEM;
}

int tool_list_images(struct call *c)
{
	AUTO_JSON *list = json_object_new_array();
	int r = list ? tree_list(c->cli.mount.fd, "images/tags", add_name, list) : -ENOMEM;

	if (r < 0 && r != -ENOENT) /* a daemon without images has none */
		return err_set(&c->cli.err, r, "images: %s", strerror(-r));
	c->result = json_object_new_object();
	if (!c->result || fields_put(c->result, "images", json_object_get(list)) < 0)
		return err_set(&c->cli.err, -ENOMEM, "no memory");
	return 0;
}
