/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON texts between host and agent. What comes from the agent is hostile: each parse function checks type, length
 * and range of every member, and what it returns holds no control characters. Thread: any. */
#ifndef CRUCIBLE_VMM_BOX_GUEST_JSON_H
#define CRUCIBLE_VMM_BOX_GUEST_JSON_H

#include "base/buf.h"
#include "vmm/box/guest.h"

struct guest_hello_text {
	char json[2048];
	char unenforced[1024];
	struct guest_inherited *inherited; /* malloc'd */
	size_t ninherited;
};
void guest_hello_text_fini(struct guest_hello_text *t);

/* {"net":{…}}: what is the same for every guest. -ENOMEM */
int guest_net_format(struct buf *out);
int guest_hello_format(const struct guest_identity *id, uint64_t epoch, struct buf *out); /* -EIO, -ENOMEM */
int guest_hello_parse(const void *json, size_t len, struct guest_hello_text *ret);	  /* -EBADMSG */
int guest_exec_format(const struct guest_exec_req *req, struct buf *out);		  /* -E2BIG, -ENOMEM */
int guest_started_parse(const void *json, size_t len, char *ret_script, size_t cap);	  /* -EBADMSG */
int guest_exit_parse(const void *json, size_t len, struct guest_exit *ret);		  /* -EBADMSG */
void guest_bye_parse(const void *json, size_t len, char *ret_words, size_t cap);
/* @len bytes of whatever as one line of words in @out. */
void guest_words(const void *data, size_t len, char *out, size_t cap);

#endif
