/* SPDX-License-Identifier: Apache-2.0 */
/* crucible snapshot diff: which files the snapshot has otherwise than its parent. The daemon compares them when it is
 * asked to, once; the record stays. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "tools/crucible/command.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/printable.h"
#include "tools/crucible/snapshot.h"
#include "tools/crucible/tree.h"
#include "tools/crucible/watch.h"

#define DIFF_TEXT_MAX (16u * 1024 * 1024) /* the record itself is smaller: TREE_TEXT_MAX */

/* Have the record made, and wait until it is there. */
static int compute(struct cli *c, struct snapshot *s)
{
	struct watch w;
	char state[32];
	int r;

	watch_begin(c->mount.fd, &w);
	r = tree_set(s->dir, "diff", "start", &c->err);
	if (r == -EBUSY && tree_word(s->dir, "diff", state, sizeof(state)) == 0 && !strcmp(state, "running"))
		r = 0; /* somebody else has asked already */
	while (r == 0) {
		r = tree_word(s->dir, "diff", state, sizeof(state));
		if (r < 0)
			snapshot_explain(r, s->id, &c->err);
		else if (!strcmp(state, "done"))
			break;
		else if (!strcmp(state, "failed"))
			r = tree_explain(s->dir, -EIO, &c->err, "snapshot \"%s\": its files cannot be compared", s->id);
		else
			r = watch_wait(&w, &c->err);
	}
	watch_end(&w);
	return r;
}

static int get(struct cli *c, struct snapshot *s, struct json_object **ret)
{
	int r = tree_json(s->dir, "diff.json", ret, &c->err);

	if (r != -ENOENT)
		return r;
	c->err = (struct err){ 0 };
	r = compute(c, s);
	return r == 0 ? tree_json(s->dir, "diff.json", ret, &c->err) : r;
}

/* A guest chose these names: no newline in one may look like another line. */
int snapshot_diff_text(struct json_object *diff, struct buf *out, struct err *e)
{
	static const struct {
		const char *key;
		char letter;
	} lists[] = { { "added", 'A' }, { "changed", 'M' }, { "deleted", 'D' } };
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(lists); i++) {
		struct json_object *list = NULL;

		r = json_get_obj(diff, lists[i].key, json_type_array, &list, e);
		if (r < 0)
			return err_wrap(e, "diff.json");
		for (size_t k = 0; r == 0 && list && k < json_object_array_length(list); k++) {
			const char *path = json_object_get_string(json_object_array_get_idx(list, k));
			char *line = strdup(path ?: "");

			r = line ? buf_addf(out, "%c %s\n", lists[i].letter, printable_line(line)) : -ENOMEM;
			free(line);
		}
	}
	return r < 0 ? err_set(e, r, "diff.json: %s", strerror(-r)) : 0;
}

int cmd_snapshot_diff(struct cli *c)
{
	AUTO_JSON *diff = NULL;
	struct snapshot s;
	struct buf text;
	bool truncated = false;
	int r = snapshot_open(c->mount.fd, c->args.words[0], &s, &c->err);

	if (r < 0)
		return r;
	r = get(c, &s, &diff);
	snapshot_close(&s);
	if (r < 0)
		return r;
	if (c->json)
		return print_json(c, json_object_get(diff));
	buf_init(&text, DIFF_TEXT_MAX);
	r = snapshot_diff_text(diff, &text, &c->err);
	if (r == 0 && text.len)
		fwrite(text.data, 1, text.len, stdout);
	buf_fini(&text);
	json_get_bool(diff, "truncated", &truncated, NULL);
	if (r == 0 && truncated)
		fputs("crucible: there are more differences than the record holds\n", stderr);
	return r;
}
