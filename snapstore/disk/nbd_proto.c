/* SPDX-License-Identifier: Apache-2.0 */
#include "snapstore/disk/nbd_proto.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "snapstore/disk/disk.h"

#define MAGIC_GREETING 0x4e42444d41474943ull /* NBDMAGIC */
#define MAGIC_OPTION   0x49484156454f5054ull /* IHAVEOPT */
#define MAGIC_ANSWER   0x0003e889045565a9ull
#define MAGIC_REQUEST  0x25609513u
#define MAGIC_REPLY    0x67446698u

/* The wire is big-endian; base/wire.h is not. */
static uint16_t get16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return be16toh(v);
}

static uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return be32toh(v);
}

static uint64_t get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

static uint8_t *put16(uint8_t *p, uint16_t v)
{
	v = htobe16(v);
	memcpy(p, &v, sizeof(v));
	return p + sizeof(v);
}

static uint8_t *put32(uint8_t *p, uint32_t v)
{
	v = htobe32(v);
	memcpy(p, &v, sizeof(v));
	return p + sizeof(v);
}

static uint8_t *put64(uint8_t *p, uint64_t v)
{
	v = htobe64(v);
	memcpy(p, &v, sizeof(v));
	return p + sizeof(v);
}

/* -- what comes in ----------------------------------------------------------------------------------------------- */

int nbd_client_parse(const uint8_t *p, bool *ret_no_zeroes)
{
	uint32_t flags = get32(p);

	if (!(flags & NBD_C_FIXED) || (flags & ~(uint32_t)(NBD_C_FIXED | NBD_C_NO_ZEROES)))
		return -EBADMSG;
	*ret_no_zeroes = flags & NBD_C_NO_ZEROES;
	return 0;
}

int nbd_option_head_parse(const uint8_t *p, struct nbd_option_head *ret)
{
	if (get64(p) != MAGIC_OPTION)
		return -EBADMSG;
	ret->option = get32(p + 8);
	ret->bytes = get32(p + 12);
	return 0;
}

int nbd_option_name_parse(const uint8_t *p, size_t len, struct nbd_option_go *ret)
{
	if (len > NBD_NAME_MAX)
		return -ENAMETOOLONG;
	if (len > 0 && memchr(p, 0, len))
		return -EINVAL;
	if (len > 0)
		memcpy(ret->name, p, len);
	ret->name[len] = '\0';
	return 0;
}

int nbd_option_go_parse(const uint8_t *p, size_t len, struct nbd_option_go *ret)
{
	uint32_t name;

	if (len < 6)
		return -EINVAL;
	name = get32(p);
	if (name > len - 6)
		return -EINVAL;
	/* Behind it is a list of what the client likes to know; it is told the same whatever that is. */
	if (len - 6 - name != 2 * (size_t)get16(p + 4 + name))
		return -EINVAL;
	return nbd_option_name_parse(p + 4, name, ret);
}

int nbd_request_parse(const uint8_t *p, struct nbd_request *ret)
{
	if (get32(p) != MAGIC_REQUEST)
		return -EBADMSG;
	ret->flags = get16(p + 4);
	ret->command = get16(p + 6);
	ret->cookie = get64(p + 8);
	ret->offset = get64(p + 16);
	ret->bytes = get32(p + 24);
	return 0;
}

enum nbd_error nbd_request_check(const struct nbd_request *q, uint64_t disk_bytes, bool read_only)
{
	uint16_t allowed = NBD_CMD_FUA | (q->command == NBD_CMD_WRITE_ZEROES ? NBD_CMD_NO_HOLE : 0);

	if (q->flags & ~allowed)
		return NBD_EINVAL;
	switch (q->command) {
	case NBD_CMD_FLUSH:
		return q->offset || q->bytes ? NBD_EINVAL : NBD_OK;
	case NBD_CMD_READ:
		break;
	case NBD_CMD_WRITE:
	case NBD_CMD_TRIM:
	case NBD_CMD_WRITE_ZEROES:
		if (read_only)
			return NBD_EPERM;
		break;
	default:
		return NBD_EINVAL;
	}
	if ((q->command == NBD_CMD_READ || q->command == NBD_CMD_WRITE) && q->bytes > NBD_REQUEST_MAX)
		return NBD_EINVAL;
	/* Never ENOSPC: that one stops the machine until there is room. */
	return q->offset > disk_bytes || q->bytes > disk_bytes - q->offset ? NBD_EINVAL : NBD_OK;
}

enum nbd_error nbd_error_of(int code)
{
	switch (code) {
	case 0:
		return NBD_OK;
	case -ENOSPC:
		return NBD_ENOSPC;
	case -EDQUOT: /* its own limit is the guest's error; the machine goes on */
	case -EROFS:
		return NBD_EPERM;
	case -ENOMEM:
		return NBD_ENOMEM;
	case -EINVAL:
		return NBD_EINVAL;
	default:
		return NBD_EIO;
	}
}

/* -- what goes out ----------------------------------------------------------------------------------------------- */

size_t nbd_greeting_put(uint8_t out[NBD_GREETING_BYTES])
{
	uint8_t *p = put64(out, MAGIC_GREETING);

	p = put64(p, MAGIC_OPTION);
	p = put16(p, NBD_C_FIXED | NBD_C_NO_ZEROES);
	return (size_t)(p - out);
}

size_t nbd_answer_put(uint8_t out[NBD_ANSWER_BYTES], uint32_t option, uint32_t answer, uint32_t bytes)
{
	uint8_t *p = put64(out, MAGIC_ANSWER);

	p = put32(p, option);
	p = put32(p, answer);
	p = put32(p, bytes);
	return (size_t)(p - out);
}

size_t nbd_infos_put(uint8_t *out, uint32_t option, uint64_t disk_bytes, uint16_t flags)
{
	uint8_t *p = out + nbd_answer_put(out, option, NBD_REP_INFO, 12);

	p = put16(p, NBD_INFO_EXPORT);
	p = put64(p, disk_bytes);
	p = put16(p, flags);
	p += nbd_answer_put(p, option, NBD_REP_INFO, 14);
	p = put16(p, NBD_INFO_BLOCK_SIZE);
	p = put32(p, 1);
	p = put32(p, DISK_BLOCK_BYTES);
	p = put32(p, NBD_REQUEST_MAX);
	return (size_t)(p - out);
}

size_t nbd_export_put(uint8_t *out, uint64_t disk_bytes, uint16_t flags, bool no_zeroes)
{
	uint8_t *p = put64(out, disk_bytes);

	p = put16(p, flags);
	if (!no_zeroes) {
		memset(p, 0, 124);
		p += 124;
	}
	return (size_t)(p - out);
}

size_t nbd_reply_put(uint8_t out[NBD_REPLY_BYTES], uint64_t cookie, enum nbd_error error)
{
	uint8_t *p = put32(out, MAGIC_REPLY);

	p = put32(p, error);
	p = put64(p, cookie);
	return (size_t)(p - out);
}
