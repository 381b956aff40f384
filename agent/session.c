/* SPDX-License-Identifier: Apache-2.0 */
/* What frames mean: each goes to the part that it belongs to, and their answers come back. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/identity.h"
#include "agent/net.h"
#include "agent/spare.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/wire.h"

#define EXEC_WAIT_NS 1000000000u /* for an EXEC whose first DATA has come before it */

/* -- HELLO -------------------------------------------------------------------------- */

static void add_text(struct json_object *o, const char *key, const char *text)
{
	json_object_object_add(o, key, json_text(text, strlen(text)));
}

static void add_boot_id(const struct agent *a, struct json_object *o)
{
	AUTO_FREE char *text = NULL;

	if (fd_slurp(a->guest.proc_fd, "sys/kernel/random/boot_id", 64, &text, NULL) < 0)
		return;
	text[strcspn(text, "\n")] = '\0';
	add_text(o, "boot_id", text);
}

/* Shells that an interactive command can be, the most comfortable first. */
static struct json_object *find_shells(void)
{
	static const char *const shells[] = { "/bin/bash", "/bin/zsh", "/bin/ash", "/bin/sh" };
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; list && i < ARRAY_LEN(shells); i++)
		if (access(shells[i], X_OK) == 0)
			json_object_array_add(list, json_object_new_string(shells[i]));
	return list;
}

static void send_hello(struct agent *a, const struct hello *h, const struct unenforced *u)
{
	AUTO_JSON *o = json_object_new_object();
	struct json_object *list = json_object_new_array();
	struct utsname un = { 0 };
	const char *line;

	uname(&un);
	json_object_object_add(o, "version", json_object_new_int(AG_VERSION));
	json_object_object_add(o, "epoch", json_object_new_uint64(h->epoch));
	add_text(o, "agent", CRUCIBLE_VERSION);
	add_text(o, "kernel", un.release);
	add_boot_id(a, o);
	json_object_object_add(o, "page_size", json_object_new_int64(sysconf(_SC_PAGESIZE)));
	json_object_object_add(o, "shells", find_shells());
	for (size_t i = 0; list && i < u->n; i++)
		json_object_array_add(list, json_text(u->text[i], strlen(u->text[i])));
	json_object_object_add(o, "unenforced", list);
	if (h->clone && !h->hold)
		json_object_object_add(o, "inherited", execs_inherited(a->execs, true));
	line = json_line(o);
	if (line && strlen(line) > AG_PAYLOAD_MAX) { /* a thousand commands with long names */
		json_object_object_add(o, "inherited", execs_inherited(a->execs, false));
		line = json_line(o);
	}
	if (line)
		conn_hello(a->conn, line, strlen(line));
}

static void send_bye(struct agent *a, const char *words)
{
	AUTO_JSON *o = json_object_new_object();
	const char *line;

	add_text(o, "error", words);
	line = json_line(o);
	if (line)
		conn_send(a->conn, CONN_CONTROL, AG_BYE, 0, 0, line, strlen(line));
}

/* What cannot be had is told, and keeps nobody from going on: less network is not less safe. Connections of the parent,
 * whose other ends are not ours, end before a process can use one. */
static void take_network(struct agent *a, const struct hello *h, struct unenforced *u)
{
	struct err e = { 0 };

	if (h->clone && a->guest.net_up && net_reset_connections(&a->guest, &e) < 0)
		unenforced_add(u, "network: %s", e.msg);
	if (h->has_net && net_up(&a->guest, &h->net, &e) < 0)
		unenforced_add(u, "network: %s", e.msg);
}

