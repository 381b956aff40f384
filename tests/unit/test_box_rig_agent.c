/* SPDX-License-Identifier: Apache-2.0 */
/* The rig's monitor and agent: what the engine and the guest would say. */
#include "test_box_rig.h"

#include <inttypes.h>
#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/wire.h"

/* -- the monitor ------------------------------------------------------------------------------- */

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
	snprintf(text, sizeof(text), "{\"return\":%s,\"id\":%llu}\r\n",
		 strstr(line, "\"query-migrate\"")  ? "{\"status\":\"completed\"}"
		 : strstr(line, "\"query-status\"") ? "{\"running\":false,\"status\":\"paused\"}"
						    : "{}",
		 n);
	monitor_says(r, text);
	if (strstr(line, "\"quit\"")) {
		monitor_says(r, "{\"event\":\"SHUTDOWN\",\"data\":{\"guest\":false,\"reason\":\"host-qmp-quit\"}}\r\n");
		rig_engine_dies(r);
	}
}

void rig_on_monitor(void *arg, uint32_t events)
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
	loop_del(r->loop, &r->mem_src);
	fd_close(&r->mon);
	fd_close(&r->mem);
	fd_close(&r->console);
	if (r->exit_fd >= 0)
		assert_int_equal(write(r->exit_fd, &one, sizeof(one)), sizeof(one));
	if (r->engine_pid > 0) {
		kill(r->engine_pid, SIGKILL);
		waitpid(r->engine_pid, NULL, 0);
		r->engine_pid = 0;
	}
}

/* -- the agent --------------------------------------------------------------------------------- */

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

void rig_exec_free(struct rig *r, struct fake_exec *x)
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

	*x = (struct fake_exec){ .next = r->execs, .rig = r, .stream = f->stream, .credit = { AG_WINDOW, AG_WINDOW } };
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
		snprintf(json, sizeof(json), "{%s,\"stdout_bytes\":%" PRIu64 ",\"stderr_bytes\":%" PRIu64 "}",
			 x->exit_json, x->sent[0], x->sent[1]);
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
	snprintf(
		x->exit_json, sizeof(x->exit_json),
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
	snprintf(text, sizeof(text), "%.*s", x->script.len ? (int)x->script.len : 4,
		 x->script.len ? (char *)x->script.data : "argv");
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
	uint8_t credit[4] = { (uint8_t)f->len, (uint8_t)(f->len >> 8), (uint8_t)(f->len >> 16), 0 };

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
		rig_exec_free(r, x);
		break;
	}
}

static void agent_hello(struct rig *r, const struct ag_frame *f)
{
	char json[2048];
	bool clone, hold;

	buf_reset(&r->hello);
	assert_int_equal(buf_add(&r->hello, f->payload, f->len), 0);
	if (++r->hellos % 2 == 1)
		return; /* the other port has it too */
	clone = memmem(f->payload, f->len, "\"clone\"", 7) != NULL;
	hold = memmem(f->payload, f->len, "\"hold\":true", 11) != NULL;
	rig_trace(r, hold ? "rehearsal " : clone ? "clone " : "hello ");
	r->frozen = hold;
	if (r->hello_silent || (hold && r->rehearsal_silent))
		return;
	snprintf(
		json, sizeof(json),
		"{\"version\":4,\"epoch\":1,\"agent\":\"0.1.0\",\"kernel\":\"6.1\",\"boot_id\":\"b\",\"page_size\":4096,"
		"\"shells\":[\"/bin/sh\"],\"unenforced\":[\"pids, of the guest\"]%s%s}",
		clone && r->inherited ? ",\"inherited\":" : "", clone && r->inherited ? r->inherited : "");
	r->seq[0] = r->seq[1] = 0;
	agent_frame(r, 0, AG_HELLO, 0, 0, json, strlen(json));
}

void agent_frozen(struct rig *r, int port, int code)
{
	uint8_t le[4];

	for (int i = 0; i < 4; i++)
		le[i] = (uint8_t)((uint32_t)code >> (8 * i));
	agent_frame(r, port, AG_FROZEN, 0, 0, le, 4);
}

static void agent_freeze(struct rig *r)
{
	rig_trace(r, "freeze ");
	if (r->freeze_silent)
		return;
	if (r->freeze_fails) {
		agent_frozen(r, 0, -ETIMEDOUT);
		return;
	}
	r->frozen = true;
	agent_frozen(r, 0, 0);
	agent_frozen(r, 1, 0);
}

static void agent_spare(struct rig *r, uint32_t id)
{
	struct buf out;

	buf_init(&out, 64);
	assert_int_equal(wire_put_u32(&out, (uint32_t)r->spare_code), 0);
	assert_int_equal(wire_put_u64(&out, r->spare), 0);
	agent_frame(r, 0, AG_SPARE_IS, 0, id, out.data, out.len);
	buf_fini(&out);
}

static void agent_heard(struct rig *r, int port, const struct ag_frame *f)
{
	if (r->frozen && f->type != AG_HELLO && f->type != AG_THAW)
		fail_msg("a frame of type %u came to a guest that is frozen", f->type);
	switch (f->type) {
	case AG_HELLO:
		agent_hello(r, f);
		break;
	case AG_FREEZE:
		agent_freeze(r);
		break;
	case AG_THAW:
		rig_trace(r, "thaw ");
		r->thaws++;
		r->frozen = false;
		break;
	case AG_TRIM:
		r->trims++;
		agent_frame(r, 0, AG_SYNCED, 0, f->stream, NULL, 0);
		break;
	case AG_PING:
		r->pings++;
		if (!r->ping_silent)
			agent_frame(r, 0, AG_PONG, 0, 0, f->payload, f->len);
		break;
	case AG_SYNC:
		r->syncs++;
		if (!r->sync_silent)
			agent_frame(r, 0, AG_SYNCED, 0, f->stream, NULL, 0);
		break;
	case AG_SPARE:
		if (!r->spare_silent)
			agent_spare(r, f->stream);
		break;
	case AG_SHUTDOWN:
		r->shutdowns++;
		for (struct fake_exec *x = r->execs, *next; x && r->obeys; x = next) {
			next = x->next;
			if (!x->exited)
				exec_killed(x, "SIGTERM", "");
		}
		if (r->obeys) {
			monitor_says(
				r,
				"{\"event\":\"SHUTDOWN\",\"data\":{\"guest\":true,\"reason\":\"guest-shutdown\"}}\r\n");
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
	if (r->deaf || r->in_len[port] == RIG_IN_CAP)
		return;
	n = recv(r->port[port], r->in[port] + r->in_len[port], RIG_IN_CAP - r->in_len[port], MSG_DONTWAIT);
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

void rig_listen(struct rig *r)
{
	r->deaf = false;
	for (int p = 0; p < 2; p++)
		if (!r->port_src[p])
			assert_int_equal(loop_add(r->loop, r->port[p], EPOLLIN, p ? rig_on_bulk : rig_on_control, r,
						  &r->port_src[p]),
					 0);
}

void rig_on_control(void *arg, uint32_t events)
{
	if (events & EPOLLOUT)
		port_flush(arg, 0);
	if (events & ~(uint32_t)EPOLLOUT)
		on_port(arg, 0);
}

void rig_on_bulk(void *arg, uint32_t events)
{
	if (events & EPOLLOUT)
		port_flush(arg, 1);
	if (events & ~(uint32_t)EPOLLOUT)
		on_port(arg, 1);
}
