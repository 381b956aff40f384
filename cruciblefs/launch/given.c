/* SPDX-License-Identifier: Apache-2.0 */
/* What a process is started with: descriptors, variables. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "cruciblefs/launch/launch_priv.h"

void given_fini(struct given *g)
{
	for (size_t i = 0; i < ARRAY_LEN(g->envp); i++)
		free(g->envp[i]);
}

/* What the preload library in an engine reads (vmm/preload/preload.h). @uffd: its number there, or -1. */
static int give_env(struct given *g, const struct launch_spawn *req, int uffd)
{
	const char *sanitizer = NULL, *library = req->ram_bytes ? LAUNCH_PRELOAD_SO : "";
	size_t n = 0;

#ifdef __SANITIZE_ADDRESS__
	sanitizer = getenv("LD_PRELOAD"); /* before ours: it wants to be the first */
#endif
	if ((sanitizer || req->ram_bytes) && asprintf(&g->envp[n++], "LD_PRELOAD=%s%s%s", sanitizer ? sanitizer : "",
						      sanitizer && req->ram_bytes ? ":" : "", library) < 0)
		goto no_memory;
	if (!req->ram_bytes)
		return 0;
	if (asprintf(&g->envp[n++], "CRUCIBLE_PRELOAD_SOCKET=%u", req->memory_fd) < 0 ||
	    asprintf(&g->envp[n++], "CRUCIBLE_PRELOAD_RAM=%" PRIu64, req->ram_bytes) < 0 ||
	    asprintf(&g->envp[n++], "CRUCIBLE_PRELOAD_UFFD=%d", uffd) < 0)
		goto no_memory;
	return 0;
no_memory:
	g->envp[n - 1] = NULL; /* asprintf() left it undefined */
	return -ENOMEM;
}

int given_make(struct given *g, const struct launchd *d, const struct launch_spawn *req, const struct msg *m)
{
	int uffd = -1;

	memcpy(g->fds, m->fds + 1, (m->nfds - 1) * sizeof(int));
	g->nfds = m->nfds - 1;
	if (req->ram_bytes && d->uffd_dev >= 0) {
		uffd = 3 + (int)g->nfds;
		g->fds[g->nfds++] = d->uffd_dev;
	}
	if (!launch_uuid_is_ours(req->uuid))
		g->fds[g->nfds++] = slots_fd(&d->slots, req->slot);
	return give_env(g, req, uffd);
}