/* Who this guest is from now on, and only then: its processes go on. In a rehearsal they do not. */
static int take_identity(struct agent *a, const struct hello *h, struct unenforced *u, struct err *e)
{
	int r;

	if (h->hold && a->freeze != FREEZE_DONE)
		return err_set(e, -EINVAL, "clone: hold: this guest is not frozen");
	r = h->clone ? identity_clone(&a->guest, h, u, e) : 0;
	if (r == 0 && h->hold)
		take_network(a, h, u);
	if (r < 0 || h->hold)
		return r;
	if (!h->clone)
		identity_take(&a->guest, h, u);
	limits_set_total(&a->limits, h->memory_bytes, h->cpu_percent, h->pids, u);
	if (a->freeze == FREEZE_DONE && h->clone)
		execs_inherit(a->execs);
	else if (a->freeze == FREEZE_DONE)
		execs_detach(a->execs);
	take_network(a, h, u);
	r = freeze_hello_thaw(a);
	return r < 0 ? err_set(e, r, "thaw the commands: %s", strerror(-r)) : 0;
}

static int on_hello(void *arg, const void *json, size_t len)
{
	struct agent *a = arg;
	struct unenforced u = a->unenforced;
	struct err e = { 0 };
	struct hello h;

	if (hello_parse(json, len, &h, &e) < 0) {
		err_wrap(&e, "hello");
		send_bye(a, e.msg);
		return -EINVAL;
	}
	if (h.version_min > AG_VERSION || h.version_max < AG_VERSION) {
		char words[96];

		snprintf(words, sizeof(words), "hello: this agent speaks version %u only", AG_VERSION);
		send_bye(a, words);
		return -EINVAL;
	}
	if (take_identity(a, &h, &u, &e) < 0) {
		err_wrap(&e, "hello");
		send_bye(a, e.msg);
		return e.code;
	}
	send_hello(a, &h, &u);
	if (!h.hold)
		freeze_hello_end(a);
	fsserver_warm(a->fs);
	return 0;
}

static void on_reset(void *arg)
{
	struct agent *a = arg;

	loop_del(a->loop, &a->give_up);
	freeze_reset(a);
	if (a->freeze == FREEZE_DONE)
		execs_suspend(a->execs); /* the HELLO that follows tells what becomes of them */
	else
		execs_detach(a->execs);
	fsserver_reset(a->fs);
	syncer_reset(a->syncer);
}

/* -- frames ------------------------------------------------------------------------- */

static void on_give_up(void *arg)
{
	struct agent *a = arg;

	a->give_up = 0;
	execs_give_up(a->execs, a->held_stream);
	conn_retry(a->conn, CONN_BULK);
}

static int take_spare(struct agent *a, const struct ag_frame *f)
{
	uint64_t bytes = 0;
	struct buf out;
	int r = spare_memory(&a->guest, &bytes);

	buf_init(&out, 16);
	if (wire_put_u32(&out, (uint32_t)r) == 0 && wire_put_u64(&out, bytes) == 0)
		conn_send(a->conn, CONN_CONTROL, AG_SPARE_IS, 0, f->stream, out.data, out.len);
	buf_fini(&out);
	return 0;
}

/* The first list of a guest that runs: answered when its card is up. */
static int take_net(struct agent *a, const struct ag_frame *f)
{
	AUTO_JSON *o = NULL;
	struct net_config c;
	struct err e = { 0 };
	struct buf out;
	bool given = false;
	int r = json_parse((const char *)f->payload, f->len, &o, &e);

	if (r == 0)
		r = net_parse(o, &c, &given, &e);
	if (r < 0 || !given)
		return -EBADMSG;
	r = net_up(&a->guest, &c, &e);
	buf_init(&out, 512);
	if (wire_put_u32(&out, (uint32_t)r) == 0 && wire_put_str(&out, r < 0 ? e.msg : "") == 0)
		conn_send(a->conn, CONN_CONTROL, AG_NET_UP, 0, f->stream, out.data, out.len);
	buf_fini(&out);
	return 0;
}

static int exec_frame(struct agent *a, const struct ag_frame *f)
{
	int r = execs_frame(a->execs, f);

	if (f->type == AG_EXEC) {
		loop_del(a->loop, &a->give_up);
		conn_retry(a->conn, CONN_BULK);
	} else if (r == -EAGAIN && !a->give_up) {
		a->held_stream = f->stream;
		if (loop_timer(a->loop, now_ns() + EXEC_WAIT_NS, on_give_up, a, &a->give_up) < 0)
			return 0; /* dropped, as that of a stream that is no more */
	}
	return r;
}

