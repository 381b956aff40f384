/* SPDX-License-Identifier: Apache-2.0 */
/* What the command makes of a guest's bytes: text for a terminal, records, tar streams that become files, and names of
 * files in a comparison of snapshots.
 * The first byte chooses. What must hold: no control character gets through, a record that is none never gives exit
 * code 0, and nothing is made outside of the directory that is unpacked into. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/pack.h"
#include "tools/crucible/printable.h"
#include "tools/crucible/record.h"
#include "tools/crucible/snapshot.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void text(const uint8_t *data, size_t len)
{
	struct printable p = { 0 };
	struct buf whole, pieces;

	buf_init(&whole, 1u << 20);
	buf_init(&pieces, 1u << 20);
	must(printable_add(&p, data, len, &whole) == 0 && printable_end(&p, &whole) == 0);
	for (size_t i = 0; i < len; i++)
		must(printable_add(&p, data + i, 1, &pieces) == 0);
	must(printable_end(&p, &pieces) == 0);
	must(whole.len == pieces.len && (!whole.len || memcmp(whole.data, pieces.data, whole.len) == 0));
	for (size_t i = 0; i < whole.len; i++) {
		uint8_t c = whole.data[i];

		must((c >= 0x20 && c != 0x7f) || c == '\n' || c == '\t' || c == '\r');
		must(c != 0xc2 || (i + 1 < whole.len && whole.data[i + 1] >= 0xa0));
	}
	buf_fini(&whole);
	buf_fini(&pieces);
}

static void record(const uint8_t *data, size_t len)
{
	struct record r;
	const char *words;
	int code;

	if (record_parse((const char *)data, len, &r, NULL) < 0)
		return;
	code = record_exit_code(&r, &words);
	must(code >= 0 && code <= 255);
	must(code != 0 || r.exit_code == 0);
	for (const char *c = words; *c; c++)
		must((unsigned char)*c >= 0x20);
	record_fini(&r);
}

/* As many lines as there are names, each with its letter. */
static void diff(const uint8_t *data, size_t len)
{
	static const char *const keys[] = { "added", "changed", "deleted" };
	AUTO_JSON *o = NULL;
	struct buf out;
	size_t names = 0, lines = 0;

	if (json_parse((const char *)data, len, &o, NULL) < 0 || !json_object_is_type(o, json_type_object))
		return;
	buf_init(&out, 1u << 20);
	if (snapshot_diff_text(o, &out, NULL) == 0) {
		for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
			struct json_object *list;

			if (json_object_object_get_ex(o, keys[i], &list) && list)
				names += json_object_array_length(list);
		}
		for (size_t i = 0; i < out.len; i++) {
			must(out.data[i] == '\n' || (out.data[i] >= 0x20 && out.data[i] != 0x7f));
			must((i > 0 && out.data[i - 1] != '\n') || strchr("AMD", out.data[i]));
			lines += out.data[i] == '\n';
		}
		must(lines == names);
	}
	buf_fini(&out);
}

static char top[] = "/tmp/fuzz-crucible.XXXXXX";

static void remove_top(void)
{
	rmdir(top);
}

/* A link that judge() lets pass may not show the neighbour; names that lead out are refused before libarchive sees
 * them. */
static void tar(const uint8_t *data, size_t len)
{
	struct pack_count count;
	AUTO_FD stream = -1;
	AUTO_FD outer = -1;
	AUTO_FD inner = -1;

	if (!strncmp(top + sizeof(top) - 7, "XXXXXX", 6)) {
		must(mkdtemp(top) != NULL);
		must(atexit(remove_top) == 0);
	}
	outer = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	stream = open(top, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	must(outer >= 0 && stream >= 0);
	must(mkdirat(outer, "in", 0755) == 0);
	inner = openat(outer, "in", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	must(inner >= 0 && fd_pwrite_all(stream, data, len, 0) == 0);
	unpack_directory(stream, inner, &count, NULL);
	if (unlinkat(outer, "in", AT_REMOVEDIR) < 0) {
		char command[96];

		snprintf(command, sizeof(command), "chmod -R u+rwx %s/in; rm -rf %s/in", top, top);
		must(system(command) == 0);
	}
	/* Nothing stands beside it. */
	must(rmdir(top) == 0 && mkdir(top, 0700) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	if (len < 1 || len > 65536)
		return 0;
	switch (data[0] % 4) {
	case 0:
		text(data + 1, len - 1);
		break;
	case 1:
		record(data + 1, len - 1);
		break;
	case 2:
		tar(data + 1, len - 1);
		break;
	case 3:
		diff(data + 1, len - 1);
		break;
	}
	return 0;
}
