/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 with what it needs kept: OpenSSL's method is fetched once, its context used again. */
#ifndef CRUCIBLE_SNAP_DIGEST_H
#define CRUCIBLE_SNAP_DIGEST_H

#include <openssl/evp.h>
#include "snapstore/snap.h"

#define DIGEST_HEX 65 /* with the NUL */

struct hasher {
	EVP_MD *md;
	EVP_MD_CTX *ctx;
};
/* Loads what OpenSSL loads: before seccomp. Errors: -ENOMEM. */
int hasher_init(struct hasher *h, struct err *e);
void hasher_fini(struct hasher *h);
int hasher_sum(struct hasher *h, const void *data, size_t len, struct snap_digest *ret); /* -EIO: OpenSSL failed */

const char *digest_hex(const struct snap_digest *d, char out[DIGEST_HEX]);
bool digest_parse(const char *hex, size_t len, struct snap_digest *ret); /* exactly 64 of 0-9a-f */
static inline bool digest_special(const struct snap_digest *d)
{
	return snap_digest_equal(d, &snap_zero) || snap_digest_equal(d, &snap_absent);
}
bool page_is_zero(const void *page); /* SNAP_PAGE_BYTES */

#endif
