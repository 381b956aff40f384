/* SPDX-License-Identifier: Apache-2.0 */
/* Every request that names a node and has an answer, but RELEASE: for what must be refused, whatever it is. */
#ifndef CRUCIBLE_TESTS_FUSEALL_H
#define CRUCIBLE_TESTS_FUSEALL_H

#include "fusewire.h"

/* Those of directories about @dir (open as @dir_fh), those of files about @file (open as @fh): each must be answered
 * @want, FLUSH @want_of_flush. */
void fw_each_request(struct fw *w, uint64_t dir, uint64_t dir_fh, uint64_t file, uint64_t fh, int want,
		     int want_of_flush);

#endif
