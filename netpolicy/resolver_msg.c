/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * Before libldns sees a message its size and the counts in its header are bounded. A guest's has one question, no
 * answers and at most one additional record: libldns keeps one OPT and one TSIG record of a message and loses the
 * memory of those before, and each record may hop through the whole message by compression pointers. Of an upstream's
 * only question and answers are read: the other counts are set to zero in a copy.
 *
 * Everything is copied out; no object of libldns outlives the function that made it. */
#include "netpolicy/resolver_msg.h"

#include <ctype.h>
#include <ldns/ldns.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

#define TTL_MAX_S  0x7fffffffu /* more is none (RFC 2181) */
#define RCODE_BITS 4	       /* of the header; the others are in the OPT record */

static void pkt_free(ldns_pkt **p)
{
	ldns_pkt_free(*p);
}
#define AUTO_PKT __attribute__((cleanup(pkt_free))) ldns_pkt

/* -- names ------------------------------------------------------------------------------------------------------- */

static int name_copy(const ldns_rdf *rdf, struct dns_name *ret)
{
	size_t len = rdf ? ldns_rdf_size(rdf) : 0;

	if (len == 0 || len > sizeof(ret->bytes))
		return -EBADMSG;
	memcpy(ret->bytes, ldns_rdf_data(rdf), len);
	ret->len = (uint8_t)len;
	return 0;
}

static bool name_equal(const struct dns_name *a, const struct dns_name *b)
{
	if (a->len != b->len)
		return false;
	for (size_t i = 0; i < a->len; i++) { /* lengths are below 64: no letters */
		if (a->bytes[i] != b->bytes[i] && tolower(a->bytes[i]) != tolower(b->bytes[i]))
			return false;
	}
	return true;
}

/* Of a name that libldns has read: labels of at most 63 bytes and the root, 255 in all. */
static void name_text(const struct dns_name *n, char out[NET_NAME_MAX + 1], bool *ret_plain)
{
	size_t at = 0, end = 0;
	bool plain = true;

	while (at < n->len && n->bytes[at] > 0) {
		size_t label = n->bytes[at++];

		if (end > 0)
			out[end++] = '.';
		for (; label > 0 && at < n->len && end < NET_NAME_MAX; label--) {
			uint8_t c = n->bytes[at++];
			bool odd = c >= 0x80 || !(isalnum(c) || c == '-' || c == '_');

			plain &= !odd;
			out[end++] = odd ? '?' : (char)tolower(c);
		}
	}
	if (end == 0) {
		out[end++] = '.';
		plain = false;
	}
	out[end] = '\0';
	*ret_plain = plain;
}

const char *dns_type_text(uint16_t type, char out[DNS_TYPE_TEXT])
{
	AUTO_FREE char *text = ldns_rr_type2str((ldns_rr_type)type);

	if (text)
		snprintf(out, DNS_TYPE_TEXT, "%s", text);
	else
		snprintf(out, DNS_TYPE_TEXT, "TYPE%u", type);
	return out;
}

/* -- in ---------------------------------------------------------------------------------------------------------- */

static int read_message(const uint8_t *data, size_t len, ldns_pkt **ret)
{
	ldns_status s = ldns_wire2pkt(ret, data, len);

	if (s != LDNS_STATUS_OK)
		*ret = NULL;
	return s == LDNS_STATUS_OK ? 0 : s == LDNS_STATUS_MEM_ERR ? -ENOMEM : -EBADMSG;
}

static int read_question(const ldns_pkt *p, struct dns_question *q)
{
	const ldns_rr *rr = ldns_rr_list_rr(ldns_pkt_question(p), 0);

	if (!rr || name_copy(ldns_rr_owner(rr), &q->name) < 0)
		return -EBADMSG;
	q->type = (uint16_t)ldns_rr_get_type(rr);
	q->class = (uint16_t)ldns_rr_get_class(rr);
	name_text(&q->name, q->text, &q->plain);
	return 0;
}

static int bad(int rcode, const char *why, int *ret_rcode, const char **ret_why)
{
	*ret_rcode = rcode;
	*ret_why = why;
	return -EBADMSG;
}

