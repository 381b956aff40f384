/* SPDX-License-Identifier: Apache-2.0 */
/* The packs that a reader knows: each one's index mapped, its file open. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "snapstore/snap_priv.h"

void pack_name(uint64_t id, const char *suffix, char out[32])
{
	snprintf(out, 32, "%016" PRIx64 "%s", id, suffix);
}

struct pack *pack_ref(struct pack *p)
{
	p->refs++;
	return p;
}

struct pack *pack_unref(struct pack *p)
{
	if (!p || --p->refs)
		return NULL;
	if (p->data)
		munmap(p->data, p->len);
	fd_close(&p->fd);
	free(p->marks);
	free(p);
	return NULL;
}

void packs_init(struct packs *p)
{
	*p = (struct packs){ 0 };
}

void packs_fini(struct packs *p)
{
	for (size_t i = 0; i < p->n; i++)
		pack_unref(p->v[i]);
	free(p->v);
	packs_init(p);
}

/* Where @id stands, or would. */
static size_t position(const struct packs *p, uint64_t id)
{
	size_t low = 0, high = p->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (p->v[mid]->id < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct pack *packs_get(const struct packs *p, uint64_t id)
{
	size_t i = position(p, id);

	return i < p->n && p->v[i]->id == id ? p->v[i] : NULL;
}

void packs_forget(struct packs *p, uint64_t id)
{
	size_t i = position(p, id);

	if (i == p->n || p->v[i]->id != id)
		return;
	if (p->hint == p->v[i])
		p->hint = NULL;
	pack_unref(p->v[i]);
	p->gone++;
	p->n--;
	memmove(p->v + i, p->v + i + 1, (p->n - i) * sizeof(*p->v)); /* NOLINT(bugprone-sizeof-expression) */
}

static int pack_map(struct snap *s, struct pack *p, struct err *e)
{
	struct stat st;
	AUTO_FD fd = -1;
	char name[32];
	void *data;
	int r;

	pack_name(p->id, ".idx", name);
	fd = openat(s->packs_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(e, -errno, "packs/%s: %s", name, err_name(-errno));
	if (!S_ISREG(st.st_mode) || st.st_size < 1)
		return err_set(e, -EBADMSG, "packs/%s: it is empty", name);
	data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (data == MAP_FAILED)
		return err_set(e, -errno, "packs/%s: mapping it: %s", name, err_name(-errno));
	p->data = data;
	p->len = (size_t)st.st_size;
	r = index_open(p->data, p->len, &p->x, e);
	if (r == 0 && s->write) /* a writer believes what it says is here already, so it looks closely */
		r = index_check(&s->hash, p->data, p->len, e);
	if (r < 0) {
		err_wrap(e, "packs/%s", name);
		return r;
	}
	pack_name(p->id, ".pack", name);
	p->fd = openat(s->packs_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (p->fd < 0 || fstat(p->fd, &st) < 0)
		return err_set(e, -errno, "packs/%s: %s", name, err_name(-errno));
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size < p->x.pack_bytes)
		return err_set(e, -EBADMSG, "packs/%s: it is cut", name);
	return 0;
}

int packs_load(struct snap *s, uint64_t id, struct err *e)
{
	struct packs *all = &s->packs;
	size_t i = position(all, id);
	struct pack *p;
	int r;

	if (i < all->n && all->v[i]->id == id)
		return 0;
	if (all->n == SNAP_PACKS_MAX)
		return err_set(e, -ENOSPC, "the store has more than %u packs: gc joins them", SNAP_PACKS_MAX);
	if (all->n == all->cap) {
		size_t cap = all->cap ? all->cap * 2 : 16;
		struct pack **v = realloc(all->v, cap * sizeof(*v)); /* NOLINT(bugprone-sizeof-expression) */

		if (!v)
			return err_set(e, -ENOMEM, "packs: no memory");
		all->v = v;
		all->cap = cap;
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return err_set(e, -ENOMEM, "packs: no memory");
	*p = (struct pack){ .refs = 1, .fd = -1, .id = id };
	r = pack_map(s, p, e);
	if (r < 0) {
		pack_unref(p);
		return r;
	}
	memmove(all->v + i + 1, all->v + i, (all->n - i) * sizeof(*all->v)); /* NOLINT(bugprone-sizeof-expression) */
	all->v[i] = p;
	all->n++;
	if (id > all->top)
		all->top = id;
	return 0;
}

/* "<16 of 0-9a-f><suffix>" */
static bool pack_id(const char *name, const char *suffix, uint64_t *ret)
{
	char *end, again[32];

	if (strlen(name) != 16 + strlen(suffix))
		return false;
	*ret = strtoull(name, &end, 16);
	pack_name(*ret, suffix, again);
	return strcmp(name, again) == 0;
}

static int by_id(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

int packs_scan(struct snap *s, struct err *e)
{
	AUTO_FREE uint64_t *seen = NULL;
	struct packs *all = &s->packs;
	size_t n = 0, cap = 0, kept = 0;
	struct dirent *entry;
	struct err why;
	int r = 0, fd;
	DIR *dir;

	fd = openat(s->packs_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		r = err_set(e, -errno, "packs: %s", err_name(-errno));
		fd_close(&fd);
		return r;
	}
	for (;;) {
		uint64_t id;

		errno = 0;
		entry = readdir(dir);
		if (!entry)
			break;
		if (pack_id(entry->d_name, ".pack", &id) && id > all->top)
			all->top = id;
		if (!pack_id(entry->d_name, ".idx", &id))
			continue;
		if (n == cap) {
			uint64_t *more = realloc(seen, (cap = cap ? cap * 2 : 64) * sizeof(*seen));

			if (!more) {
				errno = ENOMEM;
				break;
			}
			seen = more;
		}
		seen[n++] = id;
	}
	if (errno)
		r = err_set(e, -errno, "packs: reading the folder: %s", err_name(-errno));
	closedir(dir);
	if (r < 0)
		return r;
	all->bad[0] = '\0';
	/* One that cannot be used is no reason to lose the others: what is in it is missed when it is looked for. */
	for (size_t i = 0; i < n; i++) {
		r = packs_load(s, seen[i], &why);
		if (r == -ENOMEM || r == -EMFILE || r == -ENFILE)
			return err_set(e, r, "%s", why.msg);
		if (r < 0)
			snprintf(all->bad, sizeof(all->bad), "%.150s", why.msg);
	}
	if (n)
		qsort(seen, n, sizeof(*seen), by_id);
	for (size_t i = 0; i < all->n; i++) {
		if (n && bsearch(&all->v[i]->id, seen, n, sizeof(*seen), by_id))
			all->v[kept++] = all->v[i];
		else
			pack_unref(all->v[i]);
	}
	all->gone += all->n - kept;
	all->n = kept;
	all->hint = NULL;
	return 0;
}

static int found(struct pack *p, uint32_t pos, struct where *ret, struct err *e)
{
	struct where w = { .pack = p };
	int r = index_place(&p->x, pos, &w.frame, &w.slot, e);

	if (r == 0)
		r = index_frame(&p->x, w.frame, &w.place, e);
	if (r < 0) {
		err_wrap(e, "pack %016" PRIx64, p->id);
		return r;
	}
	*ret = w;
	return 0;
}

int packs_find(struct packs *p, const struct snap_digest *d, struct where *ret, struct err *e)
{
	uint32_t pos;

	for (size_t i = p->n; i-- > 0;) {
		if (!index_find(&p->v[i]->x, d, &pos))
			continue;
		p->hint = p->v[i];
		return found(p->v[i], pos, ret, e);
	}
	return -ENOENT;
}

int packs_find_any(struct packs *p, const struct snap_digest *d, struct where *ret, struct err *e)
{
	uint32_t pos;

	if (p->hint && index_find(&p->hint->x, d, &pos))
		return found(p->hint, pos, ret, e);
	return packs_find(p, d, ret, e);
}
