/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pty.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "base/fd.h"

int pty_open(int devpts_fd, uint16_t rows, uint16_t cols, int *ret_master, int *ret_slave, struct err *e)
{
	AUTO_FD master = -1;
	AUTO_FD slave = -1;
	int unlock = 0, r;

	master = openat(devpts_fd, "ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	if (master < 0)
		return err_set(e, -errno, "tty: cannot open a terminal: %s", strerror(errno));
	if (ioctl(master, TIOCSPTLCK, &unlock) < 0)
		return err_set(e, -errno, "tty: cannot unlock the terminal: %s", strerror(errno));
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		return err_set(e, -errno, "tty: cannot open the terminal's other end: %s", strerror(errno));
	r = pty_resize(master, rows, cols);
	if (r < 0)
		return err_set(e, r, "tty: cannot set the size: %s", strerror(-r));
	*ret_master = take_fd(&master);
	*ret_slave = take_fd(&slave);
	return 0;
}

int pty_resize(int master, uint16_t rows, uint16_t cols)
{
	struct winsize ws = { .ws_row = rows, .ws_col = cols };

	return ioctl(master, TIOCSWINSZ, &ws) < 0 ? -errno : 0;
}

pid_t pty_foreground(int master)
{
	pid_t group;

	if (ioctl(master, TIOCGPGRP, &group) < 0)
		return -errno;
	return group > 1 ? group : -ESRCH;
}

int pty_eof_byte(int master)
{
	struct termios t;

	if (tcgetattr(master, &t) < 0 || !(t.c_lflag & ICANON))
		return -1;
	return t.c_cc[VEOF];
}

int pty_take(int slave)
{
	return ioctl(slave, TIOCSCTTY, 0) < 0 ? -errno : 0;
}
