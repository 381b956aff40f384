/* SPDX-License-Identifier: Apache-2.0 */
/* crucible snapshot verify, crucible snapshot rm. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/command.h"
#include "tools/crucible/each.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/permits.h"
#include "tools/crucible/snapshot.h"
#include "tools/crucible/watch.h"

int cmd_snapshot_verify(struct cli *c)
{
	AUTO_JSON *o = NULL;
	struct snapshot s;
	char what[SNAPSHOT_ID_MAX + 16];
	int r = snapshot_open(c->mount.fd, c->args.words[0], &s, &c->err);

	if (r < 0)
		return r;
	snprintf(what, sizeof(what), "verifying %s", s.id);
	r = watch_outcome(c->mount.fd, s.dir, "verify", what, &o, &c->err);
	snapshot_close(&s);
	if (r < 0)
		return r;
	if (c->json)
		print_json(c, json_object_get(o));
	if (!strcmp(fields_text(o, "status"), "failed"))
		return err_set(&c->err, -EIO, "snapshot \"%s\" cannot be verified: %s", s.id,
			       fields_text(o, "error") ?: "the store does not say why");
	if (strcmp(fields_text(o, "status"), "ok") != 0)
		return err_set(&c->err, -EBADMSG, "snapshot \"%s\" is %s: %llu of %llu pages: %s", s.id,
			       fields_text(o, "status"), (unsigned long long)fields_number(o, "damaged"),
			       (unsigned long long)fields_number(o, "pages"), fields_text(o, "first") ?: "");
	if (!c->json)
		printf("%s: ok, %llu pages\n", s.id, (unsigned long long)fields_number(o, "pages"));
	return 0;
}

static int remove_one(struct cli *c, const char *id, struct err *e)
{
	AUTO_FD all = -1;
	int r = snapshot_id_check(id, e);

	if (r < 0)
		return r;
	all = openat(c->mount.fd, "snapshots", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (all < 0)
		return err_set(e, -errno, "snapshots: %s", strerror(errno));
	if (unlinkat(all, id, AT_REMOVEDIR) == 0 || (errno == ENOENT && c->args.given[OPT_FORCE]))
		return 0;
	r = -errno;
	return r == -EPERM && permits_explain(c->mount.fd, POLICY_DELETE, id, e) ? r : snapshot_explain(r, id, e);
}

int cmd_snapshot_rm(struct cli *c)
{
	return each_word(c, remove_one);
}
