/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_domain.h"

#include <assert.h>
#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

#define CMD_MAX (8u * 1024 * 1024)
#define ENV_MAX (64u * 1024)

extern char **environ;

struct execution {
	struct execution *prev, *next;
	struct sandbox *s;
	uint64_t n, changed_ns;
	enum exec_state state;
	char slot[CFS_NAME_MAX + 1];
	char *cmd;
	size_t cmd_len;
	char error[64];
	int exit_code;
	int out[2]; /* memfds */
	int pidfd;
	pid_t pid;
	loop_id pid_id;
};

struct slot {
	struct slot *next;
	char name[CFS_NAME_MAX + 1];
	uint64_t latest;
	size_t room;
	struct buf in;
};

struct log {
	struct log *next;
	char uuid[40], name[CFS_NAME_MAX + 1];
	uid_t owner;
	uint64_t changed_ns;
	int fd;
};

struct sandbox {
	struct registry *r;
	struct sandbox *prev, *next;
	unsigned refs;
	bool gone, queue_full;
	char name[CFS_NAME_MAX + 1], uuid[40], error[320];
	struct cfs_who owner;
	enum sandbox_status status;
	uint64_t created_ns, changed_ns, last_n, latest;
	struct waitq waitq;
	char from[80];
	unsigned num[ATTR_COUNT];
	struct buf env, ctl, std_in;
	unsigned env_stores, leases;
	struct execution *first, *last;
	struct slot *slots;
	struct log *log;
};

struct registry {
	struct loop *loop;
	struct waitq journal_waitq;
	struct sandbox *first, *last;
	struct log *logs;
	size_t count;
	unsigned serial, uploads;
	unsigned num[ATTR_COUNT];
	bool at_once, for_real;
	int events_all; /* memfd */
	struct { uid_t uid; int fd; } events_of[8];
	size_t nevents_of;
};

static void *need(void *p)
{
	if (!p)
		abort();
	return p;
}

/* -- names -------------------------------------------------------------------------------------- */

int cfs_name_check(const char *name)
{
	size_t n = strlen(name);

	if (!n || !isalnum((unsigned char)name[0]))
		return -EINVAL;
	for (const char *p = name; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("._-", *p))
			return -EINVAL;
	return n > CFS_NAME_MAX ? -ENAMETOOLONG : 0;
}

const char *sandbox_status_name(enum sandbox_status s)
{
	static const char *const words[] = {"configured", "starting", "ready", "running", "paused", "stopped", "failed"};

	return words[s];
}

static const char *const attr_names[] = {"from", "env", "vcpus", "memory_mib", "disk_mib", "cpu_percent", "io_mbps", "timeout_s",
					 "exec_timeout_s", "output_mib", "spool_mib", "pids"};
static_assert(ARRAY_LEN(attr_names) == ATTR_COUNT, "a name for each");

const char *sandbox_attr_name(enum sandbox_attr a)
{
	return attr_names[a];
}

/* -- registry ------------------------------------------------------------------------------------- */

struct registry *fake_registry_new(struct loop *l)
{
	struct registry *r = need(calloc(1, sizeof(*r)));

	r->loop = l;
	waitq_init(&r->journal_waitq, l);
	r->events_all = memfd_create("events", MFD_CLOEXEC);
	for (unsigned i = 0; i < ATTR_COUNT; i++)
		r->num[i] = i;
	return r;
}

void fake_end_at_once(struct registry *r, bool on)
{
	r->at_once = on;
}

void fake_run_for_real(struct registry *r)
{
	r->for_real = true;
}

struct sandbox *registry_find(struct registry *r, const char *name)
{
	struct sandbox *s = r->first;

	while (s && strcmp(s->name, name))
		s = s->next;
	return s;
}

struct sandbox *registry_next(struct registry *r, struct sandbox *after)
{
	return after ? after->next : r->first;
}

size_t registry_count(struct registry *r)
{
	return r->count;
}

static void changed(struct sandbox *s)
{
	s->changed_ns = wall_ns();
	waitq_wake(&s->waitq);
}

