/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/slot.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/tree.h"

#define REQUEST_MAX (8u * 1024 * 1024)

int slot_new(const struct sbx *s, struct slot *ret, struct err *e)
{
	struct slot t = SLOT_NONE;
	int r = 0;

	t.sbx = s->dir;
	t.exec = openat(s->dir, "exec", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (t.exec < 0)
		return tree_explain(s->dir, -errno, e, "sandbox \"%s\": exec", s->id);
	for (int tries = 0; tries < 8; tries++) {
		sbx_fresh_name("cli-", t.name);
		r = mkdirat(t.exec, t.name, 0755) < 0 ? -errno : 0;
		if (r != -EEXIST)
			break;
	}
	if (r == 0) {
		t.dir = openat(t.exec, t.name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (t.dir < 0) {
			r = -errno;
			unlinkat(t.exec, t.name, AT_REMOVEDIR);
		}
	}
	if (r < 0) {
		fd_close(&t.exec);
		return tree_explain(s->dir, r, e, "sandbox \"%s\": exec", s->id);
	}
	*ret = t;
	return 0;
}

int slot_send(struct slot *t, const struct request *q, struct err *e)
{
	struct buf text;
	int r;

	buf_init(&text, REQUEST_MAX);
	r = request_format(q, &text, e);
	if (r == 0) {
		r = tree_write(t->dir, "cmd", text.data, text.len);
		if (r < 0)
			tree_explain(t->sbx, r, e, "exec/%s/cmd", t->name);
	}
	buf_fini(&text);
	return r;
}

int slot_ctl(struct slot *t, const char *line, struct err *e)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "%s\n", line), r;

	r = tree_write(t->dir, "ctl", text, (size_t)n);
	return r < 0 ? tree_explain(t->sbx, r, e, "exec/%s/ctl", t->name) : 0;
}

void slot_remove(struct slot *t)
{
	fd_close(&t->dir);
	if (t->exec >= 0)
		unlinkat(t->exec, t->name, AT_REMOVEDIR);
	fd_close(&t->exec);
}
