/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/box/inherit.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"

#define FOLDER	    "inherited"
#define NAME_PREFIX "exec-"
#define NUMBER_MAX  ((uint64_t)1 << 62)

struct heir {
	struct inherit *owner;
	struct guest_exec *exec; /* NULL: it has ended */
	struct guest_inherited who;
	uint64_t n;
	uint64_t bytes, kept;
	bool exited;
	int exit_code;
	char signal[16];
};

struct inherit {
	int dirfd;
	uint64_t keep;
	inherit_end_fn *fn;
	void *arg;
	size_t n;
	struct heir heirs[];
};

/* -- output ------------------------------------------------------------------------------------ */

/* Opened for each piece: there may be a thousand of them, and most are silent. */
static int append(const struct heir *x, const uint8_t *data, size_t len)
{
	char path[48];
	AUTO_FD fd = -1;

	snprintf(path, sizeof(path), FOLDER "/%" PRIu64 ".out", x->n);
	fd = openat(x->owner->dirfd, path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0660);
	return fd < 0 ? -errno : fd_write_all(fd, data, len);
}

static void on_output(void *arg, enum ag_which which, const uint8_t *data, size_t len)
{
	struct heir *x = arg;
	size_t n = len < x->owner->keep - x->kept ? len : (size_t)(x->owner->keep - x->kept);

	(void)which;
	x->bytes += len;
	if (n > 0 && append(x, data, n) == 0) /* a full disk: this piece is dropped, and counted as that */
		x->kept += n;
}

static void on_started(void *arg, const char *script)
{
	(void)arg;
	(void)script;
}

static void on_exit_told(void *arg, const struct guest_exit *x)
{
	struct heir *h = arg;

	h->exited = true;
	h->exit_code = x->exit_code;
	memcpy(h->signal, x->signal, sizeof(h->signal));
}

static void on_end(void *arg)
{
	struct heir *x = arg;
	const struct inherit_end end = { .n = x->n,
					 .exit_code = x->exit_code,
					 .signal = x->signal,
					 .bytes = x->bytes,
					 .dropped = x->bytes - x->kept };

	x->exec = guest_exec_free(x->exec);
	x->owner->fn(x->owner->arg, &end);
}

static void on_credit(void *arg, uint32_t bytes)
{
	(void)arg;
	(void)bytes;
}

/* -- numbers ----------------------------------------------------------------------------------- */

/* The number in "exec-7"; 0: none. */
static uint64_t number_of(const char *name)
{
	const char *digits = name + strlen(NAME_PREFIX);
	char *end;
	uint64_t n;

	if (strncmp(name, NAME_PREFIX, strlen(NAME_PREFIX)) != 0 || strspn(digits, "0123456789") != strlen(digits))
		return 0;
	errno = 0;
	n = strtoull(digits, &end, 10);
	return errno || end == digits || n > NUMBER_MAX ? 0 : n;
}

static void give_numbers(struct inherit *h)
{
	uint64_t last = 0;

	for (size_t i = 0; i < h->n; i++) {
		uint64_t n = number_of(h->heirs[i].who.name);

		for (size_t k = 0; k < i; k++)
			if (h->heirs[k].n == n)
				n = 0;
		h->heirs[i].n = n;
		last = n > last ? n : last;
	}
	for (size_t i = 0; i < h->n; i++)
		if (h->heirs[i].n == 0)
			h->heirs[i].n = ++last;
}

/* -- the interface ----------------------------------------------------------------------------- */

int inherit_new(struct guest *g, const struct guest_info *info, int dirfd, uint64_t keep, inherit_end_fn *fn, void *arg,
		struct inherit **ret)
{
	static const struct guest_exec_ops ops = { .on_started = on_started,
						   .on_output = on_output,
						   .on_exit = on_exit_told,
						   .on_end = on_end,
						   .on_stdin_credit = on_credit };
	struct inherit *h = calloc(1, sizeof(*h) + info->ninherited * sizeof(h->heirs[0]));
	int r = h ? 0 : -ENOMEM;

	if (!h)
		return r;
	h->dirfd = dirfd;
	h->keep = keep;
	h->fn = fn;
	h->arg = arg;
	for (size_t i = 0; r == 0 && i < info->ninherited; i++) {
		struct heir *x = &h->heirs[h->n++];

		*x = (struct heir){ .owner = h, .who = info->inherited[i], .exit_code = -1 };
		r = guest_exec_adopt(g, x->who.stream, &ops, x, &x->exec);
	}
	if (r < 0) {
		inherit_free(h);
		return r;
	}
	give_numbers(h);
	if (h->n > 0)
		mkdirat(dirfd, FOLDER, 0770); /* without it their output is dropped, and counted */
	*ret = h;
	return 0;
}

struct inherit *inherit_free(struct inherit *h)
{
	for (size_t i = 0; h && i < h->n; i++)
		guest_exec_free(h->heirs[i].exec);
	free(h);
	return NULL;
}

int inherit_kill(struct inherit *h)
{
	int r = 0;

	for (size_t i = 0; h && i < h->n; i++) {
		int code = h->heirs[i].exec ? guest_exec_kill(h->heirs[i].exec) : 0;

		if (r == 0)
			r = code;
	}
	return r;
}

static int put(struct json_object *o, const char *key, struct json_object *v)
{
	if (v && json_object_object_add(o, key, v) == 0)
		return 0;
	json_object_put(v);
	return -ENOMEM;
}

static struct json_object *heir_json(const struct heir *x)
{
	struct json_object *o = json_object_new_object();
	int r = o ? 0 : -ENOMEM;

	if (r == 0)
		r = put(o, "n", json_object_new_uint64(x->n));
	if (r == 0)
		r = put(o, "pid", json_object_new_int64(x->who.pid));
	if (r == 0)
		r = put(o, "name", json_text(x->who.name, strlen(x->who.name)));
	if (r == 0 && !x->exec)
		r = put(o, "exit_code", json_object_new_int(x->exit_code));
	if (r == 0 && !x->exec)
		r = put(o, "signal", json_text(x->signal, strlen(x->signal)));
	if (r < 0) {
		json_object_put(o);
		return NULL;
	}
	return o;
}

int inherit_json(const struct inherit *h, const char *guest, char *out, size_t cap)
{
	AUTO_JSON *o = NULL;
	struct json_object *list = json_object_new_array();
	const char *line;
	size_t used;
	int r = json_parse(guest, strlen(guest), &o, NULL);

	if (r < 0 || !list) {
		json_object_put(list);
		return -ENOMEM;
	}
	r = put(o, "inherited", list);
	if (r == 0)
		r = put(o, "inherited_count", json_object_new_uint64(h->n));
	line = r == 0 ? json_line(o) : NULL;
	if (!line)
		return -ENOMEM;
	used = strlen(line);
	for (size_t i = 0; i < h->n; i++) {
		struct json_object *x = heir_json(&h->heirs[i]);
		const char *text = x ? json_line(x) : NULL;

		if (!text || used + strlen(text) + 2 > cap || json_object_array_add(list, x) < 0) {
			json_object_put(x);
			break;
		}
		used += strlen(text) + 1;
	}
	line = json_line(o);
	if (!line || strlen(line) >= cap)
		return line ? -EFBIG : -ENOMEM;
	memcpy(out, line, strlen(line) + 1);
	return 0;
}
