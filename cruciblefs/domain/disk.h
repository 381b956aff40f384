/* SPDX-License-Identifier: Apache-2.0 */
/* The disk of a sandbox: what it wrote, over its profile's image. */
#ifndef CRUCIBLE_DISK_H
#define CRUCIBLE_DISK_H

#include <stdint.h>
#include "base/err.h"

/* At the daemon's start, before it drops privileges: have qemu-img make <state>/overlay.qcow2, the empty overlay that
 * every disk begins as. Nothing is done when it is there. Blocks (30 ms once in a store's life). Errors: -ENOENT no
 * qemu-img (words name the package), -EIO. */
int disk_prepare(int state_fd, struct err *e);
/* Open disk.qcow2 below @dirfd read-write, made first when it is not there: a copy of the empty overlay (200 KiB) with
 * the virtual size set to the larger of @base_bytes and @disk_mib. Errors: those of open and write. */
int disk_open(int dirfd, int state_fd, uint64_t base_bytes, uint32_t disk_mib, int *ret_fd, struct err *e);

#endif
