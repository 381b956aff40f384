/* SPDX-License-Identifier: Apache-2.0 */
#include "base/name.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

int name_check(const char *name)
{
	size_t n = 0;

	for (; name[n]; n++) {
		char c = name[n];
		bool alnum = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');

		if (!alnum && (n == 0 || (c != '.' && c != '_' && c != '-')))
			return -EINVAL;
	}
	return n == 0 ? -EINVAL : n > NAME_LEN_MAX ? -ENAMETOOLONG : 0;
}
