/* SPDX-License-Identifier: Apache-2.0 */
/* Files that a freeze will need, made before: to make a file costs ten times a rename (0.15 ms each on ext4, and a
 * freeze needs four), and the machine is paused then. They are made one by one, by the writes in between; without them
 * a freeze is slower, that is all. No record names them, so the next start removes them. */
#include "snapstore/disk/disk_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

struct record_name {
	char text[32];
};

static struct record_name name_of(uint64_t number)
{
	struct record_name n;

	snprintf(n.text, sizeof(n.text), ".spare-%llu", (unsigned long long)number);
	return n;
}

static int add_record(struct disks *d)
{
	uint64_t number = d->next_spare++;
	int fd =
		openat(d->stacks_fd, name_of(number).text, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	d->spare_records[d->nspare_records++] = (struct spare_record){ .number = number, .fd = fd };
	return 0;
}

bool spare_add(struct disks *d)
{
	if (d->nspare_records < SPARE_RECORDS)
		return add_record(d) == 0;
	if (d->nspare_layers < SPARE_LAYERS && layer_create(d, 0, &d->spare_layers[d->nspare_layers], NULL) == 0) {
		d->nspare_layers++;
		return true;
	}
	return false;
}

int spare_layer(struct disks *d, uint64_t bytes, struct layer **ret, struct err *e)
{
	struct layer *l;
	int r;

	if (d->nspare_layers == 0)
		return layer_create(d, bytes, ret, e);
	l = d->spare_layers[--d->nspare_layers];
	r = layer_size(l, bytes, e);
	if (r < 0) {
		layer_close(l);
		layer_put(d, l);
		return r;
	}
	*ret = l;
	return 0;
}

int spare_record(struct disks *d, const char *id, const void *text, size_t len)
{
	struct spare_record s;
	int r;

	if (d->nspare_records == 0)
		return fd_replace(d->stacks_fd, id, text, len, 0600, false);
	s = d->spare_records[--d->nspare_records];
	r = fd_write_all(s.fd, text, len);
	if (r == 0 && renameat(d->stacks_fd, name_of(s.number).text, d->stacks_fd, id) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(d->stacks_fd, name_of(s.number).text, 0);
	fd_close(&s.fd);
	return r;
}

void spares_drop(struct disks *d)
{
	while (d->nspare_layers > 0) {
		struct layer *l = d->spare_layers[--d->nspare_layers];

		layer_close(l);
		layer_put(d, l);
	}
	while (d->nspare_records > 0) {
		struct spare_record *s = &d->spare_records[--d->nspare_records];

		unlinkat(d->stacks_fd, name_of(s->number).text, 0);
		fd_close(&s->fd);
	}
}
