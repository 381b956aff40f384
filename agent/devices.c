/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel modules, the two ports, the loopback interface. */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/boot.h"
#include "base/fd.h"

#define ORDER_MAX      (64u * 1024)
#define DEVICE_WAIT_NS 5000000000u

/* Load one module, then give its pages back: nobody reads the file again. */
static int load_module(int initramfs_fd, const char *name, struct err *e)
{
	char path[256];
	AUTO_FD fd = -1;

	if (snprintf(path, sizeof(path), "lib/modules/%s", name) >= (int)sizeof(path))
		return err_set(e, -ENAMETOOLONG, "module %s", name);
	fd = openat(initramfs_fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, -errno, "module %s: %s", name, strerror(errno));
	if (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST)
		return err_set(e, -errno, "module %s: %s", name, strerror(errno));
	unlinkat(initramfs_fd, path, 0);
	return 0;
}

/* A kernel that has its drivers built in comes without the list. */
static int load_list(int initramfs_fd, const char *list, struct err *e)
{
	AUTO_FREE char *order = NULL;
	char *save;
	int r = fd_slurp(initramfs_fd, list, ORDER_MAX, &order, NULL);

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return err_set(e, r, "/%s: %s", list, strerror(-r));
	for (char *name = strtok_r(order, "\n", &save); name; name = strtok_r(NULL, "\n", &save)) {
		r = load_module(initramfs_fd, name, e);
		if (r < 0)
			return r;
	}
	unlinkat(initramfs_fd, list, 0);
	return 0;
}

int boot_modules(struct agent *a, struct err *e)
{
	a->guest.initramfs_fd = fcntl(a->guest.root_fd, F_DUPFD_CLOEXEC, 3); /* the root changes, this does not */
	return load_list(a->guest.root_fd, "modules.order", e);
}

int boot_net_modules(struct guest *g, struct err *e)
{
	return g->initramfs_fd < 0 ? 0 : load_list(g->initramfs_fd, "modules.net", e);
}

int boot_wait_open(const char *path, int flags)
{
	const struct timespec step = { .tv_nsec = 500000 };
	uint64_t end = now_ns() + DEVICE_WAIT_NS;
	int fd;

	while ((fd = open(path, flags | O_CLOEXEC | O_NOCTTY)) < 0 && now_ns() < end) {
		if (errno != ENOENT && errno != ENXIO && errno != EBUSY && errno != EAGAIN)
			break;
		nanosleep(&step, NULL);
	}
	return fd < 0 ? -errno : fd;
}

static int open_port(const char *path, struct err *e)
{
	int fd = boot_wait_open(path, O_RDWR | O_NONBLOCK);

	return fd < 0 ? err_set(e, fd, "port %s: %s", path, strerror(-fd)) : fd;
}

int boot_ports(struct agent *a, struct err *e)
{
	AUTO_FD control = open_port("/dev/vport0p1", e);
	AUTO_FD bulk = -1;

	if (control < 0)
		return control;
	bulk = open_port("/dev/vport0p2", e);
	if (bulk < 0)
		return bulk;
	return session_open(a, take_fd(&control), take_fd(&bulk), e);
}

int boot_loopback(struct agent *a, struct err *e)
{
	AUTO_FD fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq ifr = { .ifr_name = "lo" };

	(void)e;
	if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &ifr) < 0)
		goto none;
	ifr.ifr_flags |= IFF_UP;
	if (ioctl(fd, SIOCSIFFLAGS, &ifr) == 0)
		return 0;
none:
	unenforced_add(&a->unenforced, "loopback: %s", strerror(errno));
	return 0;
}
