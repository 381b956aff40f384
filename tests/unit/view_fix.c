/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/view_fix.h"

#include <stdlib.h>
#include <unistd.h>

const struct cfs_who bob = { .uid = 1002, .gid = 1002 };

struct view *view_named(struct world *w, const char *name)
{
	struct view *v = registry_find_view(w->reg, name);

	assert_non_null(v);
	return v;
}

int write_policy(struct view *v, const char *text, struct err *e)
{
	*e = (struct err){ 0 };
	return view_policy_store(v, text, strlen(text), &root_user, e);
}

void write_ttl(struct view *v, const char *text)
{
	struct err e = { 0 };

	if (view_ttl_store(v, text, strlen(text), &root_user, &e) < 0)
		fail_msg("%s", e.msg);
}

struct view *new_view(struct world *w, const char *name, const char *policy)
{
	struct view *v = NULL;
	struct err e = { 0 };

	if (registry_create_view(w->reg, name, &root_user, &v, &e) < 0)
		fail_msg("%s", e.msg);
	if (policy && write_policy(v, policy, &e) < 0)
		fail_msg("%s", e.msg);
	return v;
}

struct cfs_who through(struct view *v, const struct cfs_who *who)
{
	return (struct cfs_who){ .uid = who->uid, .gid = who->gid, .view = v };
}

int create(struct world *w, const char *name, const struct cfs_who *who, struct sandbox **ret, struct err *e)
{
	struct sandbox *s = NULL;
	int k;

	*e = (struct err){ 0 };
	k = registry_create(w->reg, name, who, &s, e);
	if (k < 0)
		assert_true(e->code == k && e->msg[0]);
	if (ret)
		*ret = s;
	return k;
}

struct sandbox *runs_for(struct world *w, const char *name, const struct cfs_who *who)
{
	struct sandbox *s = new_sandbox(w, name, who);
	struct err e = { 0 };

	if (sandbox_ctl(s, "start", who, &e) < 0)
		fail_msg("%s", e.msg);
	spin(w);
	if (sandbox_status(s) != SBX_READY)
		fail_msg("%s is %s: %s", name, sandbox_status_name(sandbox_status(s)), sandbox_error(s));
	return s;
}

int snapshot_as(struct world *w, struct sandbox *s, const char *name, const struct cfs_who *who, struct err *e)
{
	struct snapshot_job *j = NULL;
	int k;

	*e = (struct err){ 0 };
	k = sandbox_snapshot(s, name, who, &j, e);
	return k < 0 ? k : job_result(w, j, e);
}

int fork_as(struct world *w, struct snapshot *p, const char *text, const struct cfs_who *who, struct err *e)
{
	struct snapshot_job *j = NULL;
	int k;

	*e = (struct err){ 0 };
	k = snapshot_fork(p, text, false, who, &j, e);
	return k < 0 ? k : job_result(w, j, e);
}

int limit(struct sandbox *s, enum sandbox_attr a, const char *text, const struct cfs_who *who, struct err *e)
{
	*e = (struct err){ 0 };
	return sandbox_attr_store(s, a, text, strlen(text), who, e);
}

void bind_policy(struct world *w, bool of_gid, uint32_t id, const char *text)
{
	char file[64], value[256];
	struct err e = { 0 };
	struct buf faults;

	snprintf(file, sizeof(file), "policy-%s-%u.json", of_gid ? "gid" : "uid", id);
	put(w, file, text);
	snprintf(value, sizeof(value), "%u %s/%s", id, w->dir, file);
	if (!config_policy(&w->cfg, of_gid, id))
		assert_int_equal(config_set(&w->cfg, of_gid ? "policy_gid" : "policy_uid", value, &e), 0);
	buf_init(&faults, 4096);
	if (config_read_policies(&w->cfg, &faults, &e) < 0)
		fail_msg("%s: %s", e.msg, buf_str(&faults));
	buf_fini(&faults);
}

void restart(struct world *w)
{
	bring_down(w);
	bring_up(w);
	spin(w);
}

char *read_fd(int fd)
{
	char *text = calloc(1, 1 << 16);

	assert_non_null(text);
	assert_true(fd >= 0 && read(fd, text, (1 << 16) - 1) >= 0);
	close(fd);
	return text;
}