int dns_question_parse(const uint8_t *data, size_t len, struct dns_question *ret, int *ret_rcode, const char **ret_why)
{
	AUTO_PKT *p = NULL;
	int r;

	*ret = (struct dns_question){ .text = "?", .udp_max = DNS_UDP_PLAIN };
	if (len < LDNS_HEADER_SIZE || LDNS_QR_WIRE(data))
		return -ENOMSG;
	ret->id = LDNS_ID_WIRE(data);
	ret->opcode = LDNS_OPCODE_WIRE(data);
	ret->rd = LDNS_RD_WIRE(data) != 0;
	ret->cd = LDNS_CD_WIRE(data) != 0;
	if (ret->opcode != LDNS_PACKET_QUERY)
		return bad(DNS_NOTIMP, "not a query", ret_rcode, ret_why);
	if (len > DNS_QUESTION_MAX)
		return bad(DNS_FORMERR, "too long", ret_rcode, ret_why);
	if (LDNS_QDCOUNT(data) != 1)
		return bad(DNS_FORMERR, "not one question", ret_rcode, ret_why);
	if (LDNS_ANCOUNT(data) || LDNS_NSCOUNT(data) || LDNS_ARCOUNT(data) > 1)
		return bad(DNS_FORMERR, "records that no question has", ret_rcode, ret_why);
	r = read_message(data, len, &p);
	if (r == -ENOMEM)
		return r;
	if (r < 0 || read_question(p, ret) < 0)
		return bad(DNS_FORMERR, "cannot be read", ret_rcode, ret_why);
	if (ldns_pkt_edns(p)) {
		size_t offered = ldns_pkt_edns_udp_size(p);

		ret->edns = true;
		ret->udp_max = offered < DNS_UDP_PLAIN ? DNS_UDP_PLAIN : offered > DNS_UDP_MAX ? DNS_UDP_MAX : offered;
		if (ldns_pkt_edns_version(p) != 0)
			return bad(DNS_BADVERS, "a version of EDNS but 0", ret_rcode, ret_why);
	}
	if (ret->class != LDNS_RR_CLASS_IN)
		return bad(DNS_NOTIMP, "a class but IN", ret_rcode, ret_why);
	return 0;
}

static uint32_t ttl_of(const ldns_rr *rr)
{
	return ldns_rr_ttl(rr) > TTL_MAX_S ? 0 : ldns_rr_ttl(rr);
}

/* The name that @name is an alias of. */
static bool find_alias(const ldns_rr_list *l, const struct dns_name *name, struct dns_alias *ret)
{
	for (size_t i = 0; i < ldns_rr_list_rr_count(l); i++) {
		const ldns_rr *rr = ldns_rr_list_rr(l, i);
		struct dns_name owner;

		if (ldns_rr_get_type(rr) != LDNS_RR_TYPE_CNAME || ldns_rr_get_class(rr) != LDNS_RR_CLASS_IN ||
		    ldns_rr_rd_count(rr) != 1 || name_copy(ldns_rr_owner(rr), &owner) < 0 || !name_equal(&owner, name))
			continue;
		ret->ttl_s = ttl_of(rr);
		return name_copy(ldns_rr_rdf(rr, 0), &ret->target) == 0;
	}
	return false;
}

static bool read_address(const ldns_rr *rr, struct dns_found *ret)
{
	const ldns_rdf *rdf = ldns_rr_rd_count(rr) == 1 ? ldns_rr_rdf(rr, 0) : NULL;
	struct sockaddr_in in4 = { .sin_family = AF_INET };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
	bool four = ldns_rr_get_type(rr) == LDNS_RR_TYPE_A;
	size_t want = four ? sizeof(in4.sin_addr) : sizeof(in6.sin6_addr);

	if (!rdf || ldns_rdf_size(rdf) != want)
		return false;
	memcpy(four ? (void *)&in4.sin_addr : (void *)&in6.sin6_addr, ldns_rdf_data(rdf), want);
	ret->mapped = !four && IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr);
	ret->ttl_s = ttl_of(rr);
	return net_addr_from_sockaddr(four ? (struct sockaddr *)&in4 : (struct sockaddr *)&in6,
				      four ? sizeof(in4) : sizeof(in6), &ret->addr, NULL) == 0;
}

