/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "vmm/qmp.h"

#define DEPTH_MAX 32

int qmp_parser_init(struct qmp_parser *p)
{
	p->held = 0;
	p->tok = json_tokener_new_ex(DEPTH_MAX);
	if (!p->tok)
		return -ENOMEM;
	json_tokener_set_flags(p->tok, JSON_TOKENER_STRICT | JSON_TOKENER_ALLOW_TRAILING_CHARS | JSON_TOKENER_VALIDATE_UTF8);
	return 0;
}

void qmp_parser_fini(struct qmp_parser *p)
{
	json_tokener_free(p->tok);
	p->tok = NULL;
}

int qmp_parser_feed(struct qmp_parser *p, const char *data, size_t len, qmp_object_fn *fn, void *arg)
{
	while (len > 0) {
		struct json_object *o;
		enum json_tokener_error why;
		size_t n;
		int r;

		/* Blanks between objects are no object's: a stream of them is not one that grows. */
		if (p->held == 0) {
			n = 0;
			while (n < len && strchr(" \t\r\n", data[n]) && data[n])
				n++;
			data += n;
			len -= n;
			if (len == 0)
				return 0;
			if (*data != '{')
				return -EBADMSG;
		}
		n = len < QMP_OBJECT_MAX ? len : QMP_OBJECT_MAX;
		o = json_tokener_parse_ex(p->tok, data, (int)n);
		why = json_tokener_get_error(p->tok);
		if (why == json_tokener_success)
			n = json_tokener_get_parse_end(p->tok);
		else if (why != json_tokener_continue)
			return -EBADMSG;
		p->held += n;
		if (p->held > QMP_OBJECT_MAX) {
			json_object_put(o);
			return -EBADMSG;
		}
		data += n;
		len -= n;
		if (why == json_tokener_continue)
			continue;
		p->held = 0;
		r = fn(arg, o);
		json_object_put(o);
		if (r != 0)
			return r;
	}
	return 0;
}
