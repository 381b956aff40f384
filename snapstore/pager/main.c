/* SPDX-License-Identifier: Apache-2.0 */
/* crucible-pager: memory and disks of every machine. Started by the launcher with the descriptors of pager.h, in a root
 *that holds /snapstore, /disks and /proc (of its own pid namespace: to open its own descriptors again), under a uid of
 *its own and without capabilities.
 *
 *	crucible-pager DAEMON_UID [ROOT [LOG_LEVEL]]	ROOT: another place than / for all three folders but /proc, for
 *tests
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/confine.h"
#include "base/fd.h"
#include "base/log.h"
#include "pager_syscalls.h"
#include "snapstore/pager/core.h"

/* Should: make the descriptors ours alone. Mustn't: go on with one that is missing, another would take its number. */
static int take_descriptors(struct pager_params *p, struct err *e)
{
	if (fd_set_cloexec(PAGER_FD_LISTEN, true) < 0 || fd_set_cloexec(PAGER_FD_BLOCKS, true) < 0)
		return err_set(e, -EBADF, "descriptors 3 and 4 are missing: the launcher starts this program");
	p->listen_fd = PAGER_FD_LISTEN;
	p->blocks_fd = PAGER_FD_BLOCKS;
	return 0;
}

/* Should: open what the root has to offer. Mustn't: start without /proc, templates could not be handed out. */
static int open_root(struct pager_params *p, const char *root, struct err *e)
{
	p->rootfd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->rootfd < 0)
		return err_set(e, -errno, "%s: %s", root, err_name(-errno));
	p->disksfd = openat(p->rootfd, "disks", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->disksfd < 0)
		return err_set(e, -errno, "%s/disks: %s", root, err_name(-errno));
	p->procfd = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (p->procfd < 0)
		return err_set(e, -errno, "/proc/self/fd: %s", err_name(-errno));
	return 0;
}

/* Should: leave what the work needs and no more, for good. Mustn't: come before everything is open that the list does
 * not allow: io_uring's ring among it. */
static int confine(struct err *e)
{
	int r = confine_drop(getuid(), getgid(), 0, e);

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return r; /* their run-time needs calls of its own, ptrace at the exit among them */
#endif
	if (r == 0)
		r = confine_seccomp(pager_syscalls, ARRAY_LEN(pager_syscalls), e);
	return r;
}

static int run(struct pager_params *params, struct err *e)
{
	struct loop *loop = NULL;
	struct pager *p = NULL;
	int r = loop_new(&loop);

	if (r < 0)
		return err_set(e, r, "loop: %s", err_name(r));
	r = pager_new(loop, params, &p, e);
	if (r == 0)
		r = confine(e);
	if (r == 0 && *p->degraded)
		log_warn("degraded what=\"%s\"", p->degraded);
	if (r == 0)
		r = loop_run(loop);
	if (p && !p->quit && r == 0)
		r = err_set(e, -EIO, "the loop ended by itself");
	pager_free(p);
	loop_free(loop);
	return r;
}

int main(int argc, char **argv)
{
	struct pager_params params = PAGER_PARAMS_INIT;
	enum log_level level = LOG_L_INFO;
	struct err e = { 0 };
	char quoted[400], *end = NULL;
	int r = 0;

	log_init("crucible-pager", level);
	signal(SIGPIPE, SIG_IGN);
	umask(0077);
	params.daemon_uid = (uid_t)(argc > 1 ? strtoul(argv[1], &end, 10) : 0);
	if (!end || end == argv[1] || *end || argc > 4 || (argc > 3 && log_level_parse(argv[3], &level) < 0))
		r = err_set(&e, -EINVAL, "usage: crucible-pager DAEMON_UID [ROOT [LOG_LEVEL]]");
	log_set_level(level);
	if (r == 0)
		r = take_descriptors(&params, &e);
	if (r == 0)
		r = open_root(&params, argc > 2 ? argv[2] : "/", &e);
	if (r == 0)
		r = run(&params, &e);
	if (r < 0)
		log_err("failed error=%s", log_quote(e.msg, quoted, sizeof(quoted)));
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
