/* SPDX-License-Identifier: Apache-2.0 */
/* What an open `cmd`, `stdin` or `import` gathers until its last close: in memory up to 64 KiB, then in <sandbox>/tmp/.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"
#include "cruciblefs/domain/view_priv.h"

#define UPLOAD_MEMORY_MAX (64u * 1024)
#define UPLOADS_MAX	  512u /* open ones, in all */
#define UPLOADS_UID_MAX	  128u /* of one user, so that nobody can take all */

struct upload {
	struct upload *next; /* of the registry's */
	struct sandbox *s;   /* a reference */
	enum upload_kind kind;
	char *slot; /* or NULL */
	struct cfs_who who;
	struct buf mem;
	int fd; /* of the spill file, or -1 */
	char path[48];
	uint64_t size;
	bool failed; /* a write was refused: what was gathered is not the whole */
};

static const char *const kind_words[] = { [UPLOAD_CMD] = "cmd", [UPLOAD_STDIN] = "stdin", [UPLOAD_IMPORT] = "import" };

static enum policy_op op_of(enum upload_kind kind)
{
	return kind == UPLOAD_IMPORT ? POLICY_FILES : POLICY_EXEC;
}

static unsigned count_open(const struct registry *r, const struct cfs_who *who)
{
	unsigned n = 0;

	for (const struct upload *u = r->uploads; u; u = u->next)
		n += !who || u->who.uid == who->uid;
	return n;
}

int upload_new(struct sandbox *s, enum upload_kind kind, const char *slot, const struct cfs_who *who,
	       struct upload **ret, struct err *e)
{
	struct upload *u;
	int r = sandbox_permits(s, who, op_of(kind), kind_words[kind], e);

	if (r < 0)
		return r;
	if (slot && !slot_find(s, slot))
		return err_set(e, -ENOENT, "sandbox %s: exec/%s does not exist", s->name, slot);
	if (count_open(s->reg, NULL) >= UPLOADS_MAX || (who->uid && count_open(s->reg, who) >= UPLOADS_UID_MAX))
		return err_set(e, -EMFILE,
			       "sandbox %s: %s: too many commands are being written at once (%u of a user, %u in all); "
			       "close some",
			       s->name, kind_words[kind], UPLOADS_UID_MAX, UPLOADS_MAX);
	u = calloc(1, sizeof(*u));
	if (!u)
		return err_set(e, -ENOMEM, "sandbox %s: no memory", s->name);
	u->slot = slot ? strdup(slot) : NULL;
	if (slot && !u->slot) {
		free(u);
		return err_set(e, -ENOMEM, "sandbox %s: no memory", s->name);
	}
	u->s = sandbox_ref(s);
	u->kind = kind;
	u->who = *who;
	u->fd = -1;
	buf_init(&u->mem, UPLOAD_MEMORY_MAX);
	u->next = s->reg->uploads;
	s->reg->uploads = u;
	*ret = u;
	return 0;
}

/* Frees all but a spill file that has been renamed away (path emptied then). */
void upload_abort(struct upload *u)
{
	if (!u)
		return;
	if (u->path[0])
		unlinkat(u->s->dirfd, u->path, 0);
	fd_close(&u->fd);
	buf_fini(&u->mem);
	for (struct upload **at = &u->s->reg->uploads; *at; at = &(*at)->next) {
		if (*at == u) {
			*at = u->next;
			break;
		}
	}
	sandbox_unref(u->s);
	free(u->slot);
	free(u);
}

uint64_t upload_size(const struct upload *u)
{
	return u->size;
}

static int spill(struct upload *u)
{
	static uint64_t counter;
	int r;

	if (u->fd >= 0)
		return 0;
	snprintf(u->path, sizeof(u->path), "tmp/%s-%" PRIu64, kind_words[u->kind], ++counter);
	unlinkat(u->s->dirfd, u->path, 0); /* of a daemon that was killed */
	u->fd = openat(u->s->dirfd, u->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0640);
	if (u->fd < 0) {
		r = -errno;
		u->path[0] = '\0';
		return r;
	}
	r = fd_write_all(u->fd, u->mem.data, u->mem.len);
	buf_fini(&u->mem);
	return r;
}