int registry_create(struct registry *r, const char *name, const struct cfs_who *who, struct sandbox **ret, struct err *e)
{
	struct sandbox *s;
	int code = cfs_name_check(name);

	if (!code && registry_find(r, name))
		code = -EEXIST;
	if (!code && r->count >= 4096)
		code = -EDQUOT;
	if (code < 0)
		return err_set(e, code, "run/%s: %s", name, strerror(-code));
	s = need(calloc(1, sizeof(*s)));
	s->r = r;
	s->refs = 1;
	snprintf(s->name, sizeof(s->name), "%s", name);
	snprintf(s->uuid, sizeof(s->uuid), "00000000-0000-4000-8000-%012u", ++r->serial);
	s->owner = *who;
	s->created_ns = s->changed_ns = wall_ns();
	waitq_init(&s->waitq, r->loop);
	snprintf(s->from, sizeof(s->from), "profile:base");
	memcpy(s->num, r->num, sizeof(s->num));
	buf_init(&s->env, ENV_MAX);
	buf_init(&s->ctl, 1 << 20);
	buf_init(&s->std_in, 64 << 20);
	s->log = need(calloc(1, sizeof(*s->log)));
	snprintf(s->log->uuid, sizeof(s->log->uuid), "%s", s->uuid);
	snprintf(s->log->name, sizeof(s->log->name), "%s", name);
	s->log->owner = who->uid;
	s->log->changed_ns = s->created_ns;
	s->log->fd = memfd_create("log", MFD_CLOEXEC);
	dprintf(s->log->fd, "{\"event\":\"created\"}\n");
	s->log->next = r->logs;
	r->logs = s->log;
	s->prev = r->last;
	*(s->prev ? &s->prev->next : &r->first) = s;
	r->last = s;
	r->count++;
	*ret = s;
	return 0;
}

struct sandbox *fake_sandbox(struct registry *r, const char *name, uid_t uid)
{
	struct cfs_who who = {uid, uid};
	struct sandbox *s = NULL;

	if (registry_create(r, name, &who, &s, NULL) < 0)
		abort();
	s->status = SBX_READY;
	return s;
}

static void end_exec(struct execution *x, int exit_code)
{
	if (x->state == EXEC_DONE)
		return;
	x->state = EXEC_DONE;
	x->exit_code = exit_code;
	x->changed_ns = wall_ns();
	changed(x->s);
}

void registry_destroy(struct registry *r, struct sandbox *s, const struct cfs_who *who, const char *why)
{
	(void)who, (void)why;
	if (s->gone)
		return;
	*(s->prev ? &s->prev->next : &r->first) = s->next;
	*(s->next ? &s->next->prev : &r->last) = s->prev;
	r->count--;
	s->gone = true;
	for (struct execution *x = s->first; x; x = x->next)
		if (x->pid > 0)
			kill(-x->pid, SIGKILL);
	waitq_wake(&s->waitq);
	sandbox_unref(s);
}

int registry_rename(struct registry *r, struct sandbox *s, const char *to, const struct cfs_who *who, struct err *e)
{
	int code = cfs_name_check(to);

	(void)who;
	if (!code && registry_find(r, to))
		code = -EEXIST;
	if (code < 0)
		return err_set(e, code, "run/%s", to);
	snprintf(s->name, sizeof(s->name), "%s", to);
	changed(s);
	return 0;
}

struct registry *fake_registry_free(struct registry *r)
{
	static const struct cfs_who root;

	if (!r)
		return NULL;
	while (r->first)
		registry_destroy(r, r->first, &root, "end");
	while (r->logs) {
		struct log *l = r->logs;

		r->logs = l->next;
		close(l->fd);
		free(l);
	}
	close(r->events_all);
	for (size_t i = 0; i < r->nevents_of; i++)
		close(r->events_of[i].fd);
	waitq_fini(&r->journal_waitq);
	free(r);
	return NULL;
}

/* -- one sandbox -------------------------------------------------------------------------------------- */

struct sandbox *sandbox_ref(struct sandbox *s)
{
	s->refs++;
	return s;
}

static void free_exec(struct execution *x)
{
	loop_del(x->s->r->loop, &x->pid_id);
	fd_close(&x->pidfd);
	fd_close(&x->out[0]);
	fd_close(&x->out[1]);
	free(x->cmd);
	free(x);
}

struct sandbox *sandbox_unref(struct sandbox *s)
{
	if (!s || --s->refs)
		return NULL;
	assert(s->gone);
	while (s->first) {
		struct execution *x = s->first;

		s->first = x->next;
		free_exec(x);
	}
	while (s->slots) {
		struct slot *t = s->slots;

		s->slots = t->next;
		buf_fini(&t->in);
		free(t);
	}
	buf_fini(&s->env);
	buf_fini(&s->ctl);
	buf_fini(&s->std_in);
	waitq_fini(&s->waitq);
	free(s);
	return NULL;
}

