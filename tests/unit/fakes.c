/* SPDX-License-Identifier: Apache-2.0 */
/* What fake_peers.c and fake_box.c share: the table of what there is, and the trace. */
#include "tests/unit/fakes.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "base/fd.h"

struct fakes fakes;

static const char *const pager_words[PAGER_TYPE_COUNT] = {
	[PAGER_TEMPLATE] = "TEMPLATE",
	[PAGER_ATTACH] = "ATTACH",
	[PAGER_DETACH] = "DETACH",
	[PAGER_CAPTURE_BEGIN] = "CAPTURE_BEGIN",
	[PAGER_CAPTURE] = "CAPTURE",
	[PAGER_CAPTURED] = "CAPTURED",
	[PAGER_ADOPT] = "ADOPT",
	[PAGER_STORED] = "STORED",
	[PAGER_FORGET] = "FORGET",
	[PAGER_WORKSET] = "WORKSET",
	[PAGER_WORKSET_SET] = "WORKSET_SET",
	[PAGER_DISK_CREATE] = "DISK_CREATE",
	[PAGER_DISK_REMOVE] = "DISK_REMOVE",
	[PAGER_DISK_EXPORT] = "DISK_EXPORT",
	[PAGER_DISK_UNEXPORT] = "DISK_UNEXPORT",
	[PAGER_DISK_SYNC] = "DISK_SYNC",
	[PAGER_DISK_FILES] = "DISK_FILES",
	[PAGER_CONFIG] = "CONFIG",
	[PAGER_EVICT] = "EVICT",
	[PAGER_DISK_STAT] = "DISK_STAT",
	[PAGER_QUIT] = "QUIT",
};
static const char *const store_words[STORE_TYPE_COUNT] = {
	[STORE_INGEST] = "INGEST", [STORE_VERIFY] = "VERIFY", [STORE_REMOVE] = "REMOVE",
	[STORE_GC] = "GC",	   [STORE_STAT] = "STAT",     [STORE_MANIFEST] = "MANIFEST",
	[STORE_STATE] = "STATE",   [STORE_QUIT] = "QUIT",     [STORE_CANCEL] = "CANCEL",
};
static const char *const netd_words[NETD_TYPE_COUNT] = {
	[NETD_CONFIG] = "CONFIG", [NETD_OPEN] = "OPEN",	      [NETD_ALLOW] = "ALLOW",
	[NETD_PORTS] = "PORTS",	  [NETD_SOCKETS] = "SOCKETS", [NETD_CLOSE] = "CLOSE",
	[NETD_LIST] = "LIST",	  [NETD_STAT] = "STAT",	      [NETD_QUIT] = "QUIT",
};
static const char *const box_words[BOX_REPLY] = {
	[BOX_START] = "START",	 [BOX_EXEC] = "EXEC",	  [BOX_STDIN] = "STDIN",
	[BOX_CTL] = "CTL",	 [BOX_VM] = "VM",	  [BOX_FS] = "FS",
	[BOX_SET] = "SET",	 [BOX_MEMORY] = "MEMORY", [BOX_MEMORY_AGAIN] = "MEMORY_AGAIN",
	[BOX_FREEZE] = "FREEZE", [BOX_THAW] = "THAW",	  [BOX_LOAD] = "LOAD",
	[BOX_TRIM] = "TRIM",	 [BOX_NET] = "NET",	  [BOX_RECLAIM] = "RECLAIM",
};
static_assert((int)PAGER_TYPE_COUNT <= (int)FAKE_TYPES && (int)STORE_TYPE_COUNT <= (int)FAKE_TYPES &&
		      (int)BOX_TYPE_COUNT <= (int)FAKE_TYPES,
	      "the tables are wide enough");

void fakes_note(enum fake_who who, int type)
{
	const char *word = who == FAKE_PAGER   ? pager_words[type]
			   : who == FAKE_STORE ? store_words[type]
			   : who == FAKE_NETD  ? netd_words[type]
			   : type < BOX_REPLY  ? box_words[type]
					       : NULL;
	size_t n = strlen(fakes.trace);

	fakes.asked[who][type]++;
	if (n + 64 > sizeof(fakes.trace)) /* of a long test: the newest counts */
		n = 0;
	snprintf(fakes.trace + n, sizeof(fakes.trace) - n, "%c:%s ", "PSNB"[who], word ? word : "?");
}

bool fakes_traced(const char *words)
{
	const char *at = fakes.trace;

	while (*words) {
		size_t n = strcspn(words, " ") + 1;
		const char *end;

		for (;; at = end + 1) {
			end = strchr(at, ' ');
			if (!end)
				return false;
			if ((size_t)(end + 1 - at) == n && !memcmp(at, words, n))
				break;
		}
		at = end + 1;
		words += n;
	}
	return true;
}

bool fakes_have(enum fake_set set, const char *uuid)
{
	for (size_t i = 0; i < fakes.nset[set]; i++) {
		if (!strcmp(fakes.set[set][i], uuid))
			return true;
	}
	return false;
}

void fakes_put(enum fake_set set, const char *uuid)
{
	if (fakes_have(set, uuid))
		return;
	assert(fakes.nset[set] < ARRAY_LEN(fakes.set[set]));
	snprintf(fakes.set[set][fakes.nset[set]++], sizeof(fakes.set[set][0]), "%s", uuid);
}

void fakes_drop(enum fake_set set, const char *uuid)
{
	for (size_t i = 0; i < fakes.nset[set]; i++) {
		if (strcmp(fakes.set[set][i], uuid) != 0)
			continue;
		fakes.nset[set]--;
		memmove(fakes.set[set][i], fakes.set[set][fakes.nset[set]], sizeof(fakes.set[set][0]));
		return;
	}
}

int fakes_fd(void)
{
	int fd = memfd_create("fake", MFD_CLOEXEC);

	assert(fd >= 0);
	return fd;
}

void fakes_obey(void)
{
	memset(fakes.refuse, 0, sizeof(fakes.refuse));
	memset(fakes.hold, 0, sizeof(fakes.hold));
}

void fakes_answer(enum fake_who who, int type)
{
	fakes.hold[who][type] = false;
	if (who == FAKE_BOX)
		fake_boxes_answer(type);
	else
		fake_peers_answer(who, type);
}

void fakes_reset(struct loop *l)
{
	fake_peers_reset();
	fake_boxes_reset();
	fakes = (struct fakes){ .loop = l };
}
