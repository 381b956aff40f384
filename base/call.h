/* SPDX-License-Identifier: Apache-2.0 */
/* Calls over a connection (base/msg.h): requests that wait for the reply with their id. A reply is {i32 code (0 or
 * -errno), str words, payload by type} and descriptors.
 *
 * A struct calls is embedded in whoever owns the connection; the owner hands it the messages of its reply type, and
 * tells it when the connection is gone. Every call that was sent is answered exactly once, unless it is dropped.
 * Callbacks may make calls, and may free the owner, if that ends with calls_end() or calls_drop(): nothing of a struct
 * calls is touched afterwards. Thread: the loop's. Nothing blocks. */
#ifndef CRUCIBLE_BASE_CALL_H
#define CRUCIBLE_BASE_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/msg.h"
#include "base/wire.h"

#define CALLS_MAX	16384u
#define CALLS_WORDS_MAX 512u /* with the NUL; a reply with more is malformed */

/* @code: 0 or -errno. @words: why, "" of a success; borrowed until return. @r stands at the payload (of a call that
 * ended without a reply: empty). @m: for its descriptors; those not taken are closed. */
typedef void call_fn(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m);

struct call;
struct calls {
	const char *peer; /* "the launcher": for words; static */
	struct call *first, **end;
	size_t n;
	uint32_t last_id;
	bool *dropped; /* of the calls_end() that is on the stack, if one is */
};

void calls_init(struct calls *c, const char *peer);
/* Send a request that wants an answer. @ret_id: may be NULL; it stays the id of this call alone until
 * 2^32 others. Errors, after which @fn is not called: -ENOBUFS (CALLS_MAX wait), -ENOMEM, those of msgconn_send. */
int calls_send(struct calls *c, struct msgconn *conn, uint16_t type, const void *data, size_t len, const int *fds,
	       size_t nfds, call_fn *fn, void *arg, uint32_t *ret_id);
/* A message of the reply type came: call whom it is for. Without one it is nobody's, and nothing happens. What is no
 * reply ends its call with -EBADMSG. */
void calls_reply(struct calls *c, struct msg *m);
/* Answer all that wait, those that are made meanwhile too, with @code and @words. Asks for no memory. False: a callback
 * has dropped them; the owner may be gone with them. */
bool calls_end(struct calls *c, int code, const char *words);
void calls_drop(struct calls *c); /* forget all, without a callback */

/* The start of every reply; what follows is left in @r. @words: CALLS_WORDS_MAX. -EBADMSG: no reply. */
int call_parse(struct wire_rd *r, int *ret_code, char words[CALLS_WORDS_MAX]);

#endif
