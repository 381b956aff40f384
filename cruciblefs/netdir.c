/* SPDX-License-Identifier: Apache-2.0 */
/* run/<id>/net/. */
#include "base/fd.h"
#include "cruciblefs/tables.h"
#include "policy/policy.h"

static int show_allow(const struct cfs_about *a, struct buf *out)
{
	return sandbox_net_allow_show(a->sbx, out);
}

static int store_allow(const struct cfs_about *a, const struct cfs_who *who, const char *text, size_t len,
		       struct err *e)
{
	return sandbox_net_allow_store(a->sbx, text, len, who, e);
}

static int show_ports(const struct cfs_about *a, struct buf *out)
{
	return sandbox_net_ports_show(a->sbx, out);
}

static int store_ports(const struct cfs_about *a, const struct cfs_who *who, const char *text, size_t len,
		       struct err *e)
{
	return sandbox_net_ports_store(a->sbx, text, len, who, e);
}

static int log_open(const struct cfs_about *a, const struct cfs_who *who, int *ret_fd)
{
	(void)who;
	return sandbox_net_log_open(a->sbx, ret_fd);
}

static uint64_t log_size(const struct cfs_about *a)
{
	int fd = -1;

	return sandbox_net_log_open(a->sbx, &fd) < 0 ? 0 : cfs_fd_size(fd);
}

static const struct cfs_stream_ops log_stream = { .open = log_open, .size = log_size, .queue = cfs_sandbox_queue };

/* clang-format off */
static const struct cfs_entry net_entries[] = {
	{ .name = "allow", .kind = &cfs_kind_control, .mode = 0600, .flags = CFS_LIST | CFS_EDITED, .op = POLICY_NETWORK, .show = show_allow, .store = store_allow },
	{ .name = "ports", .kind = &cfs_kind_control, .mode = 0600, .flags = CFS_LIST | CFS_WHOLE, .op = POLICY_NETWORK, .show = show_ports, .store = store_ports },
	{ .name = "log.jsonl", .kind = &cfs_kind_stream, .mode = 0400, .stream = &log_stream },
};
/* clang-format on */

const struct cfs_table cfs_net_table = {
	.path = "run/<id>/net",
	.entries = net_entries,
	.count = ARRAY_LEN(net_entries),
	.user_may_hide = true,
	.scratch = true,
};
