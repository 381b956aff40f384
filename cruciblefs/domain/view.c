/* SPDX-License-Identifier: Apache-2.0 */
/* Views as objects: the table, the policy, the ttl, what they say of themselves. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "cruciblefs/domain/view_priv.h"

#define FAULTS_MAX (16u * 1024)		    /* what `error` holds of a wrong policy */
#define TTL_MAX_S  (3650ull * 24 * 60 * 60) /* ten years; who wants more wants "none" */
#define NS_PER_S   UINT64_C(1000000000)

static const char *const status_words[] = { [VIEW_NEW] = "new", [VIEW_ACTIVE] = "active", [VIEW_EXPIRED] = "expired" };

const char *view_status_name(enum view_status s)
{
	return status_words[s];
}

bool view_gone(const struct view *v)
{
	return v->gone;
}

/* The clock is asked, not only the timer: nothing gets through in the moment between. */
static bool is_over(const struct view *v)
{
	return v->expired || (v->expires_ns && wall_ns() >= v->expires_ns);
}

bool view_dead(const struct view *v)
{
	return v->gone || v->lost || !v->policy || is_over(v);
}

enum view_status view_status(const struct view *v)
{
	return !v->policy ? VIEW_NEW : is_over(v) ? VIEW_EXPIRED : VIEW_ACTIVE;
}

const char *view_name(const struct view *v)
{
	return v->name;
}

const char *view_uuid(const struct view *v)
{
	return v->uuid;
}

struct cfs_who view_owner(const struct view *v)
{
	return v->owner;
}

const char *view_error(const struct view *v)
{
	return v->error ? v->error : "";
}

uint64_t view_created_ns(const struct view *v)
{
	return v->created_ns;
}

uint64_t view_changed_ns(const struct view *v)
{
	return v->changed_ns;
}

struct waitq *view_waitq(struct view *v)
{
	return &v->waitq;
}

/* -- the table -------------------------------------------------------------------------------------------------------
 */

struct view *view_new(struct registry *r)
{
	struct view *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->reg = r;
	v->refs = 1;
	v->created_ns = v->changed_ns = wall_ns();
	waitq_init(&v->waitq, r->loop);
	return v;
}

struct view *view_ref(struct view *v)
{
	if (v)
		v->refs++;
	return v;
}

struct view *view_unref(struct view *v)
{
	if (!v || --v->refs)
		return NULL;
	waitq_fini(&v->waitq);
	policy_unref(v->policy);
	free(v->error);
	free(v);
	return NULL;
}

/* The last of what was made through it is gone; whoever else has a reference, as a file that the kernel remembers, does
 * not keep its files in the store. At the daemon's end it only was let go of. */
static void forget_when_over(struct view *v)
{
	if (!v->gone || v->listed || v->owned || v->forgotten || v->reg->freed)
		return;
	v->forgotten = true;
	view_forget(v);
}

void who_take(struct cfs_who *to, const struct cfs_who *who)
{
	*to = *who;
	if (view_ref(to->view))
		to->view->owned++;
}

void who_drop(struct cfs_who *who)
{
	if (!who->view)
		return;
	who->view->owned--;
	forget_when_over(who->view);
	who->view = view_unref(who->view);
}

void view_insert(struct registry *r, struct view *v)
{
	struct view *at = r->last_view;

	while (at && at->created_ns > v->created_ns)
		at = at->prev;
	v->prev = at;
	v->next = at ? at->next : r->first_view;
	*(v->next ? &v->next->prev : &r->last_view) = v;
	*(at ? &at->next : &r->first_view) = v;
	v->listed = true;
}

void view_take_out(struct view *v)
{
	struct registry *r = v->reg;

	if (!v->listed)
		return;
	*(v->prev ? &v->prev->next : &r->first_view) = v->next;
	*(v->next ? &v->next->prev : &r->last_view) = v->prev;
	v->prev = v->next = NULL;
	v->listed = false;
	forget_when_over(v);
	view_unref(v);
}

