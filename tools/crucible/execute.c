/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/execute.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/printable.h"
#include "tools/crucible/terminal.h"
#include "tools/crucible/tree.h"

#define ENDLESS_MS                                                                                                \
	(366ull * 86400 * 1000)	       /* the longest that the tree takes; the sandbox's own lifetime comes first \
					*/
#define OUTPUT_MIB_MAX	(1024u * 1024) /* the most that the tree takes; limits/spool_mib still counts */
#define QUIET_WORDS_MAX 200

static void say(const char *words)
{
	if (*words)
		fprintf(stderr, "crucible: %s\n", words);
}

static void say_truncated(const struct record *rec, const struct attach *a)
{
	if (a->out >= 0 && rec->stdout_truncated)
		say("standard output was longer than the sandbox keeps (limits/output_mib); the rest is lost");
	if (a->err >= 0 && rec->stderr_truncated)
		say("standard error was longer than the sandbox keeps (limits/output_mib); the rest is lost");
}

/* The record is there: what is left to say, and our exit code. */
static int conclude(struct cli *c, const struct record *rec, const struct attach *a)
{
	const char *words;
	int code = record_exit_code(rec, &words);

	if (c->answer) {
		struct json_object *o = NULL;
		int r = json_parse(rec->text, strlen(rec->text), &o, &c->err);

		if (r == 0)
			r = print_json(c, o);
		return r < 0 ? r : code;
	}
	if (c->json) {
		if (printf("%s\n", rec->text) < 0)
			return errno == EPIPE ? -EPIPE
					      : err_set(&c->err, -errno, "standard output: %s", strerror(errno));
		return code;
	}
	if (a->tty)
		fputs("\r", stderr); /* the guest's prompt may have left the cursor anywhere */
	say_truncated(rec, a);
	say(words);
	return code;
}

static int attach(struct cli *c, struct slot *t, const struct attach *a)
{
	struct record rec;
	int signo = 0, r;

	if (a->tty) {
		r = terminal_enter(&c->err);
		if (r < 0)
			return r;
	}
	r = attach_run(t, a, &rec, &signo, &c->err);
	if (a->tty)
		terminal_leave();
	if (r == -ECANCELED) {
		say("left by \"~.\"; the command was killed");
		r = EXIT_SIGNAL + SIGHUP;
	} else if (r == 0 && signo) {
		r = EXIT_SIGNAL + signo;
	} else if (r == 0) {
		r = conclude(c, &rec, a);
	}
	record_fini(&rec);
	return r;
}

int execute(struct cli *c, struct sbx *s, const struct execute *x)
{
	const struct args *args = &c->args;
	bool our_tty = x->tty && x->input && isatty(STDIN_FILENO);
	struct attach a = {
		.out = c->json ? -1 : STDOUT_FILENO,
		.err = c->json ? -1 : STDERR_FILENO,
		.in = x->input ? STDIN_FILENO : -1,
		.raw = x->tty,
		.tty = our_tty,
		.signals = x->signals,
	};
	struct request q = {
		.argv = x->argv,
		.script = x->script,
		.input = x->text,
		.env = &args->texts[OPT_ENV],
		.term = our_tty ? getenv("TERM") : NULL,
		.cwd = args->text[OPT_CWD],
		.user = args->text[OPT_USER],
		.timeout_ms = args->number[OPT_TIMEOUT],
		.tty = x->tty,
		.no_stdin = !x->input,
	};
	struct slot t;
	int r;

	if (!q.timeout_ms && x->endless)
		q.timeout_ms = ENDLESS_MS;
	terminal_size(&q.rows, &q.cols);
	r = slot_new(s, &t, &c->err);
	if (r < 0)
		return r;
	r = slot_send(&t, &q, &c->err);
	if (r == 0)
		r = attach(c, &t, &a);
	slot_remove(&t);
	return r;
}

int execute_captured(struct sbx *s, const char *const *argv, struct slot *ret, int *ret_signal, struct err *e)
{
	struct attach a = { .out = -1, .err = -1, .in = -1, .signals = ATTACH_KILL };
	struct request q = { .argv = argv, .timeout_ms = ENDLESS_MS, .no_stdin = true, .output_mib = OUTPUT_MIB_MAX };
	char said[QUIET_WORDS_MAX] = "";
	struct record rec = { 0 };
	const char *words;
	struct slot t;
	int code, r = slot_new(s, &t, e);

	if (r < 0)
		return r;
	r = slot_send(&t, &q, e);
	if (r == 0)
		r = attach_run(&t, &a, &rec, ret_signal, e);
	if (r == 0 && *ret_signal)
		r = err_set(e, -EINTR, "interrupted");
	if (r == 0) {
		code = record_exit_code(&rec, &words);
		if (!*words && tree_word(t.dir, "stderr", said, sizeof(said)) == 0)
			words = said;
		if (code != 0)
			r = err_set(e, -EIO, "in the guest: %s ended with %d%s%s", argv[0], code, *words ? ": " : "",
				    words);
		else if (rec.stdout_truncated)
			r = err_set(e, -EFBIG, "in the guest: the output of %s is longer than limits/spool_mib permits",
				    argv[0]);
	}
	record_fini(&rec);
	if (r < 0)
		slot_remove(&t);
	else
		*ret = t;
	return r;
}
