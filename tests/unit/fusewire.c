/* SPDX-License-Identifier: Apache-2.0 */
#include "fusewire.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cruciblefs/root.h"

#define MESSAGE_MAX (192u * 1024)

static char message[MESSAGE_MAX];

/* -- life ------------------------------------------------------------------------------------------ */

static void on_ended(void *arg)
{
	((struct fw *)arg)->ended = true;
}

static void init(struct fw *w)
{
	struct fuse_init_in in = {
		.major = 7,
		.minor = 38,
		.max_readahead = 131072,
		.flags = FUSE_ASYNC_READ | FUSE_ATOMIC_O_TRUNC | FUSE_BIG_WRITES | FUSE_AUTO_INVAL_DATA |
			 FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES |
			 FUSE_INIT_EXT,
	};
	const struct fw_answer *a;
	const struct fuse_init_out *out;

	assert_int_equal(fw_call(w, FUSE_INIT, 0, &in, sizeof(in), NULL, 0, &a), 0);
	assert_true(a->len >= sizeof(*out));
	out = (const void *)a->data;
	assert_int_equal(out->major, 7);
	w->init_flags = out->flags;
	w->max_background = out->max_background;
}

struct fw *fw_new(const struct cfs_limits *limits)
{
	return fw_new_with(limits, cfs_root_install);
}

struct fw *fw_new_with(const struct cfs_limits *limits, int (*install)(struct cfs_session *cs, struct err *e))
{
	struct fw *w = calloc(1, sizeof(*w));
	struct cfs_session_opts o = { .socket = true, .ended = on_ended, .arg = w };
	struct err e = { 0 };
	int fds[2];

	assert_non_null(w);
	assert_int_equal(loop_new(&w->loop), 0);
	w->reg = fake_registry_new(w->loop);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	w->fd = fds[0];
	w->pid = 4711;
	o.loop = w->loop;
	o.registry = w->reg;
	o.fd = fds[1];
	if (limits)
		o.limits = *limits;
	assert_int_equal(cfs_session_new(&o, &w->cs, &e), 0);
	assert_int_equal(install(w->cs, &e), 0);
	init(w);
	return w;
}

static void take_in(struct fw *w)
{
	ssize_t n;

	while ((n = recv(w->fd, message, sizeof(message), MSG_DONTWAIT)) > 0) {
		const struct fuse_out_header *h = (const void *)message;
		struct fw_answer *a;

		assert_true((size_t)n >= sizeof(*h));
		assert_int_equal(h->len, n);
		if (h->unique == 0) { /* a notification */
			const struct fuse_notify_poll_wakeup_out *p = (const void *)(h + 1);

			assert_int_equal(h->error, FUSE_NOTIFY_POLL);
			w->polls = realloc(w->polls, (w->npolls + 1) * sizeof(*w->polls));
			assert_non_null(w->polls);
			w->polls[w->npolls++] = p->kh;
			continue;
		}
		assert_true(h->error <= 0 && h->error > -1000);
		assert_int_not_equal(h->error, -ENOSYS); /* the kernel would stop asking */
		assert_false(fw_answered(w, h->unique)); /* twice */
		if (w->nanswers == w->cap) {
			w->cap = w->cap ? w->cap * 2 : 64;
			w->answers = realloc(w->answers, w->cap * sizeof(*w->answers));
			assert_non_null(w->answers);
		}
		a = &w->answers[w->nanswers++];
		*a = (struct fw_answer){ .unique = h->unique, .error = h->error, .len = (size_t)n - sizeof(*h) };
		if (a->len) {
			a->data = malloc(a->len);
			assert_non_null(a->data);
			memcpy(a->data, h + 1, a->len);
		}
	}
}

void fw_run(struct fw *w)
{
	/* Deferred calls may make more of them: idle is when several rounds bring nothing. */
	for (int i = 0; i < 6; i++) {
		assert_int_equal(loop_once(w->loop, 0), 0);
		take_in(w);
	}
}

void fw_wait(struct fw *w, int ms)
{
	assert_int_equal(loop_once(w->loop, ms), 0);
	fw_run(w);
}

static const struct fw_answer *kept; /* by the latest fw_take */

static void drop_kept(void)
{
	if (kept)
		free(kept->data);
	free((void *)kept);
	kept = NULL;
}

