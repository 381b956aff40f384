/* SPDX-License-Identifier: Apache-2.0 */
#include "base/peer_main.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/loop.h"

#ifdef __SANITIZE_ADDRESS__
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}
#endif

void peer_main_begin(const char *name, mode_t mask)
{
	log_init(name, LOG_L_INFO);
	signal(SIGPIPE, SIG_IGN);
	umask(mask);
}

bool peer_main_number(const char *text, uint64_t max, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	/* strtoull would take blanks and a sign. */
	return *text >= '0' && *text <= '9' && !*end && !errno && *ret <= max;
}

void peer_main_files(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
}

int peer_main_listener(int fd, struct err *e)
{
	if (fd_set_cloexec(fd, true) < 0)
		return err_set(e, -EBADF, "descriptor %d is missing: the launcher starts this program", fd);
	return 0;
}

void peer_main_stop(void *loop)
{
	loop_stop(loop);
}

int peer_main_end(int r, const struct err *e)
{
	char quoted[400];

	if (r < 0)
		log_err("failed error=%s", log_quote(e->msg, quoted, sizeof(quoted)));
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
