/* SPDX-License-Identifier: Apache-2.0 */
/* Every disk begins as the same empty qcow2 image, made once by qemu-img for the largest size. A new disk is a copy of
 * these few clusters with one number changed, the virtual size (big-endian, at byte 24 of the header): its tables are
 * large enough for less. That saves a process per sandbox, which the daemon's system call filter would not permit
 * anyway. The backing image is not named in the file but given to the engine as a descriptor: no path of the host is
 * ever read from a disk that a guest could have written. */
#include <endian.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fd.h"
#include "cruciblefs/domain/disk.h"

#define TEMPLATE	  "overlay.qcow2"
#define TEMPLATE_MAX_SIZE "64G"
#define QCOW2_MAGIC	  0x514649fbu
#define QCOW2_SIZE_OFFSET 24

int disk_prepare(int state_fd, struct err *e)
{
	struct stat st;
	int status;
	pid_t pid;

	if (fstatat(state_fd, TEMPLATE, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	unlinkat(state_fd, TEMPLATE ".new", 0); /* of a start that was cut off */
	pid = fork();
	if (pid < 0)
		return err_set(e, -errno, "qemu-img: fork: %s", strerror(errno));
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || fchdir(state_fd) < 0 ||
		    fstat(state_fd, &st) < 0)
			_exit(126);
		/* As the folder's owner, not as root: a daemon that was taken over may have left a link in the file's
		 * place. */
		if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(st.st_gid, st.st_gid, st.st_gid) < 0 ||
				       setresuid(st.st_uid, st.st_uid, st.st_uid) < 0))
			_exit(126);
		umask(022);
		execlp("qemu-img", "qemu-img", "create", "-q", "-f", "qcow2", TEMPLATE ".new", TEMPLATE_MAX_SIZE,
		       (char *)NULL);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return err_set(e, -errno, "qemu-img: wait: %s", strerror(errno));
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return err_set(e, -ENOENT, "qemu-img is missing: apt-get install qemu-utils");
	if (status)
		return err_set(e, -EIO, "qemu-img could not make the store's state/" TEMPLATE " (wait status %d)",
			       status);
	if (renameat(state_fd, TEMPLATE ".new", state_fd, TEMPLATE) < 0)
		return err_set(e, -errno, "state/" TEMPLATE ": %s", strerror(errno));
	return 0;
}

static int copy_template(int dirfd, int state_fd, uint64_t size_bytes)
{
	AUTO_FD from = openat(state_fd, TEMPLATE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	AUTO_FD to = -1;
	struct stat st;
	uint32_t magic;
	uint64_t be_size = htobe64(size_bytes);
	off_t off = 0;

	if (from < 0 || fstat(from, &st) < 0)
		return -errno;
	if (pread(from, &magic, sizeof(magic), 0) != (ssize_t)sizeof(magic) || be32toh(magic) != QCOW2_MAGIC)
		return -EBADMSG;
	to = openat(dirfd, "disk.qcow2.new", O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to < 0)
		return -errno;
	while (off < st.st_size) {
		ssize_t n = sendfile(to, from, &off, (size_t)(st.st_size - off));

		if (n <= 0)
			return n < 0 ? -errno : -EIO;
	}
	if (pwrite(to, &be_size, sizeof(be_size), QCOW2_SIZE_OFFSET) != (ssize_t)sizeof(be_size))
		return -errno;
	return renameat(dirfd, "disk.qcow2.new", dirfd, "disk.qcow2") < 0 ? -errno : 0;
}

int disk_open(int dirfd, int state_fd, uint64_t base_bytes, uint32_t disk_mib, int *ret_fd, struct err *e)
{
	uint64_t size = (uint64_t)disk_mib << 20;
	struct stat st;
	int r = 0, fd;

	if (fstatat(dirfd, "disk.qcow2", &st, AT_SYMLINK_NOFOLLOW) < 0)
		r = errno == ENOENT ? copy_template(dirfd, state_fd, size > base_bytes ? size : base_bytes) : -errno;
	if (r < 0)
		return err_set(e, r, "disk.qcow2: %s", strerror(-r));
	fd = openat(dirfd, "disk.qcow2", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, -errno, "disk.qcow2: %s", strerror(errno));
	*ret_fd = fd;
	return 0;
}
