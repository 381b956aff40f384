/* SPDX-License-Identifier: Apache-2.0 */
/* crucible doctor: can this host run sandboxes, how well, and what mends it. Works without a daemon. */
#include "tools/crucible/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "tools/crucible/command.h"
#include "tools/crucible/printable.h"
#include "tools/crucible/tree.h"

#define STORE_DEFAULT "/var/lib/crucible"

static const struct check {
	const char *name;
	check_fn *run;
	bool deep; /* only with --deep */
} checks[] = {
	{ "kernel", check_kernel, false },     { "memory", check_memory, false },
	{ "kvm", check_kvm, false },	       { "fuse", check_fuse, false },
	{ "cgroups", check_cgroups, false },   { "userfaultfd", check_userfaultfd, false },
	{ "io_uring", check_io_uring, false }, { "tun", check_tun, false },
	{ "network", check_network, false },   { "qemu", check_qemu, false },
	{ "builder", check_builder, false },   { "programs", check_programs, false },
	{ "daemon", check_daemon, false },     { "store", check_store, false },
	{ "accelerator", check_trial, false }, { "profiles", check_profiles, false },
	{ "degraded", check_degraded, false }, { "sandbox", check_deep, true },
};

static const char *const level_names[] = { "ok", "info", "warn", "bad" };
_Static_assert(ARRAY_LEN(level_names) == LEVEL_COUNT, "every level has its word");

void find(struct finding *f, enum level level, const char *fmt, ...)
{
	va_list ap;

	f->level = level;
	va_start(ap, fmt);
	vsnprintf(f->text, sizeof(f->text), fmt, ap);
	va_end(ap);
	printable_line(f->text);
}

void mend(struct finding *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(f->mend, sizeof(f->mend), fmt, ap);
	va_end(ap);
	printable_line(f->mend);
}

void list_word(char *text, size_t cap, const char *word)
{
	size_t len = strlen(text);

	if (len + strlen(word) + 2 <= cap)
		snprintf(text + len, cap - len, "%s%s", len ? " " : "", word);
}

static void begin(struct doctor *d, struct cli *c)
{
	const char *store = c->args.text[OPT_STORE];
	struct bind view;

	*d = (struct doctor){ .mount.fd = -1, .deep = c->args.given[OPT_DEEP] };
	if (mount_open(c->args.text[OPT_MOUNT], &d->mount, &d->mount_err) == 0)
		tree_json(d->mount.fd, "health.json", &d->health, NULL);
	if (!store && d->health)
		json_get_str(d->health, "store", &store, NULL);
	d->view = d->mount_err.code == -ESTALE || mount_is_view(mount_path(c->args.text[OPT_MOUNT]), &view);
	/* The daemon of a view keeps its store to itself, and it need not be the default. */
	if (d->view && (!store || !*store))
		return;
	snprintf(d->store, sizeof(d->store), "%s", store && *store ? store : STORE_DEFAULT);
}

static void show(const struct check *k, const struct finding *f)
{
	printf("%-12s %-5s %s\n", k->name, level_names[f->level], f->text);
	if (*f->mend)
		printf("%-12s       -> %s\n", "", f->mend);
	fflush(stdout); /* the deep check takes seconds */
}

static struct json_object *as_json(const struct check *k, const struct finding *f)
{
	struct json_object *o = json_object_new_object();

	if (!o)
		return NULL;
	json_object_object_add(o, "check", json_object_new_string(k->name));
	json_object_object_add(o, "level", json_object_new_string(level_names[f->level]));
	json_object_object_add(o, "text", json_text(f->text, strlen(f->text)));
	json_object_object_add(o, "mend", json_text(f->mend, strlen(f->mend)));
	return o;
}

/* @unseen: nothing that was looked at is bad, but the daemon's part could not be looked at. */
static int conclude(struct cli *c, struct json_object *list, bool can_run, bool unseen)
{
	struct json_object *o;

	if (!c->json && unseen) {
		puts("\nWhether sandboxes can run cannot be seen through this view; name the daemon's own mount: "
		     "--mount DIR");
		return 1;
	}
	if (!c->json) {
		puts(can_run ? "\nThis host can run sandboxes."
			     : "\nThis host cannot run sandboxes yet: see the lines marked \"bad\".");
		return can_run ? 0 : 1;
	}
	o = json_object_new_object();
	if (o) {
		json_object_object_add(o, "can_run", unseen ? NULL : json_object_new_boolean(can_run));
		json_object_object_add(o, "checks", json_object_get(list));
	}
	return print_json(c, o) ?: unseen || !can_run;
}

int cmd_doctor(struct cli *c)
{
	AUTO_JSON *list = json_object_new_array();
	bool can_run = true;
	struct doctor d;
	int r;

	c->json = c->json || c->args.given[OPT_JSON];
	if (!list)
		return err_set(&c->err, -ENOMEM, "no memory");
	begin(&d, c);
	for (size_t i = 0; i < ARRAY_LEN(checks); i++) {
		struct finding f = { 0 };

		if (checks[i].deep && !d.deep)
			continue;
		checks[i].run(&d, &f);
		if (!*f.text)
			continue; /* nothing to say */
		can_run = can_run && f.level != LEVEL_BAD;
		if (c->json)
			json_object_array_add(list, as_json(&checks[i], &f));
		else
			show(&checks[i], &f);
	}
	r = conclude(c, list, can_run, can_run && d.mount.fd < 0 && !*d.store);
	json_object_put(d.health);
	mount_close(&d.mount);
	return r;
}
