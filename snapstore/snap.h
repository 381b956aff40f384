/* SPDX-License-Identifier: Apache-2.0 */
/* The store of what machines were: 4 KiB pages of memory and blocks of disk, each kept once, by its SHA-256.
 *
 * Below one directory (snapstore(5) is the format):
 *   format                "crucible-snapstore 1": other majors are refused, older ones migrated by snap_open(WRITE)
 *   packs/<id>.pack       append-only while written, then never changed: frames of up to 16 pages, LZ4 each
 *   packs/<id>.idx        sorted by digest, mapped; a pack without an index is no pack (a crash left it; gc removes it)
 *   manifests/<uuid>      JSON, one a snapshot: what gc starts from
 * A map (guest memory, a disk) is a tree of content-addressed nodes: 512 digests a leaf (2 MiB), leaves named by inner
 * nodes of 512, up to one root. A node equal to the parent's is the parent's.
 *
 * Who may call: one process writes (crucible-store; a lock says so), any number read (the pager). A struct snap is one
 * thread's. Everything here blocks on the disk but for a snap_reader. Errors: 0 or -errno with words; -EBADMSG is
 * damage: a digest that differs, a frame that does not decode, a node or manifest that is not one.
 * Invariants:
 *  1. Nothing is named before it is durable: pages, then index, then manifest, each fsynced and renamed into place.
 *  2. Whatever is returned was checked: on the hot path the digest of the compressed frame, elsewhere each page's.
 *  3. A failure (ENOSPC, a crash) at any instant leaves the store as it was, but for files that gc removes. */
#ifndef CRUCIBLE_SNAP_H
#define CRUCIBLE_SNAP_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"

#define SNAP_PAGE_BYTES	  4096u
#define SNAP_WINDOW_PAGES 16u /* 64 KiB: what one frame holds, at most */
#define SNAP_NODE_ENTRIES 512u
#define SNAP_BLOB_MAX	  (16u * 1024 * 1024)
#define SNAP_UUID_LEN	  36

struct snap_digest {
	uint8_t bytes[32];
};
extern const struct snap_digest snap_zero;   /* all 0x00: a page of zeros; never stored, never looked up */
extern const struct snap_digest snap_absent; /* all 0xff: nothing here (a disk: the base image's block shows) */
bool snap_digest_equal(const struct snap_digest *a, const struct snap_digest *b);

struct snap;
enum snap_mode {
	SNAP_READ,  /* -ENOENT when there is no store yet */
	SNAP_WRITE, /* made when it is not there; -EBUSY when another process writes */
};
/* @dirfd, @name: the store's directory. -EPROTONOSUPPORT: a newer format; words say so. */
int snap_open(int dirfd, const char *name, enum snap_mode mode, struct snap **ret, struct err *e);
struct snap *snap_close(struct snap *s); /* NULL is fine; readers and maps were freed before */
/* See packs that came, forget packs that went. Done inside when a digest is not found. */
int snap_refresh(struct snap *s, struct err *e);

/* -- writing: one batch is one snapshot, all or nothing ---------------------------------------------------------- */

struct snap_manifest {
	char uuid[SNAP_UUID_LEN + 1];
	char parent[SNAP_UUID_LEN + 1]; /* "" for none; may be gone */
	uint64_t created_ns;		/* wall clock */
	uint64_t memory_pages;		/* 0: none */
	struct snap_digest memory;	/* root; what is not there: snap_zero */
	uint64_t disk_blocks;
	struct snap_digest disk; /* root; what is not there: snap_absent */
	struct snap_digest state;
	uint64_t state_bytes;	  /* device state, a blob; 0: none */
	struct json_object *meta; /* the caller's own: fingerprint, shape, names. Kept as it is; <= 64 KiB. Owned */
};
void snap_manifest_fini(struct snap_manifest *m);

struct snap_counts {
	uint64_t pages_seen; /* put */
	uint64_t pages_zero;
	uint64_t pages_known; /* in the store already */
	uint64_t pages_new;
	uint64_t bytes_stored; /* packs and indexes grew by */
	uint64_t nodes_new;
};

struct snap_batch;
struct snap_edit;
int snap_batch_new(struct snap *s, struct snap_batch **ret, struct err *e); /* WRITE only; one at a time: -EBUSY */
/* A new version of a map: as @base (a root; NULL: every entry is @fill) but for what is put or marked. Entries come in
 * growing order. -EINVAL out of order or range; those of reading a node. */
int snap_edit_new(struct snap_batch *b, const struct snap_digest *base, const struct snap_digest *fill,
		  uint64_t entries, struct snap_edit **ret, struct err *e);
