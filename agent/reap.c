/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "agent/agent.h"

void reap_all(struct agent *a)
{
	struct rusage ru;
	int status;
	pid_t pid;

	if (a->freeze == FREEZE_DONE) {
		a->reap_later = true;
		return;
	}
	/* Signals merge: one SIGCHLD can stand for many children. What nobody knows was an orphan. */
	while ((pid = wait4(-1, &status, WNOHANG, &ru)) > 0) {
		if (execs_reaped(a->execs, pid, status, &ru))
			continue;
		if (fsserver_reaped(a->fs, pid))
			continue;
		syncer_reaped(a->syncer, pid);
	}
}