bool sandbox_gone(const struct sandbox *s) { return s->gone; }
const char *sandbox_name(const struct sandbox *s) { return s->name; }
const char *sandbox_uuid(const struct sandbox *s) { return s->uuid; }
struct cfs_who sandbox_owner(const struct sandbox *s) { return s->owner; }
enum sandbox_status sandbox_status(const struct sandbox *s) { return s->status; }
const char *sandbox_error(const struct sandbox *s) { return s->error; }
uint64_t sandbox_created_ns(const struct sandbox *s) { return s->created_ns; }
uint64_t sandbox_changed_ns(const struct sandbox *s) { return s->changed_ns; }
struct waitq *sandbox_waitq(struct sandbox *s) { return &s->waitq; }
int sandbox_dirfd(const struct sandbox *s) { (void)s; return -1; }
unsigned fake_refs(struct sandbox *s) { return s->refs; }
unsigned fake_leases(struct sandbox *s) { return s->leases; }
unsigned fake_env_stores(struct sandbox *s) { return s->env_stores; }
unsigned fake_uploads(struct registry *r) { return r->uploads; }
const char *fake_ctl(struct sandbox *s) { return need(buf_str(&s->ctl)); }
const char *fake_stdin(struct sandbox *s) { return need(buf_str(&s->std_in)); }
void fake_queue_full(struct sandbox *s, bool full) { s->queue_full = full; }

void fake_status(struct sandbox *s, enum sandbox_status st)
{
	s->status = st;
	changed(s);
}

void sandbox_fail(struct sandbox *s, const struct cfs_who *who, const struct err *e)
{
	(void)who;
	snprintf(s->error, sizeof(s->error), "%s", e->msg);
	changed(s);
}

int sandbox_info_json(struct sandbox *s, struct buf *out)
{
	return buf_addf(out, "{\"id\":\"%s\",\"uuid\":\"%s\"}\n", s->name, s->uuid);
}

int sandbox_usage_json(struct sandbox *s, struct buf *out)
{
	(void)s;
	return buf_adds(out, "{\"cpu_ms\":0}\n");
}

static int show(const struct sandbox *s, const unsigned *num, enum sandbox_attr a, struct buf *out)
{
	if (a == ATTR_FROM)
		return buf_addf(out, "%s\n", s ? s->from : "profile:base");
	if (a == ATTR_ENV)
		return s && s->env.len ? buf_add(out, s->env.data, s->env.len) : 0;
	return buf_addf(out, "%u\n", num[a]);
}

int sandbox_attr_show(struct sandbox *s, enum sandbox_attr a, struct buf *out)
{
	return show(s, s->num, a, out);
}

static int store_env(struct sandbox *s, const char *text, size_t len, struct err *e)
{
	for (const char *p = text; p < text + len;) {
		const char *nl = memchr(p, '\n', (size_t)(text + len - p));

		if (!nl || !memchr(p, '=', (size_t)(nl - p)) || isdigit((unsigned char)*p))
			return err_set(e, -EINVAL, "env: \"%.20s\" is not KEY=VALUE", p);
		p = nl + 1;
	}
	buf_reset(&s->env);
	s->env_stores++;
	return buf_add(&s->env, text, len);
}

static int store_number(unsigned *num, enum sandbox_attr a, const char *text, struct err *e)
{
	char *end;
	unsigned long v = strtoul(text, &end, 10);

	if (!isdigit((unsigned char)text[0]) || *end || v > 1000000)
		return err_set(e, -EINVAL, "%s: \"%.40s\" is not a number from 0 to 1000000", attr_names[a], text);
	num[a] = (unsigned)v;
	return 0;
}

int sandbox_attr_store(struct sandbox *s, enum sandbox_attr a, const char *text, size_t len, const struct cfs_who *who, struct err *e)
{
	struct err own = {0};
	int r;

	e = e ? e : &own;
	if (a == ATTR_ENV)
		r = store_env(s, text, len, e);
	else if (a == ATTR_FROM)
		r = snprintf(s->from, sizeof(s->from), "%s", text) < 0;
	else
		r = store_number(s->num, a, text, e);
	if (r < 0)
		sandbox_fail(s, who, e);
	else
		changed(s);
	return r;
}