struct fw *fw_free(struct fw *w)
{
	if (!w)
		return NULL;
	w->cs = cfs_session_free(w->cs);
	take_in(w);
	fake_registry_free(w->reg);
	loop_free(w->loop);
	close(w->fd);
	for (size_t i = 0; i < w->nanswers; i++)
		free(w->answers[i].data);
	free(w->answers);
	free(w->polls);
	free(w);
	drop_kept();
	return NULL;
}

int fw_setup(void **state)
{
	*state = fw_new(NULL);
	return 0;
}

int fw_teardown(void **state)
{
	*state = fw_free(*state);
	return 0;
}

/* -- raw --------------------------------------------------------------------------------------------- */

uint64_t fw_send(struct fw *w, uint32_t opcode, uint64_t nodeid, const void *a, size_t alen, const void *b, size_t blen)
{
	struct fuse_in_header h = {
		.len = (uint32_t)(sizeof(h) + alen + blen),
		.opcode = opcode,
		.unique = ++w->unique * 2,
		.nodeid = nodeid,
		.uid = w->uid,
		.gid = w->uid,
		.pid = (uint32_t)w->pid,
	};
	struct iovec iov[3] = { { &h, sizeof(h) }, { (void *)a, alen }, { (void *)b, blen } };
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 3 };
	ssize_t n;

	while ((n = sendmsg(w->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL)) < 0 && errno == EAGAIN)
		fw_run(w);
	assert_int_equal(n, h.len);
	return h.unique;
}

bool fw_answered(struct fw *w, uint64_t unique)
{
	for (size_t i = 0; i < w->nanswers; i++)
		if (w->answers[i].unique == unique)
			return true;
	return false;
}

int fw_take(struct fw *w, uint64_t unique, const struct fw_answer **ret)
{
	struct fw_answer *copy = malloc(sizeof(*copy));
	size_t i = 0;

	assert_non_null(copy);
	while (i < w->nanswers && w->answers[i].unique != unique)
		i++;
	if (i == w->nanswers)
		fail_msg("request %llu was not answered", (unsigned long long)unique);
	*copy = w->answers[i];
	w->answers[i] = w->answers[--w->nanswers];
	drop_kept();
	kept = copy;
	if (ret)
		*ret = copy;
	return copy->error;
}

int fw_call(struct fw *w, uint32_t opcode, uint64_t nodeid, const void *a, size_t alen, const void *b, size_t blen,
	    const struct fw_answer **ret)
{
	uint64_t unique = fw_send(w, opcode, nodeid, a, alen, b, blen);

	fw_run(w);
	return fw_take(w, unique, ret);
}

uint64_t fw_start_open(struct fw *w, uint64_t nodeid, int flags)
{
	struct fuse_open_in in = { .flags = (uint32_t)flags };

	return fw_send(w, FUSE_OPEN, nodeid, &in, sizeof(in), NULL, 0);
}

uint64_t fw_start_read(struct fw *w, uint64_t nodeid, uint64_t fh, int flags, uint64_t off, uint32_t size)
{
	struct fuse_read_in in = { .fh = fh, .offset = off, .size = size, .flags = (uint32_t)flags };

	return fw_send(w, FUSE_READ, nodeid, &in, sizeof(in), NULL, 0);
}

uint64_t fw_start_write(struct fw *w, uint64_t nodeid, uint64_t fh, int flags, uint64_t off, const void *data,
			size_t len)
{
	struct fuse_write_in in = { .fh = fh, .offset = off, .size = (uint32_t)len, .flags = (uint32_t)flags };

	return fw_send(w, FUSE_WRITE, nodeid, &in, sizeof(in), data, len);
}

void fw_interrupt(struct fw *w, uint64_t unique)
{
	struct fuse_interrupt_in in = { .unique = unique };

	fw_send(w, FUSE_INTERRUPT, 0, &in, sizeof(in), NULL, 0);
	fw_run(w);
}

void fw_forget(struct fw *w, uint64_t nodeid, uint64_t n)
{
	struct fuse_forget_in in = { .nlookup = n };

	fw_send(w, FUSE_FORGET, nodeid, &in, sizeof(in), NULL, 0);
	fw_run(w);
}

/* -- one operation each --------------------------------------------------------------------------------- */

int fw_lookup(struct fw *w, uint64_t dir, const char *name, struct fuse_entry_out *ret)
{
	const struct fw_answer *a;
	int r = fw_call(w, FUSE_LOOKUP, dir, name, strlen(name) + 1, NULL, 0, &a);

	if (!r) {
		assert_int_equal(a->len, sizeof(*ret));
		memcpy(ret, a->data, sizeof(*ret));
		assert_int_not_equal(ret->nodeid, 0);
	}
	return r;
}

