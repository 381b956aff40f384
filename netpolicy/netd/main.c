/* SPDX-License-Identifier: Apache-2.0 */
/* crucible-netd: what sandboxes reach of the network, they reach through this. Started by the launcher in the host's
 * network namespace with a listening socket as descriptor 3, in an empty root, under a uid of its own and without
 * capabilities.
 *
 *	crucible-netd DAEMON_UID [LOG_LEVEL [ORPHAN_MS]]	ORPHAN_MS: for tests
 */
#include <malloc.h>

#include "base/confine.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/peer_main.h"
#include "netd_syscalls.h"
#include "netpolicy/netd/netd_priv.h"

static int serve(const struct netd_params *p, struct err *e)
{
	struct loop *loop = NULL;
	struct netd *n = NULL;
	int r = loop_new(&loop);

	if (r < 0)
		return err_set(e, r, "loop: %s", err_name(r));
	r = netd_new(loop, p, peer_main_stop, loop, &n, e);
	if (r == 0)
		r = confine_program(netd_syscalls, ARRAY_LEN(netd_syscalls), e);
	if (r == 0) {
		log_info("ready");
		r = loop_run(loop);
		if (r < 0)
			err_set(e, r, "loop: %s", err_name(r));
	}
	netd_free(n);
	loop_free(loop);
	return r;
}

int main(int argc, char **argv)
{
	uint64_t uid = 0, orphan_ms = NETD_ORPHAN_S * 1000ull;
	struct netd_params p = { .listen_fd = NETD_FD_LISTEN };
	enum log_level level = LOG_L_INFO;
	struct err e = { 0 };
	int r = 0;

	peer_main_begin("crucible-netd", 0077);
	mallopt(M_ARENA_MAX, 1);
	if (argc < 2 || argc > 4 || !peer_main_number(argv[1], UINT32_MAX - 1, &uid) ||
	    (argc > 2 && log_level_parse(argv[2], &level) < 0) ||
	    (argc > 3 && !peer_main_number(argv[3], UINT32_MAX, &orphan_ms)))
		r = err_set(&e, -EINVAL, "usage: crucible-netd DAEMON_UID [LOG_LEVEL [ORPHAN_MS]]");
	log_set_level(level);
	p.daemon_uid = (uid_t)uid;
	p.orphan_ns = orphan_ms * 1000000;
	peer_main_files(); /* two sockets and two pipes a connection */
	if (r == 0)
		r = peer_main_listener(NETD_FD_LISTEN, &e);
	if (r == 0)
		r = serve(&p, &e);
	return peer_main_end(r, &e);
}
