/* SPDX-License-Identifier: Apache-2.0 */
/* What a user wrote into `cmd`: text to be run as a script, or a JSON request (docs: cruciblefs(8), "A command"). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "vmm/box/box.h"

#define TIMEOUT_MAX_S  (366.0 * 86400)
#define ARGS_MAX       65536u
#define ENV_MAX	       4096u
#define VALUES_MAX     (ARGS_MAX + ENV_MAX + 100)
#define USER_MAX       128u
#define CWD_MAX	       4095u
#define OUTPUT_MIB_MAX (1024u * 1024)

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}

static char *copy(const char *data, size_t len)
{
	char *out = malloc(len + 1);

	if (!out)
		return NULL;
	memcpy(out, data, len);
	out[len] = '\0';
	return out;
}

/* Do all lines end in CRLF (and is there one)? */
static bool all_crlf(const char *text, size_t len)
{
	const char *p = text, *end = text + len, *nl;
	bool any = false;

	while ((nl = memchr(p, '\n', (size_t)(end - p)))) {
		if (nl == text || nl[-1] != '\r')
			return false;
		any = true;
		p = nl + 1;
	}
	return any;
}

static size_t drop_cr(char *text, size_t len)
{
	size_t out = 0;

	for (size_t i = 0; i < len; i++)
		if (text[i] != '\r' || i + 1 == len || text[i + 1] != '\n')
			text[out++] = text[i];
	return out;
}

static int take_script(struct box_request *r, const char *text, size_t len, struct err *e)
{
	r->script = true;
	r->text = copy(text, len);
	if (!r->text)
		return err_set(e, -ENOMEM, "no memory for a command of %zu bytes", len);
	r->text_len = all_crlf(r->text, len) ? drop_cr(r->text, len) : len;
	r->text[r->text_len] = '\0';
	return 0;
}

/* -- the JSON request -------------------------------------------------------------------------- */

/* A member that must be a string without NUL: NULL when absent. */
static int take_text(struct json_object *o, const char *key, size_t max, char **ret, struct err *e)
{
	const char *text = NULL;
	int r = json_get_str(o, key, &text, e);

	if (r < 0 || !text)
		return r;
	if (!*text)
		return err_set(e, -EINVAL, "%s: empty", key);
	if (strlen(text) > max)
		return err_set(e, -EINVAL, "%s: longer than %zu bytes", key, max);
	*ret = strdup(text);
	return *ret ? 0 : err_set(e, -ENOMEM, "no memory");
}

static int take_argv(struct json_object *o, struct box_request *r, struct err *e)
{
	struct json_object *list = NULL;
	int code = json_get_obj(o, "argv", json_type_array, &list, e);
	size_t n;

	if (code < 0 || !list)
		return code;
	n = json_object_array_length(list);
	if (n == 0 || n > ARGS_MAX)
		return err_set(e, -EINVAL, "argv: must hold 1 to %u strings", ARGS_MAX);
	r->argv = calloc(n + 1, sizeof(*r->argv));
	if (!r->argv)
		return err_set(e, -ENOMEM, "no memory");
	for (size_t i = 0; i < n; i++) {
		struct json_object *v = json_object_array_get_idx(list, i);
		const char *text = json_object_is_type(v, json_type_string) ? json_object_get_string(v) : NULL;

		if (!text || strlen(text) != (size_t)json_object_get_string_len(v))
			return err_set(e, -EINVAL, "argv[%zu]: must be a string without NUL", i);
		r->argv[i] = strdup(text);
		if (!r->argv[i])
			return err_set(e, -ENOMEM, "no memory");
	}
	return *r->argv[0] ? 0 : err_set(e, -EINVAL, "argv[0]: empty");
}

static int take_env(struct json_object *o, struct box_request *r, struct err *e)
{
	struct json_object *env = NULL;
	int code = json_get_obj(o, "env", json_type_object, &env, e);
	size_t n = 0;

	if (code < 0 || !env)
		return code;
	if (json_object_object_length(env) > (int)ENV_MAX)
		return err_set(e, -EINVAL, "env: more than %u variables", ENV_MAX);
	r->env = calloc((size_t)json_object_object_length(env) + 1, sizeof(*r->env));
	if (!r->env)
		return err_set(e, -ENOMEM, "no memory");
	json_object_object_foreach(env, key, v) {
		const char *text = json_object_is_type(v, json_type_string) ? json_object_get_string(v) : NULL;

		if (!*key || strchr(key, '='))
			return err_set(e, -EINVAL, "env: \"%.60s\" is no name of a variable", key);
		if (!text || strlen(text) != (size_t)json_object_get_string_len(v))
			return err_set(e, -EINVAL, "env: %.60s: must be a string without NUL", key);
		if (asprintf(&r->env[n], "%s=%s", key, text) < 0) {
			r->env[n] = NULL;
			return err_set(e, -ENOMEM, "no memory");
		}
		n++;
	}
	return 0;
}

static int take_timeout(struct json_object *o, struct box_request *r, struct err *e)
{
	struct json_object *v;
	double s;

	if (!json_object_object_get_ex(o, "timeout_s", &v))
		return 0;
	if (!json_object_is_type(v, json_type_int) && !json_object_is_type(v, json_type_double))
		return err_set(e, -EINVAL, "timeout_s: must be a number");
	s = json_object_get_double(v);
	/* Written so that a NaN fails too. */
	if (!(s > 0 && s <= TIMEOUT_MAX_S))
		return err_set(e, -EINVAL, "timeout_s: must be more than 0 and at most %.0f", TIMEOUT_MAX_S);
	r->timeout_ns = (uint64_t)(s * 1e9);
	if (r->timeout_ns == 0)
		r->timeout_ns = 1; /* 0 would mean the default */
	return 0;
}

