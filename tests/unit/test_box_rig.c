/* SPDX-License-Identifier: Apache-2.0 */
#include "test_box_rig.h"

#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/proc.h"
#include "base/wire.h"

#define IN_CAP (4 * (AG_HEADER_LEN + AG_PAYLOAD_MAX))

/* -- the daemon --------------------------------------------------------------------------------------------- */

static void daemon_msg(void *arg, struct msg *m)
{
	struct rig *r = arg;
	struct heard *h;

	if (r->nheard == r->heard_cap) {
		r->heard_cap = r->heard_cap ? r->heard_cap * 2 : 64;
		r->heard = realloc(r->heard, r->heard_cap * sizeof(*r->heard));
	}
	h = &r->heard[r->nheard++];
	*h = (struct heard){.type = m->type, .id = m->id, .data = malloc(m->len + 1), .len = m->len};
	memcpy(h->data, m->data, m->len);
	h->data[m->len] = '\0';
	if (m->type == BOX_STATE) {
		struct wire_rd rd;

		wire_rd_init(&rd, m->data, m->len);
		r->state = wire_u8(&rd);
		wire_str(&rd, r->state_words, sizeof(r->state_words));
	}
}

static void daemon_gone(void *arg, int reason)
{
	struct rig *r = arg;

	(void)reason;
	r->daemon_gone = true;
}

static const struct msgconn_ops daemon_ops = {.on_msg = daemon_msg, .on_gone = daemon_gone};

void rig_send(struct rig *r, enum box_type type, uint32_t id, const void *data, size_t len)
{
	assert_int_equal(msgconn_send(r->daemon, (uint16_t)type, id, data, len, NULL, 0), 0);
}

uint32_t rig_request(struct rig *r, enum box_type type, const void *data, size_t len)
{
	rig_send(r, type, ++r->last_id, data, len);
	return r->last_id;
}

static struct heard *find_reply(struct rig *r, uint32_t id)
{
	for (size_t i = 0; i < r->nheard; i++)
		if (r->heard[i].type == BOX_REPLY && r->heard[i].id == id)
			return &r->heard[i];
	return NULL;
}

int rig_reply(struct rig *r, uint32_t id, const char **ret_words, struct wire_rd *ret_data)
{
	static char words[600];
	struct heard *h;
	struct wire_rd rd;
	int code;

	UNTIL(r, find_reply(r, id));
	h = find_reply(r, id);
	wire_rd_init(&rd, h->data, h->len);
	code = (int)wire_u32(&rd);
	wire_str(&rd, words, sizeof(words));
	assert_false(rd.bad);
	if (ret_words)
		*ret_words = words;
	if (ret_data)
		*ret_data = rd;
	return code;
}

int rig_vm(struct rig *r, enum box_vm what, uint32_t grace_ms)
{
	struct buf b;
	uint32_t id;

	buf_init(&b, 64);
	wire_put_u8(&b, (uint8_t)what);
	wire_put_u32(&b, grace_ms);
	id = rig_request(r, BOX_VM, b.data, b.len);
	buf_fini(&b);
	return rig_reply(r, id, NULL, NULL);
}

int rig_ctl(struct rig *r, uint64_t n, enum box_verb verb, uint32_t a, uint32_t b)
{
	struct buf m;
	uint32_t id;

	buf_init(&m, 64);
	wire_put_u64(&m, n);
	wire_put_u8(&m, (uint8_t)verb);
	wire_put_u32(&m, a);
	wire_put_u32(&m, b);
	id = rig_request(r, BOX_CTL, m.data, m.len);
	buf_fini(&m);
	return rig_reply(r, id, NULL, NULL);
}

static void put_file(struct rig *r, uint64_t n, const char *name, const void *data, size_t len)
{
	char path[64];

	snprintf(path, sizeof(path), "exec/%" PRIu64 "/%s", n, name);
	assert_int_equal(fd_replace(r->dirfd, path, data, len, 0600, false), 0);
}

uint64_t rig_put(struct rig *r, const void *cmd, size_t len)
{
	uint64_t n = ++r->last_n;
	char path[40];

	snprintf(path, sizeof(path), "exec/%" PRIu64, n);
	assert_int_equal(mkdirat(r->dirfd, path, 0700), 0);
	put_file(r, n, "cmd", cmd, len);
	return n;
}

