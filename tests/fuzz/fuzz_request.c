/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a command, as any user may write it. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "vmm/box/box.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct box_request r = { 0 };
	struct err e = { 0 };
	int code = box_request_parse(data, len, &r, &e);

	if (code < 0) {
		assert(code == -EINVAL && e.code == -EINVAL && *e.msg);
		return 0;
	}
	/* What it returns is what the rest of the box relies on. */
	assert(r.script ? r.text && strlen(r.text) == r.text_len : r.argv && *r.argv[0]);
	assert(!r.cwd || *r.cwd == '/');
	for (char **p = r.env; p && *p; p++)
		assert(strchr(*p, '=') > *p);
	box_request_fini(&r);
	return 0;
}
