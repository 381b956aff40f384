/* SPDX-License-Identifier: Apache-2.0 */
/* The harness' file requests, and its looks at the agent's process. */
#include "test_agent_harness.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* -- files -------------------------------------------------------------------------- */

void put_args(struct buf *b, const char *fmt, ...)
{
	va_list ap;

	buf_init(b, AG_PAYLOAD_MAX);
	va_start(ap, fmt);
	for (; *fmt; fmt++) {
		if (*fmt == 's') {
			wire_put_str(b, va_arg(ap, const char *));
		} else if (*fmt == 'u') {
			wire_put_u32(b, va_arg(ap, uint32_t));
		} else if (*fmt == 'U') {
			wire_put_u64(b, va_arg(ap, uint64_t));
		} else if (*fmt == 'b') {
			wire_put_u8(b, (uint8_t)va_arg(ap, int));
		} else if (*fmt == 'B') {
			const void *data = va_arg(ap, const void *);

			wire_put_bytes(b, data, va_arg(ap, size_t));
		}
	}
	va_end(ap);
}

uint32_t fs_send(struct host *h, uint8_t op, struct buf *args)
{
	uint32_t id = ++h->next_fs;

	host_send(h, BULK, AG_FS_REQ, op, id, args->data, args->len);
	buf_fini(args);
	return id;
}

static bool has_reply(struct host *h, void *arg)
{
	uint32_t id = *(uint32_t *)arg;

	for (size_t i = 0; i < h->nfs; i++)
		if (h->fs[i].id == id)
			return true;
	return false;
}

/* Valid until the next call. */
struct fsrep *fs_wait(struct host *h, uint32_t id)
{
	static struct fsrep last;

	host_until(h, has_reply, &id);
	for (size_t i = 0; i < h->nfs; i++) {
		if (h->fs[i].id != id)
			continue;
		buf_fini(&last.data);
		last = h->fs[i];
		h->fs[i] = h->fs[--h->nfs];
		return &last;
	}
	return NULL;
}

struct fsrep *fs_call(struct host *h, uint8_t op, struct buf *args)
{
	struct fsrep *rep = fs_wait(h, fs_send(h, op, args));

	assert_int_equal(rep->op, op);
	return rep;
}

/* -- looking at the agent ----------------------------------------------------------- */

int open_fds(pid_t pid)
{
	char path[64];
	int n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	d = opendir(path);
	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

long resident_kib(pid_t pid)
{
	char path[64], line[256];
	long kib = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "RssAnon: %ld kB", &kib) == 1)
			break;
	fclose(f);
	return kib;
}

bool memory_can_be_measured(void)
{
#ifdef __SANITIZE_ADDRESS__
	return false;
#else
	return true;
#endif
}
