/* SPDX-License-Identifier: Apache-2.0 */
/* crucible-netd: what sandboxes reach of the network, they reach through this. Started by the launcher in the host's
 * network namespace with a listening socket as descriptor 3, in an empty root, under a uid of its own and without
 * capabilities.
 *
 *	crucible-netd DAEMON_UID [LOG_LEVEL [ORPHAN_MS]]	ORPHAN_MS: for tests
 */
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/confine.h"
#include "base/fd.h"
#include "base/log.h"
#include "netd_syscalls.h"
#include "netpolicy/netd/netd_priv.h"

#ifdef __SANITIZE_ADDRESS__
/* The leak checker stops its process from a helper, which a confined one does not allow; and the launcher hands no
 * environment on. Unit tests that look for leaks say so in ASAN_OPTIONS. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}
#endif

static struct loop *main_loop;

static void on_end(void *arg)
{
	(void)arg;
	loop_stop(main_loop);
}

/* Should: leave what the work needs and no more, for good. Mustn't: come before the loop and the socket are there. */
static int confine(struct err *e)
{
	int r = confine_drop(getuid(), getgid(), 0, e);

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return r; /* their run-time needs calls of its own */
#endif
	if (r == 0)
		r = confine_seccomp(netd_syscalls, ARRAY_LEN(netd_syscalls), e);
	return r;
}

static int serve(const struct netd_params *p, struct err *e)
{
	struct netd *n = NULL;
	int r = loop_new(&main_loop);

	if (r < 0)
		return err_set(e, r, "loop: %s", err_name(r));
	r = netd_new(main_loop, p, on_end, NULL, &n, e);
	if (r == 0)
		r = confine(e);
	if (r == 0) {
		log_info("ready");
		r = loop_run(main_loop);
		if (r < 0)
			err_set(e, r, "loop: %s", err_name(r));
	}
	netd_free(n);
	loop_free(main_loop);
	return r;
}

/* Two sockets and two pipes a connection: as many as we may. */
static void raise_files(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
}

static bool number(const char *text, uint64_t max, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && !errno && *ret <= max;
}

int main(int argc, char **argv)
{
	uint64_t uid = 0, orphan_ms = NETD_ORPHAN_S * 1000ull;
	struct netd_params p = { .listen_fd = NETD_FD_LISTEN };
	enum log_level level = LOG_L_INFO;
	struct err e = { 0 };
	char quoted[400];
	int r = 0;

	log_init("crucible-netd", level);
	mallopt(M_ARENA_MAX, 1);
	signal(SIGPIPE, SIG_IGN);
	if (argc < 2 || argc > 4 || !number(argv[1], UINT32_MAX - 1, &uid) ||
	    (argc > 2 && log_level_parse(argv[2], &level) < 0) ||
	    (argc > 3 && !number(argv[3], UINT32_MAX, &orphan_ms)))
		r = err_set(&e, -EINVAL, "usage: crucible-netd DAEMON_UID [LOG_LEVEL [ORPHAN_MS]]");
	log_set_level(level);
	p.daemon_uid = (uid_t)uid;
	p.orphan_ns = orphan_ms * 1000000;
	raise_files();
	if (r == 0 && fd_set_cloexec(NETD_FD_LISTEN, true) < 0)
		r = err_set(&e, -EBADF, "descriptor %d is missing: the launcher starts this program", NETD_FD_LISTEN);
	if (r == 0)
		r = serve(&p, &e);
	if (r < 0)
		log_err("failed error=%s", log_quote(e.msg, quoted, sizeof(quoted)));
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