void rig_put_stdin(struct rig *r, uint64_t n, const void *data, size_t len)
{
	put_file(r, n, "stdin", data, len);
}

int rig_accept(struct rig *r, uint64_t n, uint8_t flags)
{
	struct buf m;
	uint32_t id;

	buf_init(&m, 64);
	wire_put_u64(&m, n);
	wire_put_u8(&m, flags);
	wire_put_u32(&m, 1000);
	wire_put_u64(&m, wall_ns());
	id = rig_request(r, BOX_EXEC, m.data, m.len);
	buf_fini(&m);
	return rig_reply(r, id, NULL, NULL);
}

uint64_t rig_exec(struct rig *r, const char *cmd)
{
	uint64_t n = rig_put(r, cmd, strlen(cmd));

	assert_int_equal(rig_accept(r, n, 0), 0);
	return n;
}

struct heard *rig_find(struct rig *r, uint16_t type, uint64_t n)
{
	for (size_t i = r->nheard; i-- > 0;) {
		struct wire_rd rd;

		wire_rd_init(&rd, r->heard[i].data, r->heard[i].len);
		if (r->heard[i].type == type && wire_u64(&rd) == n)
			return &r->heard[i];
	}
	return NULL;
}

size_t rig_count(const struct rig *r, uint16_t type)
{
	size_t n = 0;

	for (size_t i = 0; i < r->nheard; i++)
		n += r->heard[i].type == type;
	return n;
}

void rig_done(struct rig *r, uint64_t n)
{
	UNTIL(r, rig_find(r, BOX_DONE, n));
}

struct json_object *rig_record(struct rig *r, uint64_t n)
{
	AUTO_FREE char *text = NULL;
	struct json_object *o = NULL;
	struct err e = {0};
	char path[64];
	size_t len;

	snprintf(path, sizeof(path), "exec/%" PRIu64 "/result.json", n);
	assert_int_equal(fd_slurp(r->dirfd, path, 1 << 20, &text, &len), 0);
	if (json_parse(text, len, &o, &e) < 0)
		fail_msg("record %" PRIu64 ": %s", n, e.msg);
	return o;
}

static struct json_object *record_get(struct rig *r, uint64_t n, const char *key, struct json_object **ret_whole)
{
	struct json_object *v;

	*ret_whole = rig_record(r, n);
	assert_true(json_object_object_get_ex(*ret_whole, key, &v));
	return v;
}

void record_int(struct rig *r, uint64_t n, const char *key, int64_t want)
{
	AUTO_JSON *o = NULL;
	int64_t v = json_object_get_int64(record_get(r, n, key, &o));

	if (v != want)
		fail_msg("record %" PRIu64 ": %s is %" PRId64 ", not %" PRId64, n, key, v, want);
}

void record_true(struct rig *r, uint64_t n, const char *key, bool want)
{
	AUTO_JSON *o = NULL;

	if (json_object_get_boolean(record_get(r, n, key, &o)) != want)
		fail_msg("record %" PRIu64 ": %s is %s", n, key, want ? "false" : "true");
}

void record_text(struct rig *r, uint64_t n, const char *key, const char *want)
{
	AUTO_JSON *o = NULL;
	const char *v = json_object_get_string(record_get(r, n, key, &o));

	if (strcmp(v, want) != 0)
		fail_msg("record %" PRIu64 ": %s is \"%s\", not \"%s\"", n, key, v, want);
}

void record_holds(struct rig *r, uint64_t n, const char *key, const char *part)
{
	AUTO_JSON *o = NULL;
	const char *v = json_object_get_string(record_get(r, n, key, &o));

	if (!strstr(v, part))
		fail_msg("record %" PRIu64 ": %s is \"%s\", without \"%s\"", n, key, v, part);
}

static void on_connect(void *arg, uint32_t events)
{
	struct rig *r = arg;
	int fd = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC);

	(void)events;
	assert_true(fd >= 0);
	assert_null(r->daemon);
	r->daemon_gone = false;
	assert_int_equal(msgconn_new(r->loop, fd, 1 << 20, &daemon_ops, r, &r->daemon), 0);
}

void rig_daemon_leaves(struct rig *r)
{
	r->daemon = msgconn_free(r->daemon);
}

