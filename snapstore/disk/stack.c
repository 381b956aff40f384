/* SPDX-License-Identifier: Apache-2.0 */
/* Which stacks there are, and the base images below them. */
#include "snapstore/disk/disk_priv.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define RECORD_MAX 16384u

/* Letters that are themselves in a path and in JSON. */
static bool name_ok(const char *name, size_t max)
{
	size_t n = 0;

	for (; name[n]; n++)
		if (n >= max || (unsigned char)name[n] <= ' ' || name[n] == 0x7f || strchr("/\"\\", name[n]))
			return false;
	return n > 0 && name[0] != '.';
}

/* Not what fd_replace() calls a file that is being written. */
bool disk_id_ok(const char *id)
{
	return name_ok(id, DISK_ID_MAX) && !strstr(id, ".new-");
}

/* -- bases ------------------------------------------------------------------------------------------------------- */

int base_open(struct disks *d, struct base *b, struct err *e)
{
	AUTO_FD fd = -1;
	struct stat st;

	if (!b || b->fd >= 0)
		return 0;
	fd = openat(d->bases_fd, b->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, errno == ENOENT ? -EBADMSG : -errno, "disk: base image %s: open: %s", b->name,
			       strerror(errno));
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(e, -EBADMSG, "disk: base image %s: not a file", b->name);
	b->fd = take_fd(&fd);
	b->bytes = (uint64_t)st.st_size;
	return 0;
}

int base_get(struct disks *d, const char *name, int fd, struct base **ret, struct err *e)
{
	struct base *b;
	struct stat st;

	if (!name[0]) {
		*ret = NULL;
		return 0;
	}
	if (!name_ok(name, DISK_BASE_MAX))
		return err_set(e, -EINVAL, "disk: a base image has no such name");
	for (b = d->bases; b && strcmp(b->name, name); b = b->next)
		;
	if (!b) {
		b = calloc(1, sizeof(*b));
		if (!b)
			return err_set(e, -ENOMEM, "disk: base image: no memory");
		b->fd = -1;
		snprintf(b->name, sizeof(b->name), "%s", name);
		b->next = d->bases;
		d->bases = b;
	}
	b->refs++;
	if (fd >= 0 && b->fd < 0) {
		b->fd = fstat(fd, &st) < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
		if (b->fd < 0) {
			int r = err_set(e, -errno, "disk: base image %s: %s", name, strerror(errno));

			base_put(d, b);
			return r;
		}
		b->bytes = (uint64_t)st.st_size;
	}
	*ret = b;
	return 0;
}

void base_put(struct disks *d, struct base *b)
{
	struct base **at = &d->bases;

	if (!b || --b->refs > 0)
		return;
	while (*at && *at != b)
		at = &(*at)->next;
	if (*at)
		*at = b->next;
	fd_close(&b->fd);
	free(b);
}

/* -- the table --------------------------------------------------------------------------------------------------- */

static struct stack **place_of(struct disks *d, const char *id)
{
	uint32_t h = 2166136261u;
	struct stack **at;

	for (const char *c = id; *c; c++)
		h = (h ^ (uint8_t)*c) * 16777619u;
	for (at = &d->stacks[h % DISK_BUCKETS]; *at && strcmp((*at)->id, id); at = &(*at)->next)
		;
	return at;
}

struct stack *stack_find(struct disks *d, const char *id)
{
	return *place_of(d, id);
}

int stack_need(struct disks *d, const char *id, struct stack **ret, struct err *e)
{
	struct stack *k;

	if (!disk_id_ok(id))
		return err_set(e, -EINVAL, "disk: not a disk's name");
	k = stack_find(d, id);
	if (!k)
		return err_set(e, -ENOENT, "disk %s: there is none", id);
	if (k->damaged)
		return err_set(e, -EBADMSG, "disk %s: its record is damaged", id);
	*ret = k;
	return 0;
}

struct stack *stack_new(const char *id)
{
	struct stack *k = calloc(1, sizeof(*k));

