/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon may ask about us. */
#include <string.h>

#include "base/json.h"
#include "base/wire.h"
#include "snapstore/pager/core.h"

#define STAT_MAX (MSG_MAX - 8192)

static struct json_object *template_text(const struct pg_template *t)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "snapshot", json_object_new_string(t->snapshot));
	json_object_object_add(o, "bytes", json_object_new_uint64(t->bytes));
	json_object_object_add(o, "resident_bytes", json_object_new_uint64((uint64_t)t->nresident * SNAP_PAGE_BYTES));
	json_object_object_add(o, "captured_bytes", json_object_new_uint64((uint64_t)t->nown * SNAP_PAGE_BYTES));
	json_object_object_add(o, "stored", json_object_new_boolean(t->state == PG_STORED));
	json_object_object_add(o, "machines", json_object_new_uint64(t->nmachines));
	json_object_object_add(o, "faults", json_object_new_uint64(t->faults));
	json_object_object_add(o, "from_parent", json_object_new_uint64(t->from_parent));
	json_object_object_add(o, "from_store", json_object_new_uint64(t->from_store));
	json_object_object_add(o, "strays", json_object_new_uint64(t->strays));
	return o;
}

/* One line of JSON. Templates beyond what a message holds are left out, and "more" tells how many. */
int pg_stat_text(struct pager *p, struct buf *out)
{
	AUTO_JSON *o = json_object_new_object();
	struct json_object *list = json_object_new_array();
	uint64_t more = 0;
	size_t len = 0;

	json_object_object_add(o, "templates", list);
	for (struct pg_template *t = p->templates; t; t = t->next) {
		struct json_object *one = template_text(t);

		len += strlen(json_line(one)) + 1;
		if (len > STAT_MAX) {
			json_object_put(one);
			more++;
		} else {
			json_object_array_add(list, one);
		}
	}
	json_object_object_add(o, "more", json_object_new_uint64(more));
	json_object_object_add(o, "machines", json_object_new_uint64(p->nmachines));
	json_object_object_add(o, "uring", json_object_new_boolean(p->uring));
	json_object_object_add(o, "budget_bytes", json_object_new_uint64(p->budget_bytes));
	json_object_object_add(o, "faults", json_object_new_uint64(p->faults));
	json_object_object_add(o, "degraded", json_object_new_string(p->degraded));
	return wire_put_str(out, json_line(o));
}

int pg_list(struct pager *p, struct buf *out)
{
	int r = wire_put_u32(out, p->nmachines);

	for (struct pg_machine *m = p->machines; m && r == 0; m = m->next) {
		r = wire_put_str(out, m->id);
		if (r == 0)
			r = wire_put_str(out, m->t ? m->t->snapshot : "");
	}
	if (r == 0)
		r = wire_put_u32(out, p->ntemplates);
	for (struct pg_template *t = p->templates; t && r == 0; t = t->next) {
		r = wire_put_str(out, t->snapshot);
		if (r == 0)
			r = wire_put_u8(out, t->state == PG_STORED);
	}
	return r;
}
