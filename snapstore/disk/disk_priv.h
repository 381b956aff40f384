/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share. */
#ifndef CRUCIBLE_DISK_PRIV_H
#define CRUCIBLE_DISK_PRIV_H

#include "snapstore/disk/disk.h"

#define DISK_ID_MAX   100u
#define DISK_BASE_MAX 159u
#define DISK_BUCKETS  1024u

#define WORD_BLOCKS  32u /* of a map's 64-bit word */
#define CHUNK_BLOCKS 4096u
#define CHUNK_WORDS  (CHUNK_BLOCKS / WORD_BLOCKS)
#define WORD_LOW     0x5555555555555555ull /* the lower bit of each block */

enum block_state {
	BLOCK_ABSENT,
	BLOCK_DATA,
	BLOCK_ZERO,
};

/* -- layer.c: the two files of a layer ------------------------------------------------------------------------------
 */

struct layer {
	struct layer *next; /* in its bucket */
	uint64_t id;	    /* never used again: whoever remembers one knows the bytes */
	unsigned refs;	    /* stacks that hold it; its files go with the last */
	unsigned opens;	    /* disks and calls that have the descriptors open */
	int data, map;
	uint64_t used; /* blocks of data; right while `counted` */
	bool counted;
	bool synced; /* since the last write */
};

/* Known or made known, without looking at its files; one more ref. NULL: no memory. */
struct layer *layer_get(struct disks *d, uint64_t id);
void layer_put(struct disks *d, struct layer *l); /* one ref less; with the last the files go */
/* New, empty: one ref, open. -ENOSPC and what open says. */
int layer_create(struct disks *d, uint64_t bytes, struct layer **ret, struct err *e);
int layer_size(struct layer *l, uint64_t bytes, struct err *e); /* how long its files are; they are empty */
/* @l's files under a new id, because their bytes are about to mean something else: one ref, open. */
int layer_alias(struct disks *d, struct layer *l, struct layer **ret, struct err *e);
int layer_open(struct disks *d, struct layer *l, struct err *e); /* -EBADMSG: the files are not there */
void layer_close(struct layer *l);
/* Descriptors for somebody else: read only, with positions of their own. */
int layer_reopen(const struct disks *d, const struct layer *l, int *ret_data, int *ret_map, struct err *e);
/* @n words of the map from block @first (a multiple of WORD_BLOCKS) on; past its end: absent. */
int layer_map_read(const struct layer *l, uint64_t first, uint64_t *words, unsigned n, struct err *e);
int layer_map_write(struct layer *l, uint64_t first, const uint64_t *words, unsigned n, struct err *e);
int layer_count(struct layer *l, struct err *e); /* makes `used` right; open */
int layer_sync(struct layer *l, struct err *e);	 /* open */
/* Remove files of layers/ that nobody knows, and learn the highest id. @remove false: only learn. */
int layers_sweep(struct disks *d, bool remove, struct err *e);

static inline unsigned words_data(uint64_t w) /* blocks of data in a word */
{
	return (unsigned)__builtin_popcountll(w & ~(w >> 1) & WORD_LOW);
}
/* Set blocks [first, first+n) of @words. */
void words_set(uint64_t *words, unsigned first, unsigned n, enum block_state state);

/* -- storelayer.c: a disk map of the snapstore as the lowest layer ----------------------------------------------- */

struct storelayer;
/* One more user of the map under @root. -EBADMSG, -ENOENT; -EINVAL without a snapstore. */
int storelayer_open(struct disks *d, const struct snap_digest *root, uint64_t blocks, struct storelayer **ret,
		    struct err *e);
struct storelayer *storelayer_close(struct disks *d, struct storelayer *s);
/* Some of [off, off+len), as far as one window goes, or as its blocks are there alike: *ret_len bytes. *ret_absent:
 * they are the base's, @buf is as before. */
int storelayer_read(struct disks *d, struct storelayer *s, void *buf, uint64_t off, uint32_t len, uint32_t *ret_len,
		    bool *ret_absent, struct err *e);
void storelayer_end(struct disks *d);

/* -- stack.c: stacks and their records ------------------------------------------------------------------------------
 */

struct base {
	struct base *next;
	char name[DISK_BASE_MAX + 1];
	unsigned refs; /* stacks */
	int fd;	       /* -1: not opened since the start */
	uint64_t bytes;
};

struct stack {
	struct stack *next; /* in its bucket */
	char id[DISK_ID_MAX + 1];
	uint64_t bytes, limit; /* 0: no limit */
	unsigned own;	       /* layers at the top that count against the limit */
	unsigned nlayers;
	struct layer *layers[DISK_LAYERS_MAX]; /* oldest first; a ref each */
	struct base *base;		       /* NULL: zeros below */
	bool rooted;			       /* @root lies between base and layers */
	struct snap_digest root;
	unsigned nhad; /* layers that @root has taken the place of: what they were called */
	uint64_t had[DISK_LAYERS_MAX];
	bool frozen;	   /* a snapshot's: never written */
	bool damaged;	   /* its record cannot be read: only the id is right */
	struct disk *disk; /* open, or NULL */
	struct join
		*join; /* two of its layers are becoming one; NULL: none are. The layers stay as they are meanwhile */
};

