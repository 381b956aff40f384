/* SPDX-License-Identifier: Apache-2.0 */
/* The network's part of the fake domain: lists that take any line but those with "bad" in it. */
#include "fake_domain_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/fd.h"

void fake_net_init(struct sandbox *s)
{
	buf_init(&s->net_allow, 64 * 1024);
	buf_init(&s->net_ports, 64 * 1024);
}

void fake_net_fini(struct sandbox *s)
{
	buf_fini(&s->net_allow);
	buf_fini(&s->net_ports);
	if (s->net_log > 0)
		close(s->net_log);
}

static int log_fd(struct sandbox *s)
{
	if (!s->net_log)
		s->net_log = memfd_create("net-log", MFD_CLOEXEC);
	return s->net_log;
}

void fake_net_log(struct sandbox *s, const char *line)
{
	dprintf(log_fd(s), "%s\n", line);
	waitq_wake(&s->waitq);
}

int sandbox_net_log_open(struct sandbox *s, int *ret_fd)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", log_fd(s));
	*ret_fd = open(path, O_RDONLY | O_CLOEXEC);
	return *ret_fd < 0 ? -errno : 0;
}

/* Without the line @rule; it must be there. */
static int take_out(struct buf *list, const char *rule, size_t len, struct err *e)
{
	for (char *p = buf_str(list); p && *p; p += strcspn(p, "\n") + 1) {
		if (strcspn(p, "\n") != len || memcmp(p, rule, len) != 0)
			continue;
		memmove(p, p + len + 1, list->len - (size_t)(p - (char *)list->data) - len - 1);
		list->len -= len + 1;
		return 0;
	}
	return err_set(e, -EINVAL, "-%.*s: it is not in the list", (int)len, rule);
}

static int store(struct sandbox *s, struct buf *to, bool edited, const char *text, size_t len,
		 const struct cfs_who *who, struct err *e)
{
	struct buf list;
	int r = memmem(text, len, "bad", 3) ? err_set(e, -EINVAL, "net: a bad line") : 0;

	buf_init(&list, 64 * 1024);
	for (const char *p = text, *end = text + len; p < end && !r;) {
		size_t n = strcspn(p, "\n");

		if (edited && *p == '-')
			r = take_out(&list, p + 1, n - 1, e);
		else if (*p != '#' && n &&
			 (r = buf_add(&list, p + (edited && *p == '+'), n - (edited && *p == '+'))) == 0)
			r = buf_adds(&list, "\n");
		p += n + 1;
	}
	if (!r) {
		buf_fini(to);
		*to = list;
		fake_changed(s);
		return 0;
	}
	buf_fini(&list);
	sandbox_fail(s, who, e);
	return r;
}

int sandbox_net_allow_show(struct sandbox *s, struct buf *out)
{
	return buf_add(out, s->net_allow.data, s->net_allow.len);
}

int sandbox_net_allow_store(struct sandbox *s, const char *text, size_t len, const struct cfs_who *who, struct err *e)
{
	return store(s, &s->net_allow, true, text, len, who, e);
}

int sandbox_net_ports_show(struct sandbox *s, struct buf *out)
{
	return buf_add(out, s->net_ports.data, s->net_ports.len);
}

int sandbox_net_ports_store(struct sandbox *s, const char *text, size_t len, const struct cfs_who *who, struct err *e)
{
	return store(s, &s->net_ports, false, text, len, who, e);
}
