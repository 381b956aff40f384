/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon's main file sees of the domain: making the registry, ending it. */
#ifndef CRUCIBLE_DOMAIN_H
#define CRUCIBLE_DOMAIN_H

#include "base/err.h"
#include "base/loop.h"
#include "base/pool.h"
#include "cruciblefs/domain/config.h"
#include "vmm/engine.h"

struct registry;
struct launcher;

/* Load the store. @cfg and the rest are borrowed for life. @store_fd: of the store's directory, borrowed. Blocks (reads
 * every sandbox.json). Errors: those of open and read with words; -ENOMEM. */
int registry_new(struct loop *l, struct config *cfg, struct pool *p, int store_fd, const struct engine_info *engine,
		 struct registry **ret, struct err *e);
/* The launcher is there: reap what nobody owns, wait for boxes that run, find out the accelerator, listen for boxes.
 * @list: the launcher's answer to LAUNCH_LIST, asked before (launcher_call_sync). Errors: -EBADMSG, those of the
 * listening socket. */
int registry_begin(struct registry *r, struct launcher *launcher, const void *list, size_t len, struct err *e);
void registry_launcher_gone(struct registry *r);
void registry_launcher_exit(struct registry *r, const char *uuid, int is_box, int status);
/* End all machines (their sandboxes stay in the store as `stopped`), then call @done. From SIGTERM. */
void registry_shutdown(struct registry *r, loop_fn *done, void *arg);
struct registry *registry_free(struct registry *r);

#endif
