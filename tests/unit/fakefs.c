/* SPDX-License-Identifier: Apache-2.0 */
/* fakefs DIR: the tree over the fake domain on a real mount (root only), commands run by the host's own shell. For
 * trying tools against the FUSE layer without a guest: tests/e2e/15_fuse_tools.sh. Runs in the foreground until it is
 * unmounted. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "cruciblefs/root.h"
#include "fake_domain.h"

static void on_ended(void *arg)
{
	loop_stop(arg);
}

static int mount_at(const char *dir, int fd)
{
	char options[128];

	snprintf(options, sizeof(options), "fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other,default_permissions",
		 fd);
	return mount("fakefs", dir, "fuse.fakefs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options) < 0 ? -errno : 0;
}

int main(int argc, char **argv)
{
	struct cfs_session_opts o = { .ended = on_ended };
	struct cfs_session *cs;
	struct err e = { 0 };
	int r;

	if (argc != 2)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	o.fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (o.fd < 0 || loop_new(&o.loop) < 0 || mount_at(argv[1], o.fd) < 0) {
		perror("fakefs: mount");
		return 77;
	}
	o.arg = o.loop;
	o.registry = fake_registry_new(o.loop);
	fake_run_for_real(o.registry);
	if (cfs_session_new(&o, &cs, &e) < 0 || cfs_root_install(cs, &e) < 0) {
		fprintf(stderr, "fakefs: %s\n", e.msg);
		umount2(argv[1], MNT_DETACH);
		return 1;
	}
	r = loop_run(o.loop);
	cfs_session_free(cs);
	fake_registry_free(o.registry);
	loop_free(o.loop);
	return r < 0;
}
