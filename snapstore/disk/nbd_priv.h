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

struct nbd_conn {
	struct nbd_conn *prev, *next;
	struct nbd *n;
	struct nbd_export *ex; /* in transmission */
	int fd;
	uid_t uid;
	loop_id src, timer;
	enum { CONN_CLIENT, CONN_OPTIONS, CONN_READY } state;
	bool no_zeroes;
	bool last; /* ends when `out` is gone */
	bool more;
	int work; /* left of this event */

	uint64_t skip; /* bytes of an option that is too long */
	bool writing;
	struct nbd_request q; /* under way */
	uint64_t write_at;
	uint32_t write_left;
	enum nbd_error write_error;

	bool zeroing;
	uint64_t zero_at, zero_left;

	uint64_t read_at;
	uint32_t read_left;
	size_t out_len, out_sent;
	uint8_t out[256];

	size_t in_len;
	uint8_t in[NBD_IN_BYTES];
};

struct nbd_export *nbd_export_find(struct nbd *n, const char *name);

/* Takes @fd, also when it fails. */
int nbd_conn_new(struct nbd *n, int fd, uid_t uid);
struct nbd_conn *nbd_conn_end(struct nbd_conn *c);
unsigned nbd_conn_busy(const struct nbd_conn *c);
unsigned nbd_conn_waiting_of(const struct nbd *n, uid_t uid);
void nbd_conn_drop_input(struct nbd_conn *c, size_t n);
void nbd_conn_leave_waiting(struct nbd_conn *c);

/* -- nbd_hello.c: 1 when it did something, 0 when it needs more bytes, or -errno, which ends the connection ---------
 */

int nbd_hello_step_client(struct nbd_conn *c);
int nbd_hello_step_option(struct nbd_conn *c);

#endif
