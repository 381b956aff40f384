/* SPDX-License-Identifier: Apache-2.0 */
/* Commands: exec/<n>/ in the store, and what is known of each in memory. */
#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "cruciblefs/domain/view_priv.h"

static const char *const state_words[] = { [EXEC_QUEUED] = "queued", [EXEC_RUNNING] = "running", [EXEC_DONE] = "done" };

/* All of exec/<n>/ is reached through box_exec_open(): a box that was taken over can put symbolic links there. */

uint64_t exec_number(const struct execution *x)
{
	return x->n;
}

enum exec_state exec_state(const struct execution *x)
{
	return x->state;
}

const char *exec_status_name(const struct execution *x)
{
	return state_words[x->state];
}

uint64_t exec_changed_ns(const struct execution *x)
{
	return x->changed_ns;
}

uint64_t sandbox_latest_exec(const struct sandbox *s)
{
	return s->latest;
}

/* From the newest backwards: that is the one people ask for. */
struct execution *sandbox_exec(struct sandbox *s, uint64_t n)
{
	for (struct execution *x = s->last_exec; x && x->n >= n; x = x->prev) {
		if (x->n == n)
			return x;
	}
	return NULL;
}

struct execution *sandbox_exec_next(struct sandbox *s, struct execution *after)
{
	return after ? after->next : s->first_exec;
}

static void unlink_exec(struct sandbox *s, struct execution *x)
{
	*(x->prev ? &x->prev->next : &s->first_exec) = x->next;
	*(x->next ? &x->next->prev : &s->last_exec) = x->prev;
	s->nexecs--;
	free(x);
}

void exec_free_all(struct sandbox *s)
{
	while (s->first_exec)
		unlink_exec(s, s->first_exec);
}

struct execution *exec_add(struct sandbox *s, uint64_t n, enum exec_state st)
{
	struct execution *x = calloc(1, sizeof(*x)), *at = s->last_exec;

	if (!x)
		return NULL;
	x->n = n;
	x->state = EXEC_DONE; /* counted by exec_set_state */
	x->accepted_ns = x->changed_ns = wall_ns();
	while (at && at->n > n)
		at = at->prev;
	x->prev = at;
	x->next = at ? at->next : s->first_exec;
	*(x->next ? &x->next->prev : &s->last_exec) = x;
	*(at ? &at->next : &s->first_exec) = x;
	s->nexecs++;
	if (n > s->last_n)
		s->last_n = n;
	exec_set_state(s, x, st);
	return x;
}

/* The box removes the directories of the oldest finished ones; here go their entries. Not in exec_set_state(): whoever
 * walks over the commands to end them must find the next one, and the words of the one that it ended. */
void exec_forget_old(struct sandbox *s)
{
	struct execution *x = s->first_exec;

	while (s->nexecs > BOX_KEEP_EXECS && x) {
		struct execution *next = x->next;

		if (x->state == EXEC_DONE && x->n != s->latest && !slot_of_exec(s, x->n))
			unlink_exec(s, x);
		x = next;
	}
}

static void count(struct sandbox *s, const struct execution *x, int by)
{
	if (x->state == EXEC_RUNNING)
		s->nrunning += (unsigned)by;
	else if (x->state == EXEC_QUEUED && !x->beside)
		s->nwaiting += (unsigned)by;
}

void exec_set_state(struct sandbox *s, struct execution *x, enum exec_state st)
{
	if (x->state == st)
		return;
	count(s, x, -1);
	x->state = st;
	count(s, x, +1);
	x->changed_ns = wall_ns();
	sandbox_changed(s);
}

/* -- reading ------------------------------------------------------------------------------------------------- */

/* A file that a box may have made: no link is followed, nothing but a regular file is taken, and opening never blocks.
 */