static int on_control(struct agent *a, const struct ag_frame *f)
{
	struct wire_rd r;

	if (f->type == AG_THAW) {
		freeze_thaw(a);
		return 0;
	}
	if (a->freeze != FREEZE_NONE)
		return -EBADMSG; /* after FREEZE comes THAW or HELLO */
	switch (f->type) {
	case AG_PING:
		conn_send(a->conn, CONN_CONTROL, AG_PONG, 0, f->stream, f->payload, f->len);
		return 0;
	case AG_PONG:
		return 0;
	case AG_SYNC:
	case AG_TRIM:
		return syncer_request(a->syncer, f->stream, f->type == AG_TRIM);
	case AG_NET:
		return take_net(a, f);
	case AG_SPARE:
		return take_spare(a, f);
	case AG_FREEZE:
		wire_rd_init(&r, f->payload, f->len);
		return freeze_begin(a, wire_u32(&r));
	case AG_SHUTDOWN:
		shutdown_begin(a);
		return 0;
	case AG_EXEC:
	case AG_SIGNAL:
	case AG_KILL:
	case AG_RESIZE:
	case AG_CLOSE:
		return exec_frame(a, f);
	default:
		return -EBADMSG;
	}
}

static int on_bulk(struct agent *a, const struct ag_frame *f)
{
	if (a->freeze != FREEZE_NONE)
		return -EAGAIN; /* it came before FREEZE, and is answered after THAW */
	switch (f->type) {
	case AG_DATA:
	case AG_CREDIT:
		return exec_frame(a, f);
	case AG_FS_REQ:
		return fsserver_request(a->fs, f->flags, f->stream, f->payload, f->len);
	default:
		return -EBADMSG;
	}
}

static int on_frame(void *arg, enum conn_port port, const struct ag_frame *f)
{
	return port == CONN_CONTROL ? on_control(arg, f) : on_bulk(arg, f);
}

/* -- answers ------------------------------------------------------------------------ */

static void on_fs_reply(void *arg, uint8_t op, uint32_t id, const void *data, size_t len)
{
	struct agent *a = arg;

	if (conn_is_up(a->conn))
		conn_send(a->conn, CONN_BULK, AG_FS_REP, op, id, data, len);
}

static void on_synced(void *arg, uint32_t id)
{
	struct agent *a = arg;

	if (conn_is_up(a->conn))
		conn_send(a->conn, CONN_CONTROL, AG_SYNCED, 0, id, NULL, 0);
}

static void on_room(void *arg)
{
	struct agent *a = arg;

	execs_room(a->execs);
}

static void on_gone(void *arg)
{
	struct agent *a = arg;

	loop_stop(a->loop); /* sockets, so a test's agent, and the test is over */
}

/* -- life --------------------------------------------------------------------------- */

int session_open(struct agent *a, int control_fd, int bulk_fd, struct err *e)
{
	static const struct conn_ops ops = {
		.on_frame = on_frame, .on_hello = on_hello, .on_reset = on_reset, .on_room = on_room, .on_gone = on_gone
	};
	int r = conn_new(a->loop, control_fd, bulk_fd, &ops, a, &a->conn);

	if (r == 0)
		r = execs_new(a->loop, a->conn, &a->guest, &a->limits, &a->execs);
	if (r == 0)
		r = fsserver_new(a->loop, &a->guest, on_fs_reply, a, &a->fs);
	if (r == 0)
		r = syncer_new(&a->guest, on_synced, a, &a->syncer);
	return r < 0 ? err_set(e, r, "ports: %s", strerror(-r)) : 0;
}

void session_close(struct agent *a)
{
	loop_del(a->loop, &a->freeze_look);
	a->execs = execs_free(a->execs);
	a->fs = fsserver_free(a->fs);
	a->syncer = syncer_free(a->syncer);
	a->conn = conn_free(a->conn);
}
