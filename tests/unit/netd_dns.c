/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/netd_dns.h"

#include <ldns/ldns.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

size_t dns_question(uint8_t *out, size_t cap, const char *name, int type)
{
	ldns_pkt *p = NULL;
	uint8_t *wire = NULL;
	size_t len = 0;

	assert_int_equal(ldns_pkt_query_new_frm_str(&p, name, (ldns_rr_type)type, LDNS_RR_CLASS_IN, LDNS_RD),
			 LDNS_STATUS_OK);
	ldns_pkt_set_id(p, 77);
	assert_int_equal(ldns_pkt2wire(&wire, p, &len), LDNS_STATUS_OK);
	assert_true(len <= cap);
	memcpy(out, wire, len);
	free(wire);
	ldns_pkt_free(p);
	return len;
}

/* The upstream: one question comes, and is answered with that address. */
void dns_upstream(int fd, const char *name, const char *addr)
{
	uint8_t data[1500], *wire = NULL;
	struct sockaddr_storage from;
	socklen_t from_len = sizeof(from);
	ssize_t n = recvfrom(fd, data, sizeof(data), 0, (struct sockaddr *)&from, &from_len);
	ldns_pkt *p = NULL;
	ldns_rr *rr = NULL;
	char text[400];
	size_t len = 0;

	assert_true(n > 0);
	assert_int_equal(ldns_wire2pkt(&p, data, (size_t)n), LDNS_STATUS_OK);
	snprintf(text, sizeof(text), "%s. 60 IN %s %s", name, strchr(addr, ':') ? "AAAA" : "A", addr);
	assert_int_equal(ldns_rr_new_frm_str(&rr, text, 0, NULL, NULL), LDNS_STATUS_OK);
	ldns_pkt_push_rr(p, LDNS_SECTION_ANSWER, rr);
	ldns_pkt_set_qr(p, true);
	ldns_pkt_set_ra(p, true);
	assert_int_equal(ldns_pkt2wire(&wire, p, &len), LDNS_STATUS_OK);
	assert_int_equal(sendto(fd, wire, len, 0, (struct sockaddr *)&from, from_len), len);
	free(wire);
	ldns_pkt_free(p);
}

struct dns_answer dns_read(const uint8_t *data, size_t len)
{
	struct dns_answer a = { 0 };
	ldns_pkt *p = NULL;

	assert_int_equal(ldns_wire2pkt(&p, data, len), LDNS_STATUS_OK);
	assert_int_equal(ldns_pkt_id(p), 77);
	a.rcode = ldns_pkt_get_rcode(p);
	if (ldns_pkt_ancount(p) > 0) {
		char *text = ldns_rdf2str(ldns_rr_rdf(ldns_rr_list_rr(ldns_pkt_answer(p), 0), 0));

		snprintf(a.addr, sizeof(a.addr), "%s", text);
		free(text);
	}
	ldns_pkt_free(p);
	return a;
}
