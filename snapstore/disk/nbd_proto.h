/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of NBD (fixed newstyle, simple replies) as plain structs. What comes in is a guest's engine's: not trusted.
 * Nothing here keeps or allocates anything. Thread: any. */
#ifndef CRUCIBLE_NBD_PROTO_H
#define CRUCIBLE_NBD_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NBD_NAME_MAX	   256u
#define NBD_REQUEST_MAX	   (32u << 20) /* bytes of one read or write */
#define NBD_OPTION_MAX	   4096u       /* data of one option that is looked at */
#define NBD_GREETING_BYTES 18u
#define NBD_CLIENT_BYTES   4u
#define NBD_OPTION_BYTES   16u /* before its data */
#define NBD_REQUEST_BYTES  28u
#define NBD_REPLY_BYTES	   16u
#define NBD_ANSWER_BYTES   20u /* of an option, before its data */

enum nbd_client_flag {
	NBD_C_FIXED = 1,
	NBD_C_NO_ZEROES = 2,
};

enum nbd_option {
	NBD_OPT_EXPORT_NAME = 1,
	NBD_OPT_ABORT = 2,
	NBD_OPT_LIST = 3,
	NBD_OPT_INFO = 6,
	NBD_OPT_GO = 7,
};

enum nbd_answer {
	NBD_REP_ACK = 1,
	NBD_REP_INFO = 3,
};
#define NBD_REP_ERR_UNSUP   0x80000001u
#define NBD_REP_ERR_POLICY  0x80000002u
#define NBD_REP_ERR_INVALID 0x80000003u
#define NBD_REP_ERR_UNKNOWN 0x80000006u
#define NBD_REP_ERR_TOO_BIG 0x80000009u

enum nbd_info {
	NBD_INFO_EXPORT = 0,
	NBD_INFO_BLOCK_SIZE = 3,
};

enum nbd_export_flag {
	NBD_F_HAS_FLAGS = 1 << 0,
	NBD_F_READ_ONLY = 1 << 1,
	NBD_F_SEND_FLUSH = 1 << 2,
	NBD_F_SEND_FUA = 1 << 3,
	NBD_F_SEND_TRIM = 1 << 5,
	NBD_F_SEND_WRITE_ZEROES = 1 << 6,
};

enum nbd_command {
	NBD_CMD_READ = 0,
	NBD_CMD_WRITE = 1,
	NBD_CMD_DISC = 2,
	NBD_CMD_FLUSH = 3,
	NBD_CMD_TRIM = 4,
	NBD_CMD_WRITE_ZEROES = 6,
};

enum nbd_command_flag {
	NBD_CMD_FUA = 1 << 0,
	NBD_CMD_NO_HOLE = 1 << 1,
};

enum nbd_error {
	NBD_OK = 0,
	NBD_EPERM = 1,
	NBD_EIO = 5,
	NBD_ENOMEM = 12,
	NBD_EINVAL = 22,
	NBD_ENOSPC = 28,
};

struct nbd_option_head {
	uint32_t option, bytes;
};
struct nbd_option_go {
	char name[NBD_NAME_MAX + 1];
};
struct nbd_request {
	uint16_t flags, command;
	uint64_t cookie, offset;
	uint32_t bytes;
};

/* Each takes at least the number of bytes above, and says -EBADMSG when they are not the protocol's. */
int nbd_client_parse(const uint8_t *p, bool *ret_no_zeroes);
int nbd_option_head_parse(const uint8_t *p, struct nbd_option_head *ret);
int nbd_request_parse(const uint8_t *p, struct nbd_request *ret);
/* The data of GO and INFO; of EXPORT_NAME, which is the name alone. -EINVAL; -ENAMETOOLONG. */
int nbd_option_go_parse(const uint8_t *p, size_t len, struct nbd_option_go *ret);
int nbd_option_name_parse(const uint8_t *p, size_t len, struct nbd_option_go *ret);
/* Whether a request can be done on a disk of @disk_bytes: NBD_OK or what to answer. */
enum nbd_error nbd_request_check(const struct nbd_request *q, uint64_t disk_bytes, bool read_only);
enum nbd_error nbd_error_of(int code); /* of -errno */

size_t nbd_greeting_put(uint8_t out[NBD_GREETING_BYTES]);
size_t nbd_answer_put(uint8_t out[NBD_ANSWER_BYTES], uint32_t option, uint32_t answer, uint32_t bytes);
/* The two answers of INFO type, and what EXPORT_NAME gets: at most 64, and 134. */
size_t nbd_infos_put(uint8_t *out, uint32_t option, uint64_t disk_bytes, uint16_t flags);
size_t nbd_export_put(uint8_t *out, uint64_t disk_bytes, uint16_t flags, bool no_zeroes);
size_t nbd_reply_put(uint8_t out[NBD_REPLY_BYTES], uint64_t cookie, enum nbd_error error);

#endif
