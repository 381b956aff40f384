/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel file systems, the root disk, and what a running system expects to be mounted. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/boot.h"
#include "base/fd.h"

#define NEWROOT "/newroot"
#define SCRIPTS "/run/crucible"
#define NOEXEC	(MS_NOSUID | MS_NODEV | MS_NOEXEC)

struct mount_point {
	const char *type, *path;
	unsigned long flags;
	const char *options;
	mode_t mode; /* of the directory, if it must be made */
};

/* Mounted already is as good. */
static int mount_one(const struct mount_point *m)
{
	mkdir(m->path, m->mode);
	return mount(m->type, m->path, m->type, m->flags, m->options) < 0 && errno != EBUSY ? -errno : 0;
}

static int hold(const char *path, int flags)
{
	return open(path, flags | O_CLOEXEC | O_NOCTTY);
}

int boot_kernel_mounts(struct agent *a, struct err *e)
{
	static const struct mount_point points[] = {
		{ "proc", "/proc", NOEXEC, NULL, 0555 },
		{ "sysfs", "/sys", NOEXEC, NULL, 0555 },
		{ "devtmpfs", "/dev", MS_NOSUID, "mode=0755", 0755 },
	};
	int fd;

	for (size_t i = 0; i < ARRAY_LEN(points); i++) {
		int r = mount_one(&points[i]);

		if (r < 0)
			return err_set(e, r, "mount %s: %s", points[i].path, strerror(-r));
	}
	/* The kernel gives us 0, 1 and 2 only if the initramfs has a console. */
	while ((fd = hold("/dev/null", O_RDWR)) >= 0 && fd <= 2)
		fcntl(fd, F_SETFD, 0);
	a->guest.null_fd = fd;
	a->guest.console_fd = hold("/dev/console", O_WRONLY | O_NONBLOCK);
	a->guest.random_fd = hold("/dev/urandom", O_RDONLY);
	a->guest.proc_fd = hold("/proc", O_RDONLY | O_DIRECTORY);
	a->guest.root_fd = hold("/", O_RDONLY | O_DIRECTORY);
	if (a->guest.null_fd < 0 || a->guest.proc_fd < 0 || a->guest.root_fd < 0)
		return err_set(e, -errno, "/dev/null, /proc or /: %s", strerror(errno));
	return 0;
}

/* -- the root disk ------------------------------------------------------------------ */

/* The value of "key=" on the kernel's command line into @out. false: absent, or odd. */
static bool command_line(const struct agent *a, const char *key, char *out, size_t cap)
{
	AUTO_FREE char *text = NULL;
	size_t len = strlen(key);
	char *save;

	if (fd_slurp(a->guest.proc_fd, "cmdline", 16384, &text, NULL) < 0)
		return false;
	for (char *word = strtok_r(text, " \n", &save); word; word = strtok_r(NULL, " \n", &save)) {
		if (strncmp(word, key, len) != 0 || word[len] != '=')
			continue;
		word += len + 1;
		if (!*word || strlen(word) >= cap || strchr(word, '/') || strstr(word, ".."))
			return false;
		snprintf(out, cap, "%s", word);
		return true;
	}
	return false;
}

/* A disk without discard makes ext4 complain about the option. */
static bool can_discard(const char *disk)
{
	char path[128], text[32] = "";
	AUTO_FD fd = -1;

	snprintf(path, sizeof(path), "/sys/block/%s/queue/discard_max_bytes", disk);
	fd = hold(path, O_RDONLY);
	return fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && strtoull(text, NULL, 10) > 0;
}

static int move_mount_below(const char *path)
{
	char to[64];

	snprintf(to, sizeof(to), "%s%s", NEWROOT, path);
	mkdir(to, 0755);
	return mount(path, to, NULL, MS_MOVE, NULL) < 0 ? -errno : 0;
}

/* Make the mount at NEWROOT the root. The initramfs stays below it, empty but for what we run from: rootfs cannot be
 * unmounted. */
