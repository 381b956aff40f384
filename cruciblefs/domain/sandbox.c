/* SPDX-License-Identifier: Apache-2.0 */
/* One sandbox: its status in words, its last error, the verbs of `ctl`, and the records that describe it. */
#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "agent/proto.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "cruciblefs/domain/view_priv.h"
#include "cruciblefs/snapshot.h"

#define STOP_GRACE_MS 10000u

static const char *const status_words[] = {
	[SBX_CONFIGURED] = "configured", [SBX_STARTING] = "starting", [SBX_READY] = "ready",
	[SBX_RUNNING] = "running",	 [SBX_PAUSED] = "paused",     [SBX_STOPPED] = "stopped",
	[SBX_FAILED] = "failed",
};
_Static_assert(ARRAY_LEN(status_words) == SBX_STATUS_COUNT, "every status has its word");

const char *sandbox_status_name(enum sandbox_status s)
{
	return status_words[s];
}

bool sandbox_gone(const struct sandbox *s)
{
	return s->gone;
}

const char *sandbox_name(const struct sandbox *s)
{
	return s->name;
}

const char *sandbox_uuid(const struct sandbox *s)
{
	return s->uuid;
}

struct cfs_who sandbox_owner(const struct sandbox *s)
{
	return s->owner;
}

enum sandbox_status sandbox_status(const struct sandbox *s)
{
	return s->status == SBX_READY && s->nrunning ? SBX_RUNNING : s->status;
}

const char *sandbox_error(const struct sandbox *s)
{
	return s->error;
}

uint64_t sandbox_created_ns(const struct sandbox *s)
{
	return s->created_ns;
}

uint64_t sandbox_changed_ns(const struct sandbox *s)
{
	return s->changed_ns;
}

struct waitq *sandbox_waitq(struct sandbox *s)
{
	return &s->waitq;
}

int sandbox_dirfd(const struct sandbox *s)
{
	return s->dirfd;
}

void sandbox_changed(struct sandbox *s)
{
	s->changed_ns = wall_ns();
	waitq_wake(&s->waitq);
}

void sandbox_set_error(struct sandbox *s, const char *words)
{
	snprintf(s->error, sizeof(s->error), "%s", words);
	sandbox_changed(s);
}

void sandbox_set_status(struct sandbox *s, enum sandbox_status st)
{
	struct err e = { 0 };

	if (s->status == st)
		return;
	s->status = st;
	sandbox_changed(s);
	/* A full disk must not keep a machine from its state; the next change tries again. */
	if (!s->gone && sandbox_save(s, &e) < 0)
		log_warn("sandbox=%s uuid=%s event=not-saved error=\"%s\" next=continues", s->name, s->uuid, e.msg);
	journal_add(s->reg, s, NULL, status_words[st], NULL);
}

void sandbox_fail(struct sandbox *s, const struct cfs_who *who, const struct err *e)
{
	struct json_object *extra;
	const char *name;

	if (!e || !e->code)
		return;
	sandbox_set_error(s, e->msg);
	name = strerrorname_np(-e->code);
	extra = json_object_new_object();
	if (extra) {
		json_object_object_add(extra, "errno", json_object_new_string(name ? name : ""));
		json_object_object_add(extra, "error", json_text(e->msg, strlen(e->msg)));
	}
	journal_add(s->reg, s, who, "error", extra);
}

/* -- ctl ------------------------------------------------------------------------------------------------- */

const char sandbox_ctl_verbs[] = "start\nstop\nkill\nkill-inherited\nsignal NAME\npause\nresume\nextend SECONDS\n";

static void on_ctl_done(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct sandbox *s = arg;
	struct err e = { 0 };

	(void)r, (void)m;
	/* -ENOENT: the command ended on its own while the order was on its way. */
	if (code < 0 && code != -ENOENT && !s->gone) {
		err_set(&e, code, "sandbox %s: ctl: %s", s->name, words);
		sandbox_fail(s, NULL, &e);
	}
	sandbox_unref(s);
}

static int vm_verb(struct sandbox *s, enum box_vm verb, struct err *e)
{
	int r = boxlink_vm(s->link, verb, 0, on_ctl_done, sandbox_ref(s));

	if (r < 0) {
		sandbox_unref(s);
		return err_set(e, r, "sandbox %s: its box does not take orders: %s", s->name, strerror(-r));
	}
	return 0;
}

static int verb_start(struct sandbox *s, const char *arg, const struct cfs_who *who, struct err *e)
{
	(void)arg;
	if (s->status != SBX_CONFIGURED && s->status != SBX_STOPPED && s->status != SBX_FAILED)
		return err_set(e, -EBUSY, "sandbox %s: start: it is %s", s->name, status_words[sandbox_status(s)]);
	return sandbox_start(s, who, e);
}

