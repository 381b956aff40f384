/* SPDX-License-Identifier: Apache-2.0 */
/* crucible-box: what keeps one sandbox going. Started by the launcher with the descriptors of enum box_fd, in an empty
 * root that holds /box and /run, under a uid of its own and without capabilities (cruciblefs/launch/launch.h).
 *
 *	crucible-box [generic] [FOLDER [SOCKET]]
 *
 * generic: the engine was started without a kernel and waits for a snapshot. FOLDER, SOCKET: other places for /box and
 * /run/daemon.sock, for tests.
 */
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/confine.h"
#include "base/fd.h"
#include "base/log.h"
#include "box_syscalls.h"
#include "vmm/box/box_core.h"

/* A sandbox may be idle for days: what a large command or much output took is given back at once. */
#define MMAP_ABOVE (64 * 1024)
#define TRIM_ABOVE (64 * 1024)

/* Should: make the descriptors ours alone. Mustn't: go on with one that is missing, another would take its number. */
static int take_descriptors(struct box_params *p, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(p->fds); i++) {
		p->fds[i] = BOX_FD_DAEMON + (int)i;
		if (fd_set_cloexec(p->fds[i], true) < 0)
			return err_set(e, -EBADF, "descriptor %d is missing: the launcher starts this program",
				       p->fds[i]);
	}
	return 0;
}

static struct loop *main_loop;

static void on_over(void *arg, const char *words)
{
	*(const char **)arg = words;
	loop_stop(main_loop);
}

static int run(struct box_params *p, struct err *e)
{
	const char *words = "";
	struct box *box = NULL;
	char quoted[700];
	int r = loop_new(&main_loop);

	if (r < 0)
		return err_set(e, r, "loop: %s", err_name(r));
	r = box_new(main_loop, p, on_over, &words, &box, e);
	if (r == 0)
		r = confine_program(box_syscalls, ARRAY_LEN(box_syscalls), e);
	if (r == 0)
		r = loop_run(main_loop);
	if (r == 0 && *words)
		log_warn("sandbox ended why=%s", log_quote(words, quoted, sizeof(quoted)));
	box_free(box);
	loop_free(main_loop);
	return r;
}

int main(int argc, char **argv)
{
	struct box_params p = { .tuning = BOX_TUNING_DEFAULT, .engine = &engine_qemu };
	const char *folder;
	struct err e = { 0 };
	char quoted[400];
	int r;

	log_init("crucible-box", LOG_L_INFO);
	mallopt(M_MMAP_THRESHOLD, MMAP_ABOVE);
	mallopt(M_TRIM_THRESHOLD, TRIM_ABOVE);
	signal(SIGPIPE, SIG_IGN);
	umask(0007);
	p.generic = argc > 1 && strcmp(argv[1], "generic") == 0;
	argc -= p.generic;
	argv += p.generic;
	folder = argc > 1 ? argv[1] : "/box";
	if (argc > 2)
		p.tuning.daemon_socket = argv[2];
	r = take_descriptors(&p, &e);
	if (r == 0) {
		p.dirfd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (p.dirfd < 0)
			r = err_set(&e, -errno, "%s: %s", folder, err_name(-errno));
	}
	if (r == 0)
		r = run(&p, &e);
	if (r < 0)
		log_err("failed error=%s", log_quote(e.msg, quoted, sizeof(quoted)));
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
