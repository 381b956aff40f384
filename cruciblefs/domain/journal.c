/* SPDX-License-Identifier: Apache-2.0 */
/* What happened, in files of JSON lines that outlive what they tell of:
 *   state/events.jsonl         all events, for root             state/events-<uid>.jsonl   those of one owner, for that
 * owner logs/<uuid>.jsonl          one sandbox                      logs/<uuid>.info           whose it is and what it
 * was called last A file of events that passed EVENTS_MAX becomes "….1". Logs of removed sandboxes go by age, then by
 * their sum. */
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
#include "cruciblefs/domain/priv.h"

#define EVENTS_MAX     (16u * 1024 * 1024)
#define LOG_MAX	       (8u * 1024 * 1024) /* of one sandbox; then its older half is dropped */
#define LOG_COSTS      8192u		  /* a short log takes two blocks of the disk, and time of each listing */
#define LOGS_MAX       20000u		  /* logs kept, at most: then the oldest go */
#define PRUNE_EVERY_NS (600ull * 1000000000ull)

struct waitq *journal_waitq(struct registry *r)
{
	return &r->journal_waitq;
}

/* The number of the last complete line. */
static uint64_t last_seq(int dirfd, const char *path)
{
	AUTO_FD fd = openat(dirfd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char tail[8192];
	struct stat st;
	ssize_t n;
	uint64_t seq = 0;

	if (fd < 0 || fstat(fd, &st) < 0)
		return 0;
	n = pread(fd, tail, sizeof(tail) - 1,
		  st.st_size > (off_t)sizeof(tail) - 1 ? st.st_size - (off_t)sizeof(tail) + 1 : 0);
	if (n <= 0)
		return 0;
	tail[n] = '\0';
	for (char *p = tail; (p = strstr(p, "{\"seq\":"));) {
		seq = strtoull(p + 7, &p, 10);
	}
	return seq;
}

/* A line cut by a crash or a full disk must not spoil the next one. */
static void end_line(int fd)
{
	struct stat st;
	char c;

	if (fstat(fd, &st) == 0 && st.st_size > 0 && pread(fd, &c, 1, st.st_size - 1) == 1 && c != '\n' &&
	    write(fd, "\n", 1) < 0)
		return;
}

static int open_append(int dirfd, const char *path)
{
	return openat(dirfd, path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0640);
}

static int load_infos(struct registry *r);

int journal_open(struct registry *r, struct err *e)
{
	struct stat st;
	int k;

	r->events_fd = open_append(r->state_fd, "events.jsonl");
	if (r->events_fd < 0)
		return err_set(e, -errno, "store: state/events.jsonl: %s", strerror(errno));
	r->seq = last_seq(r->state_fd, "events.jsonl");
	if (!r->seq)
		r->seq = last_seq(r->state_fd, "events.jsonl.1");
	end_line(r->events_fd);
	r->events_bytes = fstat(r->events_fd, &st) == 0 ? (uint64_t)st.st_size : 0;
	k = load_infos(r);
	return k < 0 ? err_set(e, k, "store: logs/: %s", strerror(-k)) : 0;
}

static void rotate_events(struct registry *r)
{
	int fd;

	if (r->events_bytes < EVENTS_MAX)
		return;
	if (renameat(r->state_fd, "events.jsonl", r->state_fd, "events.jsonl.1") < 0)
		return;
	fd = open_append(r->state_fd, "events.jsonl");
	if (fd < 0)
		return;
	fd_close(&r->events_fd);
	r->events_fd = fd;
	r->events_bytes = 0;
}

/* One write: readers never see half a line unless the disk is full. */
static void append_bounded(int dirfd, const char *path, const char *line, size_t len, uint64_t max)
{
	AUTO_FD fd = open_append(dirfd, path);
	struct stat st;

	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && (uint64_t)st.st_size > max) {
		char old[96];

		snprintf(old, sizeof(old), "%s.1", path);
		renameat(dirfd, path, dirfd, old);
		fd_close(&fd);
		fd = open_append(dirfd, path);
		if (fd < 0)
			return;
	}
	if (write(fd, line, len) < 0)
		return;
}

