/* SPDX-License-Identifier: Apache-2.0 */
/* DNS messages for the resolver, in and out, by libldns: what comes out of here are plain structs; what is behind them
 * never looks at bytes of a message. Thread: any; nothing blocks; nothing is kept. */
#ifndef CRUCIBLE_NETPOLICY_RESOLVER_MSG_H
#define CRUCIBLE_NETPOLICY_RESOLVER_MSG_H

#include <stdbool.h>
#include "netpolicy/addr.h"
#include "netpolicy/net.h"

#define DNS_QUESTION_MAX 4096u	/* bytes of a guest's message; what is longer is malformed */
#define DNS_MESSAGE_MAX	 65535u /* bytes of any message */
#define DNS_UDP_PLAIN	 512u	/* bytes of an answer over UDP without EDNS */
#define DNS_UDP_MAX	 1232u	/* ... with it, whatever was offered; and what upstream is offered */
#define DNS_CHAIN_MAX	 16u	/* CNAMEs of one answer */
#define DNS_ADDRS_MAX	 256u	/* addresses of one answer that are passed on */
#define DNS_RECORDS_MAX	 1024u	/* records of an upstream answer that are looked at */
#define DNS_TYPE_TEXT	 16

enum { DNS_A = 1, DNS_PTR = 12, DNS_AAAA = 28 }; /* types */
enum {						 /* codes of an answer */
       DNS_NOERROR,
       DNS_FORMERR,
       DNS_SERVFAIL,
       DNS_NXDOMAIN,
       DNS_NOTIMP,
       DNS_REFUSED,
       DNS_BADVERS = 16, /* with EDNS only */
};

struct dns_name { /* as on the wire, uncompressed */
	uint8_t bytes[255];
	uint8_t len; /* 0: none */
};

struct dns_question {
	uint16_t id, type, class;
	struct dns_name name; /* in the guest's case; none: it could not be read */
	/* Lower case, without the last dot. What is no letter, digit, '-' or '_' is '?', the root ".". */
	char text[NET_NAME_MAX + 1];
	bool plain; /* `text` is a name that can be asked for: no '?', not the root */
	int opcode;
	bool rd, cd;
	bool edns;
	size_t udp_max; /* bytes that an answer over UDP may have */
};
/* A guest's message. 0; -ENOMSG: not a question, must not be answered; -EBADMSG: to be answered with *ret_rcode, @ret
 * is whole as far as it could be read, *ret_why says what is wrong; -ENOMEM: nothing can be said. */
int dns_question_parse(const uint8_t *data, size_t len, struct dns_question *ret, int *ret_rcode, const char **ret_why);

struct dns_answer {
	int rcode;
	bool truncated; /* nothing else but `rcode` is known then */
	/* The chain: the question's name is an alias of the first, that one of the second ... */
	struct dns_alias {
		struct dns_name target;
		uint32_t ttl_s;
	} chain[DNS_CHAIN_MAX];
	size_t nchain;
	struct dns_found { /* of the type that was asked for, of the chain's last name */
		struct net_addr addr;
		bool mapped; /* an AAAA with an IPv4 address in it; `addr` is that */
		uint32_t ttl_s;
	} addrs[DNS_ADDRS_MAX];
	size_t naddrs;
};
/* An upstream's message, as the answer to dns_query_build(@id, @q). 0; -EAGAIN: it is not that question's answer;
 * -EBADMSG: it is, but cannot be read; -ENOMEM. */
int dns_answer_parse(const uint8_t *data, size_t len, uint16_t id, const struct dns_question *q,
		     struct dns_answer *ret);

/* The question for an upstream, in lower case; with our size when @edns. malloc'd. -ENOMEM */
int dns_query_build(uint16_t id, const struct dns_question *q, bool edns, uint8_t **ret, size_t *ret_len);
/* The guest's answer, at most @max bytes: without its records and with the TC bit when they do not fit. @a: NULL for
 * an answer without records, whose code is @rcode; the code of @a is not looked at. malloc'd. -ENOMEM */
int dns_reply_build(const struct dns_question *q, int rcode, const struct dns_answer *a, size_t max, uint8_t **ret,
		    size_t *ret_len, bool *ret_truncated);

const char *dns_type_text(uint16_t type, char out[DNS_TYPE_TEXT]);

#endif
