/* SPDX-License-Identifier: Apache-2.0 */
/* Lines that wait to be written, and writing them without ever blocking. Not by O_NONBLOCK: the description may be
 * shared with whoever started us. Thread: one. */
#ifndef CRUCIBLE_MCP_OUT_H
#define CRUCIBLE_MCP_OUT_H

#include <stdbool.h>
#include "base/buf.h"

struct out {
	int fd;		 /* borrowed */
	bool is_file;	 /* always ready; epoll takes it not */
	bool broken;	 /* nobody reads any more, or nothing can be kept: all further lines are dropped */
	struct buf text; /* lines are appended here; then out_flush() */
	size_t at;	 /* so much of it was written */
};
void out_init(struct out *o, int fd, size_t max);
void out_fini(struct out *o);
/* Write what can be written now. */
void out_flush(struct out *o);
size_t out_left(const struct out *o);

#endif
