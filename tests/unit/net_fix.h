/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of a sandbox's network begin with. */
#ifndef CRUCIBLE_TEST_NET_FIX_H
#define CRUCIBLE_TEST_NET_FIX_H

#include "tests/unit/snapshot_fix.h"

int allow(struct sandbox *s, const char *text, struct err *e); /* written into net/allow, as root */
int ports(struct sandbox *s, const char *text, struct err *e); /* and net/ports */
void shows(struct sandbox *s, int (*show)(struct sandbox *s, struct buf *out), const char *text); /* holds it */
void starts(struct world *w, struct sandbox *s);
struct sandbox *networked(struct world *w, const char *name, const char *list); /* ready */
unsigned free_port(void);							/* that nobody listens on now */
int listener(unsigned port);							/* -1: it is taken */
bool can_listen(unsigned port);

#endif
