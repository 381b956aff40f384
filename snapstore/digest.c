/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "snapstore/digest.h"

const struct snap_digest snap_zero;
const struct snap_digest snap_absent = { { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
					   0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
					   0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff } };

bool snap_digest_equal(const struct snap_digest *a, const struct snap_digest *b)
{
	return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

int hasher_init(struct hasher *h, struct err *e)
{
	/* No configuration file of the host decides how we hash. */
	OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
	h->md = EVP_MD_fetch(NULL, "SHA256", NULL);
	h->ctx = EVP_MD_CTX_new();
	if (h->md && h->ctx && EVP_DigestInit_ex2(h->ctx, h->md, NULL))
		return 0;
	hasher_fini(h);
	return err_set(e, -ENOMEM, "OpenSSL has no SHA-256 for us");
}

void hasher_fini(struct hasher *h)
{
	EVP_MD_CTX_free(h->ctx);
	EVP_MD_free(h->md);
	h->ctx = NULL;
	h->md = NULL;
}

int hasher_sum(struct hasher *h, const void *data, size_t len, struct snap_digest *ret)
{
	if (EVP_DigestInit_ex2(h->ctx, NULL, NULL) && EVP_DigestUpdate(h->ctx, data, len) &&
	    EVP_DigestFinal_ex(h->ctx, ret->bytes, NULL))
		return 0;
	return -EIO;
}

const char *digest_hex(const struct snap_digest *d, char out[DIGEST_HEX])
{
	static const char hex[] = "0123456789abcdef";

	for (size_t i = 0; i < sizeof(d->bytes); i++) {
		out[2 * i] = hex[d->bytes[i] >> 4];
		out[2 * i + 1] = hex[d->bytes[i] & 15];
	}
	out[DIGEST_HEX - 1] = '\0';
	return out;
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool digest_parse(const char *hex, size_t len, struct snap_digest *ret)
{
	struct snap_digest d;

	if (len != 2 * sizeof(d.bytes))
		return false;
	for (size_t i = 0; i < sizeof(d.bytes); i++) {
		int high = hex_value(hex[2 * i]), low = hex_value(hex[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		d.bytes[i] = (uint8_t)(high << 4 | low);
	}
	*ret = d;
	return true;
}

bool page_is_zero(const void *page)
{
	const uint8_t *p = page;

	/* Most pages that are not zero show it at once; the rest is one comparison with itself, shifted. */
	return p[0] == 0 && p[SNAP_PAGE_BYTES / 2] == 0 && memcmp(p, p + 1, SNAP_PAGE_BYTES - 1) == 0;
}
