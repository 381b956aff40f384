/* SPDX-License-Identifier: Apache-2.0 */
/* PID 1 of a guest, or, for tests, the same agent on two sockets:
 *	crucible-agent --test-fds CONTROL,BULK --root DIR [--cgroup DIR]
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/boot.h"
#include "base/fd.h"

#define NOFILE 16384u /* 1024 commands and as many that left children behind */
#define NICE   (-15)

/* -- in a guest --------------------------------------------------------------------- */

static const struct stage {
	const char *name;
	int (*run)(struct agent *a, struct err *e);
} boot_stages[] = {
	/* Should: come first; everything else needs proc or dev. */
	{ "kernel file systems", boot_kernel_mounts },
	/* Should: load the ports' driver as early as can be. Mustn't: run after the root switch, the files are in the
	   initramfs. */
	{ "modules", boot_modules },
	/* Should: come before all that can fail on the image's side, so that the host hears of it. */
	{ "ports", boot_ports },
	{ "root disk", boot_root },
	/* Should: come after the root switch: these belong to the new root. */
	{ "run directories", boot_run_mounts },
	{ "loopback", boot_loopback },
};

static int run_stages(struct agent *a, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(boot_stages); i++) {
		if (i > 0) /* before the first there is nowhere to say it */
			agent_stage(a, boot_stages[i].name);
		if (boot_stages[i].run(a, e) < 0)
			return err_wrap(e, "%s", boot_stages[i].name);
	}
	agent_stage(a, AG_STAGE_HELLO);
	return 0;
}

/* Should: hold for the file server, which inherits it. Mustn't: be inherited by commands (child.c). */
static void take_agents_place(const struct guest *g)
{
	const struct rlimit nofile = { NOFILE, NOFILE };
	AUTO_FD fd = openat(g->proc_fd, "self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	/* Each is a comfort, none a condition. */
	if (fd >= 0 && write(fd, "-1000", 5) < 0)
		fd_close(&fd);
	setrlimit(RLIMIT_NOFILE, &nofile);
	setpriority(PRIO_PROCESS, 0, NICE);
	/* First in line, but no pushing in: woken by each small write of a command, the agent would take the processor
	 * away from it thousands of times a second, and every switch costs more than the write. */
	sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){ 0 });
}

/* -- both --------------------------------------------------------------------------- */

static void on_sigchld(void *arg, const struct signalfd_siginfo *si)
{
	(void)si;
	reap_all(arg);
}

static void agent_init(struct agent *a)
{
	*a = (struct agent){
		.guest = { .root_fd = -1,
			   .proc_fd = -1,
			   .null_fd = -1,
			   .random_fd = -1,
			   .console_fd = -1,
			   .disk_fd = -1,
			   .cgroup_fd = -1,
			   .scripts_fd = -1,
			   .tty_fd = -1,
			   .initramfs_fd = -1,
			   .tcp_fd = { -1, -1 } },
		.limits = { .cmds_fd = -1 },
	};
}

static int agent_start(struct agent *a, struct err *e)
{
	int r = loop_new(&a->loop);

	if (r == 0)
		r = loop_signal(a->loop, SIGCHLD, on_sigchld, a);
	signal(SIGPIPE, SIG_IGN);
	return r < 0 ? err_set(e, r, "loop: %s", strerror(-r)) : 0;
}

static _Noreturn void run_as_init(void)
{
	static struct agent a;
	struct err e = { 0 };
	int r;

	agent_init(&a);
	reboot(RB_DISABLE_CAD);
	umask(022);
	r = agent_start(&a, &e);
	if (r == 0)
		r = run_stages(&a, &e);
	if (r == 0) {
		take_agents_place(&a.guest);
		r = loop_run(a.loop);
		err_set(&e, r, "loop: %s", strerror(-r));
	}
	shutdown_fatal(&a, &e);
	abort(); /* not reached: shutdown_fatal() does not return in a guest */
}

/* -- for tests ---------------------------------------------------------------------- */

struct test_args {
	int control, bulk;
	const char *root, *cgroup;
};

/* "3,4" */
static int parse_fds(const char *text, int *ret_control, int *ret_bulk)
{
	char *end;
	long control = strtol(text, &end, 10), bulk;

	if (*end != ',')
		return -EINVAL;
	bulk = strtol(end + 1, &end, 10);
	if (*end || control < 0 || control > INT_MAX || bulk < 0 || bulk > INT_MAX)
		return -EINVAL;
	*ret_control = (int)control;
	*ret_bulk = (int)bulk;
	return 0;
}

static int parse_args(int argc, char **argv, struct test_args *ret)
{
	static const struct option options[] = {
		{ "test-fds", required_argument, NULL, 'f' },
		{ "root", required_argument, NULL, 'r' },
		{ "cgroup", required_argument, NULL, 'c' },
		{ 0 },
	};
	int c;

	*ret = (struct test_args){ -1, -1, NULL, NULL };
	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (c == 'f' && parse_fds(optarg, &ret->control, &ret->bulk) < 0)
			return -EINVAL;
		if (c == 'r')
			ret->root = optarg;
		if (c == 'c')
			ret->cgroup = optarg;
		if (c == '?')
			return -EINVAL;
	}
	return ret->control < 0 || ret->bulk < 0 || !ret->root || optind != argc ? -EINVAL : 0;
}

static int hold_dir(const char *path)
{
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int open_test_guest(struct agent *a, const struct test_args *t, struct err *e)
{
	struct guest *g = &a->guest;

	g->test = true;
	g->root_fd = hold_dir(t->root);
	if (g->root_fd < 0)
		return err_set(e, -errno, "%s: %s", t->root, strerror(errno));
	g->proc_fd = hold_dir("/proc");
	g->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	g->tty_fd = open("/dev/pts", O_PATH | O_DIRECTORY | O_CLOEXEC);
	g->cgroup_fd = t->cgroup ? hold_dir(t->cgroup) : -1;
	if (snprintf(g->scripts_path, sizeof(g->scripts_path), "%s/run-crucible", t->root) >=
	    (int)sizeof(g->scripts_path))
		return err_set(e, -ENAMETOOLONG, "%s", t->root);
	mkdir(g->scripts_path, 0711);
	g->scripts_fd = hold_dir(g->scripts_path);
	if (g->proc_fd < 0 || g->null_fd < 0 || g->scripts_fd < 0)
		return err_set(e, -errno, "/proc, /dev/null or %s: %s", g->scripts_path, strerror(errno));
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		return err_set(e, -errno, "subreaper: %s", strerror(errno));
	limits_init(&a->limits, g, &a->unenforced);
	return 0;
}

static int run_test(const struct test_args *t)
{
	static struct agent a;
	struct err e = { 0 };
	int r;

	agent_init(&a);
	r = agent_start(&a, &e);
	if (r == 0)
		r = open_test_guest(&a, t, &e);
	if (r == 0)
		r = session_open(&a, t->control, t->bulk, &e);
	if (r == 0)
		r = loop_run(a.loop);
	if (a.execs)
		session_close(&a);
	limits_fini(&a.limits);
	loop_free(a.loop);
	if (r < 0)
		fprintf(stderr, "crucible-agent: %s\n", e.msg);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	struct test_args t;

	if (getpid() == 1)
		run_as_init();
	if (parse_args(argc, argv, &t) < 0) {
		fprintf(stderr,
			"crucible-agent %s is PID 1 of a guest. For tests: --test-fds CONTROL,BULK --root DIR [--cgroup DIR]\n",
			CRUCIBLE_VERSION);
		return 2;
	}
	return run_test(&t);
}
