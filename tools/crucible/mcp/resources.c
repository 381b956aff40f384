/* SPDX-License-Identifier: Apache-2.0 */
/* Resources: crucible://run/<id>/FILE, where FILE is one of the sandbox's own files that tell something, or fs/PATH.
 * Whoever may not call read_file gets none of them. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/mcp/call.h"
#include "tools/crucible/tree.h"

#define PREFIX	     "crucible://run/"
#define RESOURCE_MAX (4u * 1024 * 1024)
#define LIST_MAX     1000

static const struct {
	const char *name, *type;
	bool guest; /* a guest's words */
} files[] = {
	{ "info.json", "application/json", false },
	{ "status", "text/plain", false },
	{ "error", "text/plain", true },
	{ "result.json", "application/json", true },
	{ "stdout", "text/plain", true },
	{ "stderr", "text/plain", true },
	{ "console.log", "text/plain", true },
	{ "log.jsonl", "application/jsonl", true },
	{ "usage.json", "application/json", false },
	{ "net/log.jsonl", "application/jsonl", true },
};

bool resources_permitted(struct guard *g)
{
	return guard_permits_tool(g, "read_file") && (guard_permits(g, POLICY_READ) || guard_permits(g, POLICY_FILES));
}

struct json_object *resources_templates(void)
{
	static const char text[] =
		"{\"resourceTemplates\":["
		"{\"uriTemplate\":\"crucible://run/{sandbox_id}/{file}\",\"name\":\"sandbox\",\"description\":\"info.json status error "
		"result.json stdout stderr console.log log.jsonl usage.json net/log.jsonl of a sandbox\"},"
		"{\"uriTemplate\":\"crucible://run/{sandbox_id}/fs/{+path}\",\"name\":\"file\",\"description\":\"a file in a sandbox\"}]}";
	struct json_object *o = NULL;

	json_parse(text, sizeof(text) - 1, &o, NULL);
	return o;
}

static int add_resource(struct json_object *list, const char *id, const char *file, const char *type)
{
	struct json_object *o = json_object_new_object();
	char uri[sizeof(PREFIX) + SBX_ID_MAX + 32], name[SBX_ID_MAX + 32];

	snprintf(uri, sizeof(uri), PREFIX "%s/%s", id, file);
	snprintf(name, sizeof(name), "%s/%s", id, file);
	if (o && fields_put(o, "uri", json_object_new_string(uri)) == 0 &&
	    fields_put(o, "name", json_object_new_string(name)) == 0 &&
	    fields_put(o, "mimeType", json_object_new_string(type)) == 0 && json_object_array_add(list, o) == 0)
		return 0;
	json_object_put(o);
	return -ENOMEM;
}

static int add_sandbox(void *arg, int parent, const char *name)
{
	struct json_object *list = arg;
	int r = 0;

	(void)parent;
	/* What each one has from its beginning; the rest is found by the template. */
	for (size_t i = 0; i < 2 && r == 0 && json_object_array_length(list) < LIST_MAX; i++)
		r = add_resource(list, name, files[i].name, files[i].type);
	return r;
}

int resources_list(struct call *c)
{
	AUTO_JSON *list = json_object_new_array();
	int r = mount_open(c->mount, &c->cli.mount, &c->cli.err);

	if (r < 0)
		return r;
	r = list ? tree_list(c->cli.mount.fd, "run", add_sandbox, list) : -ENOMEM;
	mount_close(&c->cli.mount);
	c->result = json_object_new_object();
	if (r == 0 && (!c->result || fields_put(c->result, "resources", json_object_get(list)) < 0))
		r = -ENOMEM;
	return r < 0 ? err_set(&c->cli.err, r, "run: %s", strerror(-r)) : 0;
}

