/* SPDX-License-Identifier: Apache-2.0 */
/* usage.json. Numbers come from the launcher, which may read the engine's cgroup, and from the pager, which has the
 * disk; each reading asks for newer ones behind. */
#include "base/json.h"
#include "cruciblefs/domain/snapshot_priv.h"

static void on_stat(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct sandbox *s = arg;

	(void)words;
	(void)m;
	s->stat_pending = false;
	if (code == 0 && launch_stat_decode(r, &s->stat) == 0)
		waitq_wake(&s->waitq);
	sandbox_unref(s);
}

void sandbox_ask_stat(struct sandbox *s)
{
	uint8_t uuid[LAUNCH_UUID_BYTES];

	if (s->stat_pending || !s->link || !s->machine[0] || !s->reg->launcher)
		return;
	launch_uuid_encode(s->machine, uuid);
	sandbox_ref(s);
	s->stat_pending = launcher_call(s->reg->launcher, LAUNCH_STAT, uuid, sizeof(uuid), NULL, 0, on_stat, s) == 0;
	if (!s->stat_pending)
		sandbox_unref(s);
}

static void on_disk(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct sandbox *s = arg;
	uint64_t own = code == 0 ? wire_u64(r) : 0;
	uint32_t layers = code == 0 ? wire_u32(r) : 0;

	(void)words;
	(void)m;
	s->disk_asked = false;
	if (code == 0 && wire_done(r) == 0) {
		s->disk_own_bytes = own;
		s->disk_layers = layers;
	}
	sandbox_unref(s);
}

/* A stopped sandbox has its disk, too. */
static void ask_disk(struct sandbox *s)
{
	struct ask a;

	if (s->disk_asked || s->gone || !s->disk[0])
		return;
	ask_init(&a);
	ask_str(&a, s->disk);
	s->disk_asked = ask_pager(s->reg, PAGER_DISK_STAT, &a, on_disk, sandbox_ref(s)) == 0;
	if (!s->disk_asked)
		sandbox_unref(s);
}

int sandbox_usage_json(struct sandbox *s, struct buf *out)
{
	AUTO_JSON *o = json_object_new_object();

	if (!o)
		return -ENOMEM;
	sandbox_ask_stat(s);
	ask_disk(s);
	netd_stat_ask(s->reg, s);
	json_object_object_add(o, "cpu_ms", json_object_new_uint64(s->stat.cpu_usec / 1000));
	json_object_object_add(o, "memory_bytes", json_object_new_uint64(s->stat.memory_bytes));
	json_object_object_add(o, "memory_peak_bytes", json_object_new_uint64(s->stat.memory_peak_bytes));
	json_object_object_add(o, "oom_kills", json_object_new_uint64(s->stat.oom_kills));
	json_object_object_add(o, "io_read_bytes", json_object_new_uint64(s->stat.io_read_bytes));
	json_object_object_add(o, "io_write_bytes", json_object_new_uint64(s->stat.io_write_bytes));
	json_object_object_add(o, "net_bytes_out", json_object_new_uint64(s->net.stat.bytes_out));
	json_object_object_add(o, "net_bytes_in", json_object_new_uint64(s->net.stat.bytes_in));
	json_object_object_add(o, "net_connections", json_object_new_uint64(s->net.stat.opened));
	json_object_object_add(o, "net_connections_open", json_object_new_int64(s->net.stat.open));
	json_object_object_add(o, "net_refused", json_object_new_uint64(s->net.stat.refused));
	json_object_object_add(o, "net_failed", json_object_new_uint64(s->net.stat.failed));
	json_object_object_add(o, "net_questions", json_object_new_uint64(s->net.stat.questions));
	json_object_object_add(o, "net_questions_denied", json_object_new_uint64(s->net.stat.denied));
	json_object_object_add(o, "tasks", json_object_new_int64(s->stat.tasks));
	json_object_object_add(o, "spool_bytes", json_object_new_uint64(s->spool_bytes));
	json_object_object_add(o, "execs", json_object_new_uint64(s->last_n));
	json_object_object_add(o, "commands_running", json_object_new_int64(s->nrunning));
	json_object_object_add(o, "commands_waiting", json_object_new_int64(s->nwaiting));
	json_object_object_add(o, "disk_bytes", json_object_new_uint64(s->disk_own_bytes));
	json_object_object_add(o, "disk_layers", json_object_new_int64(s->disk_layers));
	return json_add_line(o, out);
}