static int verb_stop(struct sandbox *s, const char *arg, const struct cfs_who *who, struct err *e)
{
	(void)arg;
	(void)who;
	if (s->status == SBX_STOPPED)
		return 0;
	if (s->status == SBX_CONFIGURED || s->status == SBX_FAILED)
		return err_set(e, -EBUSY, "sandbox %s: stop: it is %s", s->name, status_words[s->status]);
	sandbox_stop(s, STOP_GRACE_MS);
	return 0;
}

static int verb_pause(struct sandbox *s, const char *arg, const struct cfs_who *who, struct err *e)
{
	(void)arg;
	(void)who;
	if (s->status == SBX_PAUSED)
		return 0;
	if (s->status != SBX_READY || !s->link)
		return err_set(e, -EBUSY, "sandbox %s: pause: it is %s", s->name, status_words[sandbox_status(s)]);
	return vm_verb(s, BOX_VM_PAUSE, e);
}

static int verb_resume(struct sandbox *s, const char *arg, const struct cfs_who *who, struct err *e)
{
	(void)arg;
	(void)who;
	if (s->status == SBX_READY)
		return 0;
	if (s->status != SBX_PAUSED || !s->link)
		return err_set(e, -EBUSY, "sandbox %s: resume: it is %s", s->name, status_words[sandbox_status(s)]);
	return vm_verb(s, BOX_VM_RESUME, e);
}

static int to_box(struct sandbox *s, enum box_verb verb, uint32_t a, const char *word, struct err *e)
{
	int r;

	if (!s->link)
		return err_set(e, -EBUSY, "sandbox %s: %s: the machine is %s", s->name, word, status_words[s->status]);
	r = boxlink_ctl(s->link, 0, verb, a, 0, on_ctl_done, sandbox_ref(s));
	if (r < 0) {
		sandbox_unref(s);
		return err_set(e, r, "sandbox %s: %s: %s", s->name, word, strerror(-r));
	}
	return 0;
}

static int to_running(struct sandbox *s, enum box_verb verb, uint32_t a, const char *word, struct err *e)
{
	if (!s->nrunning && !s->nwaiting)
		return err_set(e, -ENOENT, "sandbox %s: %s: no command runs", s->name, word);
	return to_box(s, verb, a, word, e);
}

static int verb_kill(struct sandbox *s, const char *arg, const struct cfs_who *who, struct err *e)
{
	(void)arg;
	(void)who;
	return to_running(s, BOX_KILL, 0, "kill", e);
}

static int verb_signal(struct sandbox *s, const char *arg, const struct cfs_who *who, struct err *e)
{
	int signo = ag_signal_number(arg);

	(void)who;
	if (signo < 0)
		return err_set(e, -EINVAL, "sandbox %s: signal: \"%.20s\" is no signal's name", s->name, arg);
	return to_running(s, BOX_SIGNAL, (uint32_t)signo, "signal", e);
}

static int verb_kill_inherited(struct sandbox *s, const char *arg, const struct cfs_who *who, struct err *e)
{
	(void)arg;
	(void)who;
	if (!sandbox_inherits(s))
		return err_set(e, -ENOENT, "sandbox %s: kill-inherited: it inherited no command", s->name);
	return to_box(s, BOX_KILL_INHERITED, 0, "kill-inherited", e);
}

static int verb_extend(struct sandbox *s, const char *arg, const struct cfs_who *who, struct err *e)
{
	struct buf b;
	char *end;
	unsigned long add;
	uint64_t sum;
	int r;

	errno = 0;
	add = strtoul(arg, &end, 10);
	if (!isdigit((unsigned char)arg[0]) || errno || *end || add > UINT32_MAX)
		return err_set(e, -EINVAL, "sandbox %s: extend: \"%.20s\" is not a number of seconds", s->name, arg);
	if (!sandbox_num(s, ATTR_TIMEOUT_S))
		return 0; /* lives for ever already */
	sum = (uint64_t)sandbox_num(s, ATTR_TIMEOUT_S) + add;
	buf_init(&b, 64);
	r = buf_addf(&b, "%" PRIu64, sum);
	if (!r)
		r = sandbox_attr_set(s, ATTR_TIMEOUT_S, buf_str(&b), b.len, who, e);
	buf_fini(&b);
	return r;
}

static const struct verb {
	const char *word;
	bool takes_arg;
	int (*fn)(struct sandbox *s, const char *arg, const struct cfs_who *who, struct err *e);
} verbs[] = {
	{ "start", false, verb_start },	  { "stop", false, verb_stop },
	{ "kill", false, verb_kill },	  { "kill-inherited", false, verb_kill_inherited },
	{ "signal", true, verb_signal },  { "pause", false, verb_pause },
	{ "resume", false, verb_resume }, { "extend", true, verb_extend },
};

