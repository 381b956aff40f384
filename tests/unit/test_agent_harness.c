/* SPDX-License-Identifier: Apache-2.0 */
#include "test_agent_harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/loop.h"

static const char *skipped; /* the last cause */

void skip_because(const char *cause)
{
	const char *must = getenv("CRUCIBLE_MUST_RUN");

	if (must && strcmp(must, "1") == 0)
		fail_msg("must run, but: %s", cause);
	skipped = cause;
	skip();
}

int tests_end(int failed)
{
	if (failed)
		return 1;
	if (!skipped)
		return 0;
	fprintf(stderr, "skip: %s\n", skipped);
	return 77;
}

/* -- frames ------------------------------------------------------------------------- */

static void flush_port(struct port *p)
{
	while (p->out.len > 0) {
		ssize_t n = send(p->fd, p->out.data, p->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN)
			return;
		assert_true(n > 0);
		buf_drop(&p->out, (size_t)n);
	}
}

/* Queued whole: what is received while it is sent may itself be answered by a frame. */
void host_send_raw(struct host *h, int port, const void *data, size_t len)
{
	struct port *p = &h->port[port];
	uint64_t end = now_ns() + PATIENCE_MS * 1000000ull;

	assert_int_equal(buf_add(&p->out, data, len), 0);
	flush_port(p);
	while (p->out.len > AG_WINDOW && !h->pumping) {
		assert_true(now_ns() < end);
		host_pump(h, 20);
	}
}

void host_send(struct host *h, int port, uint8_t type, uint8_t flags, uint32_t stream, const void *data, size_t len)
{
	uint8_t frame[AG_HEADER_LEN + AG_PAYLOAD_MAX];

	assert_true(len <= AG_PAYLOAD_MAX);
	ag_frame_header(frame, type, flags, stream, h->port[port].seq_out++, (uint32_t)len);
	if (len)
		memcpy(frame + AG_HEADER_LEN, data, len);
	host_send_raw(h, port, frame, AG_HEADER_LEN + len);
}

static struct cmd *find_cmd(struct host *h, uint32_t stream)
{
	for (size_t i = 0; i < STREAMS_MAX; i++)
		if (h->cmd[i].stream == stream)
			return &h->cmd[i];
	return NULL;
}

static struct json_object *parse(const struct ag_frame *f)
{
	struct json_object *o = NULL;
	struct err e = { 0 };

	if (json_parse((const char *)f->payload, f->len, &o, &e) < 0)
		fail_msg("agent's JSON: %s", e.msg);
	return o;
}

static void give_credit(struct host *h, struct cmd *c, enum ag_which which, size_t len)
{
	uint64_t *due = &c->unreturned[which == AG_STDERR];
	uint8_t le[4];

	*due += len;
	if (c->keep_credit || *due == 0 || h->freezing)
		return;
	for (int i = 0; i < 4; i++)
		le[i] = (uint8_t)(*due >> (8 * i));
	*due = 0;
	host_send(h, BULK, AG_CREDIT, which, c->stream, le, 4);
}

static void take_data(struct host *h, const struct ag_frame *f)
{
	struct cmd *c = find_cmd(h, f->stream);
	enum ag_which which = f->flags & AG_WHICH_MASK;
	struct buf *to;

	assert_non_null(c);
	assert_true(which == AG_STDOUT || which == AG_STDERR);
	to = which == AG_STDOUT ? &c->out : &c->err;
	assert_int_equal(buf_add(to, f->payload, f->len), 0);
	give_credit(h, c, which, f->len);
}

static void take_credit(struct host *h, const struct ag_frame *f)
{
	struct cmd *c = find_cmd(h, f->stream);
	struct wire_rd r;
	uint32_t n;

	wire_rd_init(&r, f->payload, f->len);
	n = wire_u32(&r);
	assert_non_null(c);
	if ((f->flags & AG_WHICH_MASK) == AG_STDIN)
		c->stdin_credit += n;
	else if ((f->flags & AG_WHICH_MASK) == AG_SCRIPT)
		c->script_credit += n;
	else
		fail_msg("credit for an output");
	assert_true(c->stdin_credit <= AG_WINDOW && c->script_credit <= AG_WINDOW);
}

