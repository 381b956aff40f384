/* SPDX-License-Identifier: Apache-2.0 */
/* crucible version: of this command, and of the daemon when there is one. */
#include <stdio.h>

#include "tools/crucible/command.h"

int cmd_version(struct cli *c)
{
	struct mount m = { .fd = -1 };
	bool running = mount_open(c->args.text[OPT_MOUNT], &m, NULL) == 0;
	struct json_object *o;

	mount_close(&m);
	if (!c->json) {
		printf("crucible %s\n", CRUCIBLE_VERSION);
		if (running)
			printf("daemon of %s: %s\n", m.path, m.version);
		return 0;
	}
	o = json_object_new_object();
	if (o) {
		json_object_object_add(o, "crucible", json_object_new_string(CRUCIBLE_VERSION));
		json_object_object_add(o, "daemon", running ? json_object_new_string(m.version) : NULL);
	}
	return print_json(c, o);
}
