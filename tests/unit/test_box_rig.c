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
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/proc.h"
#include "base/wire.h"

/* -- the daemon -------------------------------------------------------------------------------- */

static void daemon_msg(void *arg, struct msg *m)
{
	struct rig *r = arg;
	struct heard *h;

	if (r->nheard == r->heard_cap) {
		r->heard_cap = r->heard_cap ? r->heard_cap * 2 : 64;
		r->heard = realloc(r->heard, r->heard_cap * sizeof(*r->heard));
	}
	h = &r->heard[r->nheard++];
	*h = (struct heard){ .type = m->type, .id = m->id, .data = malloc(m->len + 1), .len = m->len };
	memcpy(h->data, m->data, m->len);
	h->data[m->len] = '\0';
	for (size_t i = 0; i < m->nfds && i < ARRAY_LEN(h->fds); i++)
		h->fds[h->nfds++] = take_fd(&m->fds[i]);
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

static const struct msgconn_ops daemon_ops = { .on_msg = daemon_msg, .on_gone = daemon_gone };

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

struct heard *rig_heard_reply(struct rig *r, uint32_t id)
{
	UNTIL(r, find_reply(r, id));
	return find_reply(r, id);
}

bool rig_event(const struct rig *r, const char *part)
{
	for (size_t i = 0; i < r->nheard; i++)
		if (r->heard[i].type == BOX_EVENT && strstr((char *)r->heard[i].data, part))
			return true;
	return false;
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
	wire_put_u8(&m, (uint8_t)(flags | (r->timeout_max_s ? BOX_EXEC_TIMEOUT_MAX : 0)));
	wire_put_u32(&m, 1000);
	wire_put_u64(&m, wall_ns());
	if (r->timeout_max_s)
		wire_put_u32(&m, r->timeout_max_s);
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
	struct err e = { 0 };
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
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", r->tuning.daemon_socket);
	r->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(r->listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(r->listener, 1), 0);
	assert_int_equal(loop_add(r->loop, r->listener, EPOLLIN, on_connect, r, &r->listener_src), 0);
	UNTIL(r, r->daemon);
}

/* -- life -------------------------------------------------------------------------------------- */

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
	r->mem_base = RIG_MEM_BASE;
	r->pid = program ? 0 : -1;
	r->state = -1;
	r->listener = r->mon = r->console = r->exit_fd = r->mem = -1;
	r->engine_ops = &engine_qemu;
	r->obeys = r->gives_credit = true;
	r->on_exec = run_at_once;
	buf_init(&r->hello, AG_PAYLOAD_MAX);
	buf_init(&r->fs_ops, 1 << 20);
	buf_init(&r->trace, 1 << 20);
	for (int i = 0; i < 2; i++)
		buf_init(&r->out[i], 16u << 20);
	r->config = (struct box_config){ .uuid = "01234567-89ab-4cde-8f01-23456789abcd",
					 .name = "a",
					 .engine = "qemu",
					 .accel = "tcg",
					 .network = "none",
					 .unenforced = "io",
					 .boot_timeout_s = 60,
					 .output_mib = 1,
					 .spool_mib = 64,
					 .memory_mib = 512,
					 .root_mib = 1024 };
	snprintf(r->dir, sizeof(r->dir), "%s/test_box.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	assert_non_null(mkdtemp(r->dir));
	r->dirfd = open(r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(r->dirfd >= 0);
	assert_int_equal(mkdirat(r->dirfd, "exec", 0700), 0);
	rig_make_files(r);
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
	char *argv[] = { (char *)"crucible-box", (char *)"generic", r->dir, (char *)r->tuning.daemon_socket, NULL };
	struct proc_spec spec = PROC_SPEC_INIT;
	struct err e = { 0 };

	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	snprintf(path, sizeof(path), "%s/../libexec/crucible-box", dirname(self));
	spec.name = "box";
	spec.path = path;
	if (!r->generic) {
		argv[1] = argv[2];
		argv[2] = argv[3];
		argv[3] = NULL;
	}
	spec.argv = argv;
	spec.stdio[1] = spec.stdio[2] = 2;
	spec.fds = fds;
	spec.nfds = BOX_FDS;
	if (proc_spawn(&spec, &r->pid, NULL, &e) < 0)
		fail_msg("%s", e.msg);
	for (size_t i = 0; i < spec.nfds; i++)
		close(fds[i]);
}

/* Something to die in place of an engine. */
static int spawn_engine(struct rig *r)
{
	char *argv[] = { (char *)"sleep", (char *)"1000", NULL };
	struct proc_spec spec = PROC_SPEC_INIT;
	struct err e = { 0 };
	int pidfd;

	spec.name = "engine";
	spec.path = "/bin/sleep";
	spec.argv = argv;
	if (proc_spawn(&spec, &r->engine_pid, &pidfd, &e) < 0)
		fail_msg("%s", e.msg);
	return pidfd;
}

void rig_send_start(struct rig *r)
{
	struct buf text;

	buf_init(&text, 1 << 20);
	assert_int_equal(box_config_format(&r->config, &text), 0);
	rig_send(r, BOX_START, 0, text.data, text.len);
	buf_fini(&text);
}

void rig_begin(struct rig *r)
{
	struct box_params p = { .dirfd = r->dirfd, .tuning = r->tuning, .engine = r->engine_ops };
	int daemon[2], mon[2], port[2][2], console[2], mem[2];
	struct err e = { 0 };

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, daemon), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, mon), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, port[0]), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, port[1]), 0);
	assert_int_equal(pipe2(console, O_CLOEXEC), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, mem), 0);
	p.generic = r->generic;
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
	p.fds[6] = mem[1];
	assert_int_equal(msgconn_new(r->loop, daemon[0], 1 << 20, &daemon_ops, r, &r->daemon), 0);
	r->mon = mon[0];
	r->console = console[1];
	r->mem = mem[0];
	assert_int_equal(loop_add(r->loop, r->mem, EPOLLIN, rig_on_memory, r, &r->mem_src), 0);
	assert_int_equal(loop_add(r->loop, r->mon, EPOLLIN, rig_on_monitor, r, &r->mon_src), 0);
	for (int i = 0; i < 2; i++) {
		r->port[i] = port[i][0];
		r->in[i] = malloc(RIG_IN_CAP);
		assert_int_equal(
			loop_add(r->loop, r->port[i], EPOLLIN, i ? rig_on_bulk : rig_on_control, r, &r->port_src[i]),
			0);
	}
	if (r->pid < 0)
		assert_int_equal(box_new(r->loop, &p, on_over, r, &r->box, &e), 0);
	else
		spawn_program(r, p.fds);
	monitor_says(r, "{\"QMP\":{\"version\":{},\"capabilities\":[]}}\r\n");
	if (!r->generic)
		rig_send_start(r);
	UNTIL(r, rig_count(r, BOX_HELLO) == 1 || r->state == BOX_GONE);
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
		rig_exec_free(r, r->execs);
	for (int i = 0; i < 2; i++) {
		free(r->in[i]);
		buf_fini(&r->out[i]);
	}
	for (size_t i = 0; i < r->nheard; i++) {
		free(r->heard[i].data);
		for (size_t k = 0; k < r->heard[i].nfds; k++)
			close(r->heard[i].fds[k]);
	}
	rig_close_files(r);
	buf_fini(&r->trace);
	free(r->heard);
	buf_fini(&r->hello);
	buf_fini(&r->fs_ops);
	loop_free(r->loop);
	fd_close(&r->dirfd);
	umount2(r->dir, MNT_DETACH); /* of a test that fills a disk */
	free((char *)r->tuning.daemon_socket);
	snprintf(text, sizeof(text), "rm -rf %s", r->dir);
	assert_int_equal(system(text), 0);
	free(r);
}