static void find_addresses(const ldns_rr_list *l, const struct dns_name *name, uint16_t type, struct dns_answer *ret)
{
	for (size_t i = 0; i < ldns_rr_list_rr_count(l) && ret->naddrs < DNS_ADDRS_MAX; i++) {
		const ldns_rr *rr = ldns_rr_list_rr(l, i);
		struct dns_name owner;

		if (ldns_rr_get_type(rr) == (ldns_rr_type)type && ldns_rr_get_class(rr) == LDNS_RR_CLASS_IN &&
		    name_copy(ldns_rr_owner(rr), &owner) == 0 && name_equal(&owner, name) &&
		    read_address(rr, &ret->addrs[ret->naddrs]))
			ret->naddrs++;
	}
}

int dns_answer_parse(const uint8_t *data, size_t len, uint16_t id, const struct dns_question *q, struct dns_answer *ret)
{
	AUTO_PKT *p = NULL, *head = NULL;
	AUTO_FREE uint8_t *copy = NULL;
	const struct dns_name *name = &q->name;
	struct dns_question asked;
	size_t nanswers;
	int r;

	if (len < LDNS_HEADER_SIZE || len > DNS_MESSAGE_MAX || !LDNS_QR_WIRE(data) || LDNS_ID_WIRE(data) != id ||
	    LDNS_OPCODE_WIRE(data) != LDNS_PACKET_QUERY || LDNS_QDCOUNT(data) != 1)
		return -EAGAIN;
	copy = malloc(len);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, data, len);
	nanswers = LDNS_ANCOUNT(data);
	memset(copy + LDNS_ANCOUNT_OFF, 0, LDNS_HEADER_SIZE - LDNS_ANCOUNT_OFF);
	r = read_message(copy, len, &head);
	if (r == -ENOMEM)
		return r;
	if (r < 0 || read_question(head, &asked) < 0 || asked.type != q->type || asked.class != LDNS_RR_CLASS_IN ||
	    !name_equal(&asked.name, &q->name))
		return -EAGAIN;
	memset(ret, 0, sizeof(*ret));
	ret->rcode = LDNS_RCODE_WIRE(data);
	ret->truncated = LDNS_TC_WIRE(data) != 0;
	if (ret->truncated || ret->rcode != DNS_NOERROR)
		return 0;
	if (nanswers > DNS_RECORDS_MAX)
		return -EBADMSG;
	ldns_write_uint16(copy + LDNS_ANCOUNT_OFF, (uint16_t)nanswers);
	r = read_message(copy, len, &p);
	if (r < 0)
		return r;
	while (ret->nchain < DNS_CHAIN_MAX && find_alias(ldns_pkt_answer(p), name, &ret->chain[ret->nchain]))
		name = &ret->chain[ret->nchain++].target;
	find_addresses(ldns_pkt_answer(p), name, q->type, ret);
	return 0;
}

/* -- out --------------------------------------------------------------------------------------------------------- */

static ldns_rr *rr_new(const struct dns_name *owner, uint16_t type, uint32_t ttl_s)
{
	ldns_rr *rr = ldns_rr_new();
	ldns_rdf *rdf = rr ? ldns_rdf_new_frm_data(LDNS_RDF_TYPE_DNAME, owner->len, owner->bytes) : NULL;

	if (!rdf) {
		ldns_rr_free(rr);
		return NULL;
	}
	ldns_rr_set_owner(rr, rdf);
	ldns_rr_set_type(rr, (ldns_rr_type)type);
	ldns_rr_set_class(rr, LDNS_RR_CLASS_IN);
	ldns_rr_set_ttl(rr, ttl_s);
	return rr;
}

static int push(ldns_pkt *p, ldns_pkt_section section, ldns_rr *rr)
{
	if (rr && ldns_pkt_push_rr(p, section, rr))
		return 0;
	ldns_rr_free(rr);
	return -ENOMEM;
}

static int push_question(ldns_pkt *p, const struct dns_question *q, const struct dns_name *name)
{
	ldns_rr *rr = rr_new(name, q->type, 0);

	if (rr) {
		ldns_rr_set_class(rr, (ldns_rr_class)q->class);
		ldns_rr_set_question(rr, true);
	}
	return push(p, LDNS_SECTION_QUESTION, rr);
}