void rig_daemon_back(struct rig *r)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", r->tuning.daemon_socket);
	r->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(r->listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(r->listener, 1), 0);
	assert_int_equal(loop_add(r->loop, r->listener, EPOLLIN, on_connect, r, &r->listener_src), 0);
	UNTIL(r, r->daemon);
}

/* -- the monitor ------------------------------------------------------------------------------------------------ */

void monitor_says(struct rig *r, const char *line)
{
	/* A box that has closed it already hears nothing more, as it should be. */
	if (r->mon >= 0 && send(r->mon, line, strlen(line), MSG_NOSIGNAL) < 0)
		assert_int_equal(errno, EPIPE);
}

static void monitor_command(struct rig *r, const char *line)
{
	const char *id = strstr(line, "\"id\":");
	unsigned long long n = id ? strtoull(id + 5, NULL, 10) : 0;
	char text[128];

	if (r->mon_silent)
		return;
	if (strstr(line, "\"stop\"")) {
		r->stops++;
		monitor_says(r, "{\"event\":\"STOP\"}\r\n");
	} else if (strstr(line, "\"cont\"")) {
		r->conts++;
		monitor_says(r, "{\"event\":\"RESUME\"}\r\n");
	} else if (strstr(line, "\"quit\"")) {
		r->quits++;
	}
	snprintf(text, sizeof(text), "{\"return\":{},\"id\":%llu}\r\n", n);
	monitor_says(r, text);
	if (strstr(line, "\"quit\"")) {
		monitor_says(r, "{\"event\":\"SHUTDOWN\",\"data\":{\"guest\":false,\"reason\":\"host-qmp-quit\"}}\r\n");
		rig_engine_dies(r);
	}
}

static void on_monitor(void *arg, uint32_t events)
{
	struct rig *r = arg;
	ssize_t n = recv(r->mon, r->mon_in + r->mon_len, sizeof(r->mon_in) - 1 - r->mon_len, MSG_DONTWAIT);
	char *nl;

	(void)events;
	if (n <= 0) {
		loop_del(r->loop, &r->mon_src);
		return;
	}
	r->mon_len += (size_t)n;
	r->mon_in[r->mon_len] = '\0';
	while (r->mon >= 0 && (nl = strchr(r->mon_in, '\n'))) {
		size_t used = (size_t)(nl - r->mon_in) + 1;
		char line[sizeof(r->mon_in)];

		*nl = '\0';
		strcpy(line, r->mon_in);
		memmove(r->mon_in, r->mon_in + used, r->mon_len - used + 1);
		r->mon_len -= used;
		monitor_command(r, line);
	}
}

void rig_engine_dies(struct rig *r)
{
	uint64_t one = 1;

	for (int p = 0; p < 2; p++) {
		loop_del(r->loop, &r->port_src[p]);
		fd_close(&r->port[p]);
	}
	loop_del(r->loop, &r->mon_src);
	fd_close(&r->mon);
	fd_close(&r->console);
	if (r->exit_fd >= 0)
		assert_int_equal(write(r->exit_fd, &one, sizeof(one)), sizeof(one));
	if (r->engine_pid > 0) {
		kill(r->engine_pid, SIGKILL);
		waitpid(r->engine_pid, NULL, 0);
		r->engine_pid = 0;
	}
}

/* -- the agent --------------------------------------------------------------------------------------------------- */

static void port_flush(struct rig *r, int port)
{
	struct buf *out = &r->out[port];
	size_t at = 0;

	while (at < out->len && r->port[port] >= 0) {
		ssize_t n = send(r->port[port], out->data + at, out->len - at, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0)
			n = (ssize_t)(out->len - at); /* the box has closed it */
		at += (size_t)n;
	}
	buf_drop(out, at);
	loop_mod(r->loop, r->port_src[port], EPOLLIN | (out->len > 0 ? EPOLLOUT : 0));
}

void agent_raw(struct rig *r, int port, const void *data, size_t len)
{
	assert_int_equal(buf_add(&r->out[port], data, len), 0);
	port_flush(r, port);
}

void agent_frame(struct rig *r, int port, uint8_t type, uint8_t flags, uint32_t stream, const void *data, size_t len)
{
	uint8_t frame[AG_HEADER_LEN + AG_PAYLOAD_MAX];

	assert_true(len <= AG_PAYLOAD_MAX);
	ag_frame_header(frame, type, flags, stream, r->seq[port]++, (uint32_t)len);
	if (len)
		memcpy(frame + AG_HEADER_LEN, data, len);
	agent_raw(r, port, frame, AG_HEADER_LEN + len);
}

