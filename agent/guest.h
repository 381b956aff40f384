/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent holds of the guest from its boot on: descriptors, so that nothing that is mounted over a path or
 * removed from /dev later changes what the agent works on. -1: there is none. Thread: the agent's. */
#ifndef CRUCIBLE_AGENT_GUEST_H
#define CRUCIBLE_AGENT_GUEST_H

#include <stdbool.h>
#include <stddef.h>

struct guest {
	bool test;	  /* not PID 1 of a guest: neither the clock nor anything else of the machine is changed */
	int root_fd;	  /* the root directory of file operations, imports and /etc/passwd */
	int proc_fd;	  /* /proc */
	int null_fd;	  /* /dev/null, read-write */
	int random_fd;	  /* /dev/urandom, for entropy */
	int console_fd;	  /* where boot stages are printed until the ports are up */
	int disk_fd;	  /* the root disk, read-only */
	int cgroup_fd;	  /* a cgroup2 directory of the agent's own */
	int scripts_fd;	  /* the directory of script files, small and the agent's own */
	int tty_fd;	  /* /dev/pts, O_PATH: terminals are opened through its ptmx */
	int initramfs_fd; /* where the boot began: modules that are not loaded yet */
	int tcp_fd[2];	  /* /proc/net/sockstat and sockstat6, once the card is up: how many TCP sockets there are */
	bool net_up;	  /* the network card has its driver and addresses */
	char scripts_path[192]; /* how commands see it */
};

/* Write /etc/@name where it is, as profiles have it, a link to the agent's own file, in memory: that is replaced, the
 * link stays. 0, 1: it is no such link and nothing was done; -errno. */
int guest_write_own(const struct guest *g, const char *name, const char *text);

/* Things that the host asked for, or counts on, and that this guest cannot keep: told in HELLO, none silently. */
#define UNENFORCED_MAX 16
struct unenforced {
	size_t n;
	char text[UNENFORCED_MAX][160];
};
/* Add one, in words; a text that is there already is not added twice; beyond UNENFORCED_MAX the last is "and more". */
void unenforced_add(struct unenforced *u, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
