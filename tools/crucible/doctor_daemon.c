/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's part of `doctor`: what it says of itself, what its store holds, and whether a sandbox really runs. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "tools/crucible/doctor.h"
#include "tools/crucible/execute.h"
#include "tools/crucible/sbx.h"
#include "tools/crucible/table.h"
#include "tools/crucible/tree.h"

#define STORE_LEAST_MIB 512u

static const char *health_text(const struct doctor *d, const char *key)
{
	const char *text = NULL;

	if (d->health)
		json_get_str(d->health, key, &text, NULL);
	return text ? text : "";
}

void check_daemon(struct doctor *d, struct finding *f)
{
	if (d->mount.fd < 0 && d->view) {
		find(f, LEVEL_WARN, "%s", d->mount_err.msg);
		return;
	}
	if (d->mount.fd < 0) {
		find(f, LEVEL_INFO, "not running: %s", d->mount_err.msg);
		if (d->mount_err.code != -ENOTCONN) /* else it is said already, for this mount */
			mend(f, "as root: crucible daemon");
		return;
	}
	if (!d->health) {
		find(f, LEVEL_WARN, "%s: health.json cannot be read", d->mount.path);
		return;
	}
	find(f, LEVEL_OK, "%s at %s since %s", d->mount.version, d->mount.path, health_text(d, "since"));
	if (strcmp(health_text(d, "version"), CRUCIBLE_VERSION) != 0) {
		f->level = LEVEL_WARN;
		mend(f, "restart the daemon: this command is %s", CRUCIBLE_VERSION);
	}
}

void check_store(struct doctor *d, struct finding *f)
{
	char free_text[24];
	struct statvfs v;
	uint64_t bytes;

	if (!*d->store)
		return;
	if (statvfs(d->store, &v) < 0) {
		find(f, errno == ENOENT ? LEVEL_INFO : LEVEL_WARN, "%.180s: %s", d->store,
		     errno == ENOENT ? "not there yet; the daemon or the first profile makes it" : strerror(errno));
		return;
	}
	bytes = (uint64_t)v.f_bavail * v.f_frsize;
	find(f, bytes >> 20 < STORE_LEAST_MIB ? LEVEL_WARN : LEVEL_OK, "%.180s, %s free", d->store,
	     table_size(bytes, free_text));
	if (f->level == LEVEL_WARN)
		mend(f, "free some room there: nothing new is made below disk_floor_mib");
}

/* The outcome of the trial boot as the daemon left it in its store; "" when there is none. */
static void stored_trial(const struct doctor *d, char *accel, size_t accel_cap, char *reason, size_t reason_cap)
{
	AUTO_JSON *o = NULL;
	AUTO_FD dir = open(d->store, O_PATH | O_DIRECTORY | O_CLOEXEC);
	const char *text = "";

	*accel = *reason = '\0';
	if (dir < 0 || (tree_json(dir, "state/trial.json", &o, NULL) < 0 && tree_json(dir, "trial.json", &o, NULL) < 0))
		return;
	json_get_str(o, "accel", &text, NULL);
	snprintf(accel, accel_cap, "%s", text);
	text = "";
	json_get_str(o, "reason", &text, NULL);
	snprintf(reason, reason_cap, "%s", text);
}

void check_trial(struct doctor *d, struct finding *f)
{
	char accel[16], reason[200];

	snprintf(accel, sizeof(accel), "%s", health_text(d, "accel"));
	snprintf(reason, sizeof(reason), "%s", health_text(d, "accel_reason"));
	if (!*accel)
		stored_trial(d, accel, sizeof(accel), reason, sizeof(reason));
	if (!*accel && !*d->store)
		return;
	if (!*accel)
		find(f, LEVEL_INFO, "not tried yet: the daemon boots a guest with KVM once and remembers the outcome");
	else if (!strcmp(accel, "trying"))
		find(f, LEVEL_INFO, "the daemon is trying KVM with a real guest");
	else
		find(f, strcmp(accel, "kvm") == 0 ? LEVEL_OK : LEVEL_INFO, "%s%s%s", accel, *reason ? ": " : "",
		     reason);
}

#define NAMES_MAX 160

static int add_name(void *arg, int parent, const char *name)
{
	char path[SBX_ID_MAX + 16];

	if (strlen(name) > SBX_ID_MAX)
		return 0;
	snprintf(path, sizeof(path), "%s/info.json", name);
	if (faccessat(parent, path, R_OK, 0) == 0)
		list_word(arg, NAMES_MAX, name);
	return 0;
}

void check_profiles(struct doctor *d, struct finding *f)
{
	char names[NAMES_MAX] = "";
	AUTO_FD store = -1;

	if (d->mount.fd < 0 && !*d->store)
		return;
	if (d->mount.fd < 0)
		store = open(d->store, O_PATH | O_DIRECTORY | O_CLOEXEC);
	tree_list(d->mount.fd >= 0 ? d->mount.fd : store, "profiles", add_name, names);
	if (*names) {
		find(f, LEVEL_OK, "%s", names);
		return;
	}
	find(f, LEVEL_BAD, "none is built: there is nothing to start from");
	mend(f, "as root: crucible profile build base");
}

void check_degraded(struct doctor *d, struct finding *f)
{
	struct json_object *list = NULL;
	size_t n;

	if (!d->health || json_get_obj(d->health, "degraded", json_type_array, &list, NULL) < 0 || !list)
		return;
	n = json_object_array_length(list);
	if (n)
		find(f, LEVEL_INFO, "%s%s", json_object_get_string(json_object_array_get_idx(list, 0)),
		     n > 1 ? " (and more: health.json)" : "");
}

/* `tiny` boots fastest; any other does too. */
int run_true(int root, struct err *e)
{
	static const char *const argv[] = { "true", NULL };
	struct slot t = SLOT_NONE;
	struct sbx s = SBX_NONE;
	struct err ignored = { 0 };
	int signo = 0, r;

	r = sbx_make(root, NULL, "doctor-", true, &s, e);
	if (r < 0)
		return r;
	if (faccessat(root, "profiles/tiny", F_OK, 0) == 0)
		r = tree_set(s.dir, "from", "profile:tiny", e);
	if (r == 0)
		r = execute_captured(&s, argv, &t, &signo, e);
	slot_remove(&t);
	sbx_remove(&s, &ignored);
	sbx_close(&s);
	return r;
}

void check_deep(struct doctor *d, struct finding *f)
{
	uint64_t start_ns = now_ns();
	struct err e = { 0 };
	int r;

	if (d->mount.fd < 0) {
		/* Behind a view that has ended there may well be one. */
		if (!d->view)
			find(f, LEVEL_BAD, "no daemon: nothing could be booted");
		return;
	}
	r = run_true(d->mount.fd, &e);
	if (r < 0)
		find(f, LEVEL_BAD, "%s", e.msg);
	else
		find(f, LEVEL_OK, "booted one and ran `true` in it: %llu ms",
		     (unsigned long long)((now_ns() - start_ns) / 1000000u));
}
