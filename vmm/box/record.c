/* SPDX-License-Identifier: Apache-2.0 */
/* result.json: what a command did. Its members and their order are the product's interface (cruciblefs(8),
 * "result.json"). */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "vmm/box/record.h"

#define RECORD_MODE 0640 /* group: the daemon */

/* Building a JSON object member by member; the first failure sticks and is asked for once. */
struct maker {
	struct json_object *o;
	bool failed;
};

static struct json_object *put(struct maker *m, const char *key, struct json_object *v)
{
	if (!v || json_object_object_add(m->o, key, v) < 0) {
		json_object_put(v);
		m->failed = true;
		return NULL;
	}
	return v;
}

static void put_text(struct maker *m, const char *key, const char *text)
{
	put(m, key, json_text(text ? text : "", text ? strlen(text) : 0));
}

static void put_number(struct maker *m, const char *key, uint64_t v)
{
	put(m, key, json_object_new_uint64(v));
}

static void put_bool(struct maker *m, const char *key, bool v)
{
	put(m, key, json_object_new_boolean(v));
}

static void add(struct maker *m, struct json_object *list, struct json_object *v)
{
	if (!list || !v || json_object_array_add(list, v) < 0) {
		json_object_put(v);
		m->failed = true;
	}
}

/* -- the command's folder: no link on the way is followed, for in the daemon a box may have made it ---------- */