void journal_append(int dirfd, const char *path, const char *line, uint64_t max)
{
	AUTO_FREE char *whole = NULL;
	int len = asprintf(&whole, "%s\n", line);

	if (len < 0)
		whole = NULL;
	else
		append_bounded(dirfd, path, whole, (size_t)len, max);
}

static void add(struct registry *r, struct sandbox *s, uid_t owner, const struct cfs_who *who, const char *event,
		struct json_object *extra)
{
	AUTO_JSON *o = s && s->hidden ? NULL : json_object_new_object(); /* of the daemon's own nobody is told */
	char time[32], path[96];
	AUTO_FREE char *line = NULL;
	int len;

	if (!o) {
		json_object_put(extra);
		return;
	}
	json_time(wall_ns(), time);
	json_object_object_add(o, "seq", json_object_new_uint64(++r->seq));
	json_object_object_add(o, "time", json_object_new_string(time));
	json_object_object_add(o, "event", json_object_new_string(event));
	if (s) {
		json_object_object_add(o, "sandbox", json_object_new_string(s->name));
		json_object_object_add(o, "uuid", json_object_new_string(s->uuid));
	}
	if (who)
		json_object_object_add(o, "uid", json_object_new_int64(who->uid));
	if (extra) {
		json_object_object_foreach(extra, key, value)
			json_object_object_add(o, key, json_object_get(value));
		json_object_put(extra);
	}
	len = asprintf(&line, "%s\n", json_line(o));
	if (len < 0) {
		line = NULL;
		return;
	}
	/* What a user did wrong is the user's own affair: it must not push what happened out of root's file. */
	if (!owner || strcmp(event, "error") != 0) {
		rotate_events(r);
		if (write(r->events_fd, line, (size_t)len) != len)
			log_warn("event=journal-write-failed error=\"%s\" next=continues", strerror(errno));
		r->events_bytes += (uint64_t)len;
	}
	if (owner) {
		snprintf(path, sizeof(path), "events-%u.jsonl", owner);
		append_bounded(r->state_fd, path, line, (size_t)len, EVENTS_MAX);
	}
	if (s) {
		snprintf(path, sizeof(path), "%s.jsonl", s->uuid);
		append_bounded(r->logs_fd, path, line, (size_t)len, LOG_MAX);
		waitq_wake(&s->waitq);
	}
	waitq_wake(&r->journal_waitq);
}

void journal_add(struct registry *r, struct sandbox *s, const struct cfs_who *who, const char *event,
		 struct json_object *extra)
{
	add(r, s, s ? s->owner.uid : 0, who, event, extra);
}

void journal_add_of(struct registry *r, const struct cfs_who *owner, const struct cfs_who *who, const char *event,
		    struct json_object *extra)
{
	add(r, NULL, owner->uid, who, event, extra);
}

/* -- whose log it is --------------------------------------------------------------------------------------- */

/* One a log, in memory: looking at logs/ must not cost a file each. The companion files are for the next start. */
struct log_info {
	struct log_info *next;
	char uuid[LAUNCH_UUID_LEN + 1];
	char name[CFS_NAME_MAX + 1];
	uid_t uid;
};

static bool is_uuid(const char *s)
{
	return strlen(s) == LAUNCH_UUID_LEN && s[strspn(s, "0123456789abcdef-")] == '\0';
}

static struct log_info *info_find(struct registry *r, const char *uuid)
{
	struct log_info *i = r->logs;

	while (i && strcmp(i->uuid, uuid))
		i = i->next;
	return i;
}

static int info_keep(struct registry *r, const char *uuid, uid_t uid, const char *name)
{
	struct log_info *i = info_find(r, uuid);

	if (!i) {
		i = calloc(1, sizeof(*i));
		if (!i)
			return -ENOMEM;
		i->next = r->logs;
		r->logs = i;
		r->nlogs++;
	}
	snprintf(i->uuid, sizeof(i->uuid), "%s", uuid);
	snprintf(i->name, sizeof(i->name), "%s", name);
	i->uid = uid;
	return 0;
}

