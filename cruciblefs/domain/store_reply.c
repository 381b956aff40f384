/* SPDX-License-Identifier: Apache-2.0 */
/* What the store answers, taken apart and checked. */
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "base/json.h"
#include "cruciblefs/domain/storelink.h"

struct number {
	const char *key;
	uint64_t *to;
};

static int get_numbers(struct json_object *o, const struct number *numbers, size_t n)
{
	int k = 0;

	for (size_t i = 0; i < n && k == 0; i++)
		k = json_get_u64(o, numbers[i].key, 0, UINT64_MAX, numbers[i].to, NULL);
	return k < 0 ? -EBADMSG : 0;
}

/* Words or hex that came from elsewhere: absent is "", longer than fits is nonsense. */
static int get_text(struct json_object *o, const char *key, char *ret, size_t cap)
{
	const char *s = "";

	if (json_get_str(o, key, &s, NULL) < 0 || strlen(s) >= cap)
		return -EBADMSG;
	memcpy(ret, s, strlen(s) + 1);
	return 0;
}

static int get_root(struct json_object *o, const char *key, char ret[65])
{
	int k = get_text(o, key, ret, 65);
	size_t len = k < 0 ? 0 : strlen(ret);

	return k < 0 || (len != 0 && (len != 64 || strspn(ret, "0123456789abcdef") != 64)) ? -EBADMSG : 0;
}

static int parse_ingested(struct json_object *o, struct store_ingested *i)
{
	const struct number numbers[] = {
		{ "pages_new", &i->pages_new },
		{ "pages_known", &i->pages_known },
		{ "pages_zero", &i->pages_zero },
		{ "bytes_stored", &i->bytes_stored },
		{ "shared_with_parent", &i->shared_with_parent },
	};
	int k = get_numbers(o, numbers, ARRAY_LEN(numbers));

	if (k == 0)
		k = get_root(o, "disk_root", i->disk_root);
	return k < 0 ? k : get_root(o, "memory_root", i->memory_root);
}

static int parse_verified(struct json_object *o, struct store_verified *v)
{
	const struct number numbers[] = { { "pages", &v->pages },
					  { "damaged", &v->damaged },
					  { "bytes_read", &v->bytes_read } };
	int k = get_numbers(o, numbers, ARRAY_LEN(numbers));

	return k < 0 ? k : get_text(o, "first", v->first, sizeof(v->first));
}

static int parse_gc(struct json_object *o, struct snap_gc *g)
{
	const struct number numbers[] = {
		{ "bytes_before", &g->bytes_before },	{ "bytes_after", &g->bytes_after },
		{ "packs_before", &g->packs_before },	{ "packs_after", &g->packs_after },
		{ "pages_dropped", &g->pages_dropped },
	};

	return get_numbers(o, numbers, ARRAY_LEN(numbers));
}

static int parse_stat(struct json_object *o, struct snap_stat *s)
{
	const struct number numbers[] = {
		{ "snapshots", &s->snapshots },
		{ "packs", &s->packs },
		{ "pages", &s->pages },
		{ "bytes_packs", &s->bytes_packs },
		{ "bytes_index", &s->bytes_index },
		{ "bytes_logical", &s->bytes_logical },
	};

	return get_numbers(o, numbers, ARRAY_LEN(numbers));
}

static int parse_json(enum stored_type type, struct wire_rd *r, struct store_reply *ret)
{
	size_t len;
	const char *text = wire_bytes(r, MSG_MAX, &len);

	if (r->bad || json_parse(text, len, &ret->json, NULL) < 0 || !json_object_is_type(ret->json, json_type_object))
		return -EBADMSG;
	switch (type) {
	case STORE_INGEST:
		return parse_ingested(ret->json, &ret->ingested);
	case STORE_VERIFY:
		return parse_verified(ret->json, &ret->verified);
	case STORE_GC:
		return parse_gc(ret->json, &ret->gc);
	default:
		return parse_stat(ret->json, &ret->stat);
	}
}

static int parse_manifest(struct wire_rd *r, struct store_reply *ret)
{
	size_t len;
	const char *text = wire_bytes(r, MSG_MAX, &len);

	return r->bad || snap_manifest_parse(text, len, &ret->manifest, NULL) < 0 ? -EBADMSG : 0;
}

static int parse_list(struct wire_rd *r, struct store_reply *ret)
{
	uint32_t n = wire_u32(r);

	if (r->bad || n > STORE_LIST_MAX || n > wire_left(r) / (4 + SNAP_UUID_LEN))
		return -EBADMSG;
	ret->uuids = n ? calloc(n, sizeof(*ret->uuids)) : NULL;
	if (n && !ret->uuids)
		return -ENOMEM;
	for (; ret->nuuids < n; ret->nuuids++)
		wire_str(r, ret->uuids[ret->nuuids], sizeof(*ret->uuids));
	return r->bad ? -EBADMSG : 0;
}

int store_reply_parse(enum stored_type type, struct wire_rd *r, struct msg *m, struct store_reply *ret)
{
	int k = 0;

	*ret = (struct store_reply){ .words = "" };
	switch (type) {
	case STORE_INGEST:
	case STORE_VERIFY:
	case STORE_GC:
	case STORE_STAT:
		k = parse_json(type, r, ret);
		break;
	case STORE_MANIFEST:
		k = parse_manifest(r, ret);
		break;
	case STORE_LIST:
		k = parse_list(r, ret);
		break;
	default:
		break;
	}
	if (k == 0 && (wire_done(r) < 0 || m->nfds != (type == STORE_STATE)))
		k = -EBADMSG;
	if (k == 0 && type == STORE_STATE)
		ret->state_fd = &m->fds[0];
	return k;
}

void store_reply_fini(struct store_reply *r)
{
	json_put(&r->json);
	snap_manifest_fini(&r->manifest);
	free(r->uuids);
	r->uuids = NULL;
}