void agent_stage(struct rig *r, const char *text)
{
	agent_frame(r, 0, AG_STAGE, 0, 0, text, strlen(text));
}

static struct fake_exec *exec_of(struct rig *r, uint32_t stream)
{
	struct fake_exec *x = r->execs;

	while (x && x->stream != stream)
		x = x->next;
	return x;
}

struct fake_exec *agent_exec(struct rig *r, size_t nth)
{
	struct fake_exec *x = r->execs;
	size_t n = r->nexecs;

	for (; x; x = x->next)
		if (--n == nth)
			return x;
	return NULL;
}

static void exec_free(struct rig *r, struct fake_exec *x)
{
	struct fake_exec **at = &r->execs;

	while (*at != x)
		at = &(*at)->next;
	*at = x->next;
	buf_fini(&x->json);
	buf_fini(&x->script);
	buf_fini(&x->in);
	free(x);
}

static void exec_new(struct rig *r, const struct ag_frame *f)
{
	struct fake_exec *x = calloc(1, sizeof(*x));

	*x = (struct fake_exec){.next = r->execs, .rig = r, .stream = f->stream, .credit = {AG_WINDOW, AG_WINDOW}};
	buf_init(&x->json, AG_EXEC_JSON_MAX);
	buf_init(&x->script, 16u << 20);
	buf_init(&x->in, 128u << 20);
	r->execs = x;
	r->nexecs++;
}

static void exec_maybe_begin(struct fake_exec *x)
{
	if (x->begun || !x->whole || (exec_json_has(x, "\"script\":true") && !x->script_eof))
		return;
	x->begun = true;
	if (x->rig->on_exec)
		x->rig->on_exec(x->rig, x);
}

bool exec_json_has(const struct fake_exec *x, const char *part)
{
	return memmem(x->json.data, x->json.len, part, strlen(part)) != NULL;
}

void exec_started(struct fake_exec *x)
{
	static const char json[] = "{\"pid\":42,\"script\":\"/run/crucible/script\"}";

	agent_frame(x->rig, 0, AG_EXEC_STARTED, 0, x->stream, json, strlen(json));
}

static void exec_data(struct fake_exec *x, int which, const void *data, size_t len)
{
	assert_true(len <= x->credit[which]);
	x->credit[which] -= (uint32_t)len;
	x->sent[which] += len;
	agent_frame(x->rig, 1, AG_DATA, (uint8_t)(which ? AG_STDERR : AG_STDOUT), x->stream, data, len);
}

void exec_print(struct fake_exec *x, enum ag_which which, const char *text)
{
	exec_data(x, which == AG_STDERR, text, strlen(text));
}

/* Send what the credit lets; then the end, if it is known. */
static void exec_pump(struct fake_exec *x)
{
	static uint8_t xs[AG_PAYLOAD_MAX];

	memset(xs, 'x', sizeof(xs));
	for (int w = 0; w < 2; w++)
		while (x->flood[w] > 0 && x->credit[w] > 0) {
			size_t n = x->flood[w] < sizeof(xs) ? (size_t)x->flood[w] : sizeof(xs);

			if (n > x->credit[w])
				n = x->credit[w];
			x->flood[w] -= n;
			exec_data(x, w, xs, n);
		}
	if (*x->exit_json && !x->exited && !x->flood[0] && !x->flood[1]) {
		char json[900];

		x->exited = true;
		snprintf(json, sizeof(json), "{%s,\"stdout_bytes\":%" PRIu64 ",\"stderr_bytes\":%" PRIu64 "}", x->exit_json, x->sent[0],
			 x->sent[1]);
		agent_frame(x->rig, 0, AG_EXIT, 0, x->stream, json, strlen(json));
	}
}

void exec_flood(struct fake_exec *x, enum ag_which which, uint64_t bytes)
{
	x->flood[which == AG_STDERR] += bytes;
	exec_pump(x);
}

void exec_exit(struct fake_exec *x, int code)
{
	snprintf(x->exit_json, sizeof(x->exit_json),
		 "\"exit_code\":%d,\"signal\":\"\",\"timed_out\":false,\"oom_killed\":false,\"error\":\"\",\"duration_ns\":1000000,"
		 "\"usage\":{\"cpu_user_ms\":1}",
		 code);
	exec_pump(x);
}