static void take_fs(struct host *h, const struct ag_frame *f)
{
	struct fsrep *rep = &h->fs[h->nfs++];
	struct wire_rd r;

	assert_true(h->nfs <= AG_FS_INFLIGHT_MAX);
	wire_rd_init(&r, f->payload, f->len);
	rep->id = f->stream;
	rep->op = f->flags;
	rep->code = (int)wire_u32(&r);
	buf_init(&rep->data, AG_PAYLOAD_MAX);
	assert_int_equal(buf_add(&rep->data, r.p, wire_left(&r)), 0);
}

static void take_started(struct cmd *c, const struct ag_frame *f)
{
	struct json_object *o = parse(f), *v;

	c->started = true;
	assert_true(json_object_object_get_ex(o, "pid", &v) && json_object_get_int(v) > 1);
	if (json_object_object_get_ex(o, "script", &v))
		snprintf(c->script, sizeof(c->script), "%s", json_object_get_string(v));
	json_object_put(o);
}

static void take_frozen(struct host *h, int port, const struct ag_frame *f)
{
	struct wire_rd r;

	wire_rd_init(&r, f->payload, f->len);
	assert_true(h->freezing);
	assert_int_equal(h->frozen[port]++, 0);
	h->frozen_code = (int)wire_u32(&r);
	if (h->frozen_code)
		assert_int_equal(port, CONTROL);
	h->silent = h->frozen[CONTROL] && h->frozen[BULK];
}

static void take_frame(struct host *h, int port, const struct ag_frame *f)
{
	struct cmd *c = find_cmd(h, f->stream);

	if (h->silent)
		fail_msg("type %u on port %d while all is frozen", f->type, port);
	if (f->type == AG_HELLO)
		h->port[CONTROL].seq_in = 0;
	if (h->cloning) {
		if (port == CONTROL && f->type != AG_HELLO && f->type != AG_BYE)
			fail_msg("type %u before the answer to HELLO", f->type);
		if (port == CONTROL)
			h->cloning = false;
	}
	/* What was under way from the older epoch: see proto.h. */
	if (port == BULK ? h->stale && (f->seq != 0 || !h->hello)
			 : !h->hello && f->type != AG_HELLO && f->type != AG_STAGE && f->type != AG_BYE)
		return;
	if (h->stale && port == BULK) {
		h->stale = false;
		h->port[BULK].seq_in = 0;
	}
	assert_int_equal(f->seq, h->port[port].seq_in);
	h->port[port].seq_in++;
	if (f->type == AG_FROZEN) {
		take_frozen(h, port, f);
		return;
	}
	if (port == BULK) {
		if (f->type == AG_DATA)
			take_data(h, f);
		else if (f->type == AG_CREDIT)
			take_credit(h, f);
		else if (f->type == AG_FS_REP)
			take_fs(h, f);
		else
			fail_msg("type %u on bulk", f->type);
		return;
	}
	switch (f->type) {
	case AG_HELLO:
		json_object_put(h->hello);
		h->hello = parse(f);
		break;
	case AG_PONG:
		h->pongs++;
		break;
	case AG_SYNCED:
		h->synced++;
		break;
	case AG_SPARE_IS:
		assert_int_equal(f->len, sizeof(h->spare_is));
		memcpy(h->spare_is, f->payload, f->len);
		h->spares++;
		break;
	case AG_BYE:
		h->bye.len = 0;
		buf_add(&h->bye, f->payload, f->len);
		break;
	case AG_STAGE:
		break;
	case AG_EXEC_STARTED:
		assert_non_null(c);
		assert_null(c->exit);
		take_started(c, f);
		break;
	case AG_EXIT:
		assert_non_null(c);
		assert_null(c->exit);
		c->exit = parse(f);
		break;
	default:
		fail_msg("type %u on control", f->type);
	}
}

static void take_bytes(struct host *h, int port)
{
	static uint8_t raw[256 * 1024];
	struct port *p = &h->port[port];
	struct ag_frame f;
	size_t at = 0;
	ssize_t n;
	long len;

	n = recv(p->fd, raw, sizeof(raw), MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0)
		fail_msg("the agent closed port %d", port);
	assert_int_equal(buf_add(&p->in, raw, (size_t)n), 0);
	while ((len = ag_frame_parse(p->in.data + at, p->in.len - at, &f)) > 0) {
		take_frame(h, port, &f);
		at += (size_t)len;
	}
	assert_true(len == 0);
	buf_drop(&p->in, at);
}

