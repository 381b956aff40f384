/* SPDX-License-Identifier: Apache-2.0 */
/* crucible rm, crucible stop: the end of sandboxes, several at once. */
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "tools/crucible/command.h"
#include "tools/crucible/printable.h"
#include "tools/crucible/sbx.h"
#include "tools/crucible/tree.h"

#define STOP_TIMEOUT_MS 30000 /* the daemon gives a guest 10 s, then kills it */

/* Each of the words; a failure is said and the others are still done. Prints the ids that were done. */
static int for_each(struct cli *c, int (*fn)(struct cli *c, const char *id, struct err *e))
{
	AUTO_JSON *done = json_object_new_array();
	struct err last = { 0 };
	int failed = 0;

	if (!done)
		return err_set(&c->err, -ENOMEM, "no memory");
	for (size_t i = 0; i < c->args.nwords; i++) {
		struct err e = { 0 };

		if (fn(c, c->args.words[i], &e) == 0) {
			json_object_array_add(done, json_object_new_string(c->args.words[i]));
			continue;
		}
		/* The last failure is main's to say. */
		if (failed++)
			fprintf(stderr, "crucible: %s\n", printable_line(last.msg));
		last = e;
	}
	if (c->json)
		print_json(c, json_object_get(done));
	c->err = last;
	return failed ? last.code : 0;
}

static int remove_one(struct cli *c, const char *id, struct err *e)
{
	int r = sbx_remove_id(c->mount.fd, id, e);

	return r == -ENOENT && c->args.given[OPT_FORCE] ? 0 : r;
}

int cmd_sandbox_rm(struct cli *c)
{
	return for_each(c, remove_one);
}

static int stop_one(struct cli *c, const char *id, struct err *e)
{
	char status[32];
	struct sbx s;
	int r = sbx_open(c->mount.fd, id, &s, e);

	if (r < 0)
		return r;
	/* What does not run is stopped: not an error to somebody who wants just that. */
	r = tree_word(s.dir, "status", status, sizeof(status));
	if (r < 0)
		err_set(e, r, "sandbox \"%s\": status: %s", id, strerror(-r));
	else if (strcmp(status, "configured") != 0 && strcmp(status, "failed") != 0)
		r = tree_set(s.dir, "ctl", "stop", e);
	else
		goto out;
	if (r == 0)
		r = sbx_await(&s, "stopped", STOP_TIMEOUT_MS, e);
out:
	sbx_close(&s);
	return r;
}

int cmd_stop(struct cli *c)
{
	return for_each(c, stop_one);
}
