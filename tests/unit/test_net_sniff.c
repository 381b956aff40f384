/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fd.h"
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "netpolicy/sniff.h"

/* A hello as OpenSSL's client says it. @name: NULL: without. @pad: bytes that its ALPN list adds. */
static size_t make_hello(const char *name, size_t pad, uint8_t *out, size_t cap)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	SSL *ssl = SSL_new(ctx);
	BIO *in = BIO_new(BIO_s_mem()), *to = BIO_new(BIO_s_mem());
	uint8_t *alpn = malloc(pad + 2);
	size_t n = 0;
	int got;

	assert_non_null(alpn);
	SSL_set_bio(ssl, in, to);
	if (name)
		assert_int_equal(SSL_set_tlsext_host_name(ssl, name), 1);
	while (n + 2 <= pad) {
		size_t one = pad - n - 1 < 255 ? pad - n - 1 : 255;

		alpn[n] = (uint8_t)one;
		memset(alpn + n + 1, 'x', one);
		n += one + 1;
	}
	if (n)
		assert_int_equal(SSL_set_alpn_protos(ssl, alpn, (unsigned)n), 0);
	assert_int_equal(SSL_connect(ssl), -1); /* wants an answer */
	got = BIO_read(to, out, (int)cap);
	assert_true(got > 0);
	SSL_free(ssl);
	SSL_CTX_free(ctx);
	free(alpn);
	return (size_t)got;
}

/* The same handshake in records of @size bytes. */
static size_t in_records(const uint8_t *in, size_t len, size_t size, uint8_t *out)
{
	size_t n = 0, left = len - 5;

	for (in += 5; left > 0;) {
		size_t one = left < size ? left : size;

		memcpy(out + n, (uint8_t[]){ 22, 3, 1, (uint8_t)(one >> 8), (uint8_t)one }, 5);
		memcpy(out + n + 5, in, one);
		n += 5 + one;
		in += one;
		left -= one;
	}
	return n;
}

/* A hello by hand, with these extensions. */
static size_t by_hand(const uint8_t *exts, size_t nexts, uint8_t *out)
{
	size_t body = 2 + 32 + 1 + 4 + 2 + 2 + nexts, n = 0;

	memcpy(out,
	       (uint8_t[]){ 22, 3, 1, (uint8_t)((body + 4) >> 8), (uint8_t)(body + 4), 1, 0, (uint8_t)(body >> 8),
			    (uint8_t)body, 3, 3 },
	       11);
	n = 11;
	memset(out + n, 7, 32);
	n += 32;
	memcpy(out + n, (uint8_t[]){ 0, 0, 2, 0x13, 1, 1, 0, (uint8_t)(nexts >> 8), (uint8_t)nexts }, 9);
	n += 9;
	if (nexts)
		memcpy(out + n, exts, nexts);
	return n + nexts;
}

static enum sniff_result sniff(const uint8_t *data, size_t len, char name[NET_NAME_MAX + 1])
{
	uint8_t *own = malloc(len ? len : 1); /* exactly as long, for the address sanitizer */
	enum sniff_result r;

	assert_non_null(own);
	if (len)
		memcpy(own, data, len);
	strcpy(name, "-");
	r = sniff_client_hello(own, len, name);
	free(own);
	return r;
}

static void test_name(void **state)
{
	uint8_t data[4096];
	char name[NET_NAME_MAX + 1];
	size_t len = make_hello("WWW.Example.com", 0, data, sizeof(data));

	(void)state;
	assert_int_equal(sniff(data, len, name), SNIFF_NAME);
	assert_string_equal(name, "www.example.com");
	memset(data + len, 0xff, 100); /* what comes behind it is not looked at */
	assert_int_equal(sniff(data, len + 100, name), SNIFF_NAME);
	len = make_hello("dot.example.", 0, data, sizeof(data));
	assert_int_equal(sniff(data, len, name), SNIFF_NAME);
	assert_string_equal(name, "dot.example");
}

static void test_segments(void **state)
{
	uint8_t data[4096];
	char name[NET_NAME_MAX + 1];
	size_t len = make_hello("a.example", 0, data, sizeof(data));

	(void)state;
	for (size_t i = 0; i < len; i++)
		assert_int_equal(sniff(data, i, name), SNIFF_MORE);
	assert_int_equal(sniff(data, len, name), SNIFF_NAME);
}