void host_pump(struct host *h, int ms)
{
	struct pollfd pfd[2];

	for (int i = 0; i < 2; i++)
		pfd[i] = (struct pollfd){ h->port[i].fd, h->port[i].out.len ? POLLIN | POLLOUT : POLLIN, 0 };
	if (poll(pfd, 2, ms) <= 0)
		return;
	h->pumping = true;
	for (int i = 0; i < 2; i++) {
		if (pfd[i].revents & POLLOUT)
			flush_port(&h->port[i]);
		if (pfd[i].revents & ~POLLOUT)
			take_bytes(h, i);
	}
	h->pumping = false;
}

void host_until(struct host *h, bool (*done)(struct host *h, void *arg), void *arg)
{
	uint64_t end = now_ns() + PATIENCE_MS * 1000000ull;

	while (!done(h, arg)) {
		if (now_ns() > end)
			fail_msg("waited %d ms in vain", PATIENCE_MS);
		host_pump(h, 100);
	}
}

/* -- life --------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static void find_program(char path[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 64);
	char *slash;

	assert_true(n > 0);
	path[n] = '\0';
	for (int i = 0; i < 2; i++) { /* build/CONFIG/unit/test -> build/CONFIG */
		slash = strrchr(path, '/');
		assert_non_null(slash);
		*slash = '\0';
	}
	strcat(path, "/libexec/crucible-agent");
	if (access(path, X_OK) < 0)
		fail_msg("%s is not built", path);
}

/* A cgroup2 directory that we may write to, outside of the agent's own; "" when there is none. */
static void make_cgroup(char *path, size_t cap)
{
	const char *const places[] = { getenv("CRUCIBLE_TEST_CGROUP_DIR"), "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };
	char probe[PATH_MAX];

	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		if (!places[i] || !*places[i])
			continue;
		snprintf(probe, sizeof(probe), "%s/cgroup.controllers", places[i]); /* version 2 */
		if (access(probe, F_OK) < 0 ||
		    snprintf(path, cap, "%s/crucible-agent-test-%d", places[i], getpid()) >= (int)cap)
			continue;
		if (mkdir(path, 0755) == 0 || errno == EEXIST)
			return;
	}
	path[0] = '\0';
}

static void start_agent(struct host *h, int control, int bulk)
{
	char program[PATH_MAX], fds[32];
	char *argv[] = { program, (char *)"--test-fds", fds,	   (char *)"--root",
			 h->root, (char *)"--cgroup",	h->cgroup, NULL };

	find_program(program);
	snprintf(fds, sizeof(fds), "%d,%d", control, bulk);
	if (!h->cgroup[0])
		argv[5] = NULL;
	h->pid = fork();
	assert_true(h->pid >= 0);
	if (h->pid > 0)
		return;
	fd_set_cloexec(control, false);
	fd_set_cloexec(bulk, false);
	execv(program, argv);
	_exit(127);
}

enum host_kind { HOST_CGROUP, HOST_NO_CGROUP, HOST_FAKE_CGROUP };

/* The files that the agent writes or reads to freeze. */
static void make_fake_cgroup(struct host *h)
{
	char path[PATH_MAX];
	FILE *f;

	snprintf(h->cgroup, sizeof(h->cgroup), "%s/fake", h->root);
	assert_int_equal(mkdir(h->cgroup, 0755), 0);
	snprintf(path, sizeof(path), "%s/fake/cmds", h->root);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/fake/cmds/cgroup.freeze", h->root);
	f = fopen(path, "we");
	assert_non_null(f);
	fclose(f);
}

static struct host *host_new(enum host_kind kind)
{
	struct host *h = calloc(1, sizeof(*h));
	const char *tmp = getenv("TMPDIR");
	int c[2], b[2];

