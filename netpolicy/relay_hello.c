/* SPDX-License-Identifier: Apache-2.0 */
/* The relay, outward to a port of TLS: what the guest says first, read until it names a server. */
#include "netpolicy/relay_priv.h"

#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"

void relay_hello(struct relay_conn *c)
{
	struct buf *b = &c->from_guest.head;
	uint8_t data[SNIFF_MAX];
	ssize_t n = recv(c->guest.fd, data, SNIFF_MAX - b->len, MSG_DONTWAIT);

	if (n < 0) {
		if (errno != EAGAIN && errno != EINTR)
			relay_conn_end(c, strerror(errno));
		return;
	}
	if (n == 0) {
		relay_conn_refuse(c, "closed before its TLS hello was whole");
		return;
	}
	if (buf_add(b, data, (size_t)n) < 0) {
		relay_conn_end(c, "no memory");
		return;
	}
	switch (sniff_client_hello(b->data, b->len, c->tls)) {
	case SNIFF_MORE:
		if (b->len == SNIFF_MAX)
			relay_conn_refuse(c, "its TLS hello is too large");
		return;
	case SNIFF_NAME:
		c->has_tls = true;
		relay_conn_dial_out(c);
		return;
	case SNIFF_NO_NAME:
		relay_conn_refuse(c, "its TLS hello names no server");
		return;
	case SNIFF_TOO_LARGE:
		relay_conn_refuse(c, "its TLS hello is too large");
		return;
	case SNIFF_NOT_TLS:
		relay_conn_refuse(c, "not TLS, on a port of TLS");
		return;
	case SNIFF_MALFORMED:
		break;
	}
	relay_conn_refuse(c, "its TLS hello cannot be read");
}

bool relay_tls_port(uint16_t port)
{
	static const uint16_t ports[] = { 443, 465, 563, 636, 853, 989, 990, 992, 993, 994, 995, 5061, 8443 };

	for (size_t i = 0; i < ARRAY_LEN(ports); i++)
		if (ports[i] == port)
			return true;
	return false;
}
