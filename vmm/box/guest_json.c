/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/box/guest_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/fd.h"
#include "base/json.h"
#include "netpolicy/net.h"

#define TEXTS_MAX 32u /* of a list that the agent tells */

void guest_words(const void *data, size_t len, char *out, size_t cap)
{
	const uint8_t *p = data;
	size_t n = 0;

	for (size_t i = 0; i < len && n + 1 < cap; i++)
		out[n++] = p[i] < 0x20 || p[i] >= 0x7f ? '?' : (char)p[i];
	out[n] = '\0';
}

/* The same for a string of JSON, which is valid UTF-8: only control characters go, those of the C1 block (C2 80 … C2
 * 9F) too. */
static void clean_text(struct json_object *v, char *out, size_t cap)
{
	const uint8_t *p = (const uint8_t *)json_object_get_string(v);
	size_t len = (size_t)json_object_get_string_len(v), n = 0;

	if (len >= cap) {
		len = cap - 1;
		while (len > 0 && (p[len] & 0xc0) == 0x80) /* not in the middle of a character */
			len--;
	}
	for (size_t i = 0; i < len; i++) {
		bool c1 = p[i] == 0xc2 && i + 1 < len && p[i + 1] < 0xa0;

		out[n++] = p[i] < 0x20 || p[i] == 0x7f || c1 ? '?' : (char)p[i];
		i += c1;
	}
	out[n] = '\0';
}

static void words_of(struct json_object *o, const char *key, char *out, size_t cap)
{
	struct json_object *v;

	out[0] = '\0';
	if (json_object_object_get_ex(o, key, &v) && json_object_is_type(v, json_type_string))
		clean_text(v, out, cap);
}

static int parse(const void *json, size_t len, struct json_object **ret)
{
	if (json_parse(json, len, ret, NULL) < 0 || !json_object_is_type(*ret, json_type_object))
		return -EBADMSG;
	return 0;
}

/* Add @v, which may be NULL for want of memory. */
static int put(struct json_object *o, const char *key, struct json_object *v)
{
	if (v && json_object_object_add(o, key, v) == 0)
		return 0;
	json_object_put(v);
	return -ENOMEM;
}

static int put_number(struct json_object *o, const char *key, uint64_t v)
{
	return put(o, key, json_object_new_uint64(v));
}

static int put_text(struct json_object *o, const char *key, const char *text)
{
	return text ? put(o, key, json_text(text, strlen(text))) : 0;
}

static int put_line(struct json_object *o, struct buf *out)
{
	const char *line = json_line(o);

	return line ? buf_adds(out, line) : -ENOMEM;
}

/* -- HELLO ------------------------------------------------------------------------------------- */

static int put_entropy(struct json_object *o)
{
	uint8_t bytes[32];
	char hex[2 * sizeof(bytes) + 1];

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return -EIO;
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
	return put_text(o, "entropy", hex);
}

static int put_clone(struct json_object *o, const struct guest_identity *id)
{
	struct json_object *clone = json_object_new_object();
	int r = put(o, "clone", clone);

	if (r == 0)
		r = put_text(clone, "fork", id->instance);
	if (r == 0)
		r = put_text(clone, "parent", id->clone_parent);
	if (r == 0)
		r = put_text(clone, "machine_id", id->machine_id);
	return r == 0 && id->rehearsal ? put(clone, "hold", json_object_new_boolean(true)) : r;
}

static int put_net(struct json_object *o)
{
	static const struct {
		const char *key, *text;
	} texts[] = { { "address", NET_GUEST_ADDR },
		      { "gateway", NET_HOST_ADDR },
		      { "address6", NET_GUEST_ADDR6 },
		      { "gateway6", NET_HOST_ADDR6 } };
	static const struct {
		const char *key;
		uint64_t v;
	} numbers[] = { { "prefix", NET_PREFIX }, { "prefix6", NET_PREFIX6 }, { "mtu", NET_MTU } };
	struct json_object *net = json_object_new_object();
	int r = put(o, "net", net);

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(texts); i++)
		r = put_text(net, texts[i].key, texts[i].text);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(numbers); i++)
		r = put_number(net, numbers[i].key, numbers[i].v);
	return r;
}

int guest_net_format(struct buf *out)
{
	AUTO_JSON *o = json_object_new_object();
	int r = o ? put_net(o) : -ENOMEM;

	return r == 0 ? put_line(o, out) : r;
}

