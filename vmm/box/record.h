/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a record, for who writes it in a way of his own (spool_record). */
#ifndef CRUCIBLE_VMM_BOX_RECORD_H
#define CRUCIBLE_VMM_BOX_RECORD_H

#include "vmm/box/box.h"

#define BOX_RECORD_MAX (4u * 1024 * 1024) /* two texts and an argv, each byte of them six at worst, and the rest */

/* Append the text of @r, with a newline, to @out. As box_record_write(), it reads the outputs' beginnings below @dirfd.
 * Errors: -ENOMEM. */
int box_record_format(int dirfd, const struct box_record *r, struct buf *out, struct err *e);

#endif
