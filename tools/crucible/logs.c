/* SPDX-License-Identifier: Apache-2.0 */
/* crucible logs, crucible events: records of the journal, a line each. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "tools/crucible/command.h"
#include "tools/crucible/follow.h"
#include "tools/crucible/logs.h"
#include "tools/crucible/permits.h"
#include "tools/crucible/printable.h"
#include "tools/crucible/sbx.h"
#include "tools/crucible/tree.h"

#define SEEN_END 1 /* of a callback of follow_lines(): there will be no more */

struct journal {
	struct cli *c;
	const char *source; /* exec service all */
	uint64_t since;	    /* only numbers above it */
	bool one_sandbox;   /* its end is the log's end */
};

bool logs_is_of(const char *event, const char *source)
{
	bool exec = !strncmp(event, "exec", 4);

	return !strcmp(source, "all") || exec == !strcmp(source, "exec");
}

static bool is_wanted(const struct journal *j, const char *event, uint64_t seq)
{
	return !(seq && seq <= j->since) && logs_is_of(event, j->source);
}

/* "2026-01-31T12:00:00.123Z  exec_done  a  exec=1 exit_code=0": what every record has, then what this one has. */
static int format(struct json_object *o, bool with_sandbox, struct buf *out)
{
	const char *time = "", *event = "", *sandbox = "";
	int r;

	json_get_str(o, "time", &time, NULL);
	json_get_str(o, "event", &event, NULL);
	json_get_str(o, "sandbox", &sandbox, NULL);
	r = buf_addf(out, "%s  %-10s", time, event);
	if (r == 0 && with_sandbox)
		r = buf_addf(out, "  %s", *sandbox ? sandbox : "-");
	json_object_object_foreach(o, key, v) {
		bool text = json_object_is_type(v, json_type_string);

		if (!strcmp(key, "time") || !strcmp(key, "event") || !strcmp(key, "sandbox") || !strcmp(key, "seq") ||
		    !strcmp(key, "uuid"))
			continue;
		if (r == 0)
			r = buf_addf(out, "  %s=%s", key,
				     text && !strpbrk(json_object_get_string(v), " \t") ? json_object_get_string(v)
											: json_line(v));
	}
	while (r == 0 && out->len && out->data[out->len - 1] == ' ')
		out->len--; /* of the column, when nothing stands behind it */
	return r;
}

static int print_record(struct journal *j, struct json_object *o, char *line)
{
	struct buf text;
	char *words;
	int r;

	if (j->c->json) {
		/* JSON does not escape C1 controls. */
		r = printf("%s\n", isatty(STDOUT_FILENO) ? printable_line(line) : line) < 0 ? -errno : 0;
	} else {
		buf_init(&text, 4u * 1024 * 1024);
		r = format(o, !j->one_sandbox, &text);
		words = r == 0 ? buf_str(&text) : NULL;
		if (words)
			r = printf("%s\n", printable_line(words)) < 0 ? -errno : 0;
		buf_fini(&text);
	}
	return r < 0 || fflush(stdout) == 0 ? r : -errno;
}

static int on_line(void *arg, char *line, size_t len)
{
	struct journal *j = arg;
	AUTO_JSON *o = NULL;
	const char *event = "";
	uint64_t seq = 0;
	int r;

	if (len == 0 || json_parse(line, len, &o, NULL) < 0 || !json_object_is_type(o, json_type_object))
		return 0; /* cut off where the disk was full */
	json_get_str(o, "event", &event, NULL);
	json_get_u64(o, "seq", 0, UINT64_MAX, &seq, NULL);
	r = is_wanted(j, event, seq) ? print_record(j, o, line) : 0;
	if (r == 0 && j->one_sandbox && !strcmp(event, "destroyed"))
		r = SEEN_END;
	return r;
}

/* @open_it: opens the journal, also when another one has taken its place. Returns a descriptor or -errno. */
static int run(struct journal *j, int (*open_it)(int root, const char *id), const char *id, const char *what)
{
	struct cli *c = j->c;
	int r;

	do {
		AUTO_FD fd = open_it(c->mount.fd, id);

		if (fd < 0)
			return fd;
		r = follow_lines(fd, c->args.given[OPT_FOLLOW], on_line, j);
	} while (r == FOLLOW_REPLACED);
	if (r >= 0)
		return 0;
	return r == -EPIPE ? r
			   : err_set(&c->err, r, "%s: %s", what, r == -ENOTCONN ? "the daemon has gone" : strerror(-r));
}

static int open_events(int root, const char *id)
{
	int fd = openat(root, "events.jsonl", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	(void)id;
	return fd < 0 ? -errno : fd;
}

int cmd_events(struct cli *c)
{
	struct journal j = { .c = c, .source = "all", .since = c->args.number[OPT_SINCE] };
	int r = run(&j, open_events, NULL, "events.jsonl");

	if (r == -EPERM && permits_explain(c->mount.fd, POLICY_READ, "events.jsonl", &c->err))
		return r;
	return r < 0 && !c->err.code ? err_set(&c->err, r, "events.jsonl: %s", strerror(-r)) : r;
}

int logs_open(int root, const char *id)
{
	static const struct {
		const char *before, *after;
	} places[] = { { "run/", "/log.jsonl" }, { "logs/by-name/", "" }, { "logs/", ".jsonl" } };
	char path[SBX_ID_MAX + 32];
	int fd = -1;

	for (size_t i = 0; i < ARRAY_LEN(places) && fd < 0 && (i == 0 || errno == ENOENT); i++) {
		snprintf(path, sizeof(path), "%s%s%s", places[i].before, id, places[i].after);
		fd = openat(root, path, O_RDONLY | O_CLOEXEC);
	}
	return fd < 0 ? -errno : fd;
}

int cmd_logs(struct cli *c)
{
	const char *id = c->args.words[0];
	struct journal j = { .c = c, .source = c->args.text[OPT_SOURCE] ?: "all", .one_sandbox = true };
	int r = sbx_id_check(id, &c->err);

	if (r == 0)
		r = run(&j, logs_open, id, id);
	if (r == 0 || r == -EPIPE || c->err.code)
		return r;
	switch (r) {
	case -ENOENT:
		return err_set(&c->err, r, "no sandbox \"%s\", and no log of one that had this name or uuid", id);
	case -EACCES:
		return err_set(&c->err, r, "the log of \"%s\" belongs to somebody else", id);
	default:
		if (r == -EPERM && permits_explain(c->mount.fd, POLICY_READ, id, &c->err))
			return r;
		return err_set(&c->err, r, "the log of \"%s\": %s", id, strerror(-r));
	}
}
