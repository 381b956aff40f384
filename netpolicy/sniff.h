/* SPDX-License-Identifier: Apache-2.0 */
/* The server's name in a TLS ClientHello, without decrypting anything: it may be split over any number of records and
 * segments. The bytes are the guest's: everything is bounded. Thread: any. */
#ifndef CRUCIBLE_NETPOLICY_SNIFF_H
#define CRUCIBLE_NETPOLICY_SNIFF_H

#include <stddef.h>
#include <stdint.h>
#include "netpolicy/net.h"

#define SNIFF_MAX (16u * 1024u + 512u) /* bytes that the caller must be able to hold */

enum sniff_result {
	SNIFF_MORE,	 /* a hello so far, not whole yet */
	SNIFF_NAME,	 /* whole; its name is in @name (net_name_normal()'s form) */
	SNIFF_NO_NAME,	 /* whole, without server_name, or with one that is no host name */
	SNIFF_TOO_LARGE, /* a hello over 16 KiB */
	SNIFF_NOT_TLS,	 /* the first bytes are no TLS handshake */
	SNIFF_MALFORMED, /* TLS, but not a ClientHello that can be read */
};
/* @data: all bytes of the connection so far. @name: NET_NAME_MAX + 1 bytes. */
enum sniff_result sniff_client_hello(const uint8_t *data, size_t len, char *name);

#endif
