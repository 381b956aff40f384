/* SPDX-License-Identifier: Apache-2.0 */
/* What the server (nbd.c) and its connections (nbd_conn.c) know of each other. */
#ifndef CRUCIBLE_NBD_PRIV_H
#define CRUCIBLE_NBD_PRIV_H

#include <assert.h>
#include <sys/types.h>
#include "base/loop.h"
#include "snapstore/disk/disk.h"
#include "snapstore/disk/nbd_proto.h"

#define NBD_IN_BYTES	16384u	/* of a connection: requests that came at once, or a block that is not whole yet */
#define NBD_PIECE_BYTES 131072u /* read from a disk at once: what a socket takes */
#define NBD_SCRATCH	(256u * 1024)

static_assert(NBD_IN_BYTES >= NBD_OPTION_BYTES + NBD_OPTION_MAX && NBD_IN_BYTES > DISK_BLOCK_BYTES,
	      "an option is looked at as a whole, a block is written as a whole");

struct nbd_conn;

struct nbd_export {
	struct nbd_export *next;
	char name[NBD_NAME_MAX + 1];
	uid_t uid;
	struct disk *disk;
	struct nbd_conn *conn; /* in transmission; NULL: none */
	/* A read whose later part failed when its first was on the way: the client is gone then, comes again and asks
	 * again, and gets an answer at once. */
	bool bad;
	uint64_t bad_off;
	uint32_t bad_bytes;
};

struct nbd {
	struct loop *loop;
	struct disks *disks;
	int listen_fd;
	loop_id src, again; /* @again: accepting waits until descriptors are there */
	struct nbd_export *exports;
	struct nbd_conn *conns;
	unsigned nconns, nwaiting; /* all; those that have not said what they want */
	/* Shared by all connections: nothing stays in them between two events. */
	uint8_t in[NBD_SCRATCH], out[NBD_PIECE_BYTES];
};

struct nbd_export *nbd_export_find(struct nbd *n, const char *name);

/* Takes @fd, also when it fails. */
int nbd_conn_new(struct nbd *n, int fd, uid_t uid);
struct nbd_conn *nbd_conn_end(struct nbd_conn *c);
unsigned nbd_conn_busy(const struct nbd_conn *c);
unsigned nbd_conn_waiting_of(const struct nbd *n, uid_t uid);

#endif