static int hex(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

/* %41 -> A, in place. false: no such encoding, or a NUL. */
static bool decode(char *text)
{
	char *out = text;

	for (; *text; text++) {
		if (*text != '%') {
			*out++ = *text;
			continue;
		}
		if (hex(text[1]) < 0 || hex(text[2]) < 0 || hex(text[1]) + hex(text[2]) == 0)
			return false;
		*out++ = (char)(hex(text[1]) * 16 + hex(text[2]));
		text += 2;
	}
	*out = '\0';
	return true;
}

/* *ret_type: static. Returns a descriptor or -errno with words. */
static int open_resource(struct call *c, struct sbx *s, const char *file, const char **ret_type, bool *ret_guest)
{
	int fd;

	*ret_type = NULL;
	*ret_guest = true;
	if (!strncmp(file, "fs/", 3))
		return open_guest_file(c, s, file + 2, O_RDONLY | O_NONBLOCK, 0);
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		if (strcmp(files[i].name, file) != 0)
			continue;
		*ret_type = files[i].type;
		*ret_guest = files[i].guest;
		fd = openat(s->dir, file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		return fd < 0 ? err_set(&c->cli.err, -errno, "%s: %s", file, strerror(errno)) : fd;
	}
	return err_set(&c->cli.err, -ENOENT, "uri: a sandbox has no resource \"%s\"", file);
}

static int read_all(struct call *c, int fd, struct buf *text)
{
	for (;;) {
		uint8_t *to;
		ssize_t n;

		if (buf_reserve(text, 65536, &to) < 0)
			return err_set(&c->cli.err, -EFBIG, "uri: longer than 4 MiB: use the tool read_file");
		n = read(fd, to, 65536);
		if (n < 0 && errno == EINTR && !atomic_load(&c->cancelled))
			continue;
		if (n < 0 && errno != EAGAIN)
			return err_set(&c->cli.err, -errno, "uri: %s", strerror(errno));
		if (n <= 0)
			return 0;
		text->len += (size_t)n;
	}
}

static int tell(struct call *c, const char *uri, const char *type, bool guest, struct buf *text)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();
	struct json_object *v, *meta = json_object_new_object();
	bool is_text;
	int r = o && list && meta ? put_content(o, "text", text) : -ENOMEM;

	if (r == 0) {
		json_object_object_get_ex(o, "base64", &v);
		is_text = !json_object_get_boolean(v);
		json_object_object_del(o, "base64");
		if (!is_text) {
			json_object_object_get_ex(o, "text", &v);
			r = fields_put(o, "blob", json_object_get(v));
			json_object_object_del(o, "text");
		}
		if (r == 0)
			r = fields_put(o, "mimeType",
				       json_object_new_string(type	? type
							      : is_text ? "text/plain"
									: "application/octet-stream"));
	}
	if (r == 0)
		r = fields_put(o, "uri", json_object_new_string(uri));
	if (r == 0)
		r = fields_put(meta, "crucible/untrusted", json_object_new_boolean(guest));
	if (r == 0)
		r = fields_put(o, "_meta", json_object_get(meta));
	if (r == 0)
		r = json_object_array_add(list, json_object_get(o)) == 0 ? 0 : -ENOMEM;
	c->result = json_object_new_object();
	if (r == 0 && c->result)
		r = fields_put(c->result, "contents", json_object_get(list));
	json_object_put(meta);
	json_object_put(list);
	json_object_put(o);
	return r < 0 || !c->result ? err_set(&c->cli.err, -ENOMEM, "no memory") : 0;
}

int resources_read(struct call *c)
{
	const char *uri = call_text(c, "uri"), *type;
	AUTO_FREE char *path = NULL;
	AUTO_FD fd = -1;
	struct sbx s = SBX_NONE;
	struct buf text;
	bool guest;
	char *slash;
	int r;

	if (!uri || strncmp(uri, PREFIX, sizeof(PREFIX) - 1) != 0)
		return err_set(&c->cli.err, -ENOENT, "uri: resources begin with " PREFIX);
	path = strdup(uri + sizeof(PREFIX) - 1);
	if (!path)
		return err_set(&c->cli.err, -ENOMEM, "no memory");
	slash = decode(path) ? strchr(path, '/') : NULL;
	if (!slash)
		return err_set(&c->cli.err, -ENOENT, "uri: " PREFIX "ID/FILE");
	*slash = '\0';
	r = mount_open(c->mount, &c->cli.mount, &c->cli.err);
	if (r == 0)
		r = sbx_open(c->cli.mount.fd, path, &s, &c->cli.err);
	buf_init(&text, RESOURCE_MAX + 65536);
	if (r == 0) {
		fd = open_resource(c, &s, slash + 1, &type, &guest);
		r = fd < 0 ? fd : read_all(c, fd, &text);
	}
	if (r == 0)
		r = tell(c, uri, type, guest, &text);
	buf_fini(&text);
	sbx_close(&s);
	mount_close(&c->cli.mount);
	return r;
}
