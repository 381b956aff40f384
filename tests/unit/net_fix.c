/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/net_fix.h"

#include <sys/socket.h>
#include <unistd.h>

int allow(struct sandbox *s, const char *text, struct err *e)
{
	*e = (struct err){ 0 };
	return sandbox_net_allow_store(s, text, strlen(text), &root_user, e);
}

int ports(struct sandbox *s, const char *text, struct err *e)
{
	*e = (struct err){ 0 };
	return sandbox_net_ports_store(s, text, strlen(text), &root_user, e);
}

void shows(struct sandbox *s, int (*show)(struct sandbox *s, struct buf *out), const char *text)
{
	struct buf b;

	buf_init(&b, 1 << 20);
	assert_int_equal(show(s, &b), 0);
	if (!strstr(b.len ? buf_str(&b) : "", text))
		fail_msg("\"%s\" does not hold \"%s\"", b.len ? buf_str(&b) : "", text);
	buf_fini(&b);
}

void starts(struct world *w, struct sandbox *s)
{
	struct err e = { 0 };

	if (sandbox_ctl(s, "start", &root_user, &e) < 0)
		fail_msg("%s", e.msg);
	spin(w);
}

struct sandbox *networked(struct world *w, const char *name, const char *list)
{
	struct sandbox *s = new_sandbox(w, name, &root_user);
	struct err e;

	if (allow(s, list, &e) < 0)
		fail_msg("%s", e.msg);
	starts(w, s);
	if (sandbox_status(s) != SBX_READY)
		fail_msg("%s is %s: %s", name, sandbox_status_name(sandbox_status(s)), sandbox_error(s));
	return s;
}

/* One that nobody listens on now. */
unsigned free_port(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	close(fd);
	return ntohs(a.sin_port);
}

int listener(unsigned port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, 1) == 0)
		return fd;
	close(fd);
	return -1;
}

bool can_listen(unsigned port)
{
	int fd = listener(port);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}
