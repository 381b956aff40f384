/* SPDX-License-Identifier: Apache-2.0 */
/* A block server in a thread of its own, and a small client that can also be rude. */
#ifndef CRUCIBLE_TEST_NBD_RIG_H
#define CRUCIBLE_TEST_NBD_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "snapstore/disk/disk.h"
#include "snapstore/disk/nbd_proto.h"
#include "tests/unit/disk_dir.h"

struct nbd_rig {
	struct disk_dir dir;
	char socket[96];
	int base; /* image "img" */
	struct snap *snap;
	struct disks *d;
	struct loop *loop;
	struct nbd *nbd;
};

void nbd_rig_start(struct nbd_rig *r, uint64_t base_bytes, struct snap *snap);
void nbd_rig_end(struct nbd_rig *r);
/* Run @fn in the server's thread, and wait for it. */
void nbd_rig_call(struct nbd_rig *r, void (*fn)(struct nbd_rig *r, void *arg), void *arg);
void nbd_rig_disk(struct nbd_rig *r, const char *id, uint64_t bytes, uint64_t limit); /* over img; exported as @id */
void nbd_rig_export(struct nbd_rig *r, const char *name, const char *id, uid_t uid);

int nbd_dial(const struct nbd_rig *r); /* blocking; greeting read, flags sent */
/* The last answer's type; *ret_bytes and *ret_flags of the export, when there was one. */
uint32_t nbd_go(int fd, uint32_t option, const char *name, uint64_t *ret_bytes, uint16_t *ret_flags);
int nbd_join(const struct nbd_rig *r, const char *name); /* dial and go: in transmission */
void nbd_ask(int fd, uint16_t command, uint16_t flags, uint64_t cookie, uint64_t off, uint32_t len);
enum nbd_error nbd_reply(int fd, uint64_t cookie); /* without data */
enum nbd_error nbd_do(int fd, uint16_t command, uint16_t flags, uint64_t off, uint32_t len, void *data);
bool nbd_ended(int fd); /* the server closes, having said nothing more */

#endif
