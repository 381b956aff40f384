/* SPDX-License-Identifier: Apache-2.0 */
/* qga: a command through QEMU's guest agent, as its users run one: guest-exec, then guest-exec-status again and again
 * (without a pause: there is nothing else to wait for) until it has exited. ARGUMENT: the agent's Unix socket; --text:
 * what /bin/sh -c runs. */
#include "tools/bench/turns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"

#define ANSWER_MAX 65536

struct qga {
	int fd;
	char *exec;
	char in[ANSWER_MAX];
};

/* One line out, one line in. */
static int ask(struct qga *q, const char *text, struct json_object **ret, struct err *e)
{
	size_t have = 0;
	int r = fd_write_all(q->fd, text, strlen(text));

	if (r < 0)
		return err_set(e, r, "guest agent: write: %s", strerror(-r));
	while (!have || q->in[have - 1] != '\n') {
		ssize_t n = have < sizeof(q->in) ? read(q->fd, q->in + have, sizeof(q->in) - have) : -1;

		if (n <= 0)
			return err_set(e, -EIO, "guest agent: no answer: %s", strerror(errno));
		have += (size_t)n;
	}
	r = json_parse(q->in, have, ret, e);
	return r < 0 ? err_wrap(e, "guest agent") : 0;
}

static char *exec_line(const char *text)
{
	AUTO_JSON *o = json_object_new_object();
	struct json_object *arguments = json_object_new_object(), *arg = json_object_new_array();
	char *line = NULL;

	json_object_array_add(arg, json_object_new_string("-c"));
	json_object_array_add(arg, json_object_new_string(text));
	json_object_object_add(arguments, "path", json_object_new_string("/bin/sh"));
	json_object_object_add(arguments, "arg", arg);
	json_object_object_add(arguments, "capture-output", json_object_new_boolean(true));
	json_object_object_add(o, "execute", json_object_new_string("guest-exec"));
	json_object_object_add(o, "arguments", arguments);
	return asprintf(&line, "%s\n", json_line(o)) < 0 ? NULL : line;
}

static int qga_open(const struct bench_opts *o, const char *arg, void **ret, struct err *e)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	struct qga *q = calloc(1, sizeof(*q));

	if (!q)
		return err_set(e, -ENOMEM, "no memory");
	*ret = q;
	snprintf(at.sun_path, sizeof(at.sun_path), "%s", arg);
	q->exec = exec_line(o->text);
	q->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (!q->exec || q->fd < 0)
		return err_set(e, -ENOMEM, "no memory or no socket");
	if (connect(q->fd, (const struct sockaddr *)&at, sizeof(at)) < 0)
		return err_set(e, -errno, "%s: connect: %s", arg, strerror(errno));
	return 0;
}

static void qga_close(void *op)
{
	struct qga *q = op;

	fd_close(&q->fd);
	free(q->exec);
	free(q);
}

static int answer_of(struct json_object *o, struct json_object **ret, struct err *e)
{
	int r = json_get_obj(o, "return", json_type_object, ret, e);

	return r < 0 || *ret ? r : err_set(e, -EIO, "guest agent: %.200s", json_line(o));
}

static int qga_run(void *op, uint64_t *ret_ns, struct err *e)
{
	uint64_t began = bench_now_ns(), pid = 0, code = 1;
	struct json_object *in = NULL;
	AUTO_JSON *started = NULL;
	struct qga *q = op;
	bool exited = false;
	char line[100];
	int r;

	r = ask(q, q->exec, &started, e);
	if (r < 0 || (r = answer_of(started, &in, e)) < 0 || (r = json_get_u64(in, "pid", 1, INT64_MAX, &pid, e)) < 0)
		return r;
	snprintf(line, sizeof(line), "{\"execute\":\"guest-exec-status\",\"arguments\":{\"pid\":%llu}}\n",
		 (unsigned long long)pid);
	while (!exited) {
		AUTO_JSON *status = NULL;

		in = NULL;
		r = ask(q, line, &status, e);
		if (r < 0 || (r = answer_of(status, &in, e)) < 0 || (r = json_get_bool(in, "exited", &exited, e)) < 0 ||
		    (r = json_get_u64(in, "exitcode", 0, 255, &code, e)) < 0)
			return r;
	}
	*ret_ns = bench_now_ns() - began;
	return code == 0 ? 0 : err_set(e, -EIO, "guest agent: exit code %llu", (unsigned long long)code);
}

const struct bench_op bench_op_qga = { "qga", qga_open, qga_run, qga_close, { 0 } };