	assert_non_null(h);
	assert_true(snprintf(h->root, sizeof(h->root), "%s/agent-test-XXXXXX", tmp ? tmp : "/tmp") <
		    (int)sizeof(h->root));
	assert_non_null(mkdtemp(h->root));
	if (kind == HOST_CGROUP)
		make_cgroup(h->cgroup, sizeof(h->cgroup));
	else if (kind == HOST_FAKE_CGROUP)
		make_fake_cgroup(h);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, c), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, b), 0);
	h->port[CONTROL].fd = c[0];
	h->port[BULK].fd = b[0];
	for (int i = 0; i < 2; i++) {
		buf_init(&h->port[i].in, 1 << 20);
		buf_init(&h->port[i].out, 16 << 20);
	}
	buf_init(&h->bye, AG_PAYLOAD_MAX);
	start_agent(h, c[1], b[1]);
	if (kind == HOST_FAKE_CGROUP)
		h->cgroup[0] = '\0'; /* goes with the root */
	close(c[1]);
	close(b[1]);
	h->next_stream = 1;
	return h;
}

static bool has_hello(struct host *h, void *arg)
{
	(void)arg;
	return h->hello != NULL;
}

void host_hello(struct host *h, uint64_t epoch)
{
	char json[128];
	int n = snprintf(json, sizeof(json), "{\"version_min\":4,\"version_max\":4,\"epoch\":%llu,\"wall_ns\":%llu}",
			 (unsigned long long)epoch, (unsigned long long)wall_ns());

	json_object_put(h->hello);
	h->hello = NULL;
	h->stale = true;
	h->silent = h->freezing = false;
	h->port[CONTROL].seq_out = h->port[BULK].seq_out = 0;
	host_send(h, CONTROL, AG_HELLO, 0, 0, json, (size_t)n);
	host_send(h, BULK, AG_HELLO, 0, 0, json, (size_t)n);
	host_until(h, has_hello, NULL);
}

/* -- snapshots ---------------------------------------------------------------------- */

static bool is_answered(struct host *h, void *arg)
{
	(void)arg;
	return h->silent || (h->frozen[CONTROL] && h->frozen_code);
}

int host_freeze(struct host *h, uint32_t ms)
{
	uint8_t le[4] = { (uint8_t)ms, (uint8_t)(ms >> 8), (uint8_t)(ms >> 16), (uint8_t)(ms >> 24) };

	host_send(h, CONTROL, AG_FREEZE, 0, 0, le, sizeof(le));
	h->frozen[CONTROL] = h->frozen[BULK] = 0;
	h->freezing = true;
	host_until(h, is_answered, NULL);
	if (h->frozen_code)
		h->freezing = false;
	return h->frozen_code;
}

void host_thaw(struct host *h)
{
	h->silent = h->freezing = false;
	host_send(h, CONTROL, AG_THAW, 0, 0, NULL, 0);
	for (size_t i = 0; i < STREAMS_MAX; i++)
		for (int k = 0; k < 2 && h->cmd[i].stream; k++)
			give_credit(h, &h->cmd[i], k ? AG_STDERR : AG_STDOUT, 0);
}

void host_clone_send(struct host *h, uint64_t epoch, const char *members)
{
	char json[1024];
	int n = snprintf(json, sizeof(json), "{\"version_min\":4,\"version_max\":4,\"epoch\":%llu,\"wall_ns\":%llu,%s}",
			 (unsigned long long)epoch, (unsigned long long)wall_ns(), members);

	json_object_put(h->hello);
	h->hello = NULL;
	h->silent = h->freezing = false;
	h->stale = false; /* it was silent: nothing of the older epoch is under way */
	h->cloning = true;
	h->port[BULK].seq_in = 0;
	h->port[CONTROL].seq_out = h->port[BULK].seq_out = 0;
	/* The other way round than host_hello(): neither order may matter. */
	host_send(h, BULK, AG_HELLO, 0, 0, json, (size_t)n);
	host_pump(h, 20);
	host_send(h, CONTROL, AG_HELLO, 0, 0, json, (size_t)n);
}

void host_clone_wait(struct host *h)
{
	for (size_t i = 0; i < STREAMS_MAX; i++) {
		struct cmd *c = &h->cmd[i];

		if (!c->stream || c->exit)
			continue;
		c->out.len = c->err.len = 0;
		c->unreturned[0] = c->unreturned[1] = 0;
	}
	host_until(h, has_hello, NULL);
}

