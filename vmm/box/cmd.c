/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * The text of a command is looked at when its turn has come, not before: what waits costs a few hundred bytes however
 * long it is. It is parsed as a whole, given to the agent, and freed; a script or an input of more than 64 KiB goes to
 * (or stays in) a file and is read from there as the guest takes it. What the record needs of it, its argv, is kept
 * only while it is short.
 *
 * The files of its output and of its record are made when the agent has been told, not before: that takes a while on
 * some disks, and the guest works meanwhile. Nothing of what it answers can be looked at until we are back in the loop.
 */
#include "vmm/box/cmd.h"

#include <assert.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "vmm/box/record.h"

#define ARGV_KEEP 4096 /* bytes of a command line that are kept in memory for its record */
#define MIB	  (1024u * 1024)

struct env_text *env_text_ref(struct env_text *t)
{
	if (t)
		t->refs++;
	return t;
}

struct env_text *env_text_unref(struct env_text *t)
{
	if (t && --t->refs == 0)
		free(t);
	return NULL;
}

/* -- the environment --------------------------------------------------------------------------- */

static size_t key_len(const char *pair)
{
	return (size_t)(strchrnul(pair, '=') - pair);
}

static bool has_key(char *const *env, const char *pair)
{
	size_t n = key_len(pair);

	for (; env && *env; env++)
		if (key_len(*env) == n && memcmp(*env, pair, n) == 0)
			return true;
	return false;
}

/* The sandbox's lines that the request does not set itself, then the request's. The list is malloc'd; its members lie
 * in @lines, which is cut up for it, and in @request. A later line for the same name wins. */
static char **merge_env(char *lines, char *const *request)
{
	size_t n = 1, cap = 1;
	char **env, *line, *rest = lines;

	for (const char *p = lines; p && (p = strchr(p, '\n')); p++)
		cap++;
	for (char *const *p = request; p && *p; p++)
		cap++;
	env = calloc(cap + 1, sizeof(*env));
	if (!env)
		return NULL;
	n = 0;
	while ((line = strsep(&rest, "\n"))) {
		size_t at = 0;

		if (!strchr(line, '=') || *line == '=' || has_key(request, line))
			continue;
		while (at < n && !(key_len(env[at]) == key_len(line) && memcmp(env[at], line, key_len(line)) == 0))
			at++;
		env[at] = line;
		n += at == n;
	}
	for (char *const *p = request; p && *p; p++)
		env[n++] = *p;
	return env;
}

/* -- what the record shows as argv ------------------------------------------------------------- */

/* "#!interpreter argument" as the kernel splits it, else /bin/sh; then a place for the script's path. */
static int script_argv(struct cmd *c, const char *text, size_t len)
{
	size_t n = 0, line = strcspn(text, "\n") < len ? strcspn(text, "\n") : len;
	char *p;

	c->argv = calloc(4, sizeof(*c->argv));
	c->text = strndup(text, line < ARGV_KEEP ? line : ARGV_KEEP);
	if (!c->argv || !c->text)
		return -ENOMEM;
	p = c->text + 2;
	if (line < 2 || strncmp(c->text, "#!", 2) != 0 || !p[strspn(p, " \t")]) {
		c->argv[n++] = (char *)"/bin/sh";
	} else {
		p += strspn(p, " \t");
		c->argv[n++] = p;
		p += strcspn(p, " \t");
		if (*p) {
			*p++ = '\0';
			p += strspn(p, " \t");
			for (size_t end = strlen(p); end > 0 && (p[end - 1] == ' ' || p[end - 1] == '\t'); end--)
				p[end - 1] = '\0';
			if (*p)
				c->argv[n++] = p;
		}
	}
	c->argv[n] = (char *)"script"; /* until the agent has told where it lies */
	c->script = true;
	return 0;
}

static int plain_argv(struct cmd *c, char *const *argv)
{
	size_t n = 0, bytes = 0;
	char *p;

	assert(argv && argv[0]); /* box_request_parse() sees to it */
	for (; argv[n]; n++)
		bytes += strlen(argv[n]) + 1;
	if (bytes + n * sizeof(*argv) > ARGV_KEEP)
		return 0;
	c->argv = calloc(n + 1, sizeof(*c->argv));
	p = c->text = malloc(bytes + 1);
	if (!c->argv || !p)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		c->argv[i] = p;
		p = stpcpy(p, argv[i]) + 1;
	}
	return 0;
}

/* -- the beginning ----------------------------------------------------------------------------- */

static int read_request(const struct cmd *c, struct box_request *ret, size_t *ret_len, struct err *e)
{
	AUTO_FREE char *text = NULL;
	char path[40];
	int r;

	snprintf(path, sizeof(path), "exec/%" PRIu64 "/cmd", c->n);
	r = fd_slurp(queue_view(c->queue).dirfd, path, BOX_CMD_MAX, &text, ret_len);
	if (r < 0)
		return err_set(e, r, "the command's text could not be read: %s", err_name(r));
	return box_request_parse(text, *ret_len, ret, e);
}

