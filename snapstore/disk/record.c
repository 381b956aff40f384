/* SPDX-License-Identifier: Apache-2.0 */
/* A stack's record: what stacks/<id> holds. */
#include "snapstore/disk/disk_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"

/* Exactly @digits lower-case hex digits. */
static bool hex_parse(const char *text, unsigned digits, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < digits; i++) {
		char c = text[i];

		if (c >= '0' && c <= '9')
			v = v << 4 | (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			v = v << 4 | (uint64_t)(c - 'a' + 10);
		else
			return false;
	}
	*ret = v;
	return true;
}

static int get_ids(struct json_object *o, const char *key, uint64_t *ids, unsigned *ret_n, struct err *e)
{
	struct json_object *list = NULL;
	size_t n;
	int r = json_get_obj(o, key, json_type_array, &list, e);

	if (r < 0 || !list)
		return r;
	n = json_object_array_length(list);
	if (n > DISK_LAYERS_MAX)
		return err_set(e, -EBADMSG, "%s: too many", key);
	for (size_t i = 0; i < n; i++) {
		struct json_object *one = json_object_array_get_idx(list, i);
		const char *text = json_object_is_type(one, json_type_string) ? json_object_get_string(one) : "";

		if (strlen(text) != 16 || !hex_parse(text, 16, &ids[i]) || ids[i] == 0 || ids[i] == UINT64_MAX)
			return err_set(e, -EBADMSG, "%s: not a layer's number", key);
		for (size_t j = 0; j < i; j++)
			if (ids[j] == ids[i])
				return err_set(e, -EBADMSG, "%s: one twice", key);
	}
	*ret_n = (unsigned)n;
	return 0;
}

static int get_root(struct json_object *o, struct record *rec, struct err *e)
{
	const char *text = NULL;
	int r = json_get_str(o, "root", &text, e);

	if (r < 0 || !text)
		return r;
	if (strlen(text) != 64)
		return err_set(e, -EBADMSG, "root: not a digest");
	for (unsigned i = 0; i < sizeof(rec->root.bytes); i++) {
		uint64_t byte;

		if (!hex_parse(text + 2 * (size_t)i, 2, &byte))
			return err_set(e, -EBADMSG, "root: not a digest");
		rec->root.bytes[i] = (uint8_t)byte;
	}
	rec->rooted = true;
	return 0;
}

static int get_base(struct json_object *o, struct record *rec, struct err *e)
{
	const char *text = "";
	int r = json_get_str(o, "base", &text, e);

	if (r < 0)
		return r;
	if (strlen(text) > DISK_BASE_MAX || strchr(text, '/') || text[0] == '.')
		return err_set(e, -EBADMSG, "base: not a file's name");
	snprintf(rec->base, sizeof(rec->base), "%s", text);
	return 0;
}

int record_parse(const char *text, size_t len, struct record *ret, struct err *e)
{
	static const char *const keys[] = { "bytes", "limit", "own", "layers", "had", "base", "root", "frozen", NULL };
	AUTO_JSON *o = NULL;
	struct record rec = { 0 };
	uint64_t own = 0;

	if (json_parse(text, len, &o, e) < 0 || json_known_keys(o, keys, e) < 0 ||
	    json_get_u64(o, "bytes", 1, DISK_BYTES_MAX, &rec.bytes, e) < 0 ||
	    json_get_u64(o, "limit", 0, INT64_MAX, &rec.limit, e) < 0 ||
	    json_get_u64(o, "own", 0, DISK_LAYERS_MAX, &own, e) < 0 ||
	    get_ids(o, "layers", rec.layers, &rec.nlayers, e) < 0 || get_ids(o, "had", rec.had, &rec.nhad, e) < 0 ||
	    json_get_bool(o, "frozen", &rec.frozen, e) < 0 || get_base(o, &rec, e) < 0 || get_root(o, &rec, e) < 0)
		return -EBADMSG;
	if (rec.bytes == 0 || own > rec.nlayers || (rec.nlayers == 0 && !rec.frozen))
		return err_set(e, -EBADMSG, "bytes or layers are missing");
	rec.own = (unsigned)own;
	*ret = rec;
	return 0;
}

/* -- writing ----------------------------------------------------------------------------------------------------- */

static void put_ids(struct buf *b, const char *key, const uint64_t *ids, unsigned n)
{
	buf_addf(b, ",\"%s\":[", key);
	for (unsigned i = 0; i < n; i++)
		buf_addf(b, "%s\"%016" PRIx64 "\"", i > 0 ? "," : "", ids[i]);
	buf_adds(b, "]");
}

int stack_write(struct disks *d, const struct stack *k, bool sync, struct err *e)
{
	uint64_t ids[DISK_LAYERS_MAX];
	struct buf b;
	int r;

	for (unsigned i = 0; i < k->nlayers; i++)
		ids[i] = k->layers[i]->id;
	buf_init(&b, 16384);
	buf_addf(&b, "{\"bytes\":%" PRIu64 ",\"limit\":%" PRIu64 ",\"own\":%u", k->bytes, k->limit, k->own);
	put_ids(&b, "layers", ids, k->nlayers);
	put_ids(&b, "had", k->had, k->nhad);
	if (k->frozen)
		buf_adds(&b, ",\"frozen\":true");
	if (k->base)
		buf_addf(&b, ",\"base\":\"%s\"", k->base->name); /* base_get() took no quotes */
	if (k->rooted) {
		buf_adds(&b, ",\"root\":\"");
		for (unsigned i = 0; i < sizeof(k->root.bytes); i++)
			buf_addf(&b, "%02x", k->root.bytes[i]);
		buf_adds(&b, "\"");
	}
	r = buf_adds(&b, "}\n"); /* without memory the last one fails, too: nothing was freed in between */
	if (r == 0 && sync)
		r = fd_replace(d->stacks_fd, k->id, b.data, b.len, 0600, true);
	else if (r == 0)
		r = spare_record(d, k->id, b.data, b.len);
	buf_fini(&b);
	if (r < 0)
		return err_set(e, r, "disk %s: write its record: %s", k->id, strerror(-r));
	return 0;
}