int registry_default_show(struct registry *r, enum sandbox_attr a, struct buf *out)
{
	return show(NULL, r->num, a, out);
}

int registry_default_store(struct registry *r, enum sandbox_attr a, const char *text, size_t len, const struct cfs_who *who, struct err *e)
{
	(void)len;
	if (who->uid)
		return err_set(e, -EPERM, "defaults/%s: only root may write", attr_names[a]);
	return store_number(r->num, a, text, e);
}

const char sandbox_ctl_verbs[] = "start\nstop\nkill\nkill-inherited\nsignal NAME\npause\nresume\nextend SECONDS\n";

static int ctl(struct sandbox *s, struct buf *log, const char *line, const char *const *words, const struct cfs_who *who, struct err *e)
{
	for (; *words; words++) {
		size_t n = strlen(*words);

		if (!strncmp(line, *words, n) && (!line[n] || line[n] == ' ')) {
			buf_addf(log, "%s|", line);
			changed(s);
			return 0;
		}
	}
	err_set(e, -EINVAL, "sandbox %s: ctl: \"%.40s\" is no verb", s->name, line);
	sandbox_fail(s, who, e);
	return -EINVAL;
}

int sandbox_ctl(struct sandbox *s, const char *line, const struct cfs_who *who, struct err *e)
{
	static const char *const words[] = {"start", "stop", "kill", "signal", "pause", "resume", "extend", NULL};

	for (struct execution *x = s->first; x && !strcmp(line, "kill"); x = x->next)
		if (x->pid > 0)
			kill(-x->pid, SIGKILL);
	return ctl(s, &s->ctl, line, words, who, e);
}

/* -- uploads -------------------------------------------------------------------------------------------- */

struct upload {
	struct sandbox *s;
	enum upload_kind kind;
	char slot[CFS_NAME_MAX + 1];
	struct buf data;
	bool failed;
};

static struct slot *slot_find(struct sandbox *s, const char *name)
{
	struct slot *t = s->slots;

	while (t && strcmp(t->name, name))
		t = t->next;
	return t;
}

int upload_new(struct sandbox *s, enum upload_kind kind, const char *slot, const struct cfs_who *who, struct upload **ret, struct err *e)
{
	struct upload *u;

	(void)who;
	if (slot && !slot_find(s, slot))
		return err_set(e, -ENOENT, "no slot %s", slot);
	u = need(calloc(1, sizeof(*u)));
	u->s = sandbox_ref(s);
	u->kind = kind;
	snprintf(u->slot, sizeof(u->slot), "%s", slot ? slot : "");
	buf_init(&u->data, 64u << 20);
	s->r->uploads++;
	*ret = u;
	return 0;
}

int upload_write(struct upload *u, const void *data, size_t len, struct err *e)
{
	static const struct cfs_who root;
	int r = 0;

	if (u->kind == UPLOAD_CMD && memchr(data, 0, len))
		r = err_set(e, -EINVAL, "cmd: a NUL byte");
	else if (u->kind == UPLOAD_CMD && u->data.len + len > CMD_MAX)
		r = err_set(e, -EFBIG, "cmd: more than 8 MiB");
	else if (u->s->queue_full)
		r = err_set(e, -EBUSY, "cmd: the queue is full");
	else
		r = buf_add(&u->data, data, len);
	if (r < 0) {
		u->failed = true;
		sandbox_fail(u->s, &root, e);
	}
	return r;
}

uint64_t upload_size(const struct upload *u)
{
	return u->data.len;
}

void upload_abort(struct upload *u)
{
	if (!u)
		return;
	u->s->r->uploads--;
	buf_fini(&u->data);
	sandbox_unref(u->s);
	free(u);
}

static void on_child(void *arg, uint32_t events)
{
	struct execution *x = arg;
	siginfo_t si = {0};

	(void)events;
	if (waitid(P_PIDFD, (id_t)x->pidfd, &si, WEXITED | WNOHANG) < 0 || si.si_pid == 0)
		return;
	loop_del(x->s->r->loop, &x->pid_id);
	fd_close(&x->pidfd);
	x->pid = 0;
	end_exec(x, si.si_code == CLD_EXITED ? si.si_status : -1);
}

