/* SPDX-License-Identifier: Apache-2.0 */
/* identity_clone() without an agent, in a UTS namespace: what the kernel alone can do (entropy, host name, clock). */
#include "test_agent_harness.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/identity.h"
#include "base/fd.h"
#include "base/loop.h"

#define NEW_ID "fedcba9876543210fedcba9876543210"

static const char *at(const char *root, const char *name)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	return path;
}

struct box {
	char root[64];
	struct guest g;
	struct hello h;
	struct unenforced u;
};

static int box_setup(void **state)
{
	struct box *b = calloc(1, sizeof(*b));

	assert_non_null(b);
	snprintf(b->root, sizeof(b->root), "/tmp/agent-clone-XXXXXX");
	assert_non_null(mkdtemp(b->root));
	assert_int_equal(mkdir(at(b->root, "etc"), 0755), 0);
	b->g = (struct guest){ .root_fd = open(b->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
			       .random_fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC),
			       .disk_fd = -1 };
	b->g.scripts_fd = open(b->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	b->h = (struct hello){ .clone = true, .wall_ns = wall_ns(), .entropy_len = ENTROPY_BYTES };
	strcpy(b->h.hostname, "forked");
	strcpy(b->h.fork, CLONE_FORK);
	strcpy(b->h.machine_id, NEW_ID);
	*state = b;
	return 0;
}

static int box_teardown(void **state)
{
	static const char *const files[] = { "etc/machine-id", "fork", "etc", "" };
	struct box *b = *state;
	int r = 0;

	close(b->g.root_fd);
	fd_close(&b->g.scripts_fd);
	fd_close(&b->g.random_fd);
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		r = remove(at(b->root, files[i]));
	free(b);
	return r;
}

/* In a child with a host name of its own. Returns the errno of identity_clone(). */
static int clone_alone(struct box *b, bool want_name)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		char name[65] = "";
		struct err e = { 0 };
		int r;

		if (unshare(CLONE_NEWUTS) < 0)
			_exit(200);
		b->h.wall_ns = wall_ns(); /* as near as not to be set */
		r = identity_clone(&b->g, &b->h, &b->u, &e);
		if (r < 0)
			fprintf(stderr, "%s\n", e.msg);
		gethostname(name, sizeof(name) - 1);
		_exit(r < 0 ? -r : want_name && strcmp(name, b->h.hostname) != 0 ? 201 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 200)
		skip_because("no UTS namespace can be made");
	return WEXITSTATUS(status);
}

static void entropy_and_host_name_are_set(void **state)
{
	AUTO_FREE char *text = NULL;
	struct box *b = *state;

	if (geteuid() != 0)
		skip_because("only root can credit entropy");
	assert_int_equal(clone_alone(b, true), 0);
	assert_int_equal(fd_slurp(AT_FDCWD, at(b->root, "etc/machine-id"), 4096, &text, NULL), 0);
	assert_string_equal(text, NEW_ID "\n");
	assert_int_equal(access(at(b->root, "fork"), F_OK), 0);
}

/* Entropy comes first: without it nothing else is touched. */
static void no_generator_ENOENT(void **state)
{
	struct box *b = *state;

	fd_close(&b->g.random_fd);
	assert_int_equal(clone_alone(b, false), ENOENT);
	assert_int_equal(access(at(b->root, "etc/machine-id"), F_OK), -1);
	b->g.random_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(clone_alone(b, false), ENOTTY);
	assert_int_equal(access(at(b->root, "etc/machine-id"), F_OK), -1);
}

static void no_place_for_the_marker_ENOENT(void **state)
{
	struct box *b = *state;

	if (geteuid() != 0)
		skip_because("only root can credit entropy");
	fd_close(&b->g.scripts_fd);
	assert_int_equal(clone_alone(b, false), ENOENT);
}

#define ALONE(t) cmocka_unit_test_setup_teardown(t, box_setup, box_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(entropy_and_host_name_are_set),
		ALONE(no_generator_ENOENT),
		ALONE(no_place_for_the_marker_ENOENT),
	};

	return tests_end(cmocka_run_group_tests(tests, NULL, NULL));
}
