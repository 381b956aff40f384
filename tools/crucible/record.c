/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/proto.h"
#include "base/json.h"
#include "tools/crucible/printable.h"

static int get_exit_code(struct json_object *o, int *ret, struct err *e)
{
	struct json_object *v;

	if (!json_object_object_get_ex(o, "exit_code", &v) || !json_object_is_type(v, json_type_int))
		return err_set(e, -EINVAL, "exit_code: not there, or no number");
	/* No process ends with anything else; json-c clips what does not fit into 32 bits. */
	*ret = json_object_get_int(v);
	if (*ret < -1 || *ret > 255)
		return err_set(e, -EINVAL, "exit_code: %d is not from -1 to 255", *ret);
	return 0;
}

int record_parse(const char *text, size_t len, struct record *ret, struct err *e)
{
	struct record rec = { .exit_code = -1 };
	AUTO_JSON *o = NULL;
	const char *signal = "", *error = "";
	int r = json_parse(text, len, &o, e);

	if (r == 0)
		r = get_exit_code(o, &rec.exit_code, e);
	if (r == 0)
		r = json_get_str(o, "signal", &signal, e);
	if (r == 0)
		r = json_get_str(o, "error", &error, e);
	if (r == 0)
		r = json_get_bool(o, "timed_out", &rec.timed_out, e);
	if (r == 0)
		r = json_get_bool(o, "oom_killed", &rec.oom_killed, e);
	if (r == 0)
		r = json_get_bool(o, "cancelled", &rec.cancelled, e);
	if (r == 0)
		r = json_get_bool(o, "stdout_truncated", &rec.stdout_truncated, e);
	if (r == 0)
		r = json_get_bool(o, "stderr_truncated", &rec.stderr_truncated, e);
	if (r < 0) {
		err_wrap(e, "result.json");
		return r;
	}
	snprintf(rec.signal, sizeof(rec.signal), "%s", signal);
	snprintf(rec.error, sizeof(rec.error), "%s", error);
	printable_line(rec.signal);
	printable_line(rec.error);
	rec.text = strdup(json_line(o));
	if (!rec.text)
		return err_set(e, -ENOMEM, "result.json: no memory");
	*ret = rec;
	return 0;
}

void record_fini(struct record *r)
{
	free(r->text);
	r->text = NULL;
}

int record_exit_code(const struct record *r, const char **ret_words)
{
	int signo = r->signal[0] ? ag_signal_number(r->signal) : 0;

	*ret_words = r->error;
	if (r->timed_out) {
		if (!r->error[0])
			*ret_words = "the command was killed: its time was up (--timeout)";
		return EXIT_TIMED_OUT;
	}
	if (r->oom_killed && !r->error[0])
		*ret_words = "the command, or a child of it, was killed: out of memory in the sandbox (--memory)";
	if (r->exit_code >= 0) {
		/* An error beside a code: the code is the guest's, the word is ours. */
		return r->exit_code;
	}
	if (signo > 0 && signo < 128)
		return EXIT_SIGNAL + signo;
	if (r->cancelled && !r->error[0])
		*ret_words = "the command was cancelled before it ran";
	else if (!r->error[0])
		*ret_words = "the command ended without an exit code";
	return EXIT_CRUCIBLE;
}
