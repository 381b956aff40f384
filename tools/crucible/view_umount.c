/* SPDX-License-Identifier: Apache-2.0 */
/* crucible umount: what crucible mount did, undone. */
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "tools/crucible/bind.h"
#include "tools/crucible/command.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/view.h"

static int tell(struct cli *c, const char *view, bool removed)
{
	AUTO_JSON *o = c->json ? json_object_new_object() : NULL;

	if (!c->json)
		return 0;
	if (!o || fields_put(o, "view", json_object_new_string(view)) < 0 ||
	    fields_put(o, "removed", json_object_new_boolean(removed)) < 0)
		return err_set(&c->err, -ENOMEM, "no memory");
	return print_json(c, json_object_get(o));
}

/* The mount is gone already. */
static int remove_view(struct cli *c, const struct bind *b)
{
	struct view v;
	int r = view_open(c->mount.fd, b->view, &v, &c->err);

	if (r == 0) {
		r = view_remove(&v, &c->err);
		view_close(&v);
	}
	if (r < 0 && r != -ENOENT)
		return err_wrap(&c->err, "unmounted, but the view is still there");
	return 0;
}

int cmd_umount(struct cli *c)
{
	const char *path = c->args.words[0];
	bool keep = c->args.given[OPT_KEEP_VIEW];
	struct bind b;
	AUTO_FD dir = -1;
	int r = 0;

	/* Taking the mount away needs no daemon: it may be what is gone. */
	if (!keep && mount_open(c->args.text[OPT_MOUNT], &c->mount, &c->err) < 0)
		return err_wrap(&c->err, "the view could not be removed (--keep takes only the mount away)");
	r = dir = bind_open(path, &c->err);
	if (r >= 0)
		r = bind_find(dir, path, c->mount.fd, &b, &c->err);
	if (r == 0)
		r = bind_undo(dir, path, &c->err);
	if (r == 0 && !keep && b.same)
		r = remove_view(c, &b);
	return r < 0 ? r : tell(c, b.view, !keep && b.same);
}
