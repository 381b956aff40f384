/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_domain_priv.h"

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

static void end_exec(struct execution *x, int exit_code)
{
	if (x->state == EXEC_DONE)
		return;
	x->state = EXEC_DONE;
	x->exit_code = exit_code;
	x->changed_ns = wall_ns();
	fake_changed(x->s);
}

void fake_free_exec(struct execution *x)
{
	loop_del(x->s->r->loop, &x->pid_id);
	fd_close(&x->pidfd);
	fd_close(&x->out[0]);
	fd_close(&x->out[1]);
	free(x->cmd);
	free(x);
}

void fake_kill_all(struct sandbox *s)
{
	for (struct execution *x = s->first; x; x = x->next)
		if (x->pid > 0)
			kill(-x->pid, SIGKILL);
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

	while (t && strcmp(t->name, name) != 0)
		t = t->next;
	return t;
}

int upload_new(struct sandbox *s, enum upload_kind kind, const char *slot, const struct cfs_who *who,
	       struct upload **ret, struct err *e)
{
	struct upload *u;

	(void)who;
	if (slot && !slot_find(s, slot))
		return err_set(e, -ENOENT, "no slot %s", slot);
	u = fake_need(calloc(1, sizeof(*u)));
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
	siginfo_t si = { 0 };

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
	char *argv[] = { (char *)"/bin/sh", (char *)"/proc/self/fd/9", NULL };
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
	struct execution *x = fake_need(calloc(1, sizeof(*x)));

	x->s = s;
	x->n = ++s->last_n;
	x->changed_ns = wall_ns();
	x->pidfd = -1;
	snprintf(x->slot, sizeof(x->slot), "%s", u->slot);
	x->cmd = fake_need(strndup((char *)u->data.data, u->data.len));
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
	fake_changed(s);
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

uint64_t sandbox_latest_exec(const struct sandbox *s)
{
	return s->latest;
}
uint64_t exec_number(const struct execution *x)
{
	return x->n;
}
enum exec_state exec_state(const struct execution *x)
{
	return x->state;
}
uint64_t exec_changed_ns(const struct execution *x)
{
	return x->changed_ns;
}

const char *exec_status_name(const struct execution *x)
{
	static const char *const words[] = { "queued", "running", "done" };

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
	return buf_addf(out, "{\"exec\":%" PRIu64 ",\"sandbox\":\"%s\",\"exit_code\":%d,\"error\":\"%s\"}\n", x->n,
			s->name, x->exit_code, x->error);
}

int exec_open_output(struct sandbox *s, struct execution *x, int which, int *ret_fd)
{
	AUTO_FD fd = -1;

	(void)s;
	if (which)
		return fake_reopen(x->out[which - 1], ret_fd);
	fd = memfd_create("cmd", MFD_CLOEXEC);
	if (fd < 0 || fd_write_all(fd, x->cmd, x->cmd_len) < 0)
		return -EIO;
	*ret_fd = take_fd(&fd);
	return 0;
}

static uint64_t fd_size(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
}

uint64_t exec_output_bytes(struct sandbox *s, struct execution *x, int which)
{
	(void)s;
	return which ? fd_size(x->out[which - 1]) : x->cmd_len;
}

void fake_print(struct sandbox *s, uint64_t n, int which, const char *text)
{
	struct execution *x = fake_need(sandbox_exec(s, n));

	if (fd_write_all(x->out[which - 1], text, strlen(text)) < 0)
		abort();
	waitq_wake(&s->waitq);
}

void fake_end(struct sandbox *s, uint64_t n, int exit_code)
{
	end_exec(fake_need(sandbox_exec(s, n)), exit_code);
}

void fake_forget(struct sandbox *s, uint64_t n)
{
	struct execution *x = fake_need(sandbox_exec(s, n));

	*(x->prev ? &x->prev->next : &s->first) = x->next;
	*(x->next ? &x->next->prev : &s->last) = x->prev;
	fake_free_exec(x);
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
	t = fake_need(calloc(1, sizeof(*t)));
	snprintf(t->name, sizeof(t->name), "%s", name);
	buf_init(&t->in, 16u << 20);
	t->next = s->slots;
	s->slots = t;
	fake_changed(s);
	return 0;
}

int slot_remove(struct sandbox *s, const char *name, const struct cfs_who *who, struct err *e)
{
	struct slot **at = &s->slots, *t;

	(void)who;
	while (*at && strcmp((*at)->name, name) != 0)
		at = &(*at)->next;
	t = *at;
	if (!t)
		return err_set(e, -ENOENT, "no exec/%s", name);
	*at = t->next;
	buf_fini(&t->in);
	free(t);
	fake_changed(s);
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
	static const char *const words[] = { "eof", "resize", "signal", "kill", NULL };

	if (!slot_find(s, name))
		return err_set(e, -ENOENT, "no exec/%s", name);
	return fake_take_line(s, &s->ctl, line, words, who, e);
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
	((struct slot *)fake_need(slot_find(s, slot)))->room += bytes;
	waitq_wake(&s->waitq);
}

const char *fake_livein(struct sandbox *s, const char *slot, size_t *ret_len)
{
	struct slot *t = fake_need(slot_find(s, slot));

	*ret_len = t->in.len;
	return fake_need(buf_str(&t->in));
}
