/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/record.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "agent/proto.h"
#include "base/json.h"

static uint64_t ms_of(const struct timeval *tv)
{
	return (uint64_t)tv->tv_sec * 1000 + (uint64_t)tv->tv_usec / 1000;
}

static void add_u64(struct json_object *o, const char *key, uint64_t v)
{
	json_object_object_add(o, key, json_object_new_uint64(v));
}

/* The cgroup counts the whole tree; without one, the process and the children that it waited for. */
static struct json_object *usage_json(const struct record *r)
{
	const struct cgroup_usage *u = &r->usage;
	struct json_object *o = json_object_new_object();

	if (!o)
		return NULL;
	add_u64(o, "cpu_user_ms", u->valid ? u->cpu_user_us / 1000 : ms_of(&r->ru.ru_utime));
	add_u64(o, "cpu_sys_ms", u->valid ? u->cpu_sys_us / 1000 : ms_of(&r->ru.ru_stime));
	add_u64(o, "peak_memory_bytes", u->has_memory ? u->memory_peak_bytes : (uint64_t)r->ru.ru_maxrss * 1024);
	add_u64(o, "page_faults_major", (uint64_t)r->ru.ru_majflt);
	add_u64(o, "context_switches_involuntary", (uint64_t)r->ru.ru_nivcsw);
	add_u64(o, "io_read_bytes", u->has_io ? u->io_read_bytes : (uint64_t)r->ru.ru_inblock * 512);
	add_u64(o, "io_write_bytes", u->has_io ? u->io_write_bytes : (uint64_t)r->ru.ru_oublock * 512);
	return o;
}

int record_put(const struct record *r, struct buf *out)
{
	AUTO_JSON *o = json_object_new_object();
	const char *line, *signal_text = "";
	int code = -1;
	char tmp[16];

	if (!o)
		return -ENOMEM;
	if (r->began && WIFEXITED(r->status))
		code = WEXITSTATUS(r->status);
	else if (r->began && WIFSIGNALED(r->status))
		signal_text = ag_signal_name(WTERMSIG(r->status), tmp);
	else if (r->killed)
		signal_text = "SIGKILL";
	json_object_object_add(o, "exit_code", json_object_new_int(code));
	json_object_object_add(o, "signal", json_object_new_string(signal_text));
	json_object_object_add(o, "timed_out", json_object_new_boolean(r->timed_out));
	json_object_object_add(o, "oom_killed", json_object_new_boolean(r->usage.oom_killed));
	json_object_object_add(o, "error", json_text(r->error, strlen(r->error)));
	add_u64(o, "stdout_bytes", r->stdout_bytes);
	add_u64(o, "stderr_bytes", r->stderr_bytes);
	add_u64(o, "duration_ns", r->duration_ns);
	json_object_object_add(o, "usage", usage_json(r));
	line = json_line(o);
	return line ? buf_adds(out, line) : -ENOMEM;
}