static int take_stdin(struct json_object *o, struct box_request *r, struct err *e)
{
	struct json_object *v = NULL;
	int code = json_get_obj(o, "stdin", json_type_string, &v, e); /* not _str: it may hold NULs */

	if (code < 0 || !v)
		return code;
	r->has_stdin = true;
	r->stdin_len = (size_t)json_object_get_string_len(v);
	r->stdin_text = copy(json_object_get_string(v), r->stdin_len);
	return r->stdin_text ? 0 : err_set(e, -ENOMEM, "no memory");
}

static int take_tty(struct json_object *o, struct box_request *r, struct err *e)
{
	static const char *const keys[] = { "rows", "cols", NULL };
	struct json_object *tty = NULL;
	uint64_t rows = 24, cols = 80;
	int code = json_get_obj(o, "tty", json_type_object, &tty, e);

	if (code < 0 || !tty)
		return code;
	code = json_known_keys(tty, keys, e);
	if (code == 0)
		code = json_get_u64(tty, "rows", 1, UINT16_MAX, &rows, e);
	if (code == 0)
		code = json_get_u64(tty, "cols", 1, UINT16_MAX, &cols, e);
	if (code < 0)
		return err_wrap(e, "tty");
	r->tty = true;
	r->rows = (uint16_t)rows;
	r->cols = (uint16_t)cols;
	return 0;
}

static int take_json_script(struct json_object *o, struct box_request *r, struct err *e)
{
	const char *text = NULL;
	int code = json_get_str(o, "script", &text, e);

	if (code < 0)
		return code;
	if (!text == !r->argv)
		return err_set(e, -EINVAL, "a request needs either argv or script");
	if (!text)
		return 0;
	if (!text[strspn(text, " \t\n\r\v\f")])
		return err_set(e, -EINVAL, "script: blank");
	return take_script(r, text, strlen(text), e);
}

/* Members and elements that the text has at least: commas outside of strings. A parsed value takes twenty times the
 * bytes of its text, so they are counted before. */
static size_t count_values(const char *text, size_t len)
{
	bool in_string = false;
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		if (in_string && text[i] == '\\')
			i++;
		else if (text[i] == '"')
			in_string = !in_string;
		else if (!in_string && text[i] == ',')
			n++;
	}
	return n;
}

static int take_request(const char *text, size_t len, struct box_request *r, struct err *e)
{
	static const char *const keys[] = { "argv",	 "script", "env", "cwd",	"user",
					    "timeout_s", "stdin",  "tty", "output_mib", NULL };
	AUTO_JSON *o = NULL;
	uint64_t mib = 0;
	int code;

	if (count_values(text, len) > VALUES_MAX)
		return err_set(e, -EINVAL, "the request has too many values: at most %u arguments and %u variables",
			       ARGS_MAX, ENV_MAX);
	code = json_parse(text, len, &o, e);
	if (code < 0)
		return err_wrap(e, "the command begins with '{', so it must be a JSON request");
	code = json_known_keys(o, keys, e);
	if (code == 0)
		code = take_argv(o, r, e);
	if (code == 0)
		code = take_json_script(o, r, e);
	if (code == 0)
		code = take_env(o, r, e);
	if (code == 0)
		code = take_text(o, "cwd", CWD_MAX, &r->cwd, e);
	if (code == 0 && r->cwd && r->cwd[0] != '/')
		code = err_set(e, -EINVAL, "cwd: must be an absolute path");
	if (code == 0)
		code = take_text(o, "user", USER_MAX, &r->user, e);
	if (code == 0)
		code = take_timeout(o, r, e);
	if (code == 0)
		code = take_stdin(o, r, e);
	if (code == 0)
		code = take_tty(o, r, e);
	if (code == 0)
		code = json_get_u64(o, "output_mib", 1, OUTPUT_MIB_MAX, &mib, e);
	r->output_mib = (uint32_t)mib;
	return code;
}

int box_request_parse(const void *data, size_t len, struct box_request *ret, struct err *e)
{
	struct box_request r = { 0 };
	const char *text = data;
	size_t blank = 0;
	int code;

	if (len > BOX_CMD_MAX)
		return err_set(e, -EINVAL, "the command is longer than 8 MiB");
	if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
		text += 3;
		len -= 3;
	}
	while (blank < len && is_blank(text[blank]))
		blank++;
	if (blank == len)
		return err_set(e, -EINVAL, "the command is blank");
	if (memchr(text, '\0', len))
		return err_set(e, -EINVAL, "the command holds a NUL byte");
	if (text[blank] == '{')
		code = take_request(text + blank, len - blank, &r, e);
	else
		code = take_script(&r, text, len, e);
	if (code < 0) {
		box_request_fini(&r);
		return code;
	}
	*ret = r;
	return 0;
}

static void free_list(char ***list)
{
	if (*list)
		for (char **p = *list; *p; p++)
			free(*p);
	free(*list);
	*list = NULL;
}

void box_request_fini(struct box_request *r)
{
	free_list(&r->argv);
	free_list(&r->env);
	free(r->text);
	free(r->cwd);
	free(r->user);
	free(r->stdin_text);
	*r = (struct box_request){ 0 };
}
