/* SPDX-License-Identifier: Apache-2.0 */
/* Names of things in the tree: sandboxes, snapshots, profiles, slots, views. Thread: any. */
#ifndef CRUCIBLE_BASE_NAME_H
#define CRUCIBLE_BASE_NAME_H

#define NAME_LEN_MAX 63 /* characters */
/* For words of refusal. */
#define NAME_RULE "letters, digits, '.', '_' and '-', at most 63 of them, a letter or digit first"

/* [A-Za-z0-9][A-Za-z0-9._-]{0,62}: 0; -EINVAL other characters or empty; -ENAMETOOLONG. */
int name_check(const char *name);

#endif
