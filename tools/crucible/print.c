/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/crucible/command.h"
#include "tools/crucible/printable.h"

int print_json(struct cli *c, struct json_object *o)
{
	char *text;

	if (o && c->answer) {
		json_object_put(*c->answer);
		*c->answer = o;
		return 0;
	}
	text = o ? strdup(json_line(o)) : NULL;
	json_object_put(o);
	if (!text)
		return err_set(&c->err, -ENOMEM, "no memory");
	/* JSON escapes C0 controls, not C1; a program gets exactly what the tree said. */
	if (isatty(STDOUT_FILENO))
		printable_line(text);
	puts(text); /* main looks for errors of standard output */
	free(text);
	return 0;
}