static void info_drop(struct registry *r, const char *uuid)
{
	struct log_info **at = &r->logs, *i;

	while (*at && strcmp((*at)->uuid, uuid))
		at = &(*at)->next;
	i = *at;
	if (!i)
		return;
	*at = i->next;
	r->nlogs--;
	free(i);
}

static int write_info(struct sandbox *s)
{
	AUTO_JSON *o = json_object_new_object();
	char path[64];
	const char *line;
	int r;

	if (!o)
		return -ENOMEM;
	json_object_object_add(o, "name", json_object_new_string(s->name));
	json_object_object_add(o, "uid", json_object_new_int64(s->owner.uid));
	line = json_line(o);
	snprintf(path, sizeof(path), "%s.info", s->uuid);
	r = fd_replace(s->reg->logs_fd, path, line, strlen(line), 0640, false);
	return r < 0 ? r : info_keep(s->reg, s->uuid, s->owner.uid, s->name);
}

int journal_log_open(struct sandbox *s, struct err *e)
{
	int r;

	if (s->reg->nlogs >= LOGS_MAX)
		journal_prune(s->reg);
	r = write_info(s);
	return r < 0 ? err_set(e, r, "run/%s: its log: %s", s->name, strerror(-r)) : 0;
}

void journal_log_renamed(struct sandbox *s)
{
	int r = write_info(s);

	if (r < 0)
		log_warn("sandbox=%s event=log-not-renamed error=\"%s\" next=continues", s->name, strerror(-r));
}

static int read_info(struct registry *r, const char *uuid)
{
	AUTO_FREE char *text = NULL;
	AUTO_JSON *o = NULL;
	const char *word = "";
	uint64_t uid = 0;
	char path[64];
	size_t len;
	int k;

	snprintf(path, sizeof(path), "%.36s.info", uuid);
	k = fd_slurp(r->logs_fd, path, 4096, &text, &len);
	if (!k)
		k = json_parse(text, len, &o, NULL);
	if (!k)
		k = json_get_u64(o, "uid", 0, UINT32_MAX, &uid, NULL);
	if (!k)
		k = json_get_str(o, "name", &word, NULL);
	return k < 0 ? k : info_keep(r, uuid, (uid_t)uid, word);
}