int snap_edit_put(struct snap_edit *d, uint64_t index, const void *page, struct err *e);
int snap_edit_mark(struct snap_edit *d, uint64_t index, const struct snap_digest *special, struct err *e);
int snap_edit_finish(struct snap_edit *d, struct snap_digest *ret_root, struct err *e); /* frees @d, also on failure */
int snap_blob_put(struct snap_batch *b, const void *data, size_t len, struct snap_digest *ret, struct err *e);
/* Durable and named, or not there. Frees @b, also on failure. */
int snap_batch_commit(struct snap_batch *b, const struct snap_manifest *m, struct snap_counts *ret, struct err *e);
struct snap_batch *snap_batch_abort(struct snap_batch *b); /* NULL is fine; edits that are open are dropped */

/* -- manifests ------------------------------------------------------------------------------------------------------
 */

int snap_manifest_read(struct snap *s, const char *uuid, struct snap_manifest *ret, struct err *e); /* -ENOENT */
int snap_manifest_parse(const void *json, size_t len, struct snap_manifest *ret, struct err *e); /* untrusted; fuzzed */
/* Each uuid; @fn returns false to stop. */
int snap_manifest_each(struct snap *s, bool (*fn)(void *arg, const char *uuid), void *arg, struct err *e);
int snap_manifest_remove(struct snap *s, const char *uuid, struct err *e); /* the space is gc's to give back */

/* -- reading --------------------------------------------------------------------------------------------------------
 */

struct snap_map; /* nodes are read when needed and kept in a bounded cache of the struct snap */
int snap_map_open(struct snap *s, const struct snap_digest *root, uint64_t entries, struct snap_map **ret,
		  struct err *e);
struct snap_map *snap_map_close(struct snap_map *m);
int snap_map_get(struct snap_map *m, uint64_t index, struct snap_digest *ret, struct err *e);
/* The length of the run of entries from @index on that are all @special (0: the first is not). Whole nodes of one kind
 * cost one look. */
int snap_map_run(struct snap_map *m, uint64_t index, const struct snap_digest *special, uint64_t *ret_len,
		 struct err *e);
int snap_page_read(struct snap *s, const struct snap_digest *d, void *page, struct err *e); /* digest checked */
int snap_blob_read(struct snap *s, const struct snap_digest *d, struct buf *out, struct err *e);

/* Many reads at once, none of which blocks: io_uring (a restricted ring: READ on registered descriptors only), or pread
 * in place where it is forbidden. */
struct snap_reader;
typedef void snap_read_fn(void *arg, int code, const struct err *e);
/* @depth: reads under way at once. @ret_uring: which it became; @use_uring false forces pread. */
int snap_reader_new(struct snap *s, unsigned depth, bool use_uring, struct snap_reader **ret, bool *ret_uring,
		    struct err *e);
struct snap_reader *snap_reader_free(struct snap_reader *r); /* what is under way is waited for; @fn is not called */
int snap_reader_fd(const struct snap_reader *r); /* readable when snap_reader_poll() has work; never with pread */
/* Fill @pages (n * 4096 bytes, at least until @fn) with entries [index, index+n) of @m, n <= SNAP_WINDOW_PAGES; zeros
 * for snap_zero; absent ones are left alone, their bits set in *ret_absent at once. @fn is called once, from
 * snap_reader_poll(), never inside this. -EBUSY: @depth are under way. Looking at the map may read a node in place. */
int snap_read(struct snap_reader *r, struct snap_map *m, uint64_t index, unsigned n, void *pages, uint32_t *ret_absent,
	      snap_read_fn *fn, void *arg, struct err *e);
void snap_reader_poll(struct snap_reader *r);

/* -- the whole ------------------------------------------------------------------------------------------------------
 */

typedef bool snap_progress_fn(void *arg, uint64_t done, uint64_t total); /* false: stop with -ECANCELED */
struct snap_report {
	uint64_t pages, nodes, bytes_read;
	uint64_t damaged; /* digests that could not be read or differ */
	char first[160];  /* words about the first of them */
};
/* Read everything that @uuid (NULL: each manifest, and each frame of each pack) needs, check each page's digest.
 * Damage is in the report, not an error. */
int snap_verify(struct snap *s, const char *uuid, snap_progress_fn *fn, void *arg, struct snap_report *ret,
		struct err *e);
/* Remove what no manifest reaches: packs below half live are rewritten, small ones joined, left-overs of crashes
 * removed. Readers go on. WRITE only, no batch open (-EBUSY). Needs room for what it rewrites: -ENOSPC loses nothing.
 */
struct snap_gc {
	uint64_t bytes_before, bytes_after, packs_before, packs_after, pages_dropped;
};
int snap_gc(struct snap *s, snap_progress_fn *fn, void *arg, struct snap_gc *ret, struct err *e);
struct snap_stat {
	uint64_t snapshots, packs, pages, bytes_packs, bytes_index, bytes_logical; /* logical: sum of what maps show */
};
int snap_stat(struct snap *s, struct snap_stat *ret, struct err *e);
/* Pages that two roots of one size share and differ in; for info.json. */
int snap_map_diff(struct snap *s, const struct snap_digest *a, const struct snap_digest *b, uint64_t entries,
		  uint64_t *ret_shared, uint64_t *ret_differ, struct err *e);

#endif
