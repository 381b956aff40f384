/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the library share. Who only reads the store includes snap.h. */
#ifndef CRUCIBLE_SNAP_PRIV_H
#define CRUCIBLE_SNAP_PRIV_H

#include <sys/stat.h>
#include "base/fd.h"
#include "snapstore/frame.h"
#include "snapstore/index.h"
#include "snapstore/node.h"
#include "snapstore/snap.h"

#define SNAP_FORMAT	     1u
#define SNAP_MANIFEST_MAX    (80u * 1024) /* bytes of one */
#define SNAP_PACKS_MAX	     65536u
#define SNAP_PACK_BYTES	     (256ull << 20) /* a pack that is being written ends here, */
#define SNAP_PACK_OBJECTS    65536u	    /* or here: its digests are held in memory until then */
#define SNAP_SMALL_BYTES     (8ull << 20)   /* packs below are joined by gc */
#define SNAP_FRAMES_A_WINDOW 4u		    /* a window that needs more is stored anew */
#define SNAP_FILE_MODE	     0640
#define SNAP_DIR_MODE	     0750

/* -- packs (pack.c) ----------------------------------------------------------------------------------------------- */

struct pack { /* counted; one that was removed lives until its last read */
	unsigned refs;
	int fd;
	uint64_t id;
	void *data; /* the index, mapped */
	size_t len;
	struct index x;
	uint16_t *marks; /* of each frame's objects; NULL: none. mark_set() */
};
struct pack *pack_ref(struct pack *p);
struct pack *pack_unref(struct pack *p);

/* Where an object is. Borrows the pack until the next refresh. */
struct where {
	struct pack *pack;
	uint32_t frame, slot;
	struct place place;
};

struct packs {
	struct pack **v; /* ascending by id */
	size_t n, cap;
	struct pack *hint; /* where the last one was found; borrowed */
	uint64_t top;	   /* the largest id seen, of leftovers too */
	uint64_t gone;	   /* how many were forgotten so far */
	char bad[160];	   /* words about the last pack that could not be opened */
};
void packs_init(struct packs *p);
void packs_fini(struct packs *p);
int packs_scan(struct snap *s, struct err *e); /* opens what came, forgets what went */
int packs_load(struct snap *s, uint64_t id, struct err *e);
void packs_forget(struct packs *p, uint64_t id);
struct pack *packs_get(const struct packs *p, uint64_t id); /* NULL: none */
/* The newest copy; -ENOENT (no words) when there is none; -EBADMSG. */
int packs_find(struct packs *p, const struct snap_digest *d, struct where *ret, struct err *e);
/* The same, asking the pack of the last answer first: any copy. */
int packs_find_any(struct packs *p, const struct snap_digest *d, struct where *ret, struct err *e);
void pack_name(uint64_t id, const char *suffix, char out[32]);

/* -- writing one pack (packer.c) ---------------------------------------------------------------------------- */

struct packer; /* one pack after another, each ended when it is large enough */
int packer_new(struct snap *s, struct packer **ret, struct err *e);
int packer_frame(struct packer *p, const void *raw, uint32_t unit, uint32_t count, const struct snap_digest *digests,
		 struct err *e);
int packer_copy(struct packer *p, const void *frame, size_t len, const struct frame *f, struct err *e); /* as it is */
/* Of what was written and is in no pack yet. */
bool packer_find(struct packer *p, const struct snap_digest *d, uint32_t *ret_frame, uint32_t *ret_slot);
int packer_read(struct packer *p, uint32_t frame, uint8_t buf[FRAME_MAX], size_t *ret_len, struct err *e);
int packer_finish(struct packer *p, struct err *e); /* durable and known to the snap; frees nothing */
uint64_t packer_bytes(const struct packer *p);	    /* packs and indexes, so far */
/* Removes what packer_finish() has not made durable, and, with @undo, what it and the sizes have. NULL is fine. */
struct packer *packer_free(struct packer *p, bool undo);

/* -- the store (store.c, object.c) -------------------------------------------------------------------------- */

struct snap {
	int dirfd, packs_fd, manifests_fd, lock_fd;
	bool write;
	struct hasher hash;
	struct packs packs;
	struct timespec scanned; /* mtime of packs/ before the last scan */
	struct nodes nodes;
	struct snap_batch *batch; /* the open one */
	/* The frame that was read last, decoded. */
	struct {
		struct pack *pack; /* held */
		uint32_t frame;
		struct frame f; /* into bytes */
		uint8_t *bytes; /* FRAME_MAX */
		uint8_t *raw;	/* FRAME_RAW_MAX */
	} last;
	uint64_t bytes_read; /* of frames; for reports */
};

/* Find an object; what is not found is looked for once more after a refresh. -EBADMSG: it is nowhere. */
int snap_find(struct snap *s, const struct snap_digest *d, struct where *ret, struct err *e);
/* Read and decode one frame into s->last. -EBADMSG, -EIO. */
int snap_frame_load(struct snap *s, struct pack *pack, uint32_t frame, const struct place *place, struct err *e);
/* The object @d; *ret is valid until the next object is read. @checked: its own digest too. */
int snap_object(struct snap *s, const struct snap_digest *d, bool checked, const uint8_t **ret, uint32_t *ret_len,
		struct err *e);
bool snap_uuid_ok(const char *uuid);

/* -- a batch, for edits and blobs (batch.c) ----------------------------------------------------------------- */

struct snap_batch {
	struct snap *s;
	struct packer *packer;
	struct snap_counts counts;
	struct snap_edit *edits; /* open ones */
	int failed;		 /* a step did: -errno; what was put may be missing, so it cannot be committed */
};
int batch_failed(struct snap_batch *b, int code); /* returns @code */
/* Put one object that stands alone, unless it is there. */
int batch_object(struct snap_batch *b, const void *data, size_t len, struct snap_digest *ret, bool *ret_new,
		 struct err *e);
struct snap_edit *edit_free(struct snap_edit *d);

/* Text of a manifest, with its own digest. -EFBIG, -ENOMEM, -EINVAL. */
int manifest_text(const struct snap_manifest *m, struct buf *out, struct err *e);
/* The text of @uuid's, as it is. */
int manifest_slurp(struct snap *s, const char *uuid, char **ret, size_t *ret_len, struct err *e);

/* -- walking everything a snapshot needs (walk.c) ----------------------------------------------------------- */

struct walk_ops {
	bool (*node)(void *arg, const struct snap_digest *d); /* false: not to be gone into (it was already) */
	/* Digests of pages and special ones, and how many entries of the map that stands for. Reads no node. */
	int (*leaf)(void *arg, const struct snap_digest *v, unsigned n, struct err *e);
	int (*object)(void *arg, const struct snap_digest *d, struct err *e); /* of a blob */
	/* A node or blob cannot be read: 0 to go on without what is below, else the walk ends with it. */
	int (*bad)(void *arg, int code, struct err *e);
};
int walk_manifest(struct snap *s, const struct snap_manifest *m, const struct walk_ops *ops, void *arg, struct err *e);

struct uuids { /* of all manifests, as they were */
	char (*v)[SNAP_UUID_LEN + 1];
	size_t n, cap;
	bool no_memory;
};
int uuids_list(struct snap *s, struct uuids *ret, struct err *e);
void uuids_fini(struct uuids *u);

/* Objects of packs that were seen: a bit each, in the pack. */
bool mark_set(struct pack *p, uint32_t frame, uint32_t slot, bool *ret_new); /* false: no memory, or no such object */
void marks_clear(struct snap *s);

#endif
