/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

/* json_text() repairs what is no UTF-8; here a repaired text would be another command. */
static struct json_object *exact_text(const char *text, size_t len)
{
	struct json_object *o = json_text(text, len);

	if (o && ((size_t)json_object_get_string_len(o) != len || memcmp(json_object_get_string(o), text, len) != 0)) {
		json_object_put(o);
		errno = EILSEQ;
		return NULL;
	}
	if (!o)
		errno = ENOMEM;
	return o;
}

static bool is_exact(const char *text)
{
	AUTO_JSON *o = exact_text(text, strlen(text));

	return o != NULL;
}

static int put_text(struct json_object *o, const char *key, const char *text, struct err *e)
{
	struct json_object *v = exact_text(text, strlen(text));

	if (!v && errno == EILSEQ)
		return err_set(e, -EINVAL, "%s: \"%s\" is not UTF-8; put it into a script", key, text);
	if (!v || json_object_object_add(o, key, v) != 0) {
		json_object_put(v);
		return err_set(e, -ENOMEM, "no memory");
	}
	return 0;
}

static int put(struct json_object *o, const char *key, struct json_object *v, struct err *e)
{
	if (v && json_object_object_add(o, key, v) == 0)
		return 0;
	json_object_put(v);
	return err_set(e, -ENOMEM, "no memory");
}

static int put_argv(struct json_object *o, const char *const *argv, struct err *e)
{
	AUTO_JSON *list = json_object_new_array();

	for (size_t i = 0; list && argv[i]; i++) {
		struct json_object *v = exact_text(argv[i], strlen(argv[i]));

		if (!v && errno == EILSEQ)
			return err_set(e, -EINVAL, "argument %zu of the command is not UTF-8; put it into a script", i);
		if (!v || json_object_array_add(list, v) != 0) {
			json_object_put(v);
			return err_set(e, -ENOMEM, "no memory");
		}
	}
	if (put(o, "argv", json_object_get(list), e) < 0)
		return -ENOMEM;
	return 0;
}

static int put_variable(struct json_object *map, const char *text, struct err *e)
{
	const char *eq = strchr(text, '=');
	char *key;
	int r;

	if (!eq || eq == text)
		return err_set(e, -EINVAL, "--env: \"%s\" is not KEY=VALUE", text);
	key = strndup(text, (size_t)(eq - text));
	if (!key)
		return err_set(e, -ENOMEM, "no memory");
	if (is_exact(key))
		r = put_text(map, key, eq + 1, e);
	else
		r = err_set(e, -EINVAL, "--env: the name of \"%s\" is not UTF-8", text);
	free(key);
	return r;
}

static int put_env(struct json_object *o, const struct request *q, struct err *e)
{
	AUTO_JSON *map = json_object_new_object();
	int r = map && q->term ? put_text(map, "TERM", q->term, e) : 0;

	for (size_t i = 0; map && q->env && i < q->env->n && r == 0; i++)
		r = put_variable(map, q->env->v[i], e);
	if (r < 0 || (map && json_object_object_length(map) == 0))
		return r;
	return put(o, "env", json_object_get(map), e);
}

static int put_tty(struct json_object *o, const struct request *q, struct err *e)
{
	AUTO_JSON *tty = json_object_new_object();

	if (!tty || put(tty, "rows", json_object_new_int((int)q->rows), e) < 0 ||
	    put(tty, "cols", json_object_new_int((int)q->cols), e) < 0)
		return err_set(e, -ENOMEM, "no memory");
	return put(o, "tty", json_object_get(tty), e);
}

int request_format(const struct request *q, struct buf *out, struct err *e)
{
	AUTO_JSON *o = json_object_new_object();
	char seconds[32];
	int r;

	if (!o)
		return err_set(e, -ENOMEM, "no memory");
	if (q->script ? !*q->script : !q->argv || !q->argv[0])
		return err_set(e, -EINVAL, "the command is empty");
	r = q->script ? put_text(o, "script", q->script, e) : put_argv(o, q->argv, e);
	if (r == 0)
		r = put_env(o, q, e);
	if (r == 0 && q->cwd)
		r = put_text(o, "cwd", q->cwd, e);
	if (r == 0 && q->user)
		r = put_text(o, "user", q->user, e);
	if (r == 0 && q->timeout_ms) {
		/* As text: 0.1 s is to be 0.1 in the record, not what a double makes of it. */
		snprintf(seconds, sizeof(seconds), "%llu.%03llu", (unsigned long long)q->timeout_ms / 1000,
			 (unsigned long long)q->timeout_ms % 1000);
		r = put(o, "timeout_s", json_object_new_double_s((double)q->timeout_ms / 1000, seconds), e);
	}
	if (r == 0 && q->no_stdin)
		r = put_text(o, "stdin", q->input ?: "", e);
	if (r == 0 && q->output_mib)
		r = put(o, "output_mib", json_object_new_int64(q->output_mib), e);
	if (r == 0 && q->tty)
		r = put_tty(o, q, e);
	if (r < 0)
		return r;
	r = json_add_line(o, out);
	return r == -ENOMEM ? err_set(e, r, "no memory")
	       : r < 0	    ? err_set(e, r, "the command is longer than the tree takes (8 MiB)")
			    : 0;
}
