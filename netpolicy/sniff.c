/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * The payloads of the records are put together until they hold the whole ClientHello; it is read once, with every
 * length checked against the one around it, and each has to be used up. What a lenient server could read in another way
 * than this does (two names, two server_name extensions, bytes behind the hello in its record) is malformed: the name
 * that is judged must be the one that is served. Each call begins from the start, and keeps nothing. */
#include "netpolicy/sniff.h"

#include <stdbool.h>
#include <string.h>

#include "netpolicy/policy.h"

#define HELLO_MAX	 (16u * 1024u) /* with its head of four bytes */
#define RECORD_HEAD	 5u
#define RECORD_MAX	 (16u * 1024u)
#define RECORD_HANDSHAKE 22
#define CLIENT_HELLO	 1
#define EXT_SERVER_NAME	 0
#define NAME_HOST	 0

/* A part of a message, in network order. What ran over its end is bad from then on, and yields zeros. */
struct part {
	const uint8_t *p;
	size_t len;
	bool bad;
};

static struct part take(struct part *s, size_t n)
{
	struct part t = { s->p, n, s->bad || n > s->len };

	if (t.bad) {
		s->bad = true;
		return (struct part){ .bad = true };
	}
	s->p += n;
	s->len -= n;
	return t;
}

static size_t number(struct part *s, size_t bytes)
{
	struct part t = take(s, bytes);
	size_t v = 0;

	for (size_t i = 0; i < t.len; i++)
		v = v << 8 | t.p[i];
	return v;
}

/* A vector: its length in @bytes, then itself. */
static struct part vector(struct part *s, size_t bytes)
{
	size_t n = number(s, bytes);

	return take(s, n);
}

static enum sniff_result server_name(struct part ext, char *name)
{
	struct part list = vector(&ext, 2), host;

	if (number(&list, 1) != NAME_HOST)
		return SNIFF_MALFORMED;
	host = vector(&list, 2);
	if (list.bad || host.bad || ext.len > 0 || list.len > 0) /* of more than one name: which? */
		return SNIFF_MALFORMED;
	return net_name_normal((const char *)host.p, host.len, name) ? SNIFF_NAME : SNIFF_NO_NAME;
}

static enum sniff_result extensions(struct part all, char *name)
{
	enum sniff_result result = SNIFF_NO_NAME;
	bool seen = false;

	while (all.len > 0) {
		size_t type = number(&all, 2);
		struct part ext = vector(&all, 2);

		if (all.bad)
			return SNIFF_MALFORMED;
		if (type != EXT_SERVER_NAME)
			continue;
		if (seen)
			return SNIFF_MALFORMED;
		seen = true;
		result = server_name(ext, name);
		if (result == SNIFF_MALFORMED)
			return result;
	}
	return result;
}

static enum sniff_result hello(struct part s, char *name)
{
	struct part session, ciphers, methods, exts;

	if (number(&s, 2) >> 8 != 3)
		return SNIFF_MALFORMED;
	take(&s, 32); /* random */
	session = vector(&s, 1);
	ciphers = vector(&s, 2);
	methods = vector(&s, 1);
	if (s.bad || session.len > 32 || ciphers.len < 2 || ciphers.len % 2 || methods.len < 1)
		return SNIFF_MALFORMED;
	if (s.len == 0)
		return SNIFF_NO_NAME; /* before extensions were invented */
	exts = vector(&s, 2);
	if (s.bad || s.len > 0)
		return SNIFF_MALFORMED;
	return extensions(exts, name);
}

/* Of what the handshake says so far: is it a hello, and how long will it be with its head? 0: not known yet. */
static enum sniff_result hello_head(const uint8_t *got, size_t len, size_t *ret_whole)
{
	*ret_whole = 0;
	if (len > 0 && got[0] != CLIENT_HELLO)
		return SNIFF_MALFORMED;
	if (len < 4)
		return SNIFF_MORE;
	*ret_whole = 4 + ((size_t)got[1] << 16 | (size_t)got[2] << 8 | got[3]);
	return *ret_whole > HELLO_MAX ? SNIFF_TOO_LARGE : SNIFF_MORE;
}

/* Is that the beginning of a record? Of the first one, another byte means that it is not TLS at all. */
static bool record_begins(const uint8_t *p, size_t len)
{
	return p[0] == RECORD_HANDSHAKE && (len < 2 || p[1] == 3) && (len < 3 || p[2] <= 4);
}

enum sniff_result sniff_client_hello(const uint8_t *data, size_t len, char *name)
{
	uint8_t got[HELLO_MAX + 1]; /* one more: that there is more behind the hello is seen */
	size_t have = 0, at = 0, whole = 0;

	while (at < len) {
		size_t n, here;
		enum sniff_result r;

		if (!record_begins(data + at, len - at))
			return at == 0 ? SNIFF_NOT_TLS : SNIFF_MALFORMED;
		if (len - at < RECORD_HEAD)
			break;
		n = (size_t)data[at + 3] << 8 | data[at + 4];
		if (n == 0 || n > RECORD_MAX)
			return SNIFF_MALFORMED;
		at += RECORD_HEAD;
		here = n < len - at ? n : len - at;
		if (here > sizeof(got) - have)
			here = sizeof(got) - have;
		memcpy(got + have, data + at, here);
		r = hello_head(got, have + here, &whole);
		if (r != SNIFF_MORE)
			return r;
		if (whole && have + n > whole)
			return SNIFF_MALFORMED; /* its record goes on behind it */
		have += here;
		if (whole && have == whole)
			return hello((struct part){ got + 4, whole - 4, false }, name);
		at += here;
	}
	return len >= SNIFF_MAX ? SNIFF_TOO_LARGE : SNIFF_MORE;
}