void host_clone(struct host *h, uint64_t epoch, const char *machine_id)
{
	char members[512];

	snprintf(members, sizeof(members),
		 "\"hostname\":\"forked\",\"entropy\":\"%064d\","
		 "\"clone\":{\"fork\":\"" CLONE_FORK "\",\"parent\":\"snap-1\",\"machine_id\":\"%s\"}",
		 7, machine_id);
	host_clone_send(h, epoch, members);
	host_clone_wait(h);
}

int agent_setup_silent(void **state)
{
	*state = host_new(HOST_CGROUP);
	return 0;
}

int agent_setup(void **state)
{
	agent_setup_silent(state);
	host_hello(*state, 1);
	return 0;
}

void fake_frozen(struct host *h, bool frozen)
{
	char path[PATH_MAX];
	FILE *f;

	snprintf(path, sizeof(path), "%s/fake/cmds/cgroup.events", h->root);
	f = fopen(path, "we");
	assert_non_null(f);
	fprintf(f, "populated 1\nfrozen %d\n", frozen);
	fclose(f);
}

int agent_setup_fake_cgroup(void **state)
{
	struct host *h = host_new(HOST_FAKE_CGROUP);

	*state = h;
	host_hello(h, 1);
	return 0;
}

int agent_setup_without_cgroup(void **state)
{
	*state = host_new(HOST_NO_CGROUP);
	host_hello(*state, 1);
	return 0;
}

static void cmd_free(struct cmd *c)
{
	buf_fini(&c->out);
	buf_fini(&c->err);
	json_object_put(c->exit);
	memset(c, 0, sizeof(*c));
}

void host_forget(struct host *h)
{
	for (size_t i = 0; i < STREAMS_MAX; i++)
		cmd_free(&h->cmd[i]);
}

/* Kill what a failed test left, then remove the cgroups; processes take a moment to go. */
static int remove_cgroup(const char *path)
{
	char sub[PATH_MAX], kill_file[PATH_MAX];
	uint64_t end = now_ns() + PATIENCE_MS * 1000000ull;
	int fd;

	snprintf(sub, sizeof(sub), "%s/cmds", path);
	snprintf(kill_file, sizeof(kill_file), "%s/cgroup.kill", path);
	do {
		DIR *d = opendir(sub);

		fd = open(kill_file, O_WRONLY | O_CLOEXEC);
		if (fd >= 0 && write(fd, "1", 1) < 0)
			print_message("%s: %s\n", kill_file, strerror(errno));
		fd_close(&fd);
		for (struct dirent *de; d && (de = readdir(d));)
			if (de->d_type == DT_DIR && de->d_name[0] != '.')
				unlinkat(dirfd(d), de->d_name, AT_REMOVEDIR);
		if (d)
			closedir(d);
		rmdir(sub);
		if (rmdir(path) == 0)
			return 0;
		poll(NULL, 0, 5);
	} while (now_ns() < end);
	return -errno;
}

