/* SPDX-License-Identifier: Apache-2.0 */
/* crucible-store: what writes the snapstore. Started by the launcher with a listening socket as descriptor 3, in a root
 *that holds the store alone, under a uid of its own and without capabilities.
 *
 *	crucible-store --snapstore FOLDER --daemon-uid N [--log-level LEVEL] [--orphan-ms N]
 */
#include <fcntl.h>
#include <getopt.h>
#include <malloc.h>
#include <stdio.h>
#include <sys/resource.h>

#include "base/confine.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/peer_main.h"
#include "snapstore/stored/stored_priv.h"
#include "stored_syscalls.h"

#define NICE	   10
#define MMAP_ABOVE (128 * 1024) /* what a large request took is given back at once */

static int serve(const char *folder, struct stored_params *p, struct err *e)
{
	struct loop *loop = NULL;
	struct stored *st = NULL;
	struct snap *s = NULL;
	int r = loop_new(&loop);

	if (r < 0)
		return err_set(e, r, "loop: %s", err_name(r));
	r = snap_open(AT_FDCWD, folder, SNAP_WRITE, &s, e);
	if (r == 0)
		r = snap_open(AT_FDCWD, folder, SNAP_READ, &p->reader, e);
	if (r == 0)
		r = stored_new(loop, s, p, peer_main_stop, loop, &st, e);
	if (r == 0) /* OpenSSL, the threads and the store are there */
		r = confine_program(stored_syscalls, ARRAY_LEN(stored_syscalls), e);
	if (r == 0) {
		log_info("ready snapstore=%s", folder);
		r = loop_run(loop);
	}
	stored_free(st);
	snap_close(p->reader);
	snap_close(s);
	loop_free(loop);
	return r;
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
	int c, r;

	peer_main_begin("crucible-store", 0027);
	mallopt(M_MMAP_THRESHOLD, MMAP_ABOVE);
	mallopt(M_TRIM_THRESHOLD, MMAP_ABOVE);
	mallopt(M_ARENA_MAX, 1);
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		bool ok = c == 's' || (c == 'u' && peer_main_number(optarg, UINT32_MAX - 1, &uid)) ||
			  (c == 'l' && log_level_parse(optarg, &level) == 0) ||
			  (c == 'o' && peer_main_number(optarg, UINT32_MAX, &orphan_ms));

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
	peer_main_files(); /* two descriptors a pack */
	r = peer_main_listener(STORED_FD_LISTEN, &e);
	if (r == 0)
		r = serve(folder, &p, &e);
	return peer_main_end(r, &e);
}
