/* SPDX-License-Identifier: Apache-2.0 */
/* The stages of a boot as PID 1, in the order of boot_stages[] (main.c): each Should and Mustn't stand there. Thread:
 * the only one. They block, briefly. Errors: -errno in words; the boot then ends. */
#ifndef CRUCIBLE_AGENT_BOOT_H
#define CRUCIBLE_AGENT_BOOT_H

#include "agent/agent.h"

int boot_kernel_mounts(struct agent *a, struct err *e); /* /proc /sys /dev, the console, what is held of them */
int boot_modules(struct agent *a, struct err *e);	/* the files of /modules.order */
int boot_ports(struct agent *a, struct err *e);		/* from here on the host can hear us */
int boot_root(struct agent *a, struct err *e);		/* the root disk becomes / (if the command line names one) */
int boot_run_mounts(struct agent *a, struct err *e);	/* /dev/pts /dev/shm /run /tmp, cgroups */
int boot_loopback(struct agent *a, struct err *e);

/* Later, when there is to be a network: the files of /modules.net in the initramfs. Loaded before: 0 at once. */
int boot_net_modules(struct guest *g, struct err *e);

/* Open a device that appears when its driver has heard of it, and may say ENXIO for an instant longer: for up to 5 s.
 * The descriptor or -errno. */
int boot_wait_open(const char *path, int flags);

#endif
