/* SPDX-License-Identifier: Apache-2.0 */
/* crucible-store: what writes the snapstore. Started by the launcher with a listening socket as descriptor 3, in a root
 *that holds the store alone, under a uid of its own and without capabilities.
 *
 *	crucible-store --snapstore FOLDER --daemon-uid N [--log-level LEVEL] [--orphan-ms N]
 */
#include <fcntl.h>
#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/confine.h"
#include "base/fd.h"
#include "base/log.h"
#include "snapstore/stored/stored_priv.h"
#include "stored_syscalls.h"

#define NICE	   10
#define MMAP_ABOVE (128 * 1024) /* what a large request took is given back at once */

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

/* Should: leave what the work needs and no more, for good. Mustn't: come before OpenSSL, the threads and the store are
 * there. */
static int confine(struct err *e)
{
	int r = confine_drop(getuid(), getgid(), 0, e);

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return r; /* their run-time needs calls of its own */
#endif
	if (r == 0)
		r = confine_seccomp(stored_syscalls, ARRAY_LEN(stored_syscalls), e);
	return r;
}

static int serve(const char *folder, struct stored_params *p, struct err *e)
{
	struct stored *st = NULL;
	struct snap *s = NULL;
	int r = loop_new(&main_loop);

	if (r < 0)
		return err_set(e, r, "loop: %s", err_name(r));
	r = snap_open(AT_FDCWD, folder, SNAP_WRITE, &s, e);
	if (r == 0)
		r = snap_open(AT_FDCWD, folder, SNAP_READ, &p->reader, e);
	if (r == 0)
		r = stored_new(main_loop, s, p, on_end, NULL, &st, e);
	if (r == 0)
		r = confine(e);
	if (r == 0) {
		log_info("ready snapstore=%s", folder);
		r = loop_run(main_loop);
	}
	stored_free(st);
	snap_close(p->reader);
	snap_close(s);
	loop_free(main_loop);
	return r;
}

/* Two descriptors a pack: as many as we may. */
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
	static const struct option options[] = { { "snapstore", required_argument, NULL, 's' },
						 { "daemon-uid", required_argument, NULL, 'u' },
						 { "log-level", required_argument, NULL, 'l' },
						 { "orphan-ms", required_argument, NULL, 'o' },
						 { NULL, 0, NULL, 0 } };
	uint64_t uid = UINT64_MAX, orphan_ms = STORED_ORPHAN_S * 1000ull;
	struct stored_params p = { .listen_fd = STORED_FD_LISTEN };
	enum log_level level = LOG_L_INFO;
	const char *folder = NULL;
	struct err e = { 0 };
	char quoted[400];
	int c, r;

	log_init("crucible-store", level);
	mallopt(M_MMAP_THRESHOLD, MMAP_ABOVE);
	mallopt(M_TRIM_THRESHOLD, MMAP_ABOVE);
	mallopt(M_ARENA_MAX, 1);
	signal(SIGPIPE, SIG_IGN);
	umask(0027);
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		bool ok = c == 's' || (c == 'u' && number(optarg, UINT32_MAX - 1, &uid)) ||
			  (c == 'l' && log_level_parse(optarg, &level) == 0) ||
			  (c == 'o' && number(optarg, UINT32_MAX, &orphan_ms));

		if (c == 's')
			folder = optarg;
		if (!ok)
			folder = NULL, optind = argc;
	}
	if (!folder || uid == UINT64_MAX || optind != argc) {
		fprintf(stderr, "usage: crucible-store --snapstore FOLDER --daemon-uid N [--log-level LEVEL]\n");
		return 2;
	}
	log_set_level(level);
	p.daemon_uid = (uid_t)uid;
	p.orphan_ns = orphan_ms * 1000000;
	if (setpriority(PRIO_PROCESS, 0, NICE) < 0)
		log_warn("priority stays as it is");
	raise_files();
	r = fd_set_cloexec(STORED_FD_LISTEN, true);
	if (r < 0)
		err_set(&e, -EBADF, "descriptor %d is missing: the launcher starts this program", STORED_FD_LISTEN);
	else
		r = serve(folder, &p, &e);
	if (r < 0)
		log_err("failed error=%s", log_quote(e.msg, quoted, sizeof(quoted)));
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
