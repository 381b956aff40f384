/* SPDX-License-Identifier: Apache-2.0 */
/* crucible-pager: memory and disks of every machine. Started by the launcher with the descriptors of pager.h, in a root
 * that holds /snapstore, /disks and /proc (of its own pid namespace: to open its own descriptors again), under a uid of
 * its own and without capabilities.
 *
 *	crucible-pager DAEMON_UID [ROOT [LOG_LEVEL]]	ROOT: another place than / for all three folders but /proc, for
 * tests
 */
#include <fcntl.h>

#include "base/confine.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/peer_main.h"
#include "pager_syscalls.h"
#include "snapstore/pager/core.h"

/* Should: make the descriptors ours alone. Mustn't: go on with one that is missing, another would take its number. */
static int take_descriptors(struct pager_params *p, struct err *e)
{
	int r = peer_main_listener(PAGER_FD_LISTEN, e);

	if (r == 0)
		r = peer_main_listener(PAGER_FD_BLOCKS, e);
	p->listen_fd = PAGER_FD_LISTEN;
	p->blocks_fd = PAGER_FD_BLOCKS;
	return r;
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

static int run(struct pager_params *params, struct err *e)
{
	struct loop *loop = NULL;
	struct pager *p = NULL;
	int r = loop_new(&loop);

	if (r < 0)
		return err_set(e, r, "loop: %s", err_name(r));
	r = pager_new(loop, params, &p, e);
	if (r == 0) /* io_uring's ring is there, which the list does not allow to be made */
		r = confine_program(pager_syscalls, ARRAY_LEN(pager_syscalls), e);
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
	uint64_t uid = 0;
	int r = 0;

	peer_main_begin("crucible-pager", 0077);
	if (argc < 2 || argc > 4 || !peer_main_number(argv[1], UINT32_MAX - 1, &uid) ||
	    (argc > 3 && log_level_parse(argv[3], &level) < 0))
		r = err_set(&e, -EINVAL, "usage: crucible-pager DAEMON_UID [ROOT [LOG_LEVEL]]");
	log_set_level(level);
	params.daemon_uid = (uid_t)uid;
	if (r == 0)
		r = take_descriptors(&params, &e);
	if (r == 0)
		r = open_root(&params, argc > 2 ? argv[2] : "/", &e);
	if (r == 0)
		r = run(&params, &e);
	return peer_main_end(r, &e);
}
