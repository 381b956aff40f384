/* SPDX-License-Identifier: Apache-2.0 */
/* Disks of sandboxes: copy-on-write at 4 KiB, forked in constant time, at any depth as fast as at the first.
 *
 * A disk is a stack of layers, newest first; a block is read from the first layer that has it, below all from the base
 * image (a raw file; zeros past its end). Only the top layer is written. A layer is
 *   <dir>/layers/<id>.data    a sparse file in which block n lies at n * 4096
 *   <dir>/layers/<id>.map     two bits a block: 0 not here, 1 here, 2 zeros here; block n is bits 2(n%4) of byte n/4;
 *                             written at once, so that it survives us
 * or a disk map of the snapstore (blocks read through it, decoded frames cached, bounded). A fork freezes the top layer
 * (it is the snapshot's now, and never changes) and puts an empty one on top of it: two files made, nothing copied.
 * Layers are counted by the stacks that hold them and removed with the last one.
 *   <dir>/stacks/<id>         JSON: bytes, limit, layers, base, written by rename: what a restarted server reads
 * A stack is of a machine (its id is the machine's, or the sandbox's: the caller's business) or of a snapshot: that can
 * be opened, but not written. An id is 1 to 100 letters that are themselves in a path and in JSON (-EINVAL else).
 *
 * Overlays are disposable: a flush returns at once (it is the guest's promise against a crash of the guest, which ours
 * survives); disk_sync() is for a stopped sandbox and for a snapshot before it is `ready`.
 *
 * Thread: one for everything (the block server's). Blocks: on the files' pages, and on frames of the snapstore. */
#ifndef CRUCIBLE_DISK_LAYER_H
#define CRUCIBLE_DISK_LAYER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/err.h"
#include "base/loop.h"
#include "snapstore/snap.h"

#define DISK_BLOCK_BYTES 4096u
#define DISK_LAYERS_MAX	 64u /* of one stack; a fork beyond joins the oldest two files first */
#define DISK_FILES_MAX	 6u  /* what one message to the store can carry */
#define DISK_BYTES_MAX	 (64ull << 30)

struct disks;
/* @dirfd: <store>/disks, borrowed for life; made as needed inside. @snap: for layers of the snapstore, may be NULL.
 * Reads every stack; one that cannot be read is told by disk_open() with -EBADMSG, not here. */
int disks_open(int dirfd, struct snap *snap, struct disks **ret, struct err *e);
/* A store that was made after disks_open(), which was given none. */
void disks_set_snap(struct disks *d, struct snap *snap);
struct disks *disks_close(struct disks *d); /* syncs nothing; closes what is open, so a struct nbd goes first */

struct disk_origin {
	int base_fd;			  /* raw image; duplicated; -1: opened by its name. Kept by name too: */
	char base[160];			  /* file below <dir>/bases/ (a hard link made by the caller); "": zeros */
	char snapshot[SNAP_UUID_LEN + 1]; /* "": an empty layer over the base; else a stack of a snapshot */
};
/* Make stack @id, writable. @limit_bytes: of the top layer: what the machine wrote since its last freeze;
 * writing more: -EDQUOT; 0: no limit. With a snapshot the base is the snapshot's. Errors: -EEXIST; -ENOENT
 * no such snapshot; -ENOSPC; -EINVAL: of another size than a stored snapshot. */
int disk_create(struct disks *d, const char *id, uint64_t bytes, uint64_t limit_bytes, const struct disk_origin *o,
		struct err *e);
/* The snapshot's stack from the snapstore (its files went, or it was never here): base and one map. */
int disk_create_from_store(struct disks *d, const char *snapshot, uint64_t bytes, const struct disk_origin *base,
			   const struct snap_digest *root, struct err *e);
/* A stack of DISK_LAYERS_MAX layers has no room for another top: disk_freeze() joins two of it first, which may copy up
 * to a GiB, unless writes since it was full have done that. This does it before, in steps of about a MiB. 1: call it
 * again, with whatever has come in between. 0: there is room (or no such stack). Errors: -ENOSPC; -EMLINK too deep to
 * join; -EBADMSG. */
int disk_make_room(struct disks *d, const char *id, struct err *e);
/* Freeze: @snapshot becomes a stack of @id's layers, @id goes on above. Nothing may be under way on @id (the machine is
 * paused). Constant time. -EEXIST, -ENOENT, -ENOSPC, -EMLINK too deep to join. On failure nothing has changed. */
int disk_freeze(struct disks *d, const char *id, const char *snapshot, struct err *e);
/* The layers of @snapshot that its parent snapshot's stack lacks (frozen files): what has to be ingested. Descriptors
 * for reading, oldest first, each pair data and map; the caller closes. More than DISK_FILES_MAX: the oldest are
 * joined. A snapshot that stands on a stored one says nothing without a parent: -EINVAL. */
struct disk_files {
	unsigned n;
	int data[DISK_FILES_MAX], map[DISK_FILES_MAX];
};
int disk_snapshot_files(struct disks *d, const char *snapshot, const char *parent_or_empty, struct disk_files *ret,
			struct err *e);
/* @snapshot is in the snapstore under @root: new stacks made from it use that, and its files go with the last stack
 * that holds them. */
int disk_snapshot_stored(struct disks *d, const char *snapshot, const struct snap_digest *root, struct err *e);
/* Layers go when nobody holds them. Absent: 0. -EBUSY: open. */
int disk_remove(struct disks *d, const char *id, struct err *e);
int disk_sync(struct disks *d, const char *id, struct err *e);
bool disk_exists(struct disks *d, const char *id);
int disk_stat(struct disks *d, const char *id, uint64_t *ret_own_bytes, unsigned *ret_layers, struct err *e);

/* -- reading and writing; offsets and lengths in bytes, any alignment, inside the disk (-EINVAL else) ------------ */
struct disk;
int disk_open(struct disks *d, const char *id, struct disk **ret, struct err *e); /* -ENOENT, -EBADMSG, -EBUSY open */
struct disk *disk_close(struct disk *k);
uint64_t disk_bytes(const struct disk *k);
const char *disk_id(const struct disk *k);					     /* of its stack; borrowed */
int disk_read(struct disk *k, void *buf, uint64_t off, uint32_t len, struct err *e); /* -EBADMSG, -EIO */
/* -ENOSPC, -EDQUOT, -EROFS: a snapshot's */
int disk_write(struct disk *k, const void *buf, uint64_t off, uint32_t len, struct err *e);
int disk_zero(struct disk *k, uint64_t off, uint64_t len, bool punch, struct err *e); /* discard: punch, space back */

/* -- the block server: NBD, fixed newstyle, simple replies ------------------------------------------------------- */
struct nbd;
/* @listen_fd: a listening stream socket, taken. A client names an export; it must be one that nbd_export() announced
 * for the uid that SO_PEERCRED tells, else it is refused before anything is said of it. One connection an export: a
 * newer one ends the older. */
int nbd_new(struct loop *l, int listen_fd, struct disks *d, struct nbd **ret, struct err *e);
struct nbd *nbd_free(struct nbd *n);
int nbd_export(struct nbd *n, const char *name, const char *disk_id, uid_t uid, struct err *e); /* -EEXIST, -ENOENT */
void nbd_unexport(struct nbd *n, const char *name); /* its connection is closed; none is fine */
/* Requests that are under way on the disk @disk_id: 0 when its machine is paused and drained. */
unsigned nbd_busy(const struct nbd *n, const char *disk_id);

#endif
