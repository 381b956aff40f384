/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/each.h"

#include <stdio.h>

#include "tools/crucible/printable.h"

int each_word(struct cli *c, int (*fn)(struct cli *c, const char *id, struct err *e))
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