int sandbox_ctl(struct sandbox *s, const char *line, const struct cfs_who *who, struct err *e)
{
	size_t n = strcspn(line, " \t");
	const char *arg = line + n + strspn(line + n, " \t");
	int r = sandbox_permits(s, who, POLICY_EXEC, "ctl", e);
	bool may = r == 0;

	if (may)
		r = err_set(e, -EINVAL, "sandbox %s: ctl: \"%.40s\" is no verb; reading ctl lists them", s->name, line);
	for (size_t i = 0; may && i < ARRAY_LEN(verbs); i++) {
		if (strlen(verbs[i].word) != n || strncmp(verbs[i].word, line, n))
			continue;
		if (verbs[i].takes_arg != (*arg != '\0')) {
			r = err_set(e, -EINVAL, "sandbox %s: ctl: %s takes %s", s->name, verbs[i].word,
				    verbs[i].takes_arg ? "an argument" : "no argument");
			break;
		}
		*e = (struct err){ 0 };
		r = verbs[i].fn(s, arg, who, e);
		break;
	}
	if (r < 0)
		sandbox_fail(s, who, e);
	return r;
}

/* -- records ------------------------------------------------------------------------------------------------ */

static void add_time(struct json_object *o, const char *key, uint64_t ns)
{
	char text[32];

	json_time(ns, text);
	json_object_object_add(o, key, json_object_new_string(ns ? text : ""));
}

static struct json_object *words_array(const char *comma_separated)
{
	struct json_object *a = json_object_new_array();

	for (const char *p = comma_separated; a && p && *p;) {
		size_t n = strcspn(p, ",");

		if (n)
			json_object_array_add(a, json_object_new_string_len(p, (int)n));
		p += n + (p[n] == ',');
	}
	return a;
}

/* What the agent told of commands that run on from the snapshot; NULL: none. Borrowed from @g. */
static struct json_object *inherited_of(struct json_object *g)
{
	struct json_object *a = NULL;

	json_get_obj(g, "inherited", json_type_array, &a, NULL);
	return a && json_object_array_length(a) ? a : NULL;
}

bool sandbox_inherits(struct sandbox *s)
{
	AUTO_JSON *g = NULL;
	struct err e;

	return s->guest && json_parse(s->guest, strlen(s->guest), &g, &e) == 0 && inherited_of(g);
}

uint64_t sandbox_inherited_next(struct sandbox *s, uint64_t after)
{
	AUTO_JSON *g = NULL;
	struct json_object *a = NULL;
	struct err e;
	uint64_t best = 0;

	if (s->guest && json_parse(s->guest, strlen(s->guest), &g, &e) == 0)
		a = inherited_of(g);
	for (size_t i = 0; a && i < json_object_array_length(a); i++) {
		uint64_t n = 0;

		json_get_u64(json_object_array_get_idx(a, i), "n", 1, UINT64_MAX, &n, NULL);
		if (n > after && (!best || n < best))
			best = n;
	}
	return best;
}