int guest_hello_format(const struct guest_identity *id, uint64_t epoch, struct buf *out)
{
	AUTO_JSON *o = json_object_new_object();
	const struct {
		const char *key;
		uint64_t v;
	} numbers[] = {
		{ "version_min", AG_VERSION }, { "version_max", AG_VERSION },	     { "epoch", epoch },
		{ "root_mib", id->root_mib },  { "memory_bytes", id->memory_bytes }, { "cpu_percent", id->cpu_percent },
		{ "pids", id->pids },
	};
	int r = o ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(numbers); i++)
		r = put_number(o, numbers[i].key, numbers[i].v);
	if (r == 0)
		r = put_text(o, "hostname", id->hostname);
	if (r == 0)
		r = put_text(o, "instance", id->instance);
	if (r == 0)
		r = put_entropy(o);
	if (r == 0 && id->clone_parent)
		r = put_clone(o, id);
	if (r == 0 && id->net)
		r = put_net(o);
	/* Last: the guest sets its clock by it. */
	if (r == 0)
		r = put_number(o, "wall_ns", wall_ns());
	return r == 0 ? put_line(o, out) : r;
}

/* The texts of a list of the agent, cleaned, into a new list and, comma separated, into @joined. */
static struct json_object *clean_list(struct json_object *from, const char *key, char *joined, size_t cap)
{
	struct json_object *list = NULL, *out = json_object_new_array();
	size_t n, used = 0;

	json_object_object_get_ex(from, key, &list);
	if (!out || !json_object_is_type(list, json_type_array))
		return out;
	n = json_object_array_length(list);
	for (size_t i = 0; i < n && i < TEXTS_MAX; i++) {
		struct json_object *v = json_object_array_get_idx(list, i), *clean;
		char text[128];

		if (!json_object_is_type(v, json_type_string))
			continue;
		clean_text(v, text, sizeof(text));
		clean = json_object_new_string(text);
		if (!clean || json_object_array_add(out, clean) < 0)
			json_object_put(clean);
		for (char *c = text; *c; c++)
			if (*c == ',')
				*c = ';';
		if (joined && used + strlen(text) + 2 <= cap)
			used += (size_t)snprintf(joined + used, cap - used, "%s%s", used ? "," : "", text);
	}
	return out;
}

/* Those that run on. A stream that can not be one, or twice the same, is none that we could talk about. */
static int parse_inherited(struct json_object *o, struct guest_hello_text *ret)
{
	struct json_object *list = NULL;
	size_t n;

	if (!json_object_object_get_ex(o, "inherited", &list))
		return 0;
	n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : SIZE_MAX;
	if (n > AG_EXECS_MAX)
		return -EBADMSG;
	if (n == 0)
		return 0;
	ret->inherited = calloc(n, sizeof(*ret->inherited));
	if (!ret->inherited)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		struct json_object *v = json_object_array_get_idx(list, i);
		struct guest_inherited *in = &ret->inherited[i];
		uint64_t stream = 0, pid = 0;

		if (!json_object_is_type(v, json_type_object) ||
		    json_get_u64(v, "stream", 1, INT32_MAX, &stream, NULL) < 0 || stream == 0 ||
		    json_get_u64(v, "pid", 0, INT32_MAX, &pid, NULL) < 0)
			return -EBADMSG;
		for (size_t k = 0; k < i; k++)
			if (ret->inherited[k].stream == stream)
				return -EBADMSG;
		in->stream = (uint32_t)stream;
		in->pid = (uint32_t)pid;
		words_of(v, "name", in->name, sizeof(in->name));
		ret->ninherited++;
	}
	return 0;
}

void guest_hello_text_fini(struct guest_hello_text *t)
{
	free(t->inherited);
	t->inherited = NULL;
	t->ninherited = 0;
}

int guest_hello_parse(const void *json, size_t len, struct guest_hello_text *ret)
{
	static const char *const texts[] = { "agent", "kernel", "boot_id" };
	AUTO_JSON *o = NULL;
	AUTO_JSON *out = json_object_new_object();
	uint64_t version = 0, page = 0;
	const char *line;
	char word[128];
	int r = 0;

	ret->unenforced[0] = '\0';
	ret->inherited = NULL;
	ret->ninherited = 0;
	if (!out || parse(json, len, &o) < 0)
		return -EBADMSG;
	if (json_get_u64(o, "version", AG_VERSION, AG_VERSION, &version, NULL) < 0 || version == 0 ||
	    json_get_u64(o, "page_size", 0, UINT32_MAX, &page, NULL) < 0)
		return -EBADMSG;
	r = put_number(out, "version", version);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(texts); i++) {
		words_of(o, texts[i], word, sizeof(word));
		r = put_text(out, texts[i], word);
	}
	if (r == 0)
		r = put_number(out, "page_size", page);
	if (r == 0)
		r = put(out, "shells", clean_list(o, "shells", NULL, 0));
	if (r == 0)
		r = put(out, "unenforced", clean_list(o, "unenforced", ret->unenforced, sizeof(ret->unenforced)));
	line = r == 0 ? json_line(out) : NULL;
	if (!line || strlen(line) >= sizeof(ret->json))
		return -EBADMSG;
	memcpy(ret->json, line, strlen(line) + 1);
	r = parse_inherited(o, ret);
	if (r < 0)
		guest_hello_text_fini(ret);
	return r;
}