/* The directory of @path, and its last name. */
static int walk_parent(struct fw *w, const char *path, uint64_t *ret_dir, const char **ret_name)
{
	struct fuse_entry_out e = { .nodeid = FUSE_ROOT_ID };
	const char *slash;
	char part[256];

	while ((slash = strchr(path, '/'))) {
		int r;

		snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
		r = fw_lookup(w, e.nodeid, part, &e);
		if (r < 0)
			return r;
		path = slash + 1;
	}
	*ret_dir = e.nodeid;
	*ret_name = path;
	return 0;
}

int fw_walk(struct fw *w, const char *path, struct fuse_entry_out *ret)
{
	const char *name;
	uint64_t dir;
	int r;

	if (!*path) {
		*ret = (struct fuse_entry_out){ .nodeid = FUSE_ROOT_ID };
		return fw_getattr(w, FUSE_ROOT_ID, &ret->attr);
	}
	r = walk_parent(w, path, &dir, &name);
	return r < 0 ? r : fw_lookup(w, dir, name, ret);
}

static int ask_attr(struct fw *w, uint32_t opcode, uint64_t nodeid, const void *in, size_t len, struct fuse_attr *ret)
{
	const struct fw_answer *a;
	int r = fw_call(w, opcode, nodeid, in, len, NULL, 0, &a);

	if (!r) {
		assert_int_equal(a->len, sizeof(struct fuse_attr_out));
		if (ret)
			*ret = ((const struct fuse_attr_out *)(const void *)a->data)->attr;
	}
	return r;
}

int fw_getattr(struct fw *w, uint64_t nodeid, struct fuse_attr *ret)
{
	struct fuse_getattr_in in = { 0 };

	return ask_attr(w, FUSE_GETATTR, nodeid, &in, sizeof(in), ret);
}

int fw_setattr(struct fw *w, uint64_t nodeid, uint32_t valid, uint64_t fh, uint64_t size, uint32_t mode, uint32_t uid)
{
	struct fuse_setattr_in in = { .valid = valid, .fh = fh, .size = size, .mode = mode, .uid = uid };

	return ask_attr(w, FUSE_SETATTR, nodeid, &in, sizeof(in), NULL);
}

int fw_readlink(struct fw *w, const char *path, char *buf, size_t cap)
{
	struct fuse_entry_out e;
	const struct fw_answer *a;
	int r = fw_walk(w, path, &e);

	if (r < 0)
		return r;
	r = fw_call(w, FUSE_READLINK, e.nodeid, NULL, 0, NULL, 0, &a);
	if (!r)
		snprintf(buf, cap, "%.*s", (int)a->len, a->data);
	return r;
}

int fw_open(struct fw *w, uint64_t nodeid, int flags, struct fuse_open_out *ret)
{
	uint64_t unique = fw_start_open(w, nodeid, flags);
	const struct fw_answer *a;
	int r;

	fw_run(w);
	r = fw_take(w, unique, &a);
	if (!r) {
		assert_int_equal(a->len, sizeof(*ret));
		memcpy(ret, a->data, sizeof(*ret));
	}
	return r;
}

int fw_create(struct fw *w, uint64_t dir, const char *name, int flags, mode_t mode, struct fuse_entry_out *ret_e,
	      struct fuse_open_out *ret_o)
{
	struct fuse_create_in in = { .flags = (uint32_t)flags, .mode = mode | S_IFREG, .umask = 022 };
	const struct fw_answer *a;
	int r = fw_call(w, FUSE_CREATE, dir, &in, sizeof(in), name, strlen(name) + 1, &a);

	if (!r) {
		assert_int_equal(a->len, sizeof(*ret_e) + sizeof(*ret_o));
		memcpy(ret_e, a->data, sizeof(*ret_e));
		memcpy(ret_o, a->data + sizeof(*ret_e), sizeof(*ret_o));
	}
	return r;
}

long fw_read(struct fw *w, uint64_t nodeid, uint64_t fh, int flags, uint64_t off, void *buf, uint32_t size)
{
	uint64_t unique = fw_start_read(w, nodeid, fh, flags, off, size);
	const struct fw_answer *a;
	int r;

	fw_run(w);
	r = fw_take(w, unique, &a);
	if (r < 0)
		return r;
	assert_true(a->len <= size);
	memcpy(buf, a->data ? a->data : "", a->len);
	return (long)a->len;
}

