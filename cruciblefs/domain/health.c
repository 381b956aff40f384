/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon says of itself: health.json, metrics, policy.json. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/fd.h"
#include "base/json.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "cruciblefs/domain/view_priv.h"

static bool count_profile(void *arg, const char *name, uint64_t changed_ns)
{
	(void)changed_ns;
	json_object_array_add(arg, json_object_new_string(name));
	return true;
}

/* The pager and the store: away, or served in a slower way than they could be. */
static void add_peers(struct registry *r, struct json_object *degraded)
{
	const char *words = registry_peers_words(r);

	if (words[0])
		json_object_array_add(degraded, json_text(words, strlen(words)));
	else if (!registry_peers_are_up(r))
		json_object_array_add(degraded, json_object_new_string("pager or store: away, being started; machines "
								       "that need a page wait"));
	if (netd_failed(r)[0])
		json_object_array_add(degraded, json_text(netd_failed(r), strlen(netd_failed(r))));
	if (r->netd_words[0])
		json_object_array_add(degraded, json_text(r->netd_words, strlen(r->netd_words)));
	if (r->pager_degraded[0])
		json_object_array_add(degraded, json_text(r->pager_degraded, strlen(r->pager_degraded)));
}

/* Does @who see that it exists: by its name in run/? */
static bool is_seen(const struct sandbox *s, const struct cfs_who *who)
{
	if (who->view)
		return s->owner.view == who->view;
	return !s->owner.view || !who->uid || who->uid == s->owner.uid;
}

static uint64_t least(uint64_t a, uint64_t b_or_0)
{
	return b_or_0 && b_or_0 < a ? b_or_0 : a;
}

/* How many sandboxes there are, and may be. */
static void add_counts(struct registry *r, const struct view *view, struct json_object *o)
{
	uint64_t n = view ? 0 : r->count, most = r->cfg->max_sandboxes;

	for (struct sandbox *s = view ? registry_next(r, view, NULL) : NULL; s; s = registry_next(r, view, s))
		n++;
	if (view && view->policy)
		most = least(most, policy_set_max(&(struct policy_set){ .of = { view->policy }, .n = 1 },
						  POLICY_MAX_SANDBOXES));
	json_object_object_add(o, "sandboxes", json_object_new_uint64(n));
	json_object_object_add(o, "max_sandboxes", json_object_new_uint64(most));
}

int registry_health_json(struct registry *r, const struct cfs_who *who, struct buf *out)
{
	AUTO_JSON *o = json_object_new_object();
	struct json_object *profiles = json_object_new_array(), *degraded = json_object_new_array(), *pool;
	uint64_t free_mib = 0;
	char since[32];
	bool ready;

	if (!o || !profiles || !degraded) {
		json_object_put(profiles);
		json_object_put(degraded);
		return -ENOMEM;
	}
	json_time(r->started_wall_ns, since);
	profile_list(r, count_profile, profiles);
	host_disk_free_mib(r->store_fd, &free_mib);
	if (!r->launcher)
		json_object_array_add(
			degraded,
			json_object_new_string("launcher: gone; no machine can start until the daemon is restarted"));
	if (!json_object_array_length(profiles))
		json_object_array_add(degraded,
				      json_object_new_string("profiles: none is built: crucible profile build base"));
	if (free_mib < r->cfg->disk_floor_mib)
		json_object_array_add(degraded, json_object_new_string("store: less free than disk_floor_mib"));
	add_peers(r, degraded);
	if (r->trial == TRIAL_DONE && r->accel == ACCEL_TCG)
		json_object_array_add(degraded,
				      json_object_new_string("accel: software emulation (tcg); see accel_reason"));
	ready = r->launcher && registry_peers_are_up(r) && json_object_array_length(profiles) &&
		free_mib >= r->cfg->disk_floor_mib;
	json_object_object_add(o, "ready", json_object_new_boolean(ready));
	json_object_object_add(o, "since", json_object_new_string(since));
	json_object_object_add(o, "version", json_object_new_string(CRUCIBLE_VERSION));
	json_object_object_add(o, "mount", json_object_new_string(r->cfg->mount));
	json_object_object_add(o, "store", json_object_new_string(r->cfg->store));
	json_object_object_add(o, "store_free_mib", json_object_new_uint64(free_mib));
	json_object_object_add(o, "engine", json_object_new_string(r->engine.name));
	json_object_object_add(o, "engine_version", json_object_new_string(r->engine.version));
	json_object_object_add(o, "accel",
			       json_object_new_string(r->trial == TRIAL_DONE ? engine_accel_name(r->accel) : "trying"));
	json_object_object_add(o, "accel_reason", json_object_new_string(r->accel_reason));
	json_object_object_add(o, "profiles", profiles);
	json_object_object_add(o, "degraded", degraded);
	add_counts(r, who->view, o);
	json_object_object_add(o, "host_memory_mib", json_object_new_uint64(r->host_memory_mib));
	json_object_object_add(o, "memory_floor_mib", json_object_new_int64(r->cfg->memory_floor_mib));
	json_object_object_add(o, "net", json_object_new_string(netd_state_word(r)));
	/* What others use last can be told from it. */
	pool = who->view ? NULL : json_object_new_object();
	if (pool) {
		json_object_object_add(pool, "size", json_object_new_int64(r->cfg->pool_size));
		json_object_object_add(pool, "ready", json_object_new_int64(pool_ready(r)));
		json_object_object_add(pool, "warm_size", json_object_new_int64(r->cfg->warm_size));
		json_object_object_add(pool, "warm_ready", json_object_new_int64(warm_count(r, WARM_PREPARED, true)));
		json_object_object_add(pool, "fork_ready", json_object_new_int64(warm_count(r, WARM_FORKED, true)));
		json_object_object_add(o, "pool", pool);
	}
	return json_add_line(o, out);
}