static void spawn(struct execution *x)
{
	char *argv[] = {(char *)"/bin/sh", (char *)"/proc/self/fd/9", NULL};
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t at;
	AUTO_FD script = memfd_create("script", MFD_CLOEXEC);

	if (fd_write_all(script, x->cmd, x->cmd_len) < 0)
		abort();
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, script, 9);
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&fa, x->out[0], 1);
	posix_spawn_file_actions_adddup2(&fa, x->out[1], 2);
	posix_spawnattr_init(&at);
	posix_spawnattr_setflags(&at, POSIX_SPAWN_SETPGROUP);
	if (posix_spawn(&x->pid, "/bin/sh", &fa, &at, argv, environ) != 0)
		abort();
	posix_spawn_file_actions_destroy(&fa);
	posix_spawnattr_destroy(&at);
	x->pidfd = (int)syscall(SYS_pidfd_open, x->pid, 0);
	if (loop_add(x->s->r->loop, x->pidfd, EPOLLIN, on_child, x, &x->pid_id) < 0)
		abort();
	x->state = EXEC_RUNNING;
}

static void accept_cmd(struct upload *u)
{
	struct sandbox *s = u->s;
	struct execution *x = need(calloc(1, sizeof(*x)));

	x->s = s;
	x->n = ++s->last_n;
	x->changed_ns = wall_ns();
	x->pidfd = -1;
	snprintf(x->slot, sizeof(x->slot), "%s", u->slot);
	x->cmd = need(strndup((char *)u->data.data, u->data.len));
	x->cmd_len = u->data.len;
	for (int i = 0; i < 2; i++)
		x->out[i] = memfd_create("out", MFD_CLOEXEC);
	x->prev = s->last;
	*(x->prev ? &x->prev->next : &s->first) = x;
	s->last = x;
	if (u->slot[0] && slot_find(s, u->slot))
		slot_find(s, u->slot)->latest = x->n;
	else
		s->latest = x->n;
	buf_reset(&s->std_in);
	if (x->cmd[0] == '{' && !strchr(x->cmd, '}')) {
		snprintf(x->error, sizeof(x->error), "bad JSON");
		end_exec(x, -1);
	} else if (s->r->for_real) {
		spawn(x);
	} else if (s->r->at_once) {
		end_exec(x, 0);
	}
	changed(s);
}

void upload_commit(struct upload *u)
{
	if (u->data.len && !u->failed && !u->s->gone) {
		if (u->kind == UPLOAD_STDIN) {
			buf_reset(&u->s->std_in);
			buf_add(&u->s->std_in, u->data.data, u->data.len);
		} else {
			accept_cmd(u);
		}
	}
	upload_abort(u);
}

/* -- commands ---------------------------------------------------------------------------------------------- */

uint64_t sandbox_latest_exec(const struct sandbox *s) { return s->latest; }
uint64_t exec_number(const struct execution *x) { return x->n; }
enum exec_state exec_state(const struct execution *x) { return x->state; }
uint64_t exec_changed_ns(const struct execution *x) { return x->changed_ns; }

const char *exec_status_name(const struct execution *x)
{
	static const char *const words[] = {"queued", "running", "done"};

	return words[x->state];
}

struct execution *sandbox_exec(struct sandbox *s, uint64_t n)
{
	struct execution *x = s->last;

	while (x && x->n != n)
		x = x->prev;
	return x;
}

struct execution *sandbox_exec_next(struct sandbox *s, struct execution *after)
{
	return after ? after->next : s->first;
}

int sandbox_cmd_text(struct sandbox *s, uint64_t n, struct buf *out)
{
	struct execution *x = sandbox_exec(s, n);

	return x ? buf_add(out, x->cmd, x->cmd_len) : -ENOENT;
}

int exec_record(struct sandbox *s, struct execution *x, struct buf *out)
{
	if (x->state != EXEC_DONE)
		return -ENOENT;
	return buf_addf(out, "{\"exec\":%" PRIu64 ",\"sandbox\":\"%s\",\"exit_code\":%d,\"error\":\"%s\"}\n", x->n, s->name, x->exit_code,
			x->error);
}

static int reopen(int fd, int *ret_fd)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	*ret_fd = open(path, O_RDONLY | O_CLOEXEC);
	return *ret_fd < 0 ? -errno : 0;
}

int exec_open_output(struct sandbox *s, struct execution *x, int which, int *ret_fd)
{
	(void)s;
	return reopen(x->out[which - 1], ret_fd);
}

