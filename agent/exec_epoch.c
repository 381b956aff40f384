/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that outlive their epoch: detached when the host's end of the wire begins anew, inherited when this guest is
 * a fork. In between, while all of them are frozen and the HELLO is not whole, they are suspended: nothing can be sent
 * for them (the connection is quiet), and nothing is decided. */
#include <string.h>

#include "agent/exec_priv.h"
#include "base/json.h"

void execs_suspend(struct execs *set)
{
	set->json_stream = 0;
	buf_reset(&set->json);
	memset(set->gone, 0, sizeof(set->gone));
	for (struct exec *x = set->list; x; x = x->next)
		x->in.stream = 0; /* no credit of the older epoch in the next one */
}

static void exec_detach(struct exec *x)
{
	x->stream = x->in.stream = 0;
	output_drain(&x->out[0]);
	output_drain(&x->out[1]);
	if (x->state == EXEC_SCRIPT || x->state == EXEC_ENDING)
		exec_linger(x); /* it never begins; or the rest of its output has nowhere to go */
}

void execs_detach(struct execs *set)
{
	execs_suspend(set);
	for (struct exec *x = set->list, *next; x; x = next) {
		next = x->next;
		exec_detach(x);
	}
}

/* A process was made, and its EXIT has not been sent. */
static bool runs_on(const struct exec *x)
{
	return x->stream && (x->state == EXEC_STARTING || x->state == EXEC_RUNNING || x->state == EXEC_ENDING);
}

void execs_inherit(struct execs *set)
{
	execs_suspend(set);
	for (struct exec *x = set->list, *next; x; x = next) {
		next = x->next;
		if (!runs_on(x)) {
			exec_detach(x);
			continue;
		}
		x->inherited = true;
		input_end(&x->in);
		output_renew(&x->out[0]);
		output_renew(&x->out[1]);
	}
}

struct json_object *execs_inherited(const struct execs *set, bool names)
{
	struct json_object *list = json_object_new_array();

	for (const struct exec *x = set->list; list && x; x = x->next) {
		struct json_object *o;

		if (!x->inherited || !runs_on(x))
			continue;
		o = json_object_new_object();
		json_object_object_add(o, "stream", json_object_new_int64(x->stream));
		json_object_object_add(o, "pid", json_object_new_int(x->first_pid));
		if (names && x->req.name)
			json_object_object_add(o, "name", json_text(x->req.name, strlen(x->req.name)));
		json_object_array_add(list, o);
	}
	return list;
}