void exec_killed(struct fake_exec *x, const char *signal, const char *more)
{
	x->flood[0] = x->flood[1] = 0;
	snprintf(x->exit_json, sizeof(x->exit_json), "\"exit_code\":-1,\"signal\":\"%s\"%s", signal, more);
	exec_pump(x);
}

void run_at_once(struct rig *r, struct fake_exec *x)
{
	char text[4096];

	(void)r;
	exec_started(x);
	snprintf(text, sizeof(text), "%.*s", x->script.len ? (int)x->script.len : 4, x->script.len ? (char *)x->script.data : "argv");
	exec_print(x, AG_STDOUT, text);
	exec_exit(x, 0);
}

static uint32_t get_u32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void exec_input(struct rig *r, struct fake_exec *x, const struct ag_frame *f)
{
	bool script = (f->flags & AG_WHICH_MASK) == AG_SCRIPT;
	uint8_t credit[4] = {(uint8_t)f->len, (uint8_t)(f->len >> 8), (uint8_t)(f->len >> 16), 0};

	assert_int_equal(buf_add(script ? &x->script : &x->in, f->payload, f->len), 0);
	if (f->flags & AG_EOF)
		*(script ? &x->script_eof : &x->in_eof) = true;
	if ((r->gives_credit || script) && f->len > 0)
		agent_frame(r, 1, AG_CREDIT, f->flags & AG_WHICH_MASK, x->stream, credit, 4);
	exec_maybe_begin(x);
}

static void agent_exec_frame(struct rig *r, const struct ag_frame *f)
{
	struct fake_exec *x;

	if (f->type == AG_EXEC && !exec_of(r, f->stream))
		exec_new(r, f);
	x = exec_of(r, f->stream);
	if (!x)
		return;
	switch (f->type) {
	case AG_EXEC:
		assert_false(x->whole);
		assert_int_equal(buf_add(&x->json, f->payload, f->len), 0);
		x->whole = !(f->flags & AG_MORE);
		exec_maybe_begin(x);
		break;
	case AG_DATA:
		exec_input(r, x, f);
		break;
	case AG_CREDIT:
		x->credit[f->flags == AG_STDERR] += get_u32(f->payload);
		assert_true(x->credit[f->flags == AG_STDERR] <= AG_WINDOW);
		exec_pump(x);
		break;
	case AG_SIGNAL:
		x->last_signal = get_u32(f->payload);
		break;
	case AG_KILL:
		x->kills++;
		if (r->obeys)
			exec_killed(x, "SIGKILL", "");
		break;
	case AG_RESIZE:
		x->rows = (uint16_t)(f->payload[0] | f->payload[1] << 8);
		x->cols = (uint16_t)(f->payload[2] | f->payload[3] << 8);
		break;
	default: /* AG_CLOSE */
		exec_free(r, x);
		break;
	}
}

static void agent_hello(struct rig *r, const struct ag_frame *f)
{
	static const char json[] =
		"{\"version\":1,\"epoch\":1,\"agent\":\"0.1.0\",\"kernel\":\"6.1\",\"boot_id\":\"b\",\"page_size\":4096,"
		"\"shells\":[\"/bin/sh\"],\"unenforced\":[\"pids, of the guest\"]}";

	buf_reset(&r->hello);
	assert_int_equal(buf_add(&r->hello, f->payload, f->len), 0);
	if (++r->hellos % 2 == 1)
		return; /* the other port has it too */
	r->seq[0] = r->seq[1] = 0;
	agent_frame(r, 0, AG_HELLO, 0, 0, json, strlen(json));
}

static void agent_heard(struct rig *r, int port, const struct ag_frame *f)
{
	switch (f->type) {
	case AG_HELLO:
		agent_hello(r, f);
		break;
	case AG_PING:
		r->pings++;
		agent_frame(r, 0, AG_PONG, 0, 0, f->payload, f->len);
		break;
	case AG_SYNC:
		r->syncs++;
		agent_frame(r, 0, AG_SYNCED, 0, f->stream, NULL, 0);
		break;
	case AG_SHUTDOWN:
		r->shutdowns++;
		for (struct fake_exec *x = r->execs, *next; x && r->obeys; x = next) {
			next = x->next;
			if (!x->exited)
				exec_killed(x, "SIGTERM", "");
		}
		if (r->obeys) {
			monitor_says(r, "{\"event\":\"SHUTDOWN\",\"data\":{\"guest\":true,\"reason\":\"guest-shutdown\"}}\r\n");
			rig_engine_dies(r);
		}
		break;
	case AG_FS_REQ:
		buf_add(&r->fs_ops, &f->flags, 1);
		if (r->on_fs)
			r->on_fs(r, f);
		break;
	default:
		agent_exec_frame(r, f);
		break;
	}
	(void)port;
}

