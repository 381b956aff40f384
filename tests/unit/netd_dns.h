/* SPDX-License-Identifier: Apache-2.0 */
/* Questions of a guest, and an upstream server, for tests of netd. Made by libldns; everything blocks. */
#ifndef CRUCIBLE_TEST_NETD_DNS_H
#define CRUCIBLE_TEST_NETD_DNS_H

#include <stddef.h>
#include <stdint.h>
#include "netpolicy/addr.h"

#define DNS_A	     1
#define DNS_AAAA     28
#define DNS_NXDOMAIN 3

struct dns_answer {
	int rcode;
	char addr[NET_ADDR_TEXT]; /* of the first record; "" */
};
size_t dns_question(uint8_t *out, size_t cap, const char *name, int type);
struct dns_answer dns_read(const uint8_t *data, size_t len);
/* The upstream at @fd: one question comes, and is answered with that address. */
void dns_upstream(int fd, const char *name, const char *addr);

#endif
