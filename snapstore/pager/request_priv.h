/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the daemon's requests share. A function of a request answers it, now or later, and returns 0; or it
 * returns -errno with words, and its caller answers. Thread: the loop's. */
#ifndef CRUCIBLE_PAGER_REQUEST_PRIV_H
#define CRUCIBLE_PAGER_REQUEST_PRIV_H

#include "snapstore/pager/core.h"

/* -- request_wait.c */
/* A request whose answer comes later. The template, if it is about one, is held. */
struct pg_pending {
	struct pg_call call;
	struct pg_template *t;
	struct pg_request q;
	int fds[3];
	struct pg_capture_result captured;
	bool whole;	  /* CAPTURE: its machine has no userfaultfd, and may go on before it is attached again */
	struct buf reply; /* the same */
};
struct pg_pending *pg_pending_new(const struct pg_call *c, const struct pg_request *q, struct pg_template *t);
void pg_pending_free(struct pg_pending *w);
int pg_no_memory(struct err *e);
/* Answer with {ranges} after what is in @b; descriptors: the template, and @fd2 if there is one. */
int pg_reply_template(const struct pg_call *c, struct pg_template *t, struct buf *b, int fd2, struct err *e);
int pg_find(struct pager *p, const char *snapshot, struct pg_template **ret, struct err *e); /* or -ENOENT with words */
int pg_ready(const struct pg_template *t, uint64_t bytes, struct err *e);		     /* its pages can be had */
/* Call @fn, from the loop or now, when the opening template @t is stored, or cannot be; or when the strays of @t, which
 * is open, are gone. */
int pg_wait_for(struct pg_template *t, pg_done_fn *fn, void *arg, struct err *e);
void pg_looked(void *arg, int code, const char *words); /* @arg: a template; calls those who wait for it */
/* A template of a stored snapshot that is not here. */
int pg_open_stored(struct pager *p, const char *snapshot, uint64_t bytes, struct pg_template **ret, struct err *e);

/* -- request_memory.c */
int pg_do_template(const struct pg_call *c, const struct pg_request *q, struct err *e);
int pg_do_attach(const struct pg_call *c, const struct pg_request *q, struct msg *m, struct err *e);
int pg_do_detach(const struct pg_call *c, const struct pg_request *q);
/* -- request_capture.c */
int pg_do_capture_begin(const struct pg_call *c, const struct pg_request *q, struct err *e);
int pg_do_capture(const struct pg_call *c, const struct pg_request *q, struct err *e);
int pg_do_captured(const struct pg_call *c, const struct pg_request *q, struct err *e);
int pg_do_stored(const struct pg_call *c, const struct pg_request *q, struct err *e);
int pg_do_forget(const struct pg_call *c, const struct pg_request *q);
/* -- request_adopt.c */
int pg_do_adopt(const struct pg_call *c, const struct pg_request *q, struct msg *m, struct err *e);

#endif