/* The script: from the file that it came in when it is exactly that, else from memory. */
static int script_source(const struct cmd *c, struct box_request *req, size_t file_len, struct source *ret,
			 struct err *e)
{
	int dirfd = queue_view(c->queue).dirfd, r;
	char path[40];

	snprintf(path, sizeof(path), "exec/%" PRIu64 "/cmd", c->n);
	if (req->text_len == file_len && file_len > SOURCE_MEMORY_MAX) {
		r = source_open(ret, dirfd, path);
	} else {
		r = source_memory(ret, req->text, req->text_len, dirfd);
		req->text = NULL;
	}
	return r < 0 ? err_set(e, r, "the script could not be kept: %s", err_name(r)) : 0;
}

static int stdin_source(const struct cmd *c, struct box_request *req, struct guest_exec_req *out, struct err *e)
{
	int dirfd = queue_view(c->queue).dirfd, r;
	char path[40];

	out->live_stdin = c->flags & BOX_EXEC_LIVE_STDIN;
	if (out->live_stdin && !req->has_stdin)
		return 0;
	out->live_stdin = false;
	if (req->has_stdin) {
		r = source_memory(&out->in, req->stdin_text, req->stdin_len, dirfd);
		req->stdin_text = NULL;
	} else {
		snprintf(path, sizeof(path), "exec/%" PRIu64 "/stdin", c->n);
		r = source_open(&out->in, dirfd, path);
		if (r == -ENOENT)
			return 0;
	}
	out->has_stdin = r == 0;
	return r < 0 ? err_set(e, r, "the standard input could not be kept: %s", err_name(r)) : 0;
}

static uint64_t output_max(const struct cmd *c, const struct box_request *req)
{
	const struct box_config *config = queue_view(c->queue).config;
	uint32_t mib = req->output_mib ? req->output_mib : config->output_mib;

	return (uint64_t)mib * MIB;
}

/* With everything at hand: the agent, then the files. Takes the sources of @exec. */
static int give_to_guest(struct cmd *c, struct guest *g, struct box_request *req, struct guest_exec_req *exec,
			 struct err *e)
{
	AUTO_FREE char *lines = c->env ? strdup(c->env->text) : NULL;
	AUTO_FREE char **env = merge_env(lines, req->env);
	char name[32], words[160];
	int r;

	snprintf(name, sizeof(name), "exec-%" PRIu64, c->n);
	exec->argv = req->argv;
	exec->env = env;
	exec->cwd = req->cwd;
	exec->user = req->user;
	exec->name = name;
	exec->tty = req->tty;
	exec->rows = req->rows;
	exec->cols = req->cols;
	exec->timeout_ns = c->timeout_ns;
	if (!env || (c->env && !lines)) {
		source_fini(&exec->script); /* NOLINT(clang-analyzer-unix.Malloc): it does not know AUTO_FREE */
		source_fini(&exec->in);
		return err_set(e, -ENOMEM, "no memory for the environment");
	}
	r = guest_exec_new(g, exec, &queue_exec_ops, c, &c->exec, e);
	if (r < 0)
		return r;
	r = spool_open(queue_view(c->queue).spool, &c->out, output_max(c, req));
	if (r < 0) {
		snprintf(words, sizeof(words), "its output has no place: %s", err_name(r));
		cmd_error(c, words);
		guest_exec_kill(c->exec);
	}
	return 0;
}

/* What a request of @len bytes took while it was parsed goes back at once. */
static void trim(size_t len)
{
	if (len > SOURCE_MEMORY_MAX)
		malloc_trim(0);
}

/* What it asks for, else the sandbox's; a policy's most is above both. */
static uint64_t timeout_of(const struct cmd *c, const struct box_request *req)
{
	uint64_t most_ns = c->timeout_max_s * 1000000000ull;
	uint64_t ns = req->timeout_ns ? req->timeout_ns : queue_view(c->queue).config->exec_timeout_s * 1000000000ull;

	return most_ns && (!ns || ns > most_ns) ? most_ns : ns;
}

int cmd_begin(struct cmd *c, struct guest *g, struct err *e)
{
	struct box_request req = { 0 };
	struct guest_exec_req exec = { 0 };
	size_t len = 0;
	int r = read_request(c, &req, &len, e);

	c->unreadable = r < 0;
	if (r == 0) {
		c->timeout_ns = timeout_of(c, &req);
		r = req.script ? script_argv(c, req.text, req.text_len) : plain_argv(c, req.argv);
		if (r < 0)
			err_set(e, r, "no memory");
	}
	if (r == 0 && req.script)
		r = script_source(c, &req, len, &exec.script, e);
	if (r == 0)
		r = stdin_source(c, &req, &exec, e);
	c->out.other = len + exec.in.len;
	if (r == 0)
		r = give_to_guest(c, g, &req, &exec, e);
	else
		source_fini(&exec.script);
	box_request_fini(&req);
	trim(len);
	return r;
}