void views_free_all(struct registry *r)
{
	while (r->first_view)
		view_take_out(r->first_view);
}

static bool is_shown(const struct view *v)
{
	return !v->gone && !v->lost;
}

struct view *registry_find_view(struct registry *r, const char *name)
{
	for (struct view *v = r->first_view; v; v = v->next) {
		if (is_shown(v) && !strcmp(v->name, name))
			return v;
	}
	return NULL;
}

struct view *registry_next_view(struct registry *r, struct view *after)
{
	struct view *v = after ? after->next : r->first_view;

	while (v && !is_shown(v))
		v = v->next;
	return v;
}

struct view *view_by_uuid(struct registry *r, const char *uuid)
{
	for (struct view *v = r->first_view; v; v = v->next) {
		if (!strcmp(v->uuid, uuid))
			return v;
	}
	return NULL;
}

struct view *view_of_uuid(struct registry *r, const char *uuid, struct err *e)
{
	struct view *v = view_by_uuid(r, uuid);

	if (v)
		return v;
	v = view_new(r);
	if (!v) {
		err_set(e, -ENOMEM, "no memory");
		return NULL;
	}
	v->lost = true;
	snprintf(v->uuid, sizeof(v->uuid), "%s", uuid);
	view_insert(r, v);
	log_warn("view=%s event=not-there next=what-was-made-through-it-is-kept-and-shown-to-nobody", uuid);
	return v;
}

/* -- changes ---------------------------------------------------------------------------------------------------------
 */

void view_changed(struct view *v)
{
	v->changed_ns = wall_ns();
	waitq_wake(&v->waitq);
}

void view_tell(struct view *v, const struct cfs_who *who, const char *event)
{
	struct json_object *o = json_object_new_object();

	if (o) {
		json_object_object_add(o, "view", json_object_new_string(v->name));
		json_object_object_add(o, "view_uuid", json_object_new_string(v->uuid));
	}
	journal_add(v->reg, NULL, who, event, o);
}

int view_may_change(struct view *v, const struct cfs_who *who, const char *step, struct err *e)
{
	int k = 0;

	if (who->view)
		k = err_set(e, -EPERM, "views are changed from outside of them only");
	else if (who->uid && who->uid != v->owner.uid)
		k = err_set(e, -EPERM, "it is uid %u's; only its owner and root may", v->owner.uid);
	if (!k)
		k = permit_admin(v->reg, who, e);
	if (k < 0)
		err_wrap(e, "view %s: %s", v->name, step);
	return k;
}

/* Into `error`, in place of what was there. Without memory: nothing is there. */
static void set_error(struct view *v, const char *words)
{
	free(v->error);
	v->error = words[0] ? strdup(words) : NULL;
	view_changed(v);
}

static int failed(struct view *v, const struct err *e)
{
	set_error(v, e->msg);
	return e->code;
}

int registry_create_view(struct registry *r, const char *name, const struct cfs_who *who, struct view **ret,
			 struct err *e)
{
	struct view *v;
	size_t n = 0;
	int k = cfs_name_check(name);

