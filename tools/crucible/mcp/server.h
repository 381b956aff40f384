/* SPDX-License-Identifier: Apache-2.0 */
/* The MCP server over two descriptors. Thread: the loop's. */
#ifndef CRUCIBLE_MCP_SERVER_H
#define CRUCIBLE_MCP_SERVER_H

#include "base/err.h"
#include "tools/crucible/mcp/guard.h"

struct server_config {
	int in, out;	   /* borrowed */
	const char *mount; /* --mount, or NULL */
	struct guard *guard;
};

/* Serve until @in ends, @out breaks, or SIGINT, SIGTERM, SIGHUP; then cancel what runs and return within a second: 0,
 * or 128+N for a signal, or -errno with words. A call that does not let itself be cancelled in that time ends the
 * process (its leases go with it), with the same exit code. Blocks. Sets how malloc() gives memory back, for good. */
int server_run(const struct server_config *config, struct err *e);

#endif