static uint64_t fd_size(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
}

uint64_t exec_output_bytes(struct sandbox *s, struct execution *x, int which)
{
	(void)s;
	return fd_size(x->out[which - 1]);
}

void fake_print(struct sandbox *s, uint64_t n, int which, const char *text)
{
	struct execution *x = need(sandbox_exec(s, n));

	if (fd_write_all(x->out[which - 1], text, strlen(text)) < 0)
		abort();
	waitq_wake(&s->waitq);
}

void fake_end(struct sandbox *s, uint64_t n, int exit_code)
{
	end_exec(need(sandbox_exec(s, n)), exit_code);
}

void fake_forget(struct sandbox *s, uint64_t n)
{
	struct execution *x = need(sandbox_exec(s, n));

	*(x->prev ? &x->prev->next : &s->first) = x->next;
	*(x->next ? &x->next->prev : &s->last) = x->prev;
	free_exec(x);
	waitq_wake(&s->waitq);
}

/* -- slots -------------------------------------------------------------------------------------------------- */

int slot_create(struct sandbox *s, const char *name, const struct cfs_who *who, struct err *e)
{
	int r = cfs_name_check(name);
	struct slot *t;

	if (!r && !name[strspn(name, "0123456789")])
		r = -EINVAL;
	if (!r && slot_find(s, name))
		r = -EEXIST;
	if (r < 0) {
		err_set(e, r, "sandbox %s: exec/%s: not a slot's name", s->name, name);
		sandbox_fail(s, who, e);
		return r;
	}
	t = need(calloc(1, sizeof(*t)));
	snprintf(t->name, sizeof(t->name), "%s", name);
	buf_init(&t->in, 16u << 20);
	t->next = s->slots;
	s->slots = t;
	changed(s);
	return 0;
}

int slot_remove(struct sandbox *s, const char *name, const struct cfs_who *who, struct err *e)
{
	struct slot **at = &s->slots, *t;

	(void)who;
	while (*at && strcmp((*at)->name, name))
		at = &(*at)->next;
	t = *at;
	if (!t)
		return err_set(e, -ENOENT, "no exec/%s", name);
	*at = t->next;
	buf_fini(&t->in);
	free(t);
	changed(s);
	return 0;
}

const char *slot_next(struct sandbox *s, const char *after)
{
	struct slot *t = after ? slot_find(s, after) : NULL;

	t = after ? (t ? t->next : NULL) : s->slots;
	return t ? t->name : NULL;
}

bool slot_exists(struct sandbox *s, const char *name)
{
	return slot_find(s, name);
}

uint64_t slot_latest_exec(struct sandbox *s, const char *name)
{
	struct slot *t = slot_find(s, name);

	return t ? t->latest : 0;
}

int slot_ctl(struct sandbox *s, const char *name, const char *line, const struct cfs_who *who, struct err *e)
{
	static const char *const words[] = {"eof", "resize", "signal", "kill", NULL};

	if (!slot_find(s, name))
		return err_set(e, -ENOENT, "no exec/%s", name);
	return ctl(s, &s->ctl, line, words, who, e);
}

int slot_stdin(struct sandbox *s, const char *name, const void *data, size_t len, size_t *ret_taken, struct err *e)
{
	struct slot *t = slot_find(s, name);
	struct execution *x = t ? sandbox_exec(s, t->latest) : NULL;
	size_t n;

	if (!t)
		return err_set(e, -ENOENT, "no exec/%s", name);
	if (x && x->state == EXEC_DONE)
		return err_set(e, -EPIPE, "exec/%s: its command has ended", name);
	n = len < t->room ? len : t->room;
	if (!n)
		return len ? -EAGAIN : 0;
	t->room -= n;
	*ret_taken = n;
	return buf_add(&t->in, data, n);
}

size_t slot_stdin_room(struct sandbox *s, const char *name)
{
	struct slot *t = slot_find(s, name);
	struct execution *x = t ? sandbox_exec(s, t->latest) : NULL;

	return !t || (x && x->state == EXEC_DONE) ? SIZE_MAX : t->room;
}

void fake_room(struct sandbox *s, const char *slot, size_t bytes)
{
	((struct slot *)need(slot_find(s, slot)))->room += bytes;
	waitq_wake(&s->waitq);
}

