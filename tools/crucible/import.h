/* SPDX-License-Identifier: Apache-2.0 */
/* A directory into a guest, through the sandbox's `import`. Thread: one at a time. */
#ifndef CRUCIBLE_TOOLS_IMPORT_H
#define CRUCIBLE_TOOLS_IMPORT_H

#include "base/err.h"
#include "tools/crucible/pack.h"
#include "tools/crucible/sbx.h"

/* Pack the local directory @dir as @path of the guest (from its root, no slash in front) and wait until it is unpacked.
 * Blocks. Errors: of pack_directory; -EFBIG more than limits/disk_mib; -EBUSY the queue is full; -EIO what the guest
 * said. */
int import_directory(struct sbx *s, const char *dir, const char *path, struct pack_count *ret, struct err *e);

#endif