static void on_port(struct rig *r, int port)
{
	struct ag_frame f;
	size_t at = 0;
	ssize_t n;
	long used;

	if (r->deaf)
		loop_del(r->loop, &r->port_src[port]);
	if (r->deaf || r->in_len[port] == IN_CAP)
		return;
	n = recv(r->port[port], r->in[port] + r->in_len[port], IN_CAP - r->in_len[port], MSG_DONTWAIT);
	if (n <= 0) {
		if (n == 0 || errno != EAGAIN)
			loop_del(r->loop, &r->port_src[port]);
		return;
	}
	r->in_len[port] += (size_t)n;
	while (r->port[port] >= 0 && (used = ag_frame_parse(r->in[port] + at, r->in_len[port] - at, &f)) != 0) {
		assert_true(used > 0);
		at += (size_t)used;
		agent_heard(r, port, &f);
	}
	r->in_len[port] -= at;
	memmove(r->in[port], r->in[port] + at, r->in_len[port]);
}

static void on_control(void *arg, uint32_t events)
{
	if (events & EPOLLOUT)
		port_flush(arg, 0);
	if (events & ~(uint32_t)EPOLLOUT)
		on_port(arg, 0);
}

static void on_bulk(void *arg, uint32_t events)
{
	if (events & EPOLLOUT)
		port_flush(arg, 1);
	if (events & ~(uint32_t)EPOLLOUT)
		on_port(arg, 1);
}

/* -- life ------------------------------------------------------------------------------------------------------------ */