const char *fake_livein(struct sandbox *s, const char *slot, size_t *ret_len)
{
	struct slot *t = need(slot_find(s, slot));

	*ret_len = t->in.len;
	return need(buf_str(&t->in));
}

/* -- lease, guest --------------------------------------------------------------------------------------------- */

void sandbox_lease_open(struct sandbox *s)
{
	s->leases++;
}

void sandbox_lease_close(struct sandbox *s)
{
	if (--s->leases == 0 && !s->gone)
		registry_destroy(s->r, s, &s->owner, "lease");
}

int sandbox_fs(struct sandbox *s, uint8_t op, const void *payload, size_t len, const struct cfs_who *who, fs_done_fn *fn, void *arg,
	       struct fs_call **ret)
{
	(void)s, (void)op, (void)payload, (void)len, (void)who, (void)fn, (void)arg, (void)ret;
	return -ENOTCONN; /* no guest here: fake_guest.c has one */
}

void fs_call_cancel(struct fs_call *c)
{
	(void)c;
}

uint64_t sandbox_fs_epoch(const struct sandbox *s)
{
	(void)s;
	return 1;
}

/* -- journals, profiles ------------------------------------------------------------------------------------------ */

void fake_event_of(struct registry *r, uid_t uid, const char *line)
{
	size_t i = 0;

	while (i < r->nevents_of && r->events_of[i].uid != uid)
		i++;
	if (i == r->nevents_of) {
		assert(i < ARRAY_LEN(r->events_of));
		r->events_of[i].uid = uid;
		r->events_of[i].fd = memfd_create("events", MFD_CLOEXEC);
		r->nevents_of++;
	}
	dprintf(r->events_of[i].fd, "%s\n", line);
	dprintf(r->events_all, "%s\n", line);
	waitq_wake(&r->journal_waitq);
}

void fake_event(struct registry *r, const char *line)
{
	fake_event_of(r, 0, line);
}

int journal_open_events(struct registry *r, const struct cfs_who *who, int *ret_fd)
{
	for (size_t i = 0; who->uid && i < r->nevents_of; i++)
		if (r->events_of[i].uid == who->uid)
			return reopen(r->events_of[i].fd, ret_fd);
	if (!who->uid)
		return reopen(r->events_all, ret_fd);
	*ret_fd = memfd_create("none", MFD_CLOEXEC);
	return *ret_fd < 0 ? -errno : 0;
}

int journal_open_log(struct registry *r, const char *uuid, const struct cfs_who *who, int *ret_fd)
{
	for (struct log *l = r->logs; l; l = l->next)
		if (!strcmp(l->uuid, uuid))
			return who->uid && who->uid != l->owner ? -EACCES : reopen(l->fd, ret_fd);
	return -ENOENT;
}

struct waitq *journal_waitq(struct registry *r)
{
	return &r->journal_waitq;
}

void journal_each_log(struct registry *r, bool (*fn)(void *arg, const char *uuid, uid_t owner, const char *name, uint64_t changed_ns),
		      void *arg)
{
	for (struct log *l = r->logs; l; l = l->next)
		if (!fn(arg, l->uuid, l->owner, l->name, l->changed_ns))
			return;
}

int registry_health_json(struct registry *r, struct buf *out)
{
	return buf_addf(out, "{\"ready\":true,\"sandboxes\":%zu,\"at\":%" PRIu64 "}\n", r->count, now_ns());
}

int registry_metrics(struct registry *r, const struct cfs_who *who, struct buf *out)
{
	return buf_addf(out, "sandboxes{uid=\"%u\"} %zu\n", who->uid, r->count);
}

int registry_policy_json(struct registry *r, const struct cfs_who *who, struct buf *out)
{
	(void)r;
	return buf_addf(out, "{\"uid\":%u}\n", who->uid);
}

int profile_list(struct registry *r, bool (*fn)(void *arg, const char *name, uint64_t changed_ns), void *arg)
{
	(void)r;
	if (fn(arg, "base", 1000000000))
		fn(arg, "python", 2000000000);
	return 0;
}

int profile_info_json(struct registry *r, const char *name, struct buf *out, uint64_t *ret_changed_ns)
{
	(void)r;
	*ret_changed_ns = 1000000000;
	return buf_addf(out, "{\"name\":\"%s\"}\n", name);
}

int sandbox_console_open(struct sandbox *s, int *ret_fd)
{
	return reopen(s->log->fd, ret_fd);
}