void guest_bye_parse(const void *json, size_t len, char *ret_words, size_t cap)
{
	AUTO_JSON *o = NULL;

	ret_words[0] = '\0';
	if (parse(json, len, &o) == 0)
		words_of(o, "error", ret_words, cap);
	if (!*ret_words)
		snprintf(ret_words, cap, "it gave no reason");
}

/* -- EXEC -------------------------------------------------------------------------------------- */

static int put_list(struct json_object *o, const char *key, char *const *list)
{
	struct json_object *array = json_object_new_array();
	int r = put(o, key, array);

	for (char *const *p = list; r == 0 && p && *p; p++) {
		struct json_object *v = json_text(*p, strlen(*p));

		if (!v || json_object_array_add(array, v) < 0) {
			json_object_put(v);
			r = -ENOMEM;
		}
	}
	return r;
}

static int put_tty(struct json_object *o, const struct guest_exec_req *req)
{
	struct json_object *tty;
	int r;

	if (!req->tty)
		return 0;
	tty = json_object_new_object();
	r = put(o, "tty", tty);
	if (r == 0)
		r = put_number(tty, "rows", req->rows);
	if (r == 0)
		r = put_number(tty, "cols", req->cols);
	return r;
}

int guest_exec_format(const struct guest_exec_req *req, struct buf *out)
{
	AUTO_JSON *o = json_object_new_object();
	int r = o ? 0 : -ENOMEM;

	if (r == 0)
		r = req->argv ? put_list(o, "argv", req->argv) : put(o, "script", json_object_new_boolean(true));
	if (r == 0)
		r = put_list(o, "env", req->env);
	if (r == 0)
		r = put_text(o, "cwd", req->cwd);
	if (r == 0)
		r = put_text(o, "user", req->user);
	if (r == 0)
		r = put_text(o, "name", req->name);
	if (r == 0)
		r = put(o, "stdin", json_object_new_boolean(req->has_stdin || req->live_stdin));
	if (r == 0)
		r = put_tty(o, req);
	if (r == 0)
		r = put_number(o, "timeout_ms", (req->timeout_ns + 999999) / 1000000);
	if (r == 0)
		r = put_line(o, out);
	return r == -EFBIG ? -E2BIG : r;
}

int guest_started_parse(const void *json, size_t len, char *ret_script, size_t cap)
{
	AUTO_JSON *o = NULL;

	if (parse(json, len, &o) < 0)
		return -EBADMSG;
	words_of(o, "script", ret_script, cap);
	return 0;
}

/* A signal's name as the agent may give it: "SIG" and capitals or digits; anything else is none. */
static void clean_signal(char *signal)
{
	size_t n = strlen(signal);

	if (strncmp(signal, "SIG", 3) != 0 || n < 4 ||
	    strspn(signal + 3, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") != n - 3)
		signal[0] = '\0';
}

int guest_exit_parse(const void *json, size_t len, struct guest_exit *ret)
{
	AUTO_JSON *o = NULL;
	struct guest_exit x = { .exit_code = -1 };
	struct json_object *code, *usage = NULL;
	const char *line;

	if (parse(json, len, &o) < 0)
		return -EBADMSG;
	if (!json_object_object_get_ex(o, "exit_code", &code) || !json_object_is_type(code, json_type_int) ||
	    json_object_get_int64(code) < -1 || json_object_get_int64(code) > 255)
		return -EBADMSG;
	x.exit_code = json_object_get_int(code);
	words_of(o, "signal", x.signal, sizeof(x.signal));
	clean_signal(x.signal);
	words_of(o, "error", x.error, sizeof(x.error));
	if (json_get_bool(o, "timed_out", &x.timed_out, NULL) < 0 ||
	    json_get_bool(o, "oom_killed", &x.oom_killed, NULL) < 0 ||
	    json_get_u64(o, "stdout_bytes", 0, INT64_MAX, &x.stdout_bytes, NULL) < 0 ||
	    json_get_u64(o, "stderr_bytes", 0, INT64_MAX, &x.stderr_bytes, NULL) < 0 ||
	    json_get_u64(o, "duration_ns", 0, INT64_MAX, &x.duration_ns, NULL) < 0 ||
	    json_get_obj(o, "usage", json_type_object, &usage, NULL) < 0)
		return -EBADMSG;
	/* A process that a signal ended has no exit code, whatever else is claimed. */
	if (*x.signal || *x.error)
		x.exit_code = -1;
	else if (x.exit_code < 0)
		snprintf(x.error, sizeof(x.error), "the agent gave neither an exit code nor a reason");
	line = usage ? json_line(usage) : NULL;
	if (line && strlen(line) < sizeof(x.usage.json))
		memcpy(x.usage.json, line, strlen(line) + 1);
	*ret = x;
	return 0;
}
