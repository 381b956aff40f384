/* SPDX-License-Identifier: Apache-2.0 */
/* The outcome of a trial as a file. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/fd.h"
#include "base/json.h"
#include "vmm/trial.h"

void trial_key_make(const struct engine_info *info, const char *bootid, struct trial_key *ret)
{
	AUTO_FREE char *id = NULL;
	struct utsname u;

	*ret = (struct trial_key){ 0 };
	/* A host without /proc has an empty id: the outcome is then kept until something else changes. */
	if (fd_slurp(-1, "/proc/sys/kernel/random/boot_id", 256, &id, NULL) == 0)
		snprintf(ret->host_boot_id, sizeof(ret->host_boot_id), "%.*s", (int)strcspn(id, "\n"), id);
	if (uname(&u) == 0)
		snprintf(ret->host_kernel, sizeof(ret->host_kernel), "%.62s %.62s", u.release, u.version);
	snprintf(ret->engine, sizeof(ret->engine), "%s %s", info->name, info->version);
	snprintf(ret->bootid, sizeof(ret->bootid), "%s", bootid);
}

/* The members by table: they are written and compared alike. */
static const struct {
	const char *key;
	size_t offset;
} members[] = {
	{ "host_boot_id", offsetof(struct trial_key, host_boot_id) },
	{ "host_kernel", offsetof(struct trial_key, host_kernel) },
	{ "engine", offsetof(struct trial_key, engine) },
	{ "bootid", offsetof(struct trial_key, bootid) },
};

static int put_text(struct json_object *o, const char *key, const char *text)
{
	struct json_object *v = json_text(text, strlen(text));

	if (v && json_object_object_add(o, key, v) == 0)
		return 0;
	json_object_put(v);
	return -ENOMEM;
}

int trial_outcome_format(const struct trial_key *k, const struct trial_outcome *outcome, struct buf *out)
{
	AUTO_JSON *o = json_object_new_object();
	const char *line;
	int r = o ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(members); i++)
		r = put_text(o, members[i].key, (const char *)k + members[i].offset);
	if (r == 0)
		r = put_text(o, "accel", engine_accel_name(outcome->accel));
	if (r == 0)
		r = put_text(o, "reason", outcome->reason);
	line = r == 0 ? json_line(o) : NULL;
	if (!line)
		return -ENOMEM;
	r = buf_adds(out, line);
	return r == 0 ? buf_adds(out, "\n") : r;
}

int trial_outcome_parse(const void *json, size_t len, const struct trial_key *k, struct trial_outcome *ret)
{
	AUTO_JSON *o = NULL;
	const char *accel = NULL, *reason = NULL;

	if (json_parse(json, len, &o, NULL) < 0 || !json_object_is_type(o, json_type_object))
		return -EINVAL;
	for (size_t i = 0; i < ARRAY_LEN(members); i++) {
		const char *text = NULL;

		if (json_get_str(o, members[i].key, &text, NULL) < 0 || !text)
			return -EINVAL;
		if (strcmp(text, (const char *)k + members[i].offset) != 0)
			return -ESTALE;
	}
	if (json_get_str(o, "accel", &accel, NULL) < 0 || json_get_str(o, "reason", &reason, NULL) < 0 || !accel ||
	    !reason)
		return -EINVAL;
	for (int a = 0; a < ACCEL_COUNT; a++)
		if (strcmp(accel, engine_accel_name((enum engine_accel)a)) == 0) {
			ret->accel = (enum engine_accel)a;
			snprintf(ret->reason, sizeof(ret->reason), "%s", reason);
			return 0;
		}
	return -EINVAL;
}
