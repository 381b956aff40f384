/* SPDX-License-Identifier: Apache-2.0 */
/* The revisions of MCP and what differs between them. Up to 2025-11-25 `initialize` agrees on one; 2026-07-28 has no
 * handshake: each request names its revision in `_meta`. Both kinds may come over one connection. Thread: any. */
#ifndef CRUCIBLE_MCP_PROTOCOL_H
#define CRUCIBLE_MCP_PROTOCOL_H

#include "base/err.h"
#include "base/json.h"

/* Does the request name a revision itself? *ret_modern tells. Returns 0, or the enum rpc_code to refuse it with, words
 * in @e and *ret_data (owned by the caller; may stay NULL). */
int protocol_check(struct json_object *params, bool *ret_modern, struct json_object **ret_data, struct err *e);

/* Results; NULL: no memory. @resources: these are offered, too. */
struct json_object *protocol_initialize(struct json_object *params, bool resources);
struct json_object *protocol_discover(bool resources);
/* What every result of a modern request holds besides; @cacheable: it is a list, or a file. Takes and returns @result,
 * which may be NULL. */
struct json_object *protocol_result(struct json_object *result, bool modern, bool cacheable);

#endif