	if (k < 0)
		return err_set(
			e, k,
			"views/%.64s: a name is a letter or digit, then up to 62 of letters, digits, '.', '_', '-'",
			name);
	k = who->view ? err_set(e, -EPERM, "there are no views in a view") : permit_admin(r, who, e);
	if (k < 0) {
		err_wrap(e, "views/%s", name);
		return k;
	}
	if (registry_find_view(r, name))
		return err_set(e, -EEXIST, "views/%s: exists", name);
	for (v = registry_next_view(r, NULL); v; v = registry_next_view(r, v))
		n++;
	if (n >= VIEWS_MAX)
		return err_set(e, -EDQUOT, "views/%s: %zu views exist, the most there may be; rmdir some", name, n);
	v = view_new(r);
	if (!v)
		return err_set(e, -ENOMEM, "views/%s: no memory", name);
	snprintf(v->name, sizeof(v->name), "%s", name);
	/* A view that could not be read: to write over it would be to lose all that was made through it. */
	if (view_has_file(v)) {
		view_unref(v);
		return err_set(e, -EEXIST,
			       "views/%s: the store's views/%s.json is there and could not be read: mend it or take it "
			       "away, then start the daemon again",
			       name, name);
	}
	v->owner = (struct cfs_who){ .uid = who->uid, .gid = who->gid };
	k = registry_make_uuid(v->uuid);
	k = k < 0 ? err_set(e, k, "views/%s: %s", name, strerror(-k)) : view_save(v, e);
	if (k < 0) {
		view_put_back(v);
		view_unref(v);
		return k;
	}
	view_insert(r, v);
	view_tell(v, who, "view_created");
	*ret = v;
	return 0;
}

int view_chown(struct view *v, uid_t uid, gid_t gid, const struct cfs_who *who, struct err *e)
{
	struct cfs_who old = v->owner;
	int k = who->uid ? err_set(e, -EPERM, "view %s: only root gives it to somebody", v->name)
			 : view_may_change(v, who, "its owner", e);

	if (k < 0)
		return k;
	v->owner = (struct cfs_who){ .uid = uid, .gid = gid };
	k = view_save(v, e);
	if (k < 0) {
		v->owner = old;
		view_put_back(v);
		return k;
	}
	view_changed(v);
	return 0;
}

/* -- the policy ------------------------------------------------------------------------------------------------------
 */

int view_policy_show(const struct view *v, struct buf *out)
{
	return v->policy ? policy_text(v->policy, out) : -ENOENT;
}

/* The faults are lines; `error` is one. */
static int refused(struct view *v, int code, struct buf *faults, struct err *e)
{
	const char *text = buf_str(faults);
	struct buf b;

	buf_init(&b, FAULTS_MAX + 512);
	buf_addf(&b, "view %s: policy: ", v->name);
	for (const char *p = text ? text : ""; *p;) {
		size_t n = strcspn(p, "\n");

		if (buf_add(&b, p, n) < 0)
			break;
		p += n + (p[n] == '\n');
		if (*p)
			buf_adds(&b, "; ");
	}
	if (!text || !*text)
		buf_adds(&b, strerror(-code));
	text = buf_str(&b);
	err_set(e, code, "%s", text ? text : strerror(-code)); /* what fits */
	set_error(v, text ? text : strerror(-code));
	buf_fini(&b);
	return code;
}

int view_policy_store(struct view *v, const char *text, size_t len, const struct cfs_who *who, struct err *e)
{
	struct net_cidr opened[CONFIG_NET_RANGES_MAX];
	struct net_reach reach = { .opened = opened };
	struct policy *next = NULL, *old = v->policy;
	struct buf faults;
	int k = view_may_change(v, who, "policy", e);

	if (k == 0)
		k = config_net_private(v->reg->cfg, opened, &reach.nopened, e);
	if (k < 0)
		return k; /* others' mistakes are not the view's error */
	buf_init(&faults, FAULTS_MAX);
	k = policy_parse(text, len, &reach, &next, &faults);
	if (k < 0)
		k = refused(v, k, &faults, e);
	buf_fini(&faults);
	if (k < 0)
		return k;
	v->policy = next;
	k = view_save(v, e);
	if (k < 0) {
		/* What the store does not hold must not act. */
		v->policy = old;
		policy_unref(next);
		view_put_back(v);
		return failed(v, e);
	}
	policy_unref(old);
	set_error(v, "");
	view_tell(v, who, "view_policy");
	return 0;
}

/* -- the ttl ---------------------------------------------------------------------------------------------------------
 */

