/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/snapshot_fix.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/log.h"

int snapshot_world(void **state)
{
	int r = world_setup(state);

	log_set_level(getenv("CRUCIBLE_TEST_LOG") ? LOG_L_DEBUG : LOG_L_ERR); /* warnings are the point here */
	boxes_play(*state);
	return r;
}

void assert_says(const char *text, const char *words)
{
	if (!strstr(text, words))
		fail_msg("\"%s\" does not say \"%s\"", text, words);
}

struct sandbox *new_sandbox(struct world *w, const char *name, const struct cfs_who *who)
{
	struct sandbox *s = NULL;
	struct err e = { 0 };

	if (registry_create(w->reg, name, who, &s, &e) < 0)
		fail_msg("%s", e.msg);
	return s;
}

struct sandbox *running(struct world *w, const char *name)
{
	struct sandbox *s = new_sandbox(w, name, &root_user);
	struct err e = { 0 };

	if (sandbox_ctl(s, "start", &root_user, &e) < 0)
		fail_msg("%s", e.msg);
	spin(w);
	if (sandbox_status(s) != SBX_READY)
		fail_msg("%s is %s: %s", name, sandbox_status_name(sandbox_status(s)), sandbox_error(s));
	return s;
}

void command(struct sandbox *s, const char *text)
{
	struct upload *u = NULL;
	struct err e = { 0 };

	assert_int_equal(upload_new(s, UPLOAD_CMD, NULL, &root_user, &u, &e), 0);
	assert_int_equal(upload_write(u, text, strlen(text), &e), 0);
	upload_commit(u);
}

struct snapshot_job *begin_snapshot(struct sandbox *s, const char *name, struct err *e)
{
	struct snapshot_job *j = NULL;

	return sandbox_snapshot(s, name, &root_user, &j, e) < 0 ? NULL : j;
}

int job_result(struct world *w, struct snapshot_job *j, struct err *e)
{
	int r;

	until(w, snapshot_job_result(j, NULL) != -EAGAIN);
	r = snapshot_job_result(j, e);
	snapshot_job_drop(j);
	return r;
}

struct snapshot *take(struct world *w, struct sandbox *s, const char *name)
{
	struct err e = { 0 };
	struct snapshot_job *j = begin_snapshot(s, name, &e);
	struct snapshot *p;

	if (!j || job_result(w, j, &e) < 0)
		fail_msg("%s", e.msg);
	p = registry_find_snapshot(w->reg, NULL, name);
	assert_non_null(p);
	return p;
}

struct snapshot *take_ready(struct world *w, struct sandbox *s, const char *name)
{
	struct snapshot *p = take(w, s, name);

	until(w, p->status == SNAPSHOT_READY);
	return p;
}

int fork_of(struct world *w, struct snapshot *p, const char *text, struct err *e)
{
	struct snapshot_job *j = NULL;
	int r = snapshot_fork(p, text, false, &root_user, &j, e);

	return r < 0 ? r : job_result(w, j, e);
}

void gone(struct world *w, struct sandbox *s)
{
	registry_destroy(w->reg, s, &root_user, "test");
	spin(w);
}

struct snapshot *kept(struct world *w, const char *name)
{
	struct sandbox *s = running(w, "source");
	struct snapshot *p = take_ready(w, s, name);

	gone(w, s);
	return p;
}

void assert_clean(struct world *w)
{
	static const char *const words[] = { "templates", "captured", "machines", "disks",
					     "exports",	  "stored",   "networks" };

	spin(w);
	for (size_t i = 0; i < FAKE_SET_COUNT; i++) {
		if (fakes.nset[i])
			fail_msg("%zu %s are left, the first is %s", fakes.nset[i], words[i], fakes.set[i][0]);
	}
	assert_int_equal(fake_box_count(), 0);
	assert_int_equal(w->fake.slots_taken, w->fake.slots_freed);
	assert_int_equal(count_entries(w, "snapshots"), 0);
	until(w, count_entries(w, "sandboxes") == 0); /* the pool removes them */
}

int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}