static int metric(struct buf *out, const char *name, const char *type, const char *help, uint64_t v)
{
	return buf_addf(out, "# HELP crucible_%s %s\n# TYPE crucible_%s %s\ncrucible_%s %" PRIu64 "\n", name, help,
			name, type, name, v);
}

static int pool_metrics(struct registry *r, struct buf *out)
{
	const struct warm_kind *prepared = &r->warm_kinds[WARM_PREPARED], *forked = &r->warm_kinds[WARM_FORKED];
	const struct {
		const char *kind;
		uint64_t ready, taken, missed;
	} kinds[] = {
		{ "generic", pool_ready(r), r->pool_taken, r->pool_missed },
		{ "warm", warm_count(r, WARM_PREPARED, true), prepared->taken, prepared->missed },
		{ "fork", warm_count(r, WARM_FORKED, true), forked->taken, forked->missed },
	};
	int k = buf_adds(out, "# HELP crucible_pool_machines Machines that wait for a sandbox.\n"
			      "# TYPE crucible_pool_machines gauge\n");

	for (size_t i = 0; !k && i < ARRAY_LEN(kinds); i++)
		k = buf_addf(out, "crucible_pool_machines{kind=\"%s\"} %" PRIu64 "\n", kinds[i].kind, kinds[i].ready);
	if (!k)
		k = buf_adds(out, "# HELP crucible_pool_starts_total Starts that found one waiting, or none.\n"
				  "# TYPE crucible_pool_starts_total counter\n");
	for (size_t i = 0; !k && i < ARRAY_LEN(kinds); i++)
		k = buf_addf(out,
			     "crucible_pool_starts_total{kind=\"%s\",found=\"yes\"} %" PRIu64
			     "\ncrucible_pool_starts_total{kind=\"%s\",found=\"no\"} %" PRIu64 "\n",
			     kinds[i].kind, kinds[i].taken, kinds[i].kind, kinds[i].missed);
	return k;
}

/* As netd counts since it was started. */
static int net_metrics(struct registry *r, struct buf *out)
{
	const struct netd_stat *n = &r->net_stat;
	const struct {
		const char *name, *type, *help, *label;
		uint64_t v;
	} rows[] = {
		{ "net_bytes_total", "counter", "Bytes from and to guests.", "{direction=\"out\"}", n->bytes_out },
		{ "net_bytes_total", NULL, NULL, "{direction=\"in\"}", n->bytes_in },
		{ "net_connections_total", "counter", "Connections.", "{verdict=\"opened\"}", n->opened },
		{ "net_connections_total", NULL, NULL, "{verdict=\"refused\"}", n->refused },
		{ "net_connections_total", NULL, NULL, "{verdict=\"failed\"}", n->failed },
		{ "net_questions_total", "counter", "DNS questions of guests.", "", n->questions },
		{ "net_questions_denied_total", "counter", "Of those, for names not allowed.", "", n->denied },
		{ "net_connections", "gauge", "Connections that are open.", "", n->open },
	};
	int k = 0;

	netd_stat_ask(r, NULL);
	for (size_t i = 0; !k && i < ARRAY_LEN(rows); i++) {
		if (rows[i].help)
			k = buf_addf(out, "# HELP crucible_%s %s\n# TYPE crucible_%s %s\n", rows[i].name, rows[i].help,
				     rows[i].name, rows[i].type);
		if (!k)
			k = buf_addf(out, "crucible_%s%s %" PRIu64 "\n", rows[i].name, rows[i].label, rows[i].v);
	}
	return k;
}