int sandbox_inherited_open(struct sandbox *s, uint64_t n, int *ret_fd)
{
	AUTO_FD dir = openat(s->boxfd, "inherited", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	AUTO_FD fd = -1;
	struct stat st;
	char name[40];

	snprintf(name, sizeof(name), "%" PRIu64 ".out", n);
	if (dir >= 0)
		fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno; /* it has printed nothing */
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return -EBADMSG;
	*ret_fd = take_fd(&fd);
	return 0;
}

static void add_guest(struct sandbox *s, struct json_object *o)
{
	AUTO_JSON *g = NULL;
	struct err e;
	const char *kernel = "", *agent = "";

	if (s->guest && json_parse(s->guest, strlen(s->guest), &g, &e) == 0) {
		json_get_str(g, "kernel", &kernel, NULL);
		json_get_str(g, "agent", &agent, NULL);
	}
	json_object_object_add(o, "kernel", json_text(kernel, strlen(kernel)));
	json_object_object_add(o, "agent", json_text(agent, strlen(agent)));
}

static void add_inherited(struct sandbox *s, struct json_object *o)
{
	AUTO_JSON *g = NULL;
	struct json_object *a = NULL;
	struct err e;

	if (s->guest && json_parse(s->guest, strlen(s->guest), &g, &e) == 0)
		a = inherited_of(g);
	json_object_object_add(o, "inherited", a ? json_object_get(a) : json_object_new_array());
}

/* The same in each sandbox that has a network. */
static struct json_object *addresses_of(const struct sandbox *s)
{
	struct json_object *a = json_object_new_array();

	if (a && s->link && s->net.guest_on) {
		json_object_array_add(a, json_object_new_string(NET_GUEST_ADDR));
		json_object_array_add(a, json_object_new_string(NET_GUEST_ADDR6));
	}
	return a;
}

struct json_object *lines_array(const char *text)
{
	struct json_object *a = json_object_new_array();

	for (size_t n; a && text && *text; text += n + (text[n] == '\n')) {
		n = strcspn(text, "\n");
		json_object_array_add(a, json_object_new_string_len(text, (int)n));
	}
	return a;
}

static void add_net(struct sandbox *s, struct json_object *o)
{
	struct buf b;

	buf_init(&b, NET_LIST_MAX);
	json_object_object_add(o, "net_allow", lines_array(s->attrs.net_allow));
	json_object_object_add(o, "ports", lines_array(net_ports_text(s, &b) == 0 ? buf_str(&b) : NULL));
	buf_fini(&b);
}

int sandbox_info_json(struct sandbox *s, struct buf *out)
{
	AUTO_JSON *o = json_object_new_object();
	struct json_object *iso = json_object_new_object(), *sizes = json_object_new_object(),
			   *guest = json_object_new_object();
	bool up = s->link != NULL;

	if (!o || !iso || !sizes || !guest) {
		json_object_put(iso);
		json_object_put(sizes);
		json_object_put(guest);
		return -ENOMEM;
	}
	json_object_object_add(o, "id", json_object_new_string(s->name));
	json_object_object_add(o, "uuid", json_object_new_string(s->uuid));
	json_object_object_add(o, "owner", json_object_new_int64(s->owner.uid));
	json_object_object_add(o, "status", json_object_new_string(status_words[sandbox_status(s)]));
	json_object_object_add(o, "from", json_object_new_string(s->attrs.from));
	json_object_object_add(o, "parent", json_object_new_string(s->parent));
	json_object_object_add(o, "parent_uuid", json_object_new_string(s->parent_uuid));
	json_object_object_add(o, "latest_snapshot", json_object_new_string(s->latest_snapshot));
	add_time(o, "created", s->created_ns);
	add_time(o, "started", s->started_ns);
	json_object_object_add(o, "engine", json_object_new_string(s->reg->engine.name));
	json_object_object_add(o, "engine_version", json_object_new_string(s->reg->engine.version));
	json_object_object_add(o, "accel", json_object_new_string(up ? engine_accel_name(s->accel) : ""));
	json_object_object_add(o, "accel_reason", json_object_new_string(s->reg->accel_reason));
	add_guest(s, guest);
	json_object_object_add(o, "guest", guest);
	/* The machine is of a class, the exact number is enforced in the guest: both are told. */
	json_object_object_add(sizes, "memory_mib", json_object_new_int64(sandbox_num(s, ATTR_MEMORY_MIB)));
	json_object_object_add(sizes, "machine_memory_mib",
			       json_object_new_int64(engine_memory_class(sandbox_num(s, ATTR_MEMORY_MIB))));
	json_object_object_add(sizes, "vcpus", json_object_new_int64(sandbox_num(s, ATTR_VCPUS)));
	json_object_object_add(sizes, "machine_vcpus",
			       json_object_new_int64(engine_vcpus_class(sandbox_num(s, ATTR_VCPUS))));
	json_object_object_add(sizes, "disk_mib", json_object_new_int64(sandbox_num(s, ATTR_DISK_MIB)));
	json_object_object_add(o, "sizes", sizes);
	json_object_object_add(o, "addresses", addresses_of(s));
	add_net(s, o);
	json_object_object_add(iso, "engine", json_object_new_string(s->reg->engine.name));
	json_object_object_add(iso, "network", json_object_new_string(net_word(s)));
	/* null while it has none: 0 would be root. */
	json_object_object_add(iso, "engine_uid", s->box_uid ? json_object_new_int64((int64_t)s->box_uid + 1) : NULL);
	json_object_object_add(iso, "box_uid", s->box_uid ? json_object_new_int64(s->box_uid) : NULL);
	json_object_object_add(o, "isolation", iso);
	json_object_object_add(o, "unenforced", words_array(s->unenforced));
	add_inherited(s, o);
	return json_add_line(o, out);
}

/* -- leases -------------------------------------------------------------------------------------------------- */

void sandbox_lease_open(struct sandbox *s)
{
	/* Kept in the store: a daemon that is killed takes every descriptor of the mount along, so its successor ends
	 * what was leased (lifecycle.c). */
	if (s->leases++ == 0)
		sandbox_save(s, NULL);
}

void sandbox_lease_close(struct sandbox *s)
{
	if (s->leases && --s->leases == 0 && !s->gone)
		registry_destroy(s->reg, s, &s->owner, "its lease was let go");
}

int sandbox_console_open(struct sandbox *s, int *ret_fd)
{
	int fd = openat(s->boxfd, "console.log", O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 && errno == ENOENT)
		return open_empty_for_box(s->boxfd, "console.log", ret_fd);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}