	if (k)
		snprintf(k->id, sizeof(k->id), "%s", id);
	return k;
}

int stack_clone(struct disks *d, const struct stack *from, const char *id, struct stack **ret, struct err *e)
{
	struct stack *k = stack_new(id);

	(void)d;
	if (!k)
		return err_set(e, -ENOMEM, "disk %s: no memory", id);
	*k = *from;
	snprintf(k->id, sizeof(k->id), "%s", id);
	k->next = NULL;
	k->disk = NULL;
	k->join = NULL;
	k->nhad = 0;
	for (unsigned i = 0; i < k->nlayers; i++)
		k->layers[i]->refs++;
	if (k->base)
		k->base->refs++;
	*ret = k;
	return 0;
}

struct stack *stack_free(struct disks *d, struct stack *k)
{
	if (!k)
		return NULL;
	join_drop(d, k);
	for (unsigned i = 0; i < k->nlayers; i++)
		layer_put(d, k->layers[i]);
	base_put(d, k->base);
	free(k);
	return NULL;
}

void stack_link(struct disks *d, struct stack *k)
{
	struct stack **at = place_of(d, k->id);

	k->next = *at;
	*at = k;
}

void stack_unlink(struct disks *d, struct stack *k)
{
	*place_of(d, k->id) = k->next;
}

/* -- at the start ------------------------------------------------------------------------------------------------ */

static int fill(struct disks *d, struct stack *k, const struct record *rec, struct err *e)
{
	k->bytes = rec->bytes;
	k->limit = rec->limit;
	k->own = rec->own;
	k->frozen = rec->frozen;
	k->rooted = rec->rooted;
	k->root = rec->root;
	k->nhad = rec->nhad;
	memcpy(k->had, rec->had, sizeof(k->had));
	for (unsigned i = 0; i < rec->nhad; i++)
		if (rec->had[i] >= d->next_layer)
			d->next_layer = rec->had[i] + 1;
	for (; k->nlayers < rec->nlayers; k->nlayers++) {
		struct layer *l = layer_get(d, rec->layers[k->nlayers]);

		if (!l)
			return err_set(e, -ENOMEM, "disks: no memory");
		k->layers[k->nlayers] = l;
	}
	return base_get(d, rec->base, -1, &k->base, e);
}

static int load_one(struct disks *d, const char *name, struct err *e)
{
	AUTO_FREE char *text = NULL;
	struct record rec;
	size_t len;
	struct stack *k = stack_new(name);
	int r;

	if (!k)
		return err_set(e, -ENOMEM, "disks: no memory");
	r = fd_slurp(d->stacks_fd, name, RECORD_MAX, &text, &len);
	if (r == 0)
		r = record_parse(text, len, &rec, NULL);
	if (r == 0) {
		r = fill(d, k, &rec, e);
		if (r < 0 && r != -EINVAL)
			goto fail;
	}
	if (r < 0) {
		k->damaged = true;
		d->unreadable = true;
	}
	stack_link(d, k);
	return 0;
fail:
	/* Its layers' files stay: a start without memory removes nothing. */
	for (unsigned i = 0; i < k->nlayers; i++)
		k->layers[i]->refs--;
	base_put(d, k->base);
	free(k);
	return r;
}

int stacks_load(struct disks *d, struct err *e)
{
	int fd = openat(d->stacks_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *f;

	if (!dir) {
		r = err_set(e, -errno, "disks: list stacks: %s", strerror(errno));
		fd_close(&fd);
		return r;
	}
	while (r == 0 && (f = readdir(dir))) {
		if (strcmp(f->d_name, ".") == 0 || strcmp(f->d_name, "..") == 0)
			continue;
		if (strstr(f->d_name, ".new-") || strncmp(f->d_name, ".spare-", 7) == 0) /* a crash left it */
			unlinkat(d->stacks_fd, f->d_name, 0);
		else if (disk_id_ok(f->d_name))
			r = load_one(d, f->d_name, e);
	}
	closedir(dir);
	return r;
}