static void test_records(void **state)
{
	uint8_t data[4096], split[6 * 4096];
	char name[NET_NAME_MAX + 1];
	size_t len = make_hello("a.example", 0, data, sizeof(data));

	(void)state;
	for (size_t size = 1; size < 40; size++) {
		size_t n = in_records(data, len, size, split);

		for (size_t i = 0; i < n; i++)
			assert_int_equal(sniff(split, i, name), SNIFF_MORE);
		assert_int_equal(sniff(split, n, name), SNIFF_NAME);
		assert_string_equal(name, "a.example");
	}
}

static void test_no_name(void **state)
{
	static const char *const none[] = { "10.0.0.1", "::1", "a..example", "*.example.com", "1.2.3", "exa mple" };
	static const uint8_t nul[] = { 0, 0, 0, 9, 0, 7, 0, 0, 4, 'a', '.', '\0', 'b' };
	static const uint8_t empty[] = { 0, 0, 0, 5, 0, 3, 0, 0, 0 };
	uint8_t data[4096];
	char name[NET_NAME_MAX + 1];
	size_t len = make_hello(NULL, 0, data, sizeof(data));

	(void)state;
	assert_int_equal(sniff(data, len, name), SNIFF_NO_NAME);
	for (size_t i = 0; i < ARRAY_LEN(none); i++) {
		len = make_hello(none[i], 0, data, sizeof(data));
		assert_int_equal(sniff(data, len, name), SNIFF_NO_NAME);
		assert_string_equal(name, "-");
	}
	assert_int_equal(sniff(data, by_hand(nul, sizeof(nul), data), name), SNIFF_NO_NAME);
	assert_int_equal(sniff(data, by_hand(empty, sizeof(empty), data), name), SNIFF_NO_NAME);
	assert_int_equal(sniff(data, by_hand(NULL, 0, data), name), SNIFF_NO_NAME);
	/* As old as SSLv3: nothing behind the compression methods. */
	len = by_hand(NULL, 0, data) - 2;
	data[4] -= 2;
	data[8] -= 2;
	assert_int_equal(sniff(data, len, name), SNIFF_NO_NAME);
}

static void test_two_names(void **state)
{
	static const uint8_t in_one[] = { 0, 0, 0, 14, 0, 12, 0, 0, 3, 'a', '.', 'b', 0, 0, 3, 'c', '.', 'd' };
	static const uint8_t other_kind[] = { 0, 0, 0, 14, 0, 12, 1, 0, 3, 'a', '.', 'b', 0, 0, 3, 'c', '.', 'd' };
	static const uint8_t twice[] = { 0, 0, 0, 8, 0, 6, 0, 0, 3, 'a', '.', 'b',
					 0, 0, 0, 8, 0, 6, 0, 0, 3, 'a', '.', 'b' };
	static const uint8_t grease[] = { 0x0a, 0x0a, 0,   0,	0,   0,	   0,	 8, 0, 6, 0,
					  0,	3,    'a', '.', 'b', 0xfa, 0xfa, 0, 1, 0 };
	static const uint8_t short_list[] = { 0, 0, 0, 9, 0, 6, 0, 0, 3, 'a', '.', 'b', 0 };
	static const uint8_t no_list[] = { 0, 0, 0, 0 };
	static const uint8_t beyond[] = { 0, 0, 0, 8, 0, 6, 0, 0, 4, 'a', '.', 'b' };
	static const uint8_t cut[] = { 0, 0, 0, 9, 0, 6, 0, 0, 3, 'a', '.', 'b' };
	uint8_t data[4096];
	char name[NET_NAME_MAX + 1];

	(void)state;
	assert_int_equal(sniff(data, by_hand(in_one, sizeof(in_one), data), name), SNIFF_MALFORMED);
	assert_int_equal(sniff(data, by_hand(other_kind, sizeof(other_kind), data), name), SNIFF_MALFORMED);
	assert_int_equal(sniff(data, by_hand(twice, sizeof(twice), data), name), SNIFF_MALFORMED);
	assert_int_equal(sniff(data, by_hand(short_list, sizeof(short_list), data), name), SNIFF_MALFORMED);
	assert_int_equal(sniff(data, by_hand(no_list, sizeof(no_list), data), name), SNIFF_MALFORMED);
	assert_int_equal(sniff(data, by_hand(beyond, sizeof(beyond), data), name), SNIFF_MALFORMED);
	assert_int_equal(sniff(data, by_hand(cut, sizeof(cut), data), name), SNIFF_MALFORMED);
	assert_int_equal(sniff(data, by_hand(grease, sizeof(grease), data), name), SNIFF_NAME);
	assert_string_equal(name, "a.b");
}