static long written(struct fw *w, uint64_t unique)
{
	const struct fw_answer *a;
	int r = fw_take(w, unique, &a);

	return r < 0 ? r : (long)((const struct fuse_write_out *)(const void *)a->data)->size;
}

long fw_write(struct fw *w, uint64_t nodeid, uint64_t fh, int flags, uint64_t off, const void *data, size_t len)
{
	uint64_t unique = fw_start_write(w, nodeid, fh, flags, off, data, len);

	fw_run(w);
	return written(w, unique);
}

int fw_flush(struct fw *w, uint64_t nodeid, uint64_t fh)
{
	struct fuse_flush_in in = { .fh = fh };

	return fw_call(w, FUSE_FLUSH, nodeid, &in, sizeof(in), NULL, 0, NULL);
}

void fw_release(struct fw *w, uint64_t nodeid, uint64_t fh)
{
	struct fuse_release_in in = { .fh = fh };

	assert_int_equal(fw_call(w, FUSE_RELEASE, nodeid, &in, sizeof(in), NULL, 0, NULL), 0);
}

int fw_poll(struct fw *w, uint64_t nodeid, uint64_t fh, uint64_t kh, bool notify, uint32_t *ret_events)
{
	struct fuse_poll_in in = {
		.fh = fh, .kh = kh, .flags = notify ? FUSE_POLL_SCHEDULE_NOTIFY : 0, .events = 0xffff
	};
	const struct fw_answer *a;
	int r = fw_call(w, FUSE_POLL, nodeid, &in, sizeof(in), NULL, 0, &a);

	if (!r)
		*ret_events = ((const struct fuse_poll_out *)(const void *)a->data)->revents;
	return r;
}

int fw_mkdir(struct fw *w, const char *path)
{
	struct fuse_mkdir_in in = { .mode = 0755, .umask = 022 };
	const char *name;
	uint64_t dir;
	int r = walk_parent(w, path, &dir, &name);

	return r < 0 ? r : fw_call(w, FUSE_MKDIR, dir, &in, sizeof(in), name, strlen(name) + 1, NULL);
}

static int by_name(struct fw *w, uint32_t opcode, const char *path)
{
	const char *name;
	uint64_t dir;
	int r = walk_parent(w, path, &dir, &name);

	return r < 0 ? r : fw_call(w, opcode, dir, name, strlen(name) + 1, NULL, 0, NULL);
}

int fw_rmdir(struct fw *w, const char *path)
{
	return by_name(w, FUSE_RMDIR, path);
}

int fw_unlink(struct fw *w, const char *path)
{
	return by_name(w, FUSE_UNLINK, path);
}

int fw_symlink(struct fw *w, const char *path, const char *target)
{
	const char *name;
	uint64_t dir;
	int r = walk_parent(w, path, &dir, &name);

	return r < 0 ? r : fw_call(w, FUSE_SYMLINK, dir, name, strlen(name) + 1, target, strlen(target) + 1, NULL);
}

int fw_mknod(struct fw *w, const char *path, mode_t mode)
{
	struct fuse_mknod_in in = { .mode = mode };
	const char *name;
	uint64_t dir;
	int r = walk_parent(w, path, &dir, &name);

	return r < 0 ? r : fw_call(w, FUSE_MKNOD, dir, &in, sizeof(in), name, strlen(name) + 1, NULL);
}

int fw_rename(struct fw *w, const char *from, const char *to, unsigned flags)
{
	struct fuse_rename2_in in = { .flags = flags };
	const char *name, *newname;
	char names[600];
	uint64_t dir;
	int r = walk_parent(w, from, &dir, &name);

	if (!r)
		r = walk_parent(w, to, &in.newdir, &newname);
	if (r < 0)
		return r;
	snprintf(names, sizeof(names), "%s%c%s", name, 0, newname);
	return fw_call(w, FUSE_RENAME2, dir, &in, sizeof(in), names, strlen(name) + strlen(newname) + 2, NULL);
}

/* -- listing ---------------------------------------------------------------------------------------------- */

#define NAMES_MAX 5000

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void check_type(struct fw *w, uint64_t dir, const struct fuse_dirent *d, const char *name)
{
	struct fuse_entry_out e;

	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return;
	assert_int_equal(fw_lookup(w, dir, name, &e), 0);
	if ((e.attr.mode & S_IFMT) >> 12 != d->type)
		fail_msg("%s: listed as type %u, is 0%o", name, d->type, e.attr.mode);
	if (e.attr.ino != d->ino)
		fail_msg("%s: listed with another number", name);
	fw_forget(w, e.nodeid, 1);
}