/* -- the end
 * ----------------------------------------------------------------------------------------------------------- */

void cmd_error(struct cmd *c, const char *words)
{
	if (!*c->error)
		snprintf(c->error, sizeof(c->error), "%s", words);
}

/* The agent's account of the end, put together with what the host knows. A guest may lie about its own command, but not
 * about our deadline, and nothing that went wrong here looks like an exit code. */
static void fill_end(const struct cmd *c, uint64_t duration_ns, struct box_record *r)
{
	const struct guest_exit *x = &c->exit;
	bool killed = strcmp(x->signal, "SIGKILL") == 0;

	r->exit_code = -1;
	r->error = c->error;
	r->duration_ns = duration_ns;
	if (c->state == CMD_EXITED) {
		r->exit_code = *c->error ? -1 : x->exit_code;
		r->signal = x->signal;
		r->oom_killed = x->oom_killed;
		r->error = *c->error ? c->error : x->error;
		r->usage_json = *x->usage.json ? x->usage.json : NULL;
		if (x->duration_ns < duration_ns)
			r->duration_ns = x->duration_ns;
	}
	r->timed_out = x->timed_out || (c->kill_timeout && (killed || c->state != CMD_EXITED));
	r->cancelled = c->kill_cancel && (*x->signal || c->state != CMD_EXITED);
	if (r->timed_out)
		r->exit_code = -1;
}

/* Into the file that waits for it, or, if there is none, one made now. */
static int try_record(struct cmd *c, const struct box_record *r, struct err *e)
{
	struct queue_view q = queue_view(c->queue);
	struct buf text;
	int code;

	if (c->out.record_fd < 0)
		return box_record_write(q.dirfd, r, e);
	buf_init(&text, BOX_RECORD_MAX);
	code = box_record_format(q.dirfd, r, &text, e);
	if (code == 0) {
		code = spool_record(q.spool, &c->out, text.data, text.len);
		if (code < 0)
			err_set(e, code, "its record could not be written: %s", err_name(code));
	}
	buf_fini(&text);
	return code;
}

static void write_record(struct cmd *c, struct box_record *r)
{
	struct err e = { 0 };

	if (try_record(c, r, &e) == 0)
		return;
	/* No room even for the record: the output makes room for it. */
	cmd_error(c, e.msg);
	r->error = c->error;
	r->exit_code = -1;
	spool_cut(queue_view(c->queue).spool, &c->out);
	r->stdout_truncated = c->out.files[SPOOL_STDOUT].truncated;
	r->stderr_truncated = c->out.files[SPOOL_STDERR].truncated;
	try_record(c, r, NULL); /* if it fails again the daemon hears of it all the same: BOX_DONE says how it ended */
}

void cmd_record(struct cmd *c, uint64_t duration_ns, struct box_done *ret)
{
	struct queue_view q = queue_view(c->queue);
	uint64_t now = c->started_wall_ns ? c->started_wall_ns : wall_ns();
	struct box_request again = { 0 };
	struct box_record r = {
		.n = c->n,
		.sandbox = q.config->name,
		.argv = c->argv,
		.signal = "",
		.started_wall_ns = c->started_wall_ns,
		.queued_ns = now > c->accepted_wall_ns ? now - c->accepted_wall_ns : 0,
		.stdout_bytes = c->out.files[SPOOL_STDOUT].bytes,
		.stderr_bytes = c->out.files[SPOOL_STDERR].bytes,
		.stdout_truncated = c->out.files[SPOOL_STDOUT].truncated,
		.stderr_truncated = c->out.files[SPOOL_STDERR].truncated,
		.engine = q.config->engine,
		.accel = q.config->accel,
		.network = q.config->network,
		.unenforced = q.unenforced,
	};
	size_t len = 0;

	if (c->exec && guest_exec_input_failed(c->exec))
		cmd_error(c, "its input could not be read from the host's disk: it saw an early end");
	fill_end(c, duration_ns, &r);
	if (!r.argv && !c->unreadable && read_request(c, &again, &len, NULL) == 0)
		r.argv = again.argv; /* NULL again for a script that never began */
	write_record(c, &r);
	box_request_fini(&again);
	trim(len);
	spool_finish(q.spool, &c->out);
	*ret = (struct box_done){
		.n = c->n,
		.exit_code = r.exit_code,
		.signal = r.signal,
		.error = r.error,
		.duration_ms = r.duration_ns / 1000000,
		.spool_bytes = spool_bytes(q.spool),
	};
}

struct cmd *cmd_free(struct cmd *c)
{
	if (!c)
		return NULL;
	guest_exec_free(c->exec);
	spool_close(&c->out);
	buf_fini(&c->early);
	env_text_unref(c->env);
	free(c->argv);
	free(c->text);
	free(c);
	return NULL;
}
