/* SPDX-License-Identifier: Apache-2.0 */
/* crucible daemon: becomes crucibled. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/crucible/command.h"
#include "tools/crucible/libexec.h"

/* -o json: what is executed, as one line, before the daemon's own log begins. */
static int tell(struct cli *c, const char *path, const struct libexec_args *argv)
{
	AUTO_JSON *o = json_object_new_object();
	struct json_object *list = json_object_new_array();

	if (!o || !list || json_object_object_add(o, "program", json_object_new_string(path)) != 0) {
		json_object_put(list);
		return err_set(&c->err, -ENOMEM, "no memory");
	}
	for (size_t i = 0; i < argv->n && i < LIBEXEC_ARGS_MAX; i++)
		json_object_array_add(list, json_object_new_string(argv->v[i]));
	json_object_object_add(o, "argv", list);
	return print_json(c, json_object_get(o));
}

int cmd_daemon(struct cli *c)
{
	const struct args *a = &c->args;
	struct libexec_args argv = { 0 };
	char path[PATH_MAX];
	const char *mount = a->text[OPT_MOUNT];
	int r = libexec_find("crucibled", path, sizeof(path), &c->err);

	if (r < 0)
		return r;
	/* The variable says where this user's mount is: for the daemon as for every other subcommand. */
	if (!mount)
		mount = getenv("CRUCIBLE_MOUNT");
	libexec_add_word(&argv, "crucibled");
	libexec_add(&argv, "--mount", mount && *mount ? mount : NULL);
	libexec_add(&argv, "--store", a->text[OPT_STORE]);
	libexec_add(&argv, "--config", a->text[OPT_CONFIG]);
	libexec_add(&argv, "--log-level", a->text[OPT_LOG_LEVEL]);
	for (size_t i = 0; i < a->texts[OPT_SET].n; i++)
		libexec_add(&argv, "--set", a->texts[OPT_SET].v[i]);
	if (c->json) {
		r = tell(c, path, &argv);
		if (r < 0)
			return r;
	}
	return libexec_become(path, &argv, &c->err);
}