int fw_list(struct fw *w, const char *path, char *buf, size_t cap)
{
	struct fuse_read_in in = { .size = 512 }; /* small, so that it takes several */
	static char *names[NAMES_MAX];
	struct fuse_entry_out dir;
	struct fuse_open_in open_in = { 0 };
	struct fuse_release_in rel = { 0 };
	const struct fw_answer *a;
	size_t n = 0, len = 0;
	int r = fw_walk(w, path, &dir);

	if (!r)
		r = fw_call(w, FUSE_OPENDIR, dir.nodeid, &open_in, sizeof(open_in), NULL, 0, &a);
	if (r < 0)
		return r;
	in.fh = rel.fh = ((const struct fuse_open_out *)(const void *)a->data)->fh;
	for (;;) {
		char page[512];
		size_t got;

		assert_int_equal(fw_call(w, FUSE_READDIR, dir.nodeid, &in, sizeof(in), NULL, 0, &a), 0);
		got = a->len;
		if (!got)
			break;
		memcpy(page, a->data, got);
		for (size_t at = 0; at < got;) {
			const struct fuse_dirent *d = (const void *)(page + at);

			assert_true(n < NAMES_MAX);
			names[n] = strndup(d->name, d->namelen);
			assert_non_null(names[n]);
			check_type(w, dir.nodeid, d, names[n]);
			n++;
			in.offset = d->off;
			at += FUSE_DIRENT_SIZE(d);
		}
	}
	assert_int_equal(fw_call(w, FUSE_RELEASEDIR, dir.nodeid, &rel, sizeof(rel), NULL, 0, NULL), 0);
	qsort(names, n, sizeof(*names), compare);
	buf[0] = '\0';
	for (size_t i = 0; i < n; i++) {
		len += (size_t)snprintf(buf + len, len < cap ? cap - len : 0, "%s ", names[i]);
		assert_true(len < cap);
		free(names[i]);
	}
	return 0;
}

/* -- as programs do it --------------------------------------------------------------------------------------- */

long fw_cat(struct fw *w, const char *path, char *buf, size_t cap)
{
	struct fuse_entry_out e;
	struct fuse_open_out o;
	struct fuse_attr at;
	size_t len = 0;
	long n;
	int r = fw_walk(w, path, &e);

	if (!r)
		r = fw_open(w, e.nodeid, O_RDONLY, &o);
	if (r < 0)
		return r;
	while ((n = fw_read(w, e.nodeid, o.fh, O_RDONLY, len, buf + len, 4096)) > 0) {
		len += (size_t)n;
		assert_true(len + 4096 < cap);
	}
	assert_int_equal(fw_getattr(w, e.nodeid, &at), 0);
	fw_flush(w, e.nodeid, o.fh);
	fw_release(w, e.nodeid, o.fh);
	fw_forget(w, e.nodeid, 1);
	if (n < 0)
		return n;
	buf[len] = '\0';
	if (!(o.open_flags & FOPEN_DIRECT_IO)) {
		assert_int_equal(e.attr.size, len);
		assert_int_equal(at.size, len);
	}
	return (long)len;
}

int fw_put_bytes(struct fw *w, const char *path, int flags, const void *data, size_t len)
{
	struct fuse_entry_out e;
	struct fuse_open_out o;
	const char *name;
	uint64_t dir;
	long n;
	int r = walk_parent(w, path, &dir, &name);

	if (r < 0)
		return r;
	r = fw_lookup(w, dir, name, &e);
	if (r == -ENOENT)
		r = fw_create(w, dir, name, flags | O_CREAT, 0644, &e, &o);
	else if (!r)
		r = fw_open(w, e.nodeid, flags, &o);
	if (r < 0)
		return r;
	n = fw_write(w, e.nodeid, o.fh, flags, 0, data, len);
	assert_int_equal(fw_flush(w, e.nodeid, o.fh), 0);
	fw_release(w, e.nodeid, o.fh);
	fw_forget(w, e.nodeid, 1);
	if (n >= 0)
		assert_int_equal(n, len);
	return n < 0 ? (int)n : 0;
}

int fw_put(struct fw *w, const char *path, const char *text)
{
	return fw_put_bytes(w, path, O_WRONLY | O_TRUNC, text, strlen(text));
}
