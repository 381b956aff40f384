/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets of the processes of which there is one. They are made here, as the daemon's user, and handed over: neither
 * process needs the right to make files where the other looks. A store's path may be longer than a socket's address
 * holds, hence /proc/self/fd. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "cruciblefs/domain/peer.h"

#define BACKLOG 128

static int open_dir(int store_fd, const struct peer_listen *l, struct sockaddr_un *ret)
{
	int dir = openat(store_fd, l->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (dir < 0)
		return -errno;
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/%s", dir, l->name);
	return dir;
}

int peer_connect(int store_fd, const struct peer_listen *l, int *ret)
{
	struct sockaddr_un a;
	AUTO_FD dir = open_dir(store_fd, l, &a);
	AUTO_FD fd = socket(AF_UNIX, l->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (dir < 0)
		return dir;
	if (fd < 0 || connect(fd, (const struct sockaddr *)&a, sizeof(a)) < 0)
		return -errno;
	*ret = take_fd(&fd);
	return 0;
}

int peer_listen_at(int store_fd, const struct peer_listen *l, int *ret)
{
	struct sockaddr_un a;
	AUTO_FD dir = open_dir(store_fd, l, &a);
	AUTO_FD fd = socket(AF_UNIX, l->type | SOCK_CLOEXEC, 0);

	if (dir < 0)
		return dir;
	if (fd < 0 || (unlinkat(dir, l->name, 0) < 0 && errno != ENOENT))
		return -errno;
	if (bind(fd, (const struct sockaddr *)&a, sizeof(a)) < 0 || fchmodat(dir, l->name, l->mode, 0) < 0 ||
	    listen(fd, BACKLOG) < 0)
		return -errno;
	*ret = take_fd(&fd);
	return 0;
}
