/* SPDX-License-Identifier: Apache-2.0 */
/* crucible store: what the snapstore holds, whether all of it is whole, and giving back what nothing needs. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "tools/crucible/command.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/table.h"
#include "tools/crucible/tree.h"
#include "tools/crucible/watch.h"

#define STAT_TRIES   100
#define STAT_TICK_MS 50

static int open_store(struct cli *c)
{
	int fd = openat(c->mount.fd, "store", O_PATH | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? err_set(&c->err, -errno, "store: %s", strerror(errno)) : fd;
}

/* Sizes are for people here; -o json has the bytes. */
static void show_stat(struct json_object *o)
{
	static const struct {
		const char *key, *words;
		bool bytes;
	} lines[] = {
		{ "snapshots", "snapshots", false },   { "pages", "pages of 4 KiB, each once", false },
		{ "packs", "pack files", false },      { "bytes_packs", "in pack files", true },
		{ "bytes_index", "in indexes", true }, { "bytes_logical", "as snapshots show it", true },
	};
	char text[24];

	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		uint64_t v = fields_number(o, lines[i].key);

		if (lines[i].bytes)
			table_size(v, text);
		else
			snprintf(text, sizeof(text), "%llu", (unsigned long long)v);
		printf("%-28s %s\n", lines[i].words, text);
	}
}

/* The daemon asks the store behind a read, and has nothing to tell at first. */
static int get_stat(struct cli *c, struct json_object **ret)
{
	AUTO_FD store = open_store(c);

	if (store < 0)
		return store;
	for (unsigned tries = 0;; tries++) {
		AUTO_JSON *o = NULL;
		int r = tree_json(store, "stat.json", &o, &c->err);

		if (r < 0)
			return r;
		if (json_object_object_length(o) > 0) {
			*ret = o;
			o = NULL;
			return 0;
		}
		if (tries == STAT_TRIES)
			return err_set(&c->err, -ETIMEDOUT, "store: it does not answer");
		poll(NULL, 0, STAT_TICK_MS);
	}
}

int cmd_store_stat(struct cli *c)
{
	AUTO_JSON *o = NULL;
	int r = get_stat(c, &o);

	if (r < 0)
		return r;
	if (c->json)
		return print_json(c, json_object_get(o));
	show_stat(o);
	return 0;
}

static int outcome(struct cli *c, const char *file, const char *what, struct json_object **ret)
{
	AUTO_FD store = open_store(c);
	int r = store < 0 ? store : watch_outcome(c->mount.fd, store, file, what, ret, &c->err);

	if (r == 0 && c->json)
		r = print_json(c, json_object_get(*ret));
	return r;
}

int cmd_store_verify(struct cli *c)
{
	AUTO_JSON *o = NULL;
	int r = outcome(c, "verify", "verifying the store", &o);

	if (r < 0)
		return r;
	if (!strcmp(fields_text(o, "status"), "failed"))
		return err_set(&c->err, -EIO, "verify: %s", fields_text(o, "error") ?: "the store does not say why");
	if (strcmp(fields_text(o, "status"), "ok") != 0)
		return err_set(&c->err, -EBADMSG, "the store is %s: %llu of %llu pages: %s", fields_text(o, "status"),
			       (unsigned long long)fields_number(o, "damaged"),
			       (unsigned long long)fields_number(o, "pages"), fields_text(o, "first") ?: "");
	if (!c->json)
		printf("ok, %llu pages\n", (unsigned long long)fields_number(o, "pages"));
	return 0;
}

int cmd_store_gc(struct cli *c)
{
	AUTO_JSON *o = NULL;
	char before[24], after[24];
	int r = outcome(c, "gc", "collecting what no snapshot needs", &o);

	if (r < 0)
		return r;
	if (strcmp(fields_text(o, "status"), "ok") != 0)
		return err_set(&c->err, -EIO, "gc: %s", fields_text(o, "error") ?: fields_text(o, "status"));
	if (!c->json)
		printf("%s before, %s now, %llu pages dropped\n", table_size(fields_number(o, "bytes_before"), before),
		       table_size(fields_number(o, "bytes_after"), after),
		       (unsigned long long)fields_number(o, "pages_dropped"));
	return 0;
}
