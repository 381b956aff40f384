/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon calls to serve the tree over a session. */
#ifndef CRUCIBLE_ROOT_H
#define CRUCIBLE_ROOT_H

#include "base/err.h"
#include "cruciblefs/session.h"

/* Make the tree of the session's registry what the session serves: once, before the loop's first round. It goes with
 * the session. Errors: -ENOMEM. */
int cfs_root_install(struct cfs_session *cs, struct err *e);

#endif
