/* SPDX-License-Identifier: Apache-2.0 */
/* A policy that somebody wrote, crucible-policy(5): read, checked, and its faults told. */
#ifndef CRUCIBLE_TOOLS_DOCUMENT_H
#define CRUCIBLE_TOOLS_DOCUMENT_H

#include "base/buf.h"
#include "base/err.h"
#include "policy/policy.h"

#define DOCUMENT_CAP (POLICY_TEXT_MAX + 1) /* of @text, below */

/* Read @file, or standard input for "-", and check it; pipes are fine. What the host permits is not known here: ranges
 * of net_allow_max are the daemon's to judge. @text: initialized; the document as it was read. *ret is the caller's.
 * Returns 0; EXIT_CRUCIBLE after all faults were told on standard error, a line each; or -errno with words: those of
 * open and read; -ENOMEM. Blocks: on the file. */
int document_read(const char *file, struct buf *text, struct policy **ret, struct err *e);

#endif