static int open_file(struct sandbox *s, uint64_t n, const char *file, int *ret_fd)
{
	struct stat st;
	AUTO_FD dir = -1;
	AUTO_FD fd = -1;

	dir = box_exec_open(s->boxfd, n);
	if (dir < 0)
		return dir;
	fd = openat(dir, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	*ret_fd = take_fd(&fd);
	return 0;
}

/* For a reader who comes before the writer: an empty file that the box may write to, whatever our umask. */
int open_empty_for_box(int dirfd, const char *name, int *ret_fd)
{
	AUTO_FD fd = openat(dirfd, name, O_RDONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0660);

	if (fd < 0 || (fchmod(fd, 0660) < 0 && errno != EPERM)) /* EPERM: the box was faster */
		return -errno;
	*ret_fd = take_fd(&fd);
	return 0;
}

static int slurp_fd(int fd, struct buf *out)
{
	for (;;) {
		uint8_t *at;
		ssize_t n;
		int r = buf_reserve(out, 65536, &at);

		if (r < 0)
			return r;
		n = read(fd, at, 65536);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0;
		out->len += (size_t)n;
	}
}

static int read_file(struct sandbox *s, uint64_t n, const char *file, struct buf *out)
{
	AUTO_FD fd = -1;
	int r = open_file(s, n, file, &fd);

	return r < 0 ? r : slurp_fd(fd, out);
}

int sandbox_cmd_text(struct sandbox *s, uint64_t n, struct buf *out)
{
	return read_file(s, n, "cmd", out);
}

int exec_record(struct sandbox *s, struct execution *x, struct buf *out)
{
	return x->state == EXEC_DONE ? read_file(s, x->n, "result.json", out) : -ENOENT;
}

static const char *const output_name[] = { "cmd", "stdout", "stderr" };

int exec_open_output(struct sandbox *s, struct execution *x, int which, int *ret_fd)
{
	const char *name = output_name[which];
	AUTO_FD dir = -1;
	int r = open_file(s, x->n, name, ret_fd);

	if (r != -ENOENT || which == 0)
		return r;
	/* Before the first byte: made empty here, the box appends to it later. */
	dir = box_exec_open(s->boxfd, x->n);
	return dir < 0 ? dir : open_empty_for_box(dir, name, ret_fd);
}

uint64_t exec_output_bytes(struct sandbox *s, struct execution *x, int which)
{
	AUTO_FD dir = box_exec_open(s->boxfd, x->n);
	struct stat st;

	if (dir < 0 || fstatat(dir, output_name[which], &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	return S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
}

bool exec_has_record(struct sandbox *s, uint64_t n)
{
	AUTO_FD dir = box_exec_open(s->boxfd, n);
	struct stat st;

	return dir >= 0 && fstatat(dir, "result.json", &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* -- accepting ------------------------------------------------------------------------------------------------ */

/* What a record says of a command, the sandbox's `error` says with the object's name. */
void exec_tell_error(struct sandbox *s, uint64_t n, const char *words)
{
	struct err e;

	err_set(&e, -EIO, "sandbox %s: command %" PRIu64 ": %s", s->name, n, words);
	sandbox_set_error(s, e.msg);
}

/* A record of our own, for a command that no box will end. */
static void end_without_box(struct sandbox *s, struct execution *x, const char *words, bool cancelled)
{
	struct err e = { 0 };
	struct box_record rec = {
		.n = x->n,
		.sandbox = s->name,
		.exit_code = -1,
		.signal = "",
		.cancelled = cancelled,
		.error = words,
		.stdout_bytes = exec_output_bytes(s, x, 1),
		.stderr_bytes = exec_output_bytes(s, x, 2),
		.queued_ns = x->state == EXEC_QUEUED ? wall_ns() - x->accepted_ns : 0,
		.engine = s->reg->engine.name,
		.accel = engine_accel_name(s->accel),
		.network = net_word(s),
		.unenforced = s->unenforced ? s->unenforced : "",
	};
	struct json_object *extra;
	int r = box_record_write(s->boxfd, &rec, &e);

	/* -EEXIST cannot be: rename replaces. A full disk: the command has ended all the same, `wait` then says ENOENT.
	 */
	if (r < 0)
		log_err("sandbox=%s exec=%" PRIu64 " event=record-not-written error=\"%s\" next=continues", s->name,
			x->n, e.msg);
	exec_set_state(s, x, EXEC_DONE);
	exec_tell_error(s, x->n, words);
	extra = json_object_new_object();
	if (extra) {
		json_object_object_add(extra, "exec", json_object_new_uint64(x->n));
		json_object_object_add(extra, "exit_code", json_object_new_int(-1));
		json_object_object_add(extra, "error", json_text(words, strlen(words)));
	}
	journal_add(s->reg, s, NULL, "exec_done", extra);
}

static int place_files(struct sandbox *s, uint64_t n, const void *text, size_t len, const char *tmp_path,
		       const char *stdin_path)
{
	AUTO_FD execs = openat(s->boxfd, "exec", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	AUTO_FD dir = -1;
	char name[24];
	int r = 0;

	snprintf(name, sizeof(name), "%" PRIu64, n);
	if (execs < 0 || mkdirat(execs, name, 0770) < 0)
		return -errno;
	dir = box_exec_open(s->boxfd, n);
	if (dir < 0 || fchmod(dir, 02770) < 0)
		r = dir < 0 ? dir : -errno;
	if (!r && stdin_path && renameat(s->dirfd, stdin_path, dir, "stdin") < 0)
		r = -errno;
	if (!r && tmp_path && renameat(s->dirfd, tmp_path, dir, "cmd") < 0)
		r = -errno;
	if (!r && !tmp_path)
		r = fd_replace(dir, "cmd", text, len, 0640, false);
	if (r < 0) {
		/* Only the daemon's own two files can be in it. The input is still its owner's, for the next command.
		 */
		if (dir >= 0 && stdin_path)
			renameat(dir, "stdin", s->dirfd, stdin_path);
		unlinkat(execs, name, AT_REMOVEDIR);
	}
	return r;
}

static void log_exec(struct sandbox *s, const struct execution *x, const char *slot, const struct cfs_who *who)
{
	struct json_object *extra = json_object_new_object();

	if (extra) {
		json_object_object_add(extra, "exec", json_object_new_uint64(x->n));
		if (slot)
			json_object_object_add(extra, "slot", json_object_new_string(slot));
	}
	journal_add(s->reg, s, who, "exec", extra);
}

int exec_accept(struct sandbox *s, const char *slot, const struct cfs_who *who, const void *text, size_t len,
		const char *tmp_path, const char *stdin_path, struct err *e)
{
	struct slot *t = slot ? slot_find(s, slot) : NULL;
	bool full = !slot && s->nwaiting >= BOX_QUEUE_MAX;
	uint64_t n = s->last_n + 1;
	struct execution *x;
	int r;

	if (slot && !t)
		return err_set(e, -ENOENT, "sandbox %s: exec/%s: removed while the command was written", s->name, slot);
	/* A number that could not be used is not tried again: what lies in its way may stay there. */
	x = exec_add(s, n, EXEC_DONE);
	if (!x)
		return err_set(e, -ENOMEM, "sandbox %s: no memory", s->name);
	r = place_files(s, n, text, len, tmp_path, stdin_path);
	if (r < 0) {
		unlink_exec(s, x);
		return err_set(e, r, "sandbox %s: command %" PRIu64 ": the store: %s", s->name, n, strerror(-r));
	}
	x->uid = who->uid;
	x->gid = who->gid;
	x->beside = slot != NULL;
	x->live_stdin = slot && !stdin_path;
	if (t)
		t->latest = n;
	else
		s->latest = n;
	s->reg->n_execs++;
	exec_set_state(s, x, EXEC_QUEUED);
	log_exec(s, x, slot, who);
	if (t)
		sandbox_save(s, NULL); /* which command is the slot's latest outlives us */
	if (full) {
		end_without_box(s, x, "the queue is full: 64 commands wait", true);
		return 0;
	}
	if (s->link) {
		exec_send_all(s);
	} else if (!s->start && !s->restore && !s->down_pending && !s->box_uid) {
		struct err why = { 0 };

		r = sandbox_start(s, who, &why);
		if (r < 0)
			exec_lose_all(s, why.msg, false); /* x is among them */
	}
	return 0;
}

void exec_lose_all(struct sandbox *s, const char *words, bool only_sent)
{
	for (struct execution *x = s->first_exec; x; x = x->next) {
		if (x->state == EXEC_DONE || (only_sent && !x->sent))
			continue;
		/* The box may have written the record and died before it said so. */
		if (exec_has_record(s, x->n))
			exec_set_state(s, x, EXEC_DONE);
		else
			end_without_box(s, x, words, x->state == EXEC_QUEUED);
	}
	exec_forget_old(s);
}

/* Do commands wait that no machine has got: in the queue or in a slot? */
bool exec_any_waits(const struct sandbox *s)
{
	for (const struct execution *x = s->last_exec; x; x = x->prev) {
		if (x->state == EXEC_QUEUED)
			return true;
	}
	return false;
}

/* -- handing over to the box ------------------------------------------------------------------------------------ */

static void on_accepted(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct sandbox *s = arg;

	(void)r, (void)m;
	/* A command that the box refuses is ended by a record of the box's own; this is about messages that got lost.
	 */
	if (code < 0 && code != -ENOTCONN)
		log_warn("sandbox=%s event=exec-refused error=\"%s\" next=continues", s->name, words);
	sandbox_unref(s);
}

/* What it may take at most, whatever its request says; 0: no limit. By the policies as they are when it is sent. */
static uint32_t timeout_most(struct sandbox *s, const struct execution *x)
{
	const struct cfs_who who = { .uid = x->uid, .gid = x->gid, .view = s->owner.view };
	uint64_t most = s->hidden ? 0 : permit_max(s->reg, &who, POLICY_MAX_TIMEOUT_S);

	return most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
}

static int send_one(struct sandbox *s, struct execution *x)
{
	uint32_t most_s = timeout_most(s, x);
	uint8_t flags = (uint8_t)((x->beside ? BOX_EXEC_BESIDE : 0) | (x->live_stdin ? BOX_EXEC_LIVE_STDIN : 0) |
				  (most_s ? BOX_EXEC_TIMEOUT_MAX : 0));
	struct buf b;
	int r;

	buf_init(&b, 64);
	if ((r = wire_put_u64(&b, x->n)) == 0 && (r = wire_put_u8(&b, flags)) == 0 &&
	    (r = wire_put_u32(&b, x->uid)) == 0 && (r = wire_put_u64(&b, x->accepted_ns)) == 0 &&
	    (!most_s || (r = wire_put_u32(&b, most_s)) == 0)) {
		sandbox_ref(s);
		r = boxlink_call(s->link, BOX_EXEC, b.data, b.len, on_accepted, s);
		if (r < 0)
			sandbox_unref(s);
	}
	buf_fini(&b);
	if (r < 0)
		return r;
	x->sent = true;
	return 0;
}

void exec_send_all(struct sandbox *s)
{
	bool waits = s->stop_asked || s->unproven || s->net.holds;

	for (struct execution *x = s->first_exec; x && s->link && !waits; x = x->next) {
		if (x->state == EXEC_QUEUED && !x->sent && send_one(s, x) < 0)
			return; /* the link is dying: sandbox_down() settles what is open */
	}
}

/* -- loading ------------------------------------------------------------------------------------------------------ */

int exec_load(struct sandbox *s, struct err *e)
{
	int fd = openat(s->boxfd, "exec", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *ent;
	int r = 0;

	if (!d) {
		r = -errno;
		fd_close(&fd);
		return err_set(e, r, "exec/: %s", strerror(-r));
	}
	while (!r && (ent = readdir(d))) {
		char path[64], *end;
		uint64_t n;
		struct stat st;
		struct execution *x;
		bool done;

		if (!isdigit((unsigned char)ent->d_name[0]) || strlen(ent->d_name) > 19)
			continue;
		n = strtoull(ent->d_name, &end, 10);
		if (*end || !n)
			continue;
		snprintf(path, sizeof(path), "%" PRIu64 "/cmd", n);
		if (fstatat(dirfd(d), path, &st, AT_SYMLINK_NOFOLLOW) < 0) {
			/* Was never accepted; but its directory is in the way of the number. */
			s->last_n = n > s->last_n ? n : s->last_n;
			continue;
		}
		snprintf(path, sizeof(path), "%" PRIu64 "/result.json", n);
		done = fstatat(dirfd(d), path, &st, AT_SYMLINK_NOFOLLOW) == 0;
		x = exec_add(s, n, EXEC_DONE);
		if (!x) {
			r = err_set(e, -ENOMEM, "no memory");
			break;
		}
		x->changed_ns = x->accepted_ns =
			(uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
		x->beside = slot_of_exec(s, n) != NULL;
		snprintf(path, sizeof(path), "%" PRIu64 "/stdin", n);
		x->live_stdin = x->beside && fstatat(dirfd(d), path, &st, AT_SYMLINK_NOFOLLOW) < 0;
		x->gid = s->owner.gid;
		x->uid = s->owner.uid; /* who wrote it is in the log only */
		if (!done)
			exec_set_state(s, x, EXEC_QUEUED);
		if (!x->beside && n > s->latest)
			s->latest = n;
	}
	closedir(d);
	return r;
}
