/* SPDX-License-Identifier: Apache-2.0 */
#include "cruciblefs/domain/members.h"

#include <string.h>
#include "base/json.h"

void members_put(struct json_object *o, const void *of, const struct member *m, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const char *text = (const char *)of + m[i].at;

		json_object_object_add(o, m[i].key, json_text(text, strlen(text)));
	}
}

int members_get(struct json_object *o, void *of, const struct member *m, size_t n, struct err *e)
{
	for (size_t i = 0; i < n; i++) {
		const char *text = "";
		int r = json_get_str(o, m[i].key, &text, e);

		if (r < 0)
			return r;
		if (strlen(text) >= m[i].cap)
			return err_set(e, -EINVAL, "%s: too long", m[i].key);
		memcpy((char *)of + m[i].at, text, strlen(text) + 1);
	}
	return 0;
}