unsigned int open_fds(void)
{
	unsigned int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

struct rig *rig_new(bool program)
{
	static const struct box_tuning tuning = BOX_TUNING_DEFAULT;
	struct rig *r = calloc(1, sizeof(*r));
	char *socket_path;

	r->tuning = tuning;
	r->pid = program ? 0 : -1;
	r->state = -1;
	r->listener = r->mon = r->console = r->exit_fd = -1;
	r->obeys = r->gives_credit = true;
	r->on_exec = run_at_once;
	buf_init(&r->hello, AG_PAYLOAD_MAX);
	buf_init(&r->fs_ops, 1 << 20);
	for (int i = 0; i < 2; i++)
		buf_init(&r->out[i], 16u << 20);
	r->config = (struct box_config){.uuid = "01234567-89ab-4cde-8f01-23456789abcd", .name = "a", .engine = "qemu", .accel = "tcg",
					.network = "none", .unenforced = "io", .boot_timeout_s = 60, .output_mib = 1, .spool_mib = 64,
					.memory_mib = 512, .root_mib = 1024};
	snprintf(r->dir, sizeof(r->dir), "%s/test_box.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	assert_non_null(mkdtemp(r->dir));
	r->dirfd = open(r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(r->dirfd >= 0);
	assert_int_equal(mkdirat(r->dirfd, "exec", 0700), 0);
	assert_true(asprintf(&socket_path, "%s/daemon.sock", r->dir) > 0);
	r->tuning.daemon_socket = socket_path;
	assert_int_equal(loop_new(&r->loop), 0);
	return r;
}

static void on_over(void *arg, const char *words)
{
	struct rig *r = arg;

	r->over = true;
	snprintf(r->over_words, sizeof(r->over_words), "%s", words);
}

static void spawn_program(struct rig *r, const int *fds)
{
	char self[400] = "", path[420];
	char *argv[] = {(char *)"crucible-box", r->dir, (char *)r->tuning.daemon_socket, NULL};
	struct proc_spec spec = PROC_SPEC_INIT;
	struct err e = {0};

	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	snprintf(path, sizeof(path), "%s/../libexec/crucible-box", dirname(self));
	spec.name = "box";
	spec.path = path;
	spec.argv = argv;
	spec.stdio[1] = spec.stdio[2] = 2;
	spec.fds = fds;
	spec.nfds = BOX_FD_ENGINE - BOX_FD_DAEMON + 1;
	if (proc_spawn(&spec, &r->pid, NULL, &e) < 0)
		fail_msg("%s", e.msg);
	for (size_t i = 0; i < spec.nfds; i++)
		close(fds[i]);
}

/* Something to die in place of an engine. */
static int spawn_engine(struct rig *r)
{
	char *argv[] = {(char *)"sleep", (char *)"1000", NULL};
	struct proc_spec spec = PROC_SPEC_INIT;
	struct err e = {0};
	int pidfd;

	spec.name = "engine";
	spec.path = "/bin/sleep";
	spec.argv = argv;
	if (proc_spawn(&spec, &r->engine_pid, &pidfd, &e) < 0)
		fail_msg("%s", e.msg);
	return pidfd;
}

static void send_start(struct rig *r)
{
	struct buf text;

	buf_init(&text, 1 << 20);
	assert_int_equal(box_config_format(&r->config, &text), 0);
	rig_send(r, BOX_START, 0, text.data, text.len);
	buf_fini(&text);
}

void rig_begin(struct rig *r)
{
	struct box_params p = {.dirfd = r->dirfd, .tuning = r->tuning, .engine = &engine_qemu};
	int daemon[2], mon[2], port[2][2], console[2];
	struct err e = {0};

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, daemon), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, mon), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, port[0]), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, port[1]), 0);
	assert_int_equal(pipe2(console, O_CLOEXEC), 0);
	p.fds[0] = daemon[1];
	p.fds[1] = mon[1];
	p.fds[2] = port[0][1];
	p.fds[3] = port[1][1];
	p.fds[4] = console[0];
	if (r->pid < 0) {
		r->exit_fd = eventfd(0, EFD_CLOEXEC);
		p.fds[5] = dup(r->exit_fd);
	} else {
		p.fds[5] = spawn_engine(r);
	}
	assert_int_equal(msgconn_new(r->loop, daemon[0], 1 << 20, &daemon_ops, r, &r->daemon), 0);
	r->mon = mon[0];
	r->console = console[1];
	assert_int_equal(loop_add(r->loop, r->mon, EPOLLIN, on_monitor, r, &r->mon_src), 0);
	for (int i = 0; i < 2; i++) {
		r->port[i] = port[i][0];
		r->in[i] = malloc(IN_CAP);
		assert_int_equal(loop_add(r->loop, r->port[i], EPOLLIN, i ? on_bulk : on_control, r, &r->port_src[i]), 0);
	}
	if (r->pid < 0)
		assert_int_equal(box_new(r->loop, &p, on_over, r, &r->box, &e), 0);
	else
		spawn_program(r, p.fds);
	monitor_says(r, "{\"QMP\":{\"version\":{},\"capabilities\":[]}}\r\n");
	send_start(r);
	UNTIL(r, rig_count(r, BOX_HELLO) == 1);
}

void rig_boot(struct rig *r)
{
	agent_stage(r, "root disk");
	agent_stage(r, AG_STAGE_HELLO);
	UNTIL(r, r->state == BOX_READY);
}

struct rig *rig_ready(void)
{
	struct rig *r = rig_new(false);

	rig_begin(r);
	rig_boot(r);
	return r;
}

void rig_free(struct rig *r)
{
	char text[256];

	r->box = box_free(r->box);
	msgconn_free(r->daemon);
	rig_engine_dies(r);
	if (r->pid > 1) {
		kill(r->pid, SIGKILL);
		waitpid(r->pid, NULL, 0);
	}
	loop_del(r->loop, &r->listener_src);
	fd_close(&r->listener);
	fd_close(&r->exit_fd);
	while (r->execs)
		exec_free(r, r->execs);
	for (int i = 0; i < 2; i++) {
		free(r->in[i]);
		buf_fini(&r->out[i]);
	}
	for (size_t i = 0; i < r->nheard; i++)
		free(r->heard[i].data);
	free(r->heard);
	buf_fini(&r->hello);
	buf_fini(&r->fs_ops);
	loop_free(r->loop);
	fd_close(&r->dirfd);
	free((char *)r->tuning.daemon_socket);
	snprintf(text, sizeof(text), "rm -rf %s", r->dir);
	assert_int_equal(system(text), 0);
	free(r);
}