/* At the start: the logs that are there. One that cannot be read is left alone. */
static int load_infos(struct registry *r)
{
	int fd = openat(r->logs_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *ent;
	int k = 0;

	if (!d) {
		k = -errno;
		fd_close(&fd);
		return k;
	}
	while (k != -ENOMEM && (ent = readdir(d))) {
		char uuid[LAUNCH_UUID_LEN + 1];
		const char *dot = strchr(ent->d_name, '.');

		if (!dot || strcmp(dot, ".info") || dot - ent->d_name != LAUNCH_UUID_LEN)
			continue;
		snprintf(uuid, sizeof(uuid), "%.36s", ent->d_name);
		if (is_uuid(uuid))
			k = read_info(r, uuid);
	}
	closedir(d);
	return k == -ENOMEM ? k : 0;
}

/* -- reading
 * ------------------------------------------------------------------------------------------------------------ */

static int open_or_empty(int dirfd, const char *path, int *ret_fd)
{
	int fd = openat(dirfd, path, O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0640);

	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

int journal_open_events(struct registry *r, const struct cfs_who *who, int *ret_fd)
{
	char path[48] = "events.jsonl";

	if (who->uid)
		snprintf(path, sizeof(path), "events-%u.jsonl", who->uid);
	return open_or_empty(r->state_fd, path, ret_fd);
}

int journal_open_log(struct registry *r, const char *uuid, const struct cfs_who *who, int *ret_fd)
{
	struct log_info *i = is_uuid(uuid) ? info_find(r, uuid) : NULL;
	char path[64];

	if (!i)
		return -ENOENT;
	if (who->uid && who->uid != i->uid)
		return -EACCES;
	snprintf(path, sizeof(path), "%s.jsonl", uuid);
	return open_or_empty(r->logs_fd, path, ret_fd);
}

void journal_each_log(struct registry *r,
		      bool (*fn)(void *arg, const char *uuid, uid_t owner, const char *name, uint64_t changed_ns),
		      void *arg)
{
	for (struct log_info *i = r->logs; i; i = i->next) {
		char path[64];
		struct stat st;

		snprintf(path, sizeof(path), "%s.jsonl", i->uuid);
		if (fstatat(r->logs_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (!fn(arg, i->uuid, i->uid, i->name,
			(uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec))
			return;
	}
}

/* -- what goes
 * ------------------------------------------------------------------------------------------------------------ */

struct old_log {
	char uuid[LAUNCH_UUID_LEN + 1];
	uint64_t changed_ns, bytes;
};

struct pruning {
	struct registry *r;
	struct old_log *logs;
	size_t n, cap;
	uint64_t sum;
};

static bool collect(void *arg, const char *uuid, uid_t owner, const char *name, uint64_t changed_ns)
{
	struct pruning *p = arg;
	char path[64];
	struct stat st;

	(void)owner;
	(void)name;
	if (p->n == p->cap) {
		size_t cap = p->cap ? p->cap * 2 : 64;
		struct old_log *more = reallocarray(p->logs, cap, sizeof(*more));

		if (!more)
			return false;
		p->logs = more;
		p->cap = cap;
	}
	snprintf(path, sizeof(path), "%s.jsonl", uuid);
	p->logs[p->n] = (struct old_log){ .changed_ns = changed_ns, .bytes = 0 };
	snprintf(p->logs[p->n].uuid, sizeof(p->logs[p->n].uuid), "%s", uuid);
	if (fstatat(p->r->logs_fd, path, &st, 0) == 0)
		p->logs[p->n].bytes = (uint64_t)st.st_size + LOG_COSTS;
	p->sum += p->logs[p->n].bytes;
	p->n++;
	return true;
}

static int older(const void *a, const void *b)
{
	const struct old_log *x = a, *y = b;

	return x->changed_ns < y->changed_ns ? -1 : x->changed_ns > y->changed_ns;
}

static void on_prune(void *arg)
{
	journal_prune(arg);
}

void journal_prune(struct registry *r)
{
	struct pruning p = { .r = r };
	uint64_t now = wall_ns(), keep_ns = (uint64_t)r->cfg->logs_keep_days * 86400u * 1000000000u;
	uint64_t most = (uint64_t)r->cfg->logs_max_mib << 20;

	journal_each_log(r, collect, &p);
	if (p.n)
		qsort(p.logs, p.n, sizeof(p.logs[0]), older);
	for (size_t i = 0; i < p.n; i++) {
		static const char *const endings[] = { ".jsonl", ".jsonl.1", ".info" };

		if ((now < p.logs[i].changed_ns || now - p.logs[i].changed_ns < keep_ns) && p.sum <= most &&
		    r->nlogs < LOGS_MAX)
			break;
		if (registry_by_uuid(r, p.logs[i].uuid))
			continue; /* of a living sandbox */
		for (size_t k = 0; k < ARRAY_LEN(endings); k++) {
			char path[64];

			snprintf(path, sizeof(path), "%s%s", p.logs[i].uuid, endings[k]);
			unlinkat(r->logs_fd, path, 0);
		}
		info_drop(r, p.logs[i].uuid);
		p.sum -= p.logs[i].bytes;
	}
	free(p.logs);
	loop_del(r->loop, &r->prune_timer);
	loop_timer(r->loop, now_ns() + PRUNE_EVERY_NS, on_prune, r, &r->prune_timer);
}

void journal_close(struct registry *r)
{
	fd_close(&r->events_fd);
	while (r->logs)
		info_drop(r, r->logs->uuid);
}
