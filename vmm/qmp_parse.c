/* SPDX-License-Identifier: Apache-2.0 */
/* QEMU ends each object with a newline and has none inside. So a line is collected, then parsed as a whole: json-c's
 * way of taking an object piece by piece depends on where the pieces are cut (numbers, UTF-8), and is less strict than
 * json_parse(). */
#include <string.h>

#include "base/json.h"
#include "vmm/qmp.h"

void qmp_parser_init(struct qmp_parser *p)
{
	buf_init(&p->line, QMP_OBJECT_MAX);
}

void qmp_parser_fini(struct qmp_parser *p)
{
	buf_fini(&p->line);
}

static int take_line(const char *text, size_t len, qmp_object_fn *fn, void *arg)
{
	AUTO_JSON *o = NULL;

	if (len > 0 && text[len - 1] == '\r')
		len--;
	if (len == 0)
		return 0;
	if (json_parse(text, len, &o, NULL) < 0 || !json_object_is_type(o, json_type_object))
		return -EBADMSG;
	return fn(arg, o);
}

int qmp_parser_feed(struct qmp_parser *p, const char *data, size_t len, qmp_object_fn *fn, void *arg)
{
	const char *nl;
	int r = 0;

	while (r == 0 && len > 0 && (nl = memchr(data, '\n', len))) {
		size_t n = (size_t)(nl - data);

		if (p->line.len == 0 && n <= QMP_OBJECT_MAX) {
			r = take_line(data, n, fn, arg);
		} else {
			r = buf_add(&p->line, data, n);
			if (r == 0)
				r = take_line((const char *)p->line.data, p->line.len, fn, arg);
			buf_reset(&p->line);
		}
		data += n + 1;
		len -= n + 1;
	}
	if (r == 0)
		r = buf_add(&p->line, data, len);
	return r == -EFBIG ? -EBADMSG : r;
}
