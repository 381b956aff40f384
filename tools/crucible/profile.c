/* SPDX-License-Identifier: Apache-2.0 */
/* crucible profile ls, crucible profile build. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/command.h"
#include "tools/crucible/follow.h"
#include "tools/crucible/libexec.h"
#include "tools/crucible/progress.h"
#include "tools/crucible/table.h"
#include "tools/crucible/tree.h"

#define STORE_DEFAULT "/var/lib/crucible"

/* -- ls ------------------------------------------------------------------------------------------------------ */

struct listing {
	struct table table;
	struct json_object *all; /* -o json, else NULL */
};

static int add_one(void *arg, int parent, const char *name)
{
	struct listing *l = arg;
	AUTO_JSON *info = NULL;
	AUTO_FD dir = openat(parent, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	const char *built = "", *text = "";
	uint64_t size_mib = 0;
	char size[24] = "";

	if (dir < 0 || tree_json(dir, "info.json", &info, NULL) < 0)
		return 0; /* being replaced while we looked */
	if (l->all)
		return json_object_array_add(l->all, json_object_get(info)) == 0 ? 0 : -ENOMEM;
	json_get_str(info, "built_at", &built, NULL);
	json_get_str(info, "description", &text, NULL);
	if (json_get_u64(info, "size_mib", 0, UINT32_MAX, &size_mib, NULL) == 0 && size_mib)
		table_size(size_mib << 20, size);
	return table_row(&l->table, (const char *[]){ name, size, built, text });
}

int cmd_profile_ls(struct cli *c)
{
	struct listing l = { .all = c->json ? json_object_new_array() : NULL };
	struct buf text;
	int r;

	if (c->json && !l.all)
		return err_set(&c->err, -ENOMEM, "no memory");
	buf_init(&text, 1024 * 1024);
	r = table_begin(&l.table, (const char *[]){ "NAME", "SIZE", "BUILT", "DESCRIPTION", NULL });
	if (r == 0)
		r = tree_list(c->mount.fd, "profiles", add_one, &l);
	if (r == 0 && !c->json)
		r = table_format(&l.table, &text);
	if (r < 0)
		err_set(&c->err, r, "profiles: %s", strerror(-r));
	else if (c->json)
		r = print_json(c, json_object_get(l.all));
	else
		fwrite(text.data, 1, text.len, stdout);
	json_object_put(l.all);
	table_end(&l.table);
	buf_fini(&text);
	return r;
}

/* -- build ------------------------------------------------------------------------------------------------------ */

/* --store, else what the running daemon uses, else the default. */
static int find_store(struct cli *c, char *out, size_t cap)
{
	struct mount m = { .fd = -1 };
	AUTO_JSON *health = NULL;
	const char *store = c->args.text[OPT_STORE];

	if (!store && mount_open(c->args.text[OPT_MOUNT], &m, NULL) == 0 &&
	    tree_json(m.fd, "health.json", &health, NULL) == 0)
		json_get_str(health, "store", &store, NULL);
	mount_close(&m);
	if (!store || !*store)
		store = STORE_DEFAULT;
	if ((size_t)snprintf(out, cap, "%s", store) >= cap)
		return err_set(&c->err, -ENAMETOOLONG, "--store: the path is too long");
	return 0;
}

static int show_line(void *arg, char *line, size_t len)
{
	if (len)
		progress_line(arg, line);
	return 0;
}

/* Start @path with its standard output in a pipe. */
static int start(const char *path, struct libexec_args *argv, pid_t *ret_pid, int *ret_fd, struct err *e)
{
	int pipe_fds[2];
	struct err why = { 0 };
	pid_t pid;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return err_set(e, -errno, "pipe: %s", strerror(errno));
	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		close(pipe_fds[0]);
		close(pipe_fds[1]);
		return err_set(e, -errno, "fork: %s", strerror(errno));
	}
	if (pid == 0) {
		if (dup2(pipe_fds[1], STDOUT_FILENO) >= 0)
			libexec_become(path, argv, &why);
		fprintf(stderr, "crucible: %s\n", why.msg);
		_exit(1);
	}
	close(pipe_fds[1]);
	*ret_fd = pipe_fds[0];
	*ret_pid = pid;
	return 0;
}

/* The builder says on standard error, in one line, why it failed; that is not repeated here. */
static int finish(struct cli *c, pid_t pid, const char *name)
{
	int status;

	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return err_set(&c->err, -errno, "waitpid: %s", strerror(errno));
	}
	if (WIFSIGNALED(status))
		return 128 + WTERMSIG(status);
	if (WEXITSTATUS(status) != 0)
		return WEXITSTATUS(status);
	if (c->json) {
		struct json_object *o = json_object_new_object();

		if (o)
			json_object_object_add(o, "profile", json_object_new_string(name));
		return print_json(c, o);
	}
	puts(name);
	return 0;
}

int cmd_profile_build(struct cli *c)
{
	const struct args *a = &c->args;
	struct libexec_args argv = { 0 };
	struct progress progress;
	char path[PATH_MAX], store[PATH_MAX], size[24];
	AUTO_FD out = -1;
	pid_t pid = -1;
	int r;

	/* The builder says so too, by its own name, which is in nobody's PATH. */
	if (geteuid() != 0)
		return err_set(&c->err, -EPERM, "only root can build a profile: sudo crucible profile build %s",
			       a->words[0]);
	r = libexec_find("crucible-profile", path, sizeof(path), &c->err);
	if (r == 0)
		r = find_store(c, store, sizeof(store));
	if (r < 0)
		return r;
	libexec_add_word(&argv, path);
	libexec_add_word(&argv, "build");
	libexec_add_word(&argv, a->words[0]);
	libexec_add(&argv, "--store", store);
	libexec_add(&argv, "--profiles", a->text[OPT_RECIPES]);
	if (a->given[OPT_IMAGE_SIZE]) {
		snprintf(size, sizeof(size), "%llu", (unsigned long long)a->number[OPT_IMAGE_SIZE]);
		libexec_add(&argv, "--size-mib", size);
	}
	if (a->given[OPT_REBUILD])
		libexec_add_word(&argv, "--force");
	if (a->given[OPT_VERBOSE])
		libexec_add_word(&argv, "--verbose");
	r = start(path, &argv, &pid, &out, &c->err);
	if (r < 0)
		return r;
	progress_begin(&progress);
	r = follow_lines(out, false, show_line, &progress);
	progress_end(&progress);
	fd_close(&out);
	if (r < 0)
		err_set(&c->err, r, "the builder's output: %s", strerror(-r));
	r = finish(c, pid, a->words[0]);
	return r;
}