int box_exec_open(int dirfd, uint64_t n)
{
	AUTO_FD execs = openat(dirfd, "exec", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char name[24];
	int fd;

	snprintf(name, sizeof(name), "%" PRIu64, n);
	fd = execs < 0 ? -1 : openat(execs, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* -- the output's first part ------------------------------------------------------------------- */

/* How much of @len bytes to take so that a cut leaves no half of a UTF-8 character behind. */
static size_t cut_at_character(const uint8_t *p, size_t len)
{
	size_t back = 0;

	while (back < 3 && back < len && (p[len - 1 - back] & 0xc0) == 0x80)
		back++;
	if (back < len) {
		uint8_t lead = p[len - 1 - back];
		size_t need = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;

		if (need > back + 1)
			return len - back - 1;
	}
	return len;
}

static void put_output(struct maker *m, int dirfd, const char *key, uint64_t bytes)
{
	AUTO_FREE uint8_t *text = NULL;
	AUTO_FD fd = -1;
	size_t cap = bytes < BOX_RECORD_TEXT_MAX ? (size_t)bytes : BOX_RECORD_TEXT_MAX, len = 0;
	ssize_t n = 1;

	/* A file that is not there, or that cannot be read, is an empty text: the record has to stand all the same. */
	if (bytes > 0) {
		fd = openat(dirfd, key, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		text = malloc(cap);
		m->failed |= !text;
	}
	while (fd >= 0 && text && len < cap && n > 0) {
		n = read(fd, text + len, cap - len);
		if (n > 0)
			len += (size_t)n;
		else if (n < 0 && errno == EINTR)
			n = 1;
	}
	if (len == BOX_RECORD_TEXT_MAX && bytes > len)
		len = cut_at_character(text, len);
	put(m, key, json_text(text, len)); /* NOLINT(clang-analyzer-unix.Malloc): it does not know AUTO_FREE */
}

/* -- parts ------------------------------------------------------------------------------------- */

/* A command line may be a MiB long, a record should not: what is beyond the bound is shown as one more argument, "…".
 */
static void put_argv(struct maker *m, char **argv)
{
	struct json_object *list = put(m, "argv", json_object_new_array());
	size_t bytes = 0;

	if (!argv || !list)
		return;
	for (char **p = argv; *p; p++) {
		bytes += strlen(*p) + 1;
		if (bytes > BOX_RECORD_TEXT_MAX) {
			add(m, list, json_object_new_string("…"));
			return;
		}
		add(m, list, json_text(*p, strlen(*p)));
	}
}

/* The agent's numbers, each on its own: whatever else it sent does not get into a record. */
static void put_usage(struct maker *m, const char *usage_json)
{
	static const char *const keys[] = { "cpu_user_ms",
					    "cpu_sys_ms",
					    "peak_memory_bytes",
					    "page_faults_major",
					    "context_switches_involuntary",
					    "io_read_bytes",
					    "io_write_bytes" };
	AUTO_JSON *from = NULL;
	struct maker usage = { .o = put(m, "usage", json_object_new_object()) };

	if (!usage.o)
		return;
	if (usage_json && json_parse(usage_json, strlen(usage_json), &from, NULL) < 0)
		from = NULL;
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		uint64_t v = 0;

		if (from)
			json_get_u64(from, keys[i], 0, INT64_MAX, &v, NULL);
		put_number(&usage, keys[i], v);
	}
	m->failed |= usage.failed;
}

static void put_isolation(struct maker *m, const struct box_record *r)
{
	struct maker iso = { .o = put(m, "isolation", json_object_new_object()) };
	struct json_object *list;
	const char *p = r->unenforced ? r->unenforced : "";

	if (!iso.o)
		return;
	put_text(&iso, "engine", r->engine);
	put_text(&iso, "accel", r->accel);
	put_text(&iso, "network", r->network);
	list = put(&iso, "unenforced", json_object_new_array());
	while (*p) {
		size_t n = strcspn(p, ",");

		if (n > 0)
			add(&iso, list, json_text(p, n));
		p += n + (p[n] == ',');
	}
	m->failed |= iso.failed;
}

static void put_all(struct maker *m, int dirfd, const struct box_record *r)
{
	char started[32] = "";

	if (r->started_wall_ns)
		json_time(r->started_wall_ns, started);
	put_number(m, "exec", r->n);
	put_text(m, "sandbox", r->sandbox);
	put_argv(m, r->argv);
	put(m, "exit_code", json_object_new_int(r->exit_code));
	put_text(m, "signal", r->signal);
	put_bool(m, "timed_out", r->timed_out);
	put_bool(m, "oom_killed", r->oom_killed);
	put_bool(m, "cancelled", r->cancelled);
	put_text(m, "error", r->error);
	put_text(m, "started_at", started);
	put_number(m, "duration_ms", r->duration_ns / 1000000);
	put_number(m, "queued_ms", r->queued_ns / 1000000);
	put_output(m, dirfd, "stdout", r->stdout_bytes);
	put_output(m, dirfd, "stderr", r->stderr_bytes);
	put_number(m, "stdout_bytes", r->stdout_bytes);
	put_number(m, "stderr_bytes", r->stderr_bytes);
	put_bool(m, "stdout_truncated", r->stdout_truncated);
	put_bool(m, "stderr_truncated", r->stderr_truncated);
	put_usage(m, r->usage_json);
	put_isolation(m, r);
}

int box_record_format(int dirfd, const struct box_record *r, struct buf *out, struct err *e)
{
	AUTO_JSON *o = json_object_new_object();
	AUTO_FD dir = box_exec_open(dirfd, r->n); /* none: then there are no outputs either */
	struct maker m = { .o = o };
	const char *line = NULL;

	if (o)
		put_all(&m, dir, r);
	if (o && !m.failed)
		line = json_line(o);
	if (!line || buf_adds(out, line) < 0 || buf_adds(out, "\n") < 0)
		return err_set(e, -ENOMEM, "record of command %" PRIu64 ": no memory", r->n);
	return 0;
}

int box_record_write(int dirfd, const struct box_record *r, struct err *e)
{
	struct buf text;
	AUTO_FD dir = box_exec_open(dirfd, r->n);
	int code;

	buf_init(&text, BOX_RECORD_MAX);
	code = box_record_format(dirfd, r, &text, e);
	if (code == 0) {
		code = dir < 0 ? dir : fd_replace(dir, "result.json", text.data, text.len, RECORD_MODE, false);
		if (code < 0)
			err_set(e, code, "record of command %" PRIu64 ": %s", r->n, err_name(code));
	}
	buf_fini(&text);
	return code;
}