bool disk_id_ok(const char *id);
struct stack *stack_find(struct disks *d, const char *id);
int stack_need(struct disks *d, const char *id, struct stack **ret, struct err *e); /* -ENOENT, -EBADMSG, -EINVAL */
struct stack *stack_new(const char *id);					    /* in no bucket; NULL: no memory */
int stack_clone(struct disks *d, const struct stack *from, const char *id, struct stack **ret, struct err *e);
/* Gives its refs back. In no bucket any more. */
struct stack *stack_free(struct disks *d, struct stack *k);
void stack_link(struct disks *d, struct stack *k);
void stack_unlink(struct disks *d, struct stack *k);
int stack_write(struct disks *d, const struct stack *k, bool sync, struct err *e); /* its record, by rename */
int stacks_load(struct disks *d, struct err *e);

/* A record as text, and back; the latter of bytes that need not be ours. */
struct record {
	uint64_t bytes, limit;
	unsigned own, nlayers, nhad;
	uint64_t layers[DISK_LAYERS_MAX], had[DISK_LAYERS_MAX];
	char base[DISK_BASE_MAX + 1];
	bool rooted, frozen;
	struct snap_digest root;
};
int record_parse(const char *text, size_t len, struct record *ret, struct err *e); /* -EBADMSG */

/* @fd: duplicated; -1: opened by name when first needed. "": NULL. One more ref. */
int base_get(struct disks *d, const char *name, int fd, struct base **ret, struct err *e);
void base_put(struct disks *d, struct base *b);
int base_open(struct disks *d, struct base *b, struct err *e);

/* -- join.c ---------------------------------------------------------------------------------------------------------
 */

/* One layer less in @k, by copying the cheapest pair into one. -EMLINK: that would take too long. On failure nothing
 * has changed. In one go, or in steps of about a MiB: 1 there is more to do, 0 done. */
int stack_join_step(struct disks *d, struct stack *k, struct err *e);
extern unsigned join_step_blocks;		  /* copied in a step, about; tests change it */
void join_drop(struct disks *d, struct stack *k); /* give up what is under way; none is fine */
int stack_join(struct disks *d, struct stack *k, struct err *e);
/* Blocks of @from that @to lacks (@over: all) into @to. Both open; any two of one disk. */
int layer_pour(const struct layer *from, struct layer *to, uint64_t bytes, bool over, struct err *e);

/* -- spare.c --------------------------------------------------------------------------------------------------------
 */

#define SPARE_LAYERS  4u
#define SPARE_RECORDS 8u

bool spare_add(struct disks *d); /* one more; false: there are enough, or it cannot be done now */
/* As layer_create() and fd_replace(), from what is there. */
int spare_layer(struct disks *d, uint64_t bytes, struct layer **ret, struct err *e);
int spare_record(struct disks *d, const char *id, const void *text, size_t len);
void spares_drop(struct disks *d);

/* -- disk.c, index.c ------------------------------------------------------------------------------------------------
 */

/* Where each block of 16 MiB is read from; made when first touched, then kept right. */
enum {
	SRC_BASE = 0, /* 1 .. DISK_LAYERS_MAX: layers[n - 1] */
	SRC_STORE = 254,
	SRC_ZERO = 255,
};
struct chunk {
	uint32_t epoch;		   /* of `top`: an older one is all absent */
	uint8_t src[CHUNK_BLOCKS]; /* SRC_* */
	uint64_t top[CHUNK_WORDS]; /* the top layer's map */
};

struct disk {
	struct disks *set;
	struct stack *stack;
	uint32_t epoch; /* grows with each freeze */
	size_t nchunks;
	struct chunk **chunks;
	struct storelayer *store; /* NULL: none */
	bool prepared;		  /* for the next freeze */
};

int index_chunk(struct disk *k, uint64_t block, struct chunk **ret, struct err *e);
void index_drop(struct disk *k);
/* The stack got another top or other layers: */
void disk_restack(struct disk *k, bool other_layers);

struct disks {
	int dirfd; /* borrowed */
	int layers_fd, stacks_fd, bases_fd;
	struct snap *snap;
	uint64_t next_layer;
	bool unreadable; /* a record: whose layers are whose is not known, so no file is a left-over */
	struct layer *layers[DISK_BUCKETS];
	struct stack *stacks[DISK_BUCKETS];
	struct base *bases;
	struct store_state *store; /* storelayer.c's */

	struct layer *spare_layers[SPARE_LAYERS]; /* a ref, open, without a size */
	struct spare_record {
		uint64_t number;
		int fd;
	} spare_records[SPARE_RECORDS];
	unsigned nspare_layers, nspare_records;
	uint64_t next_spare;
};

#endif
