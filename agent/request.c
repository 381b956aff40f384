/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/request.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define TIMEOUT_MAX_MS (366ull * 24 * 3600 * 1000)

static void free_list(char **list, size_t n)
{
	for (size_t i = 0; list && i < n; i++)
		free(list[i]);
	free(list);
}

void exec_req_fini(struct exec_req *r)
{
	free_list(r->argv, r->argc);
	free_list(r->env, r->envc);
	free(r->cwd);
	free(r->user);
	free(r->name);
	*r = (struct exec_req){ 0 };
}

/* An array of strings without NUL bytes. Absent: *ret stays NULL. */
static int get_list(struct json_object *o, const char *key, char ***ret, size_t *ret_n, struct err *e)
{
	struct json_object *a = NULL;
	size_t n;
	int r = json_get_obj(o, key, json_type_array, &a, e);

	if (r < 0 || !a)
		return r;
	n = json_object_array_length(a);
	*ret = calloc(n + 1, sizeof(**ret));
	if (!*ret)
		return err_set(e, -ENOMEM, "%s: no memory", key);
	for (size_t i = 0; i < n; i++) {
		struct json_object *v = json_object_array_get_idx(a, i);
		const char *text;

		if (!json_object_is_type(v, json_type_string))
			return err_set(e, -EINVAL, "%s[%zu]: must be a string", key, i);
		text = json_object_get_string(v);
		if (strlen(text) != (size_t)json_object_get_string_len(v))
			return err_set(e, -EINVAL, "%s[%zu]: holds a NUL", key, i);
		(*ret)[i] = strdup(text);
		if (!(*ret)[i])
			return err_set(e, -ENOMEM, "%s: no memory", key);
		*ret_n = i + 1;
	}
	return 0;
}

static int get_copy(struct json_object *o, const char *key, char **ret, struct err *e)
{
	const char *text = NULL;
	int r = json_get_str(o, key, &text, e);

	if (r < 0 || !text)
		return r;
	*ret = strdup(text);
	return *ret ? 0 : err_set(e, -ENOMEM, "%s: no memory", key);
}

static int get_tty(struct json_object *o, struct exec_req *ret, struct err *e)
{
	static const char *const keys[] = { "rows", "cols", NULL };
	struct json_object *tty = NULL;
	uint64_t rows = 24, cols = 80;
	int r = json_get_obj(o, "tty", json_type_object, &tty, e);

	if (r < 0 || !tty)
		return r;
	if (json_known_keys(tty, keys, e) < 0 || json_get_u64(tty, "rows", 0, UINT16_MAX, &rows, e) < 0 ||
	    json_get_u64(tty, "cols", 0, UINT16_MAX, &cols, e) < 0)
		return err_wrap(e, "tty");
	ret->tty = true;
	ret->rows = (uint16_t)rows;
	ret->cols = (uint16_t)cols;
	return 0;
}

static int check(const struct exec_req *q, struct err *e)
{
	if (q->script == (q->argv != NULL))
		return err_set(e, -EINVAL, "a command is either argv or script");
	if (q->argv && (q->argc == 0 || q->argv[0][0] == '\0'))
		return err_set(e, -EINVAL, "argv[0]: empty: nothing to run");
	for (size_t i = 0; i < q->envc; i++)
		if (q->env[i][0] == '=' || !strchr(q->env[i], '='))
			return err_set(e, -EINVAL, "env[%zu]: must be KEY=VALUE", i);
	if (q->cwd && q->cwd[0] != '/')
		return err_set(e, -EINVAL, "cwd %s: must begin with /", q->cwd);
	return 0;
}

static int parse_object(struct json_object *o, struct exec_req *q, struct err *e)
{
	static const char *const keys[] = { "argv", "script",	  "env",	  "cwd",  "user", "stdin",
					    "tty",  "timeout_ms", "memory_bytes", "pids", "name", NULL };
	int r = json_known_keys(o, keys, e);

	if (r == 0)
		r = get_list(o, "argv", &q->argv, &q->argc, e);
	if (r == 0)
		r = get_list(o, "env", &q->env, &q->envc, e);
	if (r == 0)
		r = get_copy(o, "cwd", &q->cwd, e);
	if (r == 0)
		r = get_copy(o, "user", &q->user, e);
	if (r == 0)
		r = get_copy(o, "name", &q->name, e);
	if (r == 0)
		r = json_get_bool(o, "script", &q->script, e);
	if (r == 0)
		r = json_get_bool(o, "stdin", &q->has_stdin, e);
	if (r == 0)
		r = get_tty(o, q, e);
	if (r == 0)
		r = json_get_u64(o, "timeout_ms", 0, TIMEOUT_MAX_MS, &q->timeout_ms, e);
	if (r == 0)
		r = json_get_u64(o, "memory_bytes", 0, INT64_MAX, &q->memory_bytes, e);
	if (r == 0)
		r = json_get_u64(o, "pids", 0, UINT32_MAX, &q->pids, e);
	return r < 0 ? r : check(q, e);
}

int exec_req_parse(const void *json, size_t len, struct exec_req *ret, struct err *e)
{
	struct exec_req q = { 0 };
	AUTO_JSON *o = NULL;
	int r = json_parse(json, len, &o, e);

	if (r == 0)
		r = parse_object(o, &q, e);
	if (r < 0) {
		exec_req_fini(&q);
		*ret = q;
		return r;
	}
	*ret = q;
	return 0;
}
