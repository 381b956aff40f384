/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of several words, each of which is done although another one fails. */
#ifndef CRUCIBLE_TOOLS_EACH_H
#define CRUCIBLE_TOOLS_EACH_H

#include "tools/crucible/command.h"

/* Call @fn for each word; a failure is said at once, the last one is left for main in c->err. With -o json the list of
 * those that were done is printed. Returns 0 or the last failure's code. */
int each_word(struct cli *c, int (*fn)(struct cli *c, const char *id, struct err *e));

#endif