int agent_teardown(void **state)
{
	struct host *h = *state;
	int status = 0, r;

	shutdown(h->port[CONTROL].fd, SHUT_RDWR);
	shutdown(h->port[BULK].fd, SHUT_RDWR);
	while (waitpid(h->pid, &status, 0) < 0 && errno == EINTR)
		;
	for (int i = 0; i < 2; i++) {
		close(h->port[i].fd);
		buf_fini(&h->port[i].in);
		buf_fini(&h->port[i].out);
	}
	host_forget(h);
	for (size_t i = 0; i < h->nfs; i++)
		buf_fini(&h->fs[i].data);
	buf_fini(&h->bye);
	json_object_put(h->hello);
	r = h->cgroup[0] ? remove_cgroup(h->cgroup) : 0;
	nftw(h->root, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	free(h);
	if (r < 0)
		print_message("cgroup not removed: %s\n", strerror(-r));
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		print_message("the agent ended with wait status %#x\n", status);
	return r < 0 || status != 0 ? -1 : 0;
}

/* -- commands ----------------------------------------------------------------------- */

static void send_exec(struct host *h, uint32_t stream, const char *json)
{
	size_t len = strlen(json);

	for (; len > AG_PAYLOAD_MAX; json += AG_PAYLOAD_MAX, len -= AG_PAYLOAD_MAX)
		host_send(h, CONTROL, AG_EXEC, AG_MORE, stream, json, AG_PAYLOAD_MAX);
	host_send(h, CONTROL, AG_EXEC, 0, stream, json, len);
}

static struct cmd *cmd_new(struct host *h)
{
	struct cmd *c = NULL;

	/* A free place, or that of one that has ended longest ago. */
	for (size_t i = 0; i < STREAMS_MAX; i++) {
		struct cmd *at = &h->cmd[i];

		if (!c || (c->stream && (!at->stream || (at->exit && (!c->exit || at->stream < c->stream)))))
			c = at;
	}
	assert_true(!c->stream || c->exit);
	cmd_free(c);
	c->stream = h->next_stream++;
	c->stdin_credit = c->script_credit = AG_WINDOW;
	buf_init(&c->out, 64 << 20);
	buf_init(&c->err, 64 << 20);
	return c;
}

struct cmd *cmd_open(struct host *h, const char *fmt, ...)
{
	struct cmd *c = cmd_new(h);
	char *json;
	va_list ap;

	va_start(ap, fmt);
	assert_true(vasprintf(&json, fmt, ap) >= 0);
	va_end(ap);
	send_exec(h, c->stream, json);
	free(json);
	return c;
}

struct cmd *cmd_script(struct host *h, const char *members, const char *script)
{
	struct cmd *c = cmd_open(h, "{\"script\":true%s%s}", *members ? "," : "", members);

	cmd_write(h, c, AG_SCRIPT, script, strlen(script), true);
	return c;
}

void cmd_write(struct host *h, struct cmd *c, enum ag_which which, const void *data, size_t len, bool eof)
{
	uint64_t *credit = which == AG_STDIN ? &c->stdin_credit : &c->script_credit;
	uint64_t end = now_ns() + PATIENCE_MS * 1000000ull;
	const uint8_t *p = data;

	while (len > 0 && !c->exit) {
		size_t n = len < AG_PAYLOAD_MAX ? len : AG_PAYLOAD_MAX;

		if (n > *credit)
			n = *credit;
		if (n == 0) {
			assert_true(now_ns() < end);
			host_pump(h, 100);
			continue;
		}
		*credit -= n; /* before: credit can come while it is sent */
		host_send(h, BULK, AG_DATA, (uint8_t)which, c->stream, p, n);
		p += n;
		len -= n;
	}
	if (eof && !c->exit)
		host_send(h, BULK, AG_DATA, (uint8_t)which | AG_EOF, c->stream, NULL, 0);
}

static bool is_over(struct host *h, void *arg)
{
	struct cmd *c = arg;

	(void)h;
	return c->exit && (uint64_t)cmd_int(c, "stdout_bytes") <= c->out.len &&
	       (uint64_t)cmd_int(c, "stderr_bytes") <= c->err.len;
}

void cmd_wait(struct host *h, struct cmd *c)
{
	host_until(h, is_over, c);
	assert_int_equal(cmd_int(c, "stdout_bytes"), c->out.len);
	assert_int_equal(cmd_int(c, "stderr_bytes"), c->err.len);
}

struct cmd *sh(struct host *h, const char *script)
{
	struct cmd *c = cmd_script(h, "", script);

	cmd_wait(h, c);
	return c;
}

static struct json_object *member(const struct cmd *c, const char *key)
{
	struct json_object *v;

	assert_non_null(c->exit);
	if (!json_object_object_get_ex(c->exit, key, &v))
		fail_msg("no %s in EXIT", key);
	return v;
}

int64_t cmd_int(const struct cmd *c, const char *key)
{
	return json_object_get_int64(member(c, key));
}

bool cmd_bool(const struct cmd *c, const char *key)
{
	return json_object_get_boolean(member(c, key));
}

const char *cmd_str(const struct cmd *c, const char *key)
{
	return json_object_get_string(member(c, key));
}

const char *cmd_out(struct cmd *c)
{
	return buf_str(&c->out);
}

const char *cmd_err(struct cmd *c)
{
	return buf_str(&c->err);
}