static void test_large(void **state)
{
	static uint8_t data[64 * 1024], split[512 * 1024];
	char name[NET_NAME_MAX + 1];
	/* Almost as large as may be. */
	size_t len = make_hello("a.example", 15 * 1024, data, sizeof(data)), n;

	(void)state;
	assert_true(len > 15 * 1024 && len < 16 * 1024);
	assert_int_equal(sniff(data, len - 1, name), SNIFF_MORE);
	assert_int_equal(sniff(data, len, name), SNIFF_NAME);
	n = in_records(data, len, 4000, split);
	assert_int_equal(sniff(split, n, name), SNIFF_NAME);
	/* So cut up that a caller could not hold it. */
	in_records(data, len, 1, split);
	assert_int_equal(sniff(split, SNIFF_MAX - 1, name), SNIFF_MORE);
	assert_int_equal(sniff(split, SNIFF_MAX, name), SNIFF_TOO_LARGE);
	/* 17 KiB: it is known as soon as its head is there. */
	len = make_hello("a.example", 17 * 1024, data, sizeof(data));
	assert_true(len > 17 * 1024);
	assert_int_equal(sniff(data, 8, name), SNIFF_MORE);
	assert_int_equal(sniff(data, 9, name), SNIFF_TOO_LARGE);
	assert_int_equal(sniff(data, SNIFF_MAX, name), SNIFF_TOO_LARGE);
}

static void test_not_tls(void **state)
{
	static const struct {
		const char *data;
		size_t len;
	} cases[] = {
		{ "GET / HTTP/1.1\r\n", 16 },
		{ "SSH-2.0-x", 9 },
		{ "\x80\x2e\x01\x00\x02\x00\x15", 7 }, /* SSLv2 */
		{ "\x80", 1 },
		{ "\x15\x03\x01\x00\x02\x01\x00", 7 }, /* an alert */
		{ "\x16\x02", 2 },
		{ "\x16\x03\x09", 3 },
		{ "\x00", 1 },
		{ "\x16\xfe\xfd", 3 }, /* DTLS */
	};
	char name[NET_NAME_MAX + 1];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_int_equal(sniff((const uint8_t *)cases[i].data, cases[i].len, name), SNIFF_NOT_TLS);
	assert_int_equal(sniff(NULL, 0, name), SNIFF_MORE);
}

static void test_malformed(void **state)
{
	static const uint8_t ext[] = { 0, 0, 0, 8, 0, 6, 0, 0, 3, 'a', '.', 'b' };
	static const struct {
		size_t at;
		uint8_t is;
	} changes[] = {
		{ 5, 2 },			    /* another handshake message */
		{ 9, 2 },			    /* version */
		{ 43, 33 },			    /* session id */
		{ 45, 3 },			    /* ciphers: an odd number */
		{ 45, 0 },  { 45, 200 }, { 48, 0 }, /* no compression method */
		{ 51, 11 }, { 51, 13 },	 { 50, 1 }, /* extensions end early, late */
		{ 8, 50 },  { 3, 0xff }, { 8, 52 }, /* the hello in its record */
	};
	uint8_t data[4096], split[6 * 4096], bad[4096];
	char name[NET_NAME_MAX + 1];
	size_t len = by_hand(ext, sizeof(ext), data), n;

	(void)state;
	assert_int_equal(sniff(data, len, name), SNIFF_NAME);
	for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
		memcpy(bad, data, len);
		bad[changes[i].at] = changes[i].is;
		if (sniff(bad, len, name) != SNIFF_MALFORMED)
			fail_msg("byte %zu is %u", changes[i].at, changes[i].is);
	}
	/* The second record is another thing, is empty. */
	n = in_records(data, len, 20, split);
	split[25] = 21;
	assert_int_equal(sniff(split, n, name), SNIFF_MALFORMED);
	split[25] = 22;
	split[26] = 2;
	assert_int_equal(sniff(split, n, name), SNIFF_MALFORMED);
	split[26] = 3;
	split[29] = 0;
	assert_int_equal(sniff(split, n, name), SNIFF_MALFORMED);
	memcpy(split, (uint8_t[]){ 22, 3, 1, 0x40, 1 }, 5); /* more than a record can hold */
	assert_int_equal(sniff(split, 5, name), SNIFF_MALFORMED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_name),	cmocka_unit_test(test_segments),  cmocka_unit_test(test_records),
		cmocka_unit_test(test_no_name), cmocka_unit_test(test_two_names), cmocka_unit_test(test_large),
		cmocka_unit_test(test_not_tls), cmocka_unit_test(test_malformed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