static int switch_root(struct err *e)
{
	static const char *const moved[] = { "/proc", "/sys", "/dev" };
	int r;

	for (size_t i = 0; i < ARRAY_LEN(moved); i++) {
		r = move_mount_below(moved[i]);
		if (r < 0)
			return err_set(e, r, "move %s into the root disk: %s", moved[i], strerror(-r));
	}
	unlink("/init");
	if (chdir(NEWROOT) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
		return err_set(e, -errno, "switch root: %s", strerror(errno));
	return 0;
}

int boot_root(struct agent *a, struct err *e)
{
	char disk[32], type[16] = "ext4", device[48];
	int r;

	if (!command_line(a, "crucible.root", disk, sizeof(disk)))
		return 0;
	command_line(a, "crucible.rootfs", type, sizeof(type));
	snprintf(device, sizeof(device), "/dev/%s", disk);
	a->guest.disk_fd = boot_wait_open(device, O_RDONLY);
	if (a->guest.disk_fd < 0)
		return err_set(e, a->guest.disk_fd, "%s: %s", device, strerror(-a->guest.disk_fd));
	mkdir(NEWROOT, 0755);
	/* noatime: reading must not make a fork's disk differ from its parent's. */
	if (mount(device, NEWROOT, type, MS_NOATIME, can_discard(disk) ? "discard" : NULL) < 0)
		return err_set(e, -errno, "%s: mount as %s: %s", device, type, strerror(errno));
	r = switch_root(e);
	if (r < 0)
		return r;
	fd_close(&a->guest.root_fd);
	a->guest.root_fd = hold("/", O_RDONLY | O_DIRECTORY);
	return a->guest.root_fd < 0 ? err_set(e, -errno, "/: %s", strerror(errno)) : 0;
}

/* -- what a running system expects -------------------------------------------------- */

static void make_dev_links(void)
{
	static const struct {
		const char *target, *name;
	} links[] = {
		{ "/proc/self/fd", "/dev/fd" },
		{ "/proc/self/fd/0", "/dev/stdin" },
		{ "/proc/self/fd/1", "/dev/stdout" },
		{ "/proc/self/fd/2", "/dev/stderr" },
	};

	for (size_t i = 0; i < ARRAY_LEN(links); i++)
		if (symlink(links[i].target, links[i].name) < 0)
			continue; /* a kernel that makes them itself */
}

/* A root without one of these still runs commands: say what is missing and go on. */
int boot_run_mounts(struct agent *a, struct err *e)
{
	static const struct mount_point points[] = {
		{ "devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=0620,ptmxmode=0666", 0755 },
		{ "tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777", 01777 },
		{ "tmpfs", "/run", MS_NOSUID | MS_NODEV, "mode=0755", 0755 },
		/* Of its own, so that a full /run does not keep scripts from being stored. */
		{ "tmpfs", SCRIPTS, MS_NOSUID | MS_NODEV, "mode=0711,size=64m", 0711 },
		{ "cgroup2", "/sys/fs/cgroup", NOEXEC, "nsdelegate", 0755 },
	};

	int fd;

	(void)e;
	umask(0);
	for (size_t i = 0; i < ARRAY_LEN(points); i++) {
		int r = mount_one(&points[i]);

		if (r < 0)
			unenforced_add(&a->unenforced, "mount %s: %s", points[i].path, strerror(-r));
	}
	mkdir("/run/lock", 01777);
	mkdir("/tmp", 01777);
	umask(022);
	make_dev_links();
	a->guest.cgroup_fd = hold("/sys/fs/cgroup", O_RDONLY | O_DIRECTORY);
	a->guest.tty_fd = hold("/dev/pts", O_PATH | O_DIRECTORY);
	a->guest.scripts_fd = hold(SCRIPTS, O_RDONLY | O_DIRECTORY);
	snprintf(a->guest.scripts_path, sizeof(a->guest.scripts_path), "%s", SCRIPTS);
	fd = a->guest.scripts_fd < 0 ? -1
				     : openat(a->guest.scripts_fd, "resolv.conf", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	fd_close(&fd); /* empty while there is no network: what /etc/resolv.conf leads to */
	if (a->guest.random_fd < 0)
		unenforced_add(&a->unenforced, "entropy: no /dev/urandom in this guest");
	limits_init(&a->limits, &a->guest, &a->unenforced);
	return 0;
}