static int refuse(struct upload *u, size_t len, const void *data, struct err *e)
{
	struct sandbox *s = u->s;
	uint64_t max = u->kind == UPLOAD_CMD ? BOX_CMD_MAX : (uint64_t)sandbox_num(s, ATTR_DISK_MIB) << 20;

	int r;

	if (s->gone)
		return err_set(e, -ENOENT, "sandbox %s: removed", s->name);
	r = sandbox_permits(s, &u->who, op_of(u->kind), kind_words[u->kind], e);
	if (r < 0)
		return r;
	if (u->size + len > max)
		return err_set(e, -EFBIG, "sandbox %s: %s: more than %" PRIu64 " bytes%s", s->name, kind_words[u->kind],
			       max, u->kind == UPLOAD_CMD ? "; put the data into fs/ or stdin" : " (disk_mib)");
	if (u->kind == UPLOAD_CMD && memchr(data, '\0', len))
		return err_set(e, -EINVAL,
			       "sandbox %s: cmd: a NUL byte: a command is text; put binary data into fs/ or stdin",
			       s->name);
	if (u->kind != UPLOAD_STDIN && !u->slot && s->nwaiting >= BOX_QUEUE_MAX)
		return err_set(e, -EBUSY,
			       "sandbox %s: the queue is full: %u commands wait; mkdir exec/NAME runs one beside them",
			       s->name, BOX_QUEUE_MAX);
	return 0;
}

int upload_write(struct upload *u, const void *data, size_t len, struct err *e)
{
	struct err own = { 0 };
	int r;

	e = e ? e : &own;
	if (u->failed)
		return err_set(e, -EIO,
			       "sandbox %s: %s: an earlier write of this descriptor was refused; open it again",
			       u->s->name, kind_words[u->kind]);
	r = refuse(u, len, data, e);
	if (!r) {
		bool in_memory = u->fd < 0 && u->mem.len + len <= UPLOAD_MEMORY_MAX;

		if (!in_memory)
			r = spill(u);
		if (!r)
			r = in_memory ? buf_add(&u->mem, data, len) : fd_write_all(u->fd, data, len);
		if (r < 0)
			err_set(e, r, "sandbox %s: %s: the store: %s", u->s->name, kind_words[u->kind], strerror(-r));
	}
	if (r < 0) {
		u->failed = true;
		if (!u->s->gone)
			sandbox_fail(u->s, &u->who, e);
		return r;
	}
	u->size += len;
	return 0;
}

/* Input for the next command: the newest upload is the one that counts. */
static int keep_stdin(struct upload *u)
{
	struct sandbox *s = u->s;
	int r = spill(u);

	if (r < 0)
		return r;
	if (s->stdin_path)
		unlinkat(s->dirfd, s->stdin_path, 0);
	free(s->stdin_path);
	s->stdin_path = strdup(u->path);
	if (!s->stdin_path)
		return -ENOMEM;
	u->path[0] = '\0';
	return 0;
}

static int commit(struct upload *u, struct err *e)
{
	struct sandbox *s = u->s;
	static const char import_request[] = "{\"argv\":[\"//import\"]}";
	/* It was open when a policy became narrower, or its view ended. */
	int r = sandbox_permits(s, &u->who, op_of(u->kind), kind_words[u->kind], e);

	if (r < 0)
		return r;
	switch (u->kind) {
	case UPLOAD_STDIN:
		r = keep_stdin(u);
		return r < 0 ? err_set(e, r, "sandbox %s: stdin: the store: %s", s->name, strerror(-r)) : 0;
	case UPLOAD_IMPORT:
		r = spill(u);
		if (r < 0)
			return err_set(e, r, "sandbox %s: import: the store: %s", s->name, strerror(-r));
		r = exec_accept(s, u->slot, &u->who, import_request, sizeof(import_request) - 1, NULL, u->path, e);
		break;
	default:
		r = exec_accept(s, u->slot, &u->who, u->mem.data, u->mem.len, u->fd >= 0 ? u->path : NULL,
				u->slot ? NULL : s->stdin_path, e);
		if (!r && !u->slot) {
			free(s->stdin_path);
			s->stdin_path = NULL;
		}
	}
	if (!r)
		u->path[0] = '\0'; /* renamed away */
	return r;
}

void upload_commit(struct upload *u)
{
	struct err e = { 0 };

	/* A refused write was told to the writer; half a command must not run. */
	if (u->size && !u->failed && !u->s->gone && commit(u, &e) < 0) {
		sandbox_fail(u->s, &u->who, &e);
		log_warn("sandbox=%s event=upload-lost error=\"%s\" next=continues", u->s->name, e.msg);
	}
	upload_abort(u);
}