int registry_metrics(struct registry *r, const struct cfs_who *who, struct buf *out)
{
	uint64_t by_status[SBX_STATUS_COUNT] = { 0 }, running = 0, waiting = 0, spool = 0, free_mib = 0;
	int k;

	/* Others' sandboxes show their status to everybody, so their number is no secret; what is theirs alone is. */
	for (struct sandbox *s = r->first; s; s = s->next) {
		if (!is_seen(s, who))
			continue;
		by_status[sandbox_status(s)]++;
		if (who->uid && who->uid != s->owner.uid)
			continue;
		running += s->nrunning;
		waiting += s->nwaiting;
		spool += s->spool_bytes;
	}
	host_disk_free_mib(r->store_fd, &free_mib);
	k = buf_adds(out, "# HELP crucible_sandboxes Sandboxes by status.\n# TYPE crucible_sandboxes gauge\n");
	for (unsigned i = 0; !k && i < SBX_STATUS_COUNT; i++)
		k = buf_addf(out, "crucible_sandboxes{status=\"%s\"} %" PRIu64 "\n", sandbox_status_name(i),
			     by_status[i]);
	if (!k && (k = metric(out, "commands_running", "gauge", "Commands that run now (yours).", running)) == 0 &&
	    (k = metric(out, "commands_waiting", "gauge", "Commands in queues (yours).", waiting)) == 0 &&
	    (k = metric(out, "spool_bytes", "gauge", "Output kept on disk (yours).", spool)) == 0 &&
	    (k = metric(out, "store_free_mib", "gauge", "Free space of the store, in MiB.", free_mib)) == 0 &&
	    !who->uid && !who->view) {
		if ((k = metric(out, "sandboxes_created_total", "counter", "Sandboxes made since the start.",
				r->n_created)) == 0 &&
		    (k = metric(out, "sandboxes_destroyed_total", "counter", "Sandboxes removed since the start.",
				r->n_destroyed)) == 0 &&
		    (k = metric(out, "commands_total", "counter", "Commands accepted since the start.", r->n_execs)) ==
			    0)
			k = metric(out, "failed_starts_total", "counter", "Machines that did not come up.",
				   r->n_failed_starts);
		if (!k)
			k = pool_metrics(r, out);
		if (!k)
			k = net_metrics(r, out);
	}
	return k;
}

/* The names of what @who may do now: also who is root without a policy. */
static struct json_object *operations(struct registry *r, const struct cfs_who *who)
{
	struct json_object *ops = json_object_new_array();

	for (unsigned i = 0; ops && i < POLICY_OP_COUNT; i++) {
		enum policy_op op = 1u << i;

		if (registry_may(r, who, op, NULL) == 0)
			json_object_array_add(ops, json_object_new_string(policy_op_name(op)));
	}
	return ops;
}

int registry_policy_json(struct registry *r, const struct cfs_who *who, struct buf *out)
{
	AUTO_JSON *o = json_object_new_object();
	struct policy_set set;
	uint64_t snapshots;
	int k;

	if (!o)
		return -ENOMEM;
	registry_policies(r, who, &set);
	k = policy_set_json(&set, o);
	if (k < 0)
		return k;
	json_object_object_add(o, "operations", operations(r, who));
	/* The settings' limits hold beside the policies'. */
	json_object_object_add(
		o, "max_sandboxes",
		json_object_new_uint64(least(who->uid ? r->cfg->max_sandboxes_per_uid : r->cfg->max_sandboxes,
					     policy_set_max(&set, POLICY_MAX_SANDBOXES))));
	snapshots = policy_set_max(&set, POLICY_MAX_SNAPSHOTS);
	if (who->uid)
		snapshots = least(r->cfg->max_snapshots_per_uid, snapshots);
	if (snapshots)
		json_object_object_add(o, "max_snapshots", json_object_new_uint64(snapshots));
	return json_add_line(o, out);
}