static int push_record(ldns_pkt *p, const struct dns_name *owner, uint16_t type, uint32_t ttl_s, ldns_rdf_type kind,
		       const void *data, size_t len)
{
	ldns_rr *rr = rr_new(owner, type, ttl_s);
	ldns_rdf *rdf = rr ? ldns_rdf_new_frm_data(kind, len, data) : NULL;

	if (!rdf || !ldns_rr_push_rdf(rr, rdf)) {
		ldns_rdf_deep_free(rdf);
		ldns_rr_free(rr);
		return -ENOMEM;
	}
	return push(p, LDNS_SECTION_ANSWER, rr);
}

static int push_answer(ldns_pkt *p, const struct dns_question *q, const struct dns_answer *a)
{
	const struct dns_name *name = &q->name;
	int r = 0;

	for (size_t i = 0; r == 0 && i < a->nchain; i++) {
		const struct dns_alias *c = &a->chain[i];

		r = push_record(p, name, LDNS_RR_TYPE_CNAME, c->ttl_s, LDNS_RDF_TYPE_DNAME, c->target.bytes,
				c->target.len);
		name = &c->target;
	}
	for (size_t i = 0; r == 0 && i < a->naddrs; i++) {
		const struct dns_found *f = &a->addrs[i];
		bool four = q->type == DNS_A;

		r = push_record(p, name, q->type, f->ttl_s, four ? LDNS_RDF_TYPE_A : LDNS_RDF_TYPE_AAAA, f->addr.bytes,
				four ? 4 : 16);
	}
	return r;
}

/* Takes what is in @p, never @p. */
static int to_wire(const ldns_pkt *p, uint8_t **ret, size_t *ret_len)
{
	uint8_t *wire = NULL;
	size_t len = 0;

	if (ldns_pkt2wire(&wire, p, &len) != LDNS_STATUS_OK || !wire) {
		free(wire);
		return -ENOMEM;
	}
	*ret = wire;
	*ret_len = len;
	return 0;
}

int dns_query_build(uint16_t id, const struct dns_question *q, bool edns, uint8_t **ret, size_t *ret_len)
{
	AUTO_PKT *p = ldns_pkt_new();
	struct dns_name lower = q->name;

	if (!p)
		return -ENOMEM;
	for (size_t i = 0; i < lower.len; i++)
		lower.bytes[i] = (uint8_t)tolower(lower.bytes[i]);
	ldns_pkt_set_id(p, id);
	ldns_pkt_set_rd(p, true);
	if (edns)
		ldns_pkt_set_edns_udp_size(p, DNS_UDP_MAX);
	if (push_question(p, q, &lower) < 0)
		return -ENOMEM;
	return to_wire(p, ret, ret_len);
}

static int reply(const struct dns_question *q, int rcode, const struct dns_answer *a, bool truncated, uint8_t **ret,
		 size_t *ret_len)
{
	AUTO_PKT *p = ldns_pkt_new();

	if (!p)
		return -ENOMEM;
	ldns_pkt_set_id(p, q->id);
	ldns_pkt_set_qr(p, true);
	ldns_pkt_set_opcode(p, (ldns_pkt_opcode)q->opcode);
	ldns_pkt_set_rd(p, q->rd);
	ldns_pkt_set_cd(p, q->cd);
	ldns_pkt_set_ra(p, true);
	ldns_pkt_set_tc(p, truncated);
	ldns_pkt_set_rcode(p, (uint8_t)(rcode & ((1 << RCODE_BITS) - 1)));
	if (q->edns) {
		ldns_pkt_set_edns_udp_size(p, DNS_UDP_MAX);
		ldns_pkt_set_edns_extended_rcode(p, (uint8_t)(rcode >> RCODE_BITS));
	}
	if ((q->name.len > 0 && push_question(p, q, &q->name) < 0) || (a && push_answer(p, q, a) < 0))
		return -ENOMEM;
	return to_wire(p, ret, ret_len);
}

int dns_reply_build(const struct dns_question *q, int rcode, const struct dns_answer *a, size_t max, uint8_t **ret,
		    size_t *ret_len, bool *ret_truncated)
{
	int r = reply(q, rcode, a, false, ret, ret_len);

	*ret_truncated = false;
	if (r < 0 || *ret_len <= max)
		return r;
	free(*ret);
	*ret = NULL;
	*ret_truncated = true;
	return reply(q, rcode, NULL, true, ret, ret_len);
}
