/* SPDX-License-Identifier: Apache-2.0 */
/* `//list`: what stands below the guest's root, one line a file, for the host to compare two of them. Runs as a
 * command's process, in its cgroup, as its user.
 *
 *	<type> <mode> <uid> <gid> <size> <mtime> <path>[ -> <target>]\n
 *
 * type: f file, d directory, l symbolic link, p FIFO, s socket, c and b devices, whose size is their number (makedev).
 * mode: the permission bits, octal. mtime: nanoseconds since 1970, negative before. path: from the root, with a leading
 * "/". In path and target a newline is "\n" and a backslash "\\"; in the path of a symbolic link ">" is "\>", so that
 *the first " -> " is the arrow: a backslash before anything but "n" stands for that character. Every other byte is
 *itself.
 *
 * Sorted by the bytes of the path. The root itself is not listed, nor /proc, /sys, /dev and /run, nor what another file
 * system is mounted upon. What vanishes meanwhile is passed over. */
#ifndef CRUCIBLE_AGENT_LIST_H
#define CRUCIBLE_AGENT_LIST_H

/* List what is below @root_fd to descriptor 1. Complaints go to descriptor 2. Returns the exit code: 0; 1 some
 * directories could not be read, or have paths over AG_PATH_MAX; 2 no memory, or nobody reads. Blocks: yes. */
int list_run(int root_fd);

#endif
