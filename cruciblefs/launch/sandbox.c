/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked about a sandbox as a whole, by its cgroup: kill, stat, list.
 *
 * Killing takes the kernel a while, so a KILL is a job that is looked at again, when a child ended and by a timer that
 * slows down, until nobody is left and the cgroup is removed. It is answered then, and after the exit events. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cruciblefs/launch/launch_priv.h"

#define KILL_TRY_NS	1000000u /* the first look, then twice as long each time */
#define KILL_TRY_MAX_NS 100000000u
#define KILL_GIVE_UP_NS 20000000000u /* a process in the kernel that does not come back */

struct kill_job {
	struct kill_job *next;
	struct launchd *d;
	uint32_t id; /* of the request */
	char uuid[LAUNCH_UUID_LEN + 1];
	uint64_t give_up_ns, wait_ns;
	loop_id timer;
};

static int read_uuid(struct wire_rd *r, char uuid[LAUNCH_UUID_LEN + 1], struct err *e)
{
	wire_str(r, uuid, LAUNCH_UUID_LEN + 1);
	if (wire_done(r) < 0 || !launch_uuid_ok(uuid))
		return err_set(e, -EBADMSG, "not a uuid");
	return 0;
}

/* One look: 0 all is gone; -EAGAIN not yet. */
static int kill_try(struct launchd *d, const char *uuid, struct err *e)
{
	int r = cgroup_kill(d->cgroups, uuid, e);

	children_reap(d);
	if (r < 0)
		return r;
	/* Of our own children more is known than that no cgroup lists them: their exit events come before the reply. */
	if (r > 0 || children_has(d, uuid))
		return -EAGAIN;
	r = cgroup_remove(d->cgroups, uuid, e);
	return r == -EBUSY ? -EAGAIN : r; /* they are gone from the lists a moment before they are gone */
}

static void kill_end(struct kill_job *j, int code, const char *words)
{
	struct launchd *d = j->d;
	struct kill_job **at = &d->kills;

	while (*at != j)
		at = &(*at)->next;
	*at = j->next;
	loop_del(d->loop, &j->timer);
	launchd_reply(d, j->id, code, words, NULL);
	free(j);
}

static void kill_look(void *arg)
{
	struct kill_job *j = arg;
	struct err e = { 0 };
	int r;

	loop_del(j->d->loop, &j->timer);
	r = kill_try(j->d, j->uuid, &e);
	if (r == -EAGAIN && now_ns() < j->give_up_ns) {
		j->wait_ns = j->wait_ns * 2 < KILL_TRY_MAX_NS ? j->wait_ns * 2 : KILL_TRY_MAX_NS;
		r = loop_timer(j->d->loop, now_ns() + j->wait_ns, kill_look, j, &j->timer);
		if (r == 0)
			return;
		err_set(&e, r, "kill %s: no memory", j->uuid);
	} else if (r == -EAGAIN) {
		r = err_set(&e, -ETIMEDOUT, "kill %s: a process does not end", j->uuid);
	}
	kill_end(j, r, e.msg);
}

int on_kill(struct launchd *d, struct msg *m, struct wire_rd *r, struct answer *a, struct err *e)
{
	char uuid[LAUNCH_UUID_LEN + 1];
	struct kill_job *j;
	int rc = read_uuid(r, uuid, e);

	(void)a;
	if (rc < 0)
		return rc;
	rc = kill_try(d, uuid, e);
	if (rc != -EAGAIN)
		return rc;
	j = calloc(1, sizeof(*j));
	if (!j)
		return err_set(e, -ENOMEM, "kill %s: no memory", uuid);
	*j = (struct kill_job){ .next = d->kills, .d = d, .id = m->id };
	j->give_up_ns = now_ns() + KILL_GIVE_UP_NS;
	j->wait_ns = KILL_TRY_NS;
	memcpy(j->uuid, uuid, sizeof(j->uuid));
	rc = loop_timer(d->loop, now_ns() + KILL_TRY_NS, kill_look, j, &j->timer);
	if (rc < 0) {
		free(j);
		return err_set(e, rc, "kill %s: no memory", uuid);
	}
	d->kills = j;
	return LAUNCH_LATER;
}

void kills_poke(struct launchd *d)
{
	struct kill_job *next;

	for (struct kill_job *j = d->kills; j; j = next) {
		next = j->next;
		kill_look(j);
	}
}

void kills_free(struct launchd *d)
{
	while (d->kills) {
		struct kill_job *j = d->kills;

		d->kills = j->next;
		loop_del(d->loop, &j->timer);
		free(j);
	}
}

int on_stat(struct launchd *d, struct msg *m, struct wire_rd *r, struct answer *a, struct err *e)
{
	char uuid[LAUNCH_UUID_LEN + 1], path[LAUNCH_UUID_LEN + 16];
	struct cgroup_stat cs;
	struct launch_stat s;
	int rc = read_uuid(r, uuid, e);

	(void)m;
	if (rc < 0)
		return rc;
	snprintf(path, sizeof(path), "%s/engine", uuid);
	rc = cgroup_stat(d->cgroups, path, &cs);
	if (rc < 0)
		return err_set(e, rc, "stat %s: %s", uuid, rc == -ENOENT ? "no engine runs" : strerror(-rc));
	s = (struct launch_stat){
		.tasks = cs.tasks,
		.memory_bytes = cs.memory_bytes,
		.memory_peak_bytes = cs.memory_peak_bytes,
		.cpu_usec = cs.cpu_usec,
		.oom_kills = cs.oom_kills,
		.io_read_bytes = cs.io_read_bytes,
		.io_write_bytes = cs.io_write_bytes,
	};
	return launch_stat_encode(&s, &a->payload);
}

struct listing {
	uint32_t n;
	struct buf uuids;
};

static int list_one(void *arg, const char *name)
{
	struct listing *l = arg;

	if (!launch_uuid_ok(name) || launch_uuid_is_ours(name))
		return 0; /* `daemon` of a delegated base; pager and store */
	l->n++;
	return wire_put_str(&l->uuids, name);
}

int on_list(struct launchd *d, struct msg *m, struct wire_rd *r, struct answer *a, struct err *e)
{
	struct listing l = { 0 };
	int rc;

	(void)m;
	if (wire_done(r) < 0)
		return err_set(e, -EBADMSG, "list: malformed");
	buf_init(&l.uuids, MSG_MAX - 512);
	rc = cgroup_list(d->cgroups, list_one, &l);
	if (rc == 0)
		rc = wire_put_u32(&a->payload, l.n);
	if (rc == 0)
		rc = buf_add(&a->payload, l.uuids.data, l.uuids.len);
	if (rc < 0)
		err_set(e, rc, "list: %s", rc == -EFBIG ? "more sandboxes than one message holds" : strerror(-rc));
	buf_fini(&l.uuids);
	return rc;
}
