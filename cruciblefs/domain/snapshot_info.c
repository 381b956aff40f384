/* SPDX-License-Identifier: Apache-2.0 */
/* info.json of a snapshot. */
#include <stdio.h>
#include <string.h>
#include "base/json.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "snapstore/snap.h"

static void add(struct json_object *o, const char *key, const char *text)
{
	json_object_object_add(o, key, json_text(text, strlen(text)));
}

static unsigned count_forks(struct snapshot *p)
{
	unsigned n = 0;

	for (struct sandbox *s = snapshot_next_fork(p, NULL); s; s = snapshot_next_fork(p, s))
		n++;
	return n;
}

int snapshot_info_json(struct snapshot *p, struct buf *out)
{
	AUTO_JSON *o = json_object_new_object();
	struct json_object *sizes = json_object_new_object(), *list = NULL;
	struct err e;
	char at[32], pause[32];

	if (!o || !sizes) {
		json_object_put(sizes);
		return -ENOMEM;
	}
	json_time(p->created_ns, at);
	add(o, "id", p->name);
	add(o, "uuid", p->uuid);
	add(o, "source", p->source);
	add(o, "source_uuid", p->source_uuid);
	add(o, "parent", p->parent);
	add(o, "parent_uuid", p->parent_uuid);
	add(o, "created", at);
	json_object_object_add(o, "owner", json_object_new_int64(p->owner.uid));
	add(o, "status", snapshot_status_name(p->status));
	add(o, "error", p->error);
	if (p->status == SNAPSHOT_STORING && p->work.total) {
		struct json_object *progress = json_object_new_object();

		json_object_object_add(o, "progress", progress);
		store_work_add(&p->work, progress);
	}
	add(o, "engine", p->reg->engine.name);
	add(o, "accel", engine_accel_name(p->accel));
	add(o, "fingerprint", p->fingerprint);
	json_object_object_add(o, "vcpus", json_object_new_int64(p->attrs.num[ATTR_VCPUS]));
	json_object_object_add(o, "memory_mib", json_object_new_int64(p->attrs.num[ATTR_MEMORY_MIB]));
	json_object_object_add(sizes, "memory_bytes", json_object_new_uint64((uint64_t)p->memory_mib << 20));
	json_object_object_add(sizes, "disk_bytes",
			       json_object_new_uint64((uint64_t)p->attrs.num[ATTR_DISK_MIB] << 20));
	json_object_object_add(sizes, "captured_bytes", json_object_new_uint64(p->captured_pages * SNAP_PAGE_BYTES));
	json_object_object_add(sizes, "unique_bytes", json_object_new_uint64(p->stored_bytes));
	json_object_object_add(sizes, "pages_shared", json_object_new_uint64(p->shared_pages));
	json_object_object_add(sizes, "pages_changed", json_object_new_uint64(p->captured_pages));
	json_object_object_add(o, "sizes", sizes);
	/* As text: what a double makes of 29.005 is 29.005013000000002. */
	snprintf(pause, sizeof(pause), "%.3f", (double)p->pause_ns / 1e6);
	json_object_object_add(o, "pause_ms", json_object_new_double_s((double)p->pause_ns / 1e6, pause));
	if (!p->inherited || json_parse(p->inherited, strlen(p->inherited), &list, &e) < 0)
		list = json_object_new_array();
	json_object_object_add(o, "inherited", list);
	json_object_object_add(o, "forks", json_object_new_int64(count_forks(p)));
	return json_add_line(o, out);
}