int view_ttl_show(const struct view *v, struct buf *out)
{
	uint64_t now = wall_ns();

	if (!v->expires_ns)
		return buf_adds(out, "none\n");
	/* Up to the next second: 0 is said when it is over. */
	return buf_addf(out, "%" PRIu64 "\n",
			is_over(v) || now >= v->expires_ns ? 0 : (v->expires_ns - now + NS_PER_S - 1) / NS_PER_S);
}

/* Seconds; 0: none. */
static int parse_ttl(const char *text, uint64_t *ret, struct err *e)
{
	static const struct {
		char unit;
		uint64_t s;
	} units[] = { { '\0', 1 }, { 's', 1 }, { 'm', 60 }, { 'h', 3600 }, { 'd', 86400 } };
	char *end;
	unsigned long long n;

	if (!strcmp(text, "none")) {
		*ret = 0;
		return 0;
	}
	errno = 0;
	n = strtoull(text, &end, 10);
	for (size_t i = 0; isdigit((unsigned char)text[0]) && !errno && i < ARRAY_LEN(units); i++) {
		if (*end != units[i].unit || (*end && end[1]))
			continue;
		if (n < 1 || n > TTL_MAX_S / units[i].s)
			break;
		*ret = n * units[i].s;
		return 0;
	}
	return err_set(
		e, -EINVAL,
		"\"%.40s\" is neither \"none\" nor a whole number of seconds, or with m, h or d, from 1 s to 3650d",
		text);
}

int view_ttl_store(struct view *v, const char *text, size_t len, const struct cfs_who *who, struct err *e)
{
	uint64_t seconds = 0, old = v->expires_ns;
	bool was_expired = v->expired;
	AUTO_FREE char *copy = NULL;
	int k = view_may_change(v, who, "ttl", e);

	if (k < 0)
		return k;
	copy = strndup(text, len);
	if (!copy)
		return err_set(e, -ENOMEM, "view %s: ttl: no memory", v->name);
	k = parse_ttl(copy, &seconds, e);
	if (k < 0) {
		err_wrap(e, "view %s: ttl", v->name);
		return failed(v, e);
	}
	v->expires_ns = seconds ? wall_ns() + seconds * NS_PER_S : 0;
	v->expired = false;
	k = view_save(v, e);
	if (k < 0) {
		v->expires_ns = old;
		v->expired = was_expired;
		view_put_back(v);
		return failed(v, e);
	}
	set_error(v, "");
	view_tell(v, who, "view_ttl");
	views_arm(v->reg);
	return 0;
}

/* -- info.json -------------------------------------------------------------------------------------------------------
 */

static void add_time(struct json_object *o, const char *key, uint64_t ns)
{
	char text[32];

	json_time(ns, text);
	json_object_object_add(o, key, json_object_new_string(ns ? text : ""));
}

int view_info_json(struct view *v, struct buf *out)
{
	AUTO_JSON *o = json_object_new_object();
	uint64_t sandboxes = 0, snapshots = 0;

	if (!o)
		return -ENOMEM;
	for (struct sandbox *s = registry_next(v->reg, v, NULL); s; s = registry_next(v->reg, v, s))
		sandboxes++;
	for (struct snapshot *p = registry_next_snapshot(v->reg, v, NULL); p; p = registry_next_snapshot(v->reg, v, p))
		snapshots++;
	json_object_object_add(o, "id", json_object_new_string(v->name));
	json_object_object_add(o, "uuid", json_object_new_string(v->uuid));
	json_object_object_add(o, "status", json_object_new_string(view_status_name(view_status(v))));
	json_object_object_add(o, "owner", json_object_new_int64(v->owner.uid));
	json_object_object_add(o, "group", json_object_new_int64(v->owner.gid));
	add_time(o, "created", v->created_ns);
	add_time(o, "expires", v->expires_ns);
	json_object_object_add(o, "sandboxes", json_object_new_uint64(sandboxes));
	json_object_object_add(o, "snapshots", json_object_new_uint64(snapshots));
	json_object_object_add(o, "error", json_text(view_error(v), strlen(view_error(v))));
	return json_add_line(o, out);
}
