/* SPDX-License-Identifier: Apache-2.0 */
/* The machine as QEMU is told of it. Innards of vmm/: users see engine.h. */
#ifndef CRUCIBLE_VMM_MACHINE_H
#define CRUCIBLE_VMM_MACHINE_H

#include "vmm/engine.h"

/* The command line of QEMU for @m (engine_ops.command). Pure. -EINVAL with words. */
int machine_command(const struct engine_machine *m, struct engine_command *ret, struct err *e);

/* Find QEMU and ask it what it can do (engine_ops.probe). Blocks: it runs the program twice. Errors: see engine.h. */
int qemu_probe(const char *path_or_null, struct engine_info *ret, struct err *e);

#endif
