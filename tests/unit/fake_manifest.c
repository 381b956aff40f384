/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of the snapstore's parser, for tests of what carries manifests: "{}" is one, nothing else is. */
#include <errno.h>
#include <string.h>
#include "snapstore/snap.h"

int snap_manifest_parse(const void *json, size_t len, struct snap_manifest *ret, struct err *e)
{
	if (len != 2 || memcmp(json, "{}", 2) != 0)
		return err_set(e, -EBADMSG, "no manifest");
	*ret = (struct snap_manifest){ .memory_pages = 7 };
	return 0;
}

void snap_manifest_fini(struct snap_manifest *m)
{
	json_object_put(m->meta);
	m->meta = NULL;
}
