/* SPDX-License-Identifier: Apache-2.0 */
/* The machine as QEMU is told of it. Innards of vmm/: users see engine.h. */
#ifndef CRUCIBLE_VMM_MACHINE_H
#define CRUCIBLE_VMM_MACHINE_H

#include "vmm/engine.h"

/* Names of block nodes: the disk as the device knows it, and what lies below it. */
#define MACHINE_DISK	    "disk0"
#define MACHINE_PLACEHOLDER "none0"
#define MACHINE_BLOCKS	    "nbd0"
#define MACHINE_RECONNECT_S "30"
#define MACHINE_EXPORT_MAX  64
#define MACHINE_TAP	    "tap0"
#define MACHINE_MAC	    "52:54:00:c0:00:01" /* the same in every machine: each is alone on its link */

/* The command line of QEMU for @m (engine_ops.command). Pure. -EINVAL with words. */
int machine_command(const struct engine_machine *m, struct engine_command *ret, struct err *e);

/* May it name an export? Letters, digits, "-_.", at most MACHINE_EXPORT_MAX: it stands in option lists and in JSON. */
bool machine_export_name(const char *s);

/* Who made the processor of this host, in its own words: "GenuineIntel". @ret: 13 bytes; "" when it does not say. */
void machine_cpu_vendor(char *ret);

/* Find QEMU and ask it what it can do (engine_ops.probe). Blocks: it runs the program twice. Errors: see engine.h. */
int qemu_probe(const char *path_or_null, struct engine_info *ret, struct err *e);

#endif
