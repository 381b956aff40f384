/* SPDX-License-Identifier: Apache-2.0 */
/* What a virtual machine monitor must be able to do for us. One table of functions per engine; QEMU is the only one
 * today.
 *
 * The work is divided by process. crucibled asks `probe` and `command` and has the launcher spawn the result (it never
 * executes an engine itself). The box holds the other end of the descriptors and drives the machine by `connect` and
 * the calls on a struct engine. Nothing here knows about the agent: the two agent ports are plain sockets handed to the
 * box.
 *
 * States of a struct engine (calls allowed -> next):
 *   CONNECTING  none                          -> RUNNING (cold boot) or INCOMING (generic) when the monitor answered
 *                                                (event ENGINE_EV_UP), GONE
 *   INCOMING    assign_disk, load, quit       -> PAUSED after load, GONE
 *   RUNNING     pause, balloon, quit          -> PAUSED, GONE
 *   PAUSED      resume, save, balloon, quit   -> RUNNING, GONE
 *   GONE        free                          (event ENGINE_EV_GONE was sent)                                     */
#ifndef CRUCIBLE_VMM_ENGINE_H
#define CRUCIBLE_VMM_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/loop.h"

enum engine_accel { ACCEL_TCG, ACCEL_KVM, ACCEL_COUNT };
const char *engine_accel_name(enum engine_accel a); /* "tcg", "kvm" */

enum engine_cap {
	ENGINE_CAP_PAUSE = 1 << 0,
	ENGINE_CAP_SAVE_STATE = 1 << 1, /* device state without memory, for snapshots */
	ENGINE_CAP_TCG = 1 << 2,
	ENGINE_CAP_KVM = 1 << 3, /* this build can; whether this host can is the trial's answer (trial.h) */
	ENGINE_CAP_NET = 1 << 4, /* this host has taps: its machines can be given one */
};

struct engine_info {
	char name[16];	     /* "qemu" */
	char version[32];    /* "7.2.22" */
	char path[256];	     /* the program */
	unsigned caps;	     /* enum engine_cap */
	char cpu_vendor[13]; /* of this host: "AuthenticAMD"; a guest under KVM sees the same */
};

/* Descriptors of the new process, in the order in which the launcher places them (3, 4, …). */
enum engine_fd {
	ENGINE_FD_MONITOR,
	ENGINE_FD_CONTROL,
	ENGINE_FD_BULK,
	ENGINE_FD_CONSOLE,
	ENGINE_FD_MEMORY, /* SOCK_SEQPACKET to the preload library (vmm/preload/preload.h); the box has the other end */
	ENGINE_FD_NET,	  /* the tap, which the launcher puts here (launch.h, net_fd) */
	ENGINE_FD_COUNT
};

/* Every machine has a disk of one size, so that all of one shape are alike; the file system in it grows to what the
 * sandbox asked for, and the block server enforces that. */
#define ENGINE_DISK_BYTES  (64ull << 30)
#define ENGINE_BLOCKS_PATH "/run/blocks/nbd.sock" /* the block server, as the engine's process sees it */

/* Machine classes (DESIGN.md): the next larger class is used, the exact number is enforced in the guest. */
uint32_t engine_memory_class(uint32_t memory_mib); /* 256 512 1024 2048 4096; 0 beyond */
uint32_t engine_vcpus_class(uint32_t vcpus);	   /* 1 2 4; 0 beyond */

struct engine_machine {
	enum engine_accel accel;
	uint32_t memory_mib; /* a class */
	uint32_t vcpus;	     /* a class */
	uint64_t tsc_khz;    /* of the host, measured once (engine_tsc_khz) */
	/* Cold boot: paths as the engine's process sees them: "/boot/<bootid>/vmlinux". Both NULL: a generic machine
	 * that waits for load() (-incoming defer, a placeholder for its disk), of this shape and otherwise of no one.
	 */
	const char *kernel;
	const char *initrd;
	bool disk;		 /* cold boot: false: none (trial boots); generic ones always have one */
	const char *disk_export; /* cold boot with a disk: its name at the block server */
	bool net;		 /* its network card ends at ENGINE_FD_NET; false: at nothing (ENGINE_CAP_NET) */
	const char *append;	 /* more words for the kernel's command line, or NULL */
};
/* What a saved machine's state depends on beside its shape: "qemu-7.2 <hash of the generic command line of that shape>
 * <CPU model>[ <vendor of the host's processor, under KVM>] agent-<version of its protocol>", without Debian's
 * revision: a security update must not lose snapshots. @ret: at least 128 bytes. -EINVAL
 */
int engine_fingerprint(const struct engine_info *i, const struct engine_machine *m, char *ret, size_t cap);

#define ENGINE_ARGS_MAX 96
struct engine_command {
	size_t argc;
	const char *argv[ENGINE_ARGS_MAX + 1]; /* into text[]; NULL-ended */
	char text[8192];
};

enum engine_event {
	ENGINE_EV_UP, /* the monitor is usable */
	ENGINE_EV_PAUSED,
	ENGINE_EV_RESUMED,  /* the machine did, asked or not */
	ENGINE_EV_SHUTDOWN, /* the guest powered off or reset; the process is about to end */
	ENGINE_EV_PANICKED, /* guest kernel panic, where the engine can tell */
	ENGINE_EV_IO_ERROR, /* the disk's write failed on the host (ENOSPC: the machine is paused) */
	ENGINE_EV_STUCK,    /* a monitor call was not answered in time */
	ENGINE_EV_GONE,	    /* monitor closed: nothing works any more */
};

struct engine; /* one connection to a monitor */
struct engine_events {
	/* From the loop. @detail: words, without control characters, valid until return. May free the engine. */
	void (*on_event)(void *arg, enum engine_event ev, const char *detail);
};
/* Ends a call: 0 or -errno (-EIO the engine refused, words in e; -ETIMEDOUT; -EPIPE gone). From the loop, once per
 * call. */
typedef void engine_done_fn(void *arg, int code, const struct err *e);

struct engine_ops {
	const char *name;
	/* Find the program and what it can do. Blocks (runs `--version`, `-accel help`): once, at the daemon's start,
	 * before the loop. Errors: -ENOENT (words name the Debian package that mends it), -ENOSYS too old, -EIO. */
	int (*probe)(const char *path_or_null, struct engine_info *ret, struct err *e);
	/* The argument vector for @m; pure. -EINVAL for what this engine cannot do. */
	int (*command)(const struct engine_machine *m, struct engine_command *ret, struct err *e);
	/* Talk to a monitor. Takes @fd (also on failure). Does not block: ENGINE_EV_UP follows. -ENOMEM. */
	/* @generic: it was started without a kernel. */
	int (*connect)(struct loop *l, int fd, bool generic, const struct engine_events *ev, void *arg,
		       struct engine **ret, struct err *e);
	/* Calls return 0 (@fn will be called) or -errno (-EBUSY wrong state, -EPIPE gone, -ENOMEM). @timeout_ms bounds
	 * each. */
	int (*pause)(struct engine *g, uint32_t timeout_ms, engine_done_fn *fn, void *arg);
	int (*resume)(struct engine *g, uint32_t timeout_ms, engine_done_fn *fn, void *arg);
	/* Device state (not RAM) into @fd (borrowed until @fn); PAUSED only. */
	int (*save)(struct engine *g, int fd, uint32_t timeout_ms, engine_done_fn *fn, void *arg);
	/* INCOMING only: the disk is @export_name at the block server from now on. Before load(). */
	int (*assign_disk)(struct engine *g, const char *export_name, uint32_t timeout_ms, engine_done_fn *fn,
			   void *arg);
	/* INCOMING only, after the memory was put in place (preload.h): device state from @fd (borrowed until @fn).
	 * PAUSED then, whatever the machine was when it was saved. */
	int (*load)(struct engine *g, int fd, uint32_t timeout_ms, engine_done_fn *fn, void *arg);
	/* The guest gives free memory up until @bytes are left to it (a multiple of 4096; all that it has: it gets all
	 * back). What was given up is no longer the machine's own and shows its template, or zeros. RUNNING, or PAUSED,
	 * where it waits for the guest; beside any other call, one at a time. @fn: 0 it is there; -ETIMEDOUT it is not,
	 * or has not moved for 2 s, and goes on towards it; -EIO the engine refused. Returns -EINVAL, -EBUSY, -EPIPE,
	 * -ENOMEM. */
	int (*balloon)(struct engine *g, uint64_t bytes, uint32_t timeout_ms, engine_done_fn *fn, void *arg);
	/* Ask the process to end now (the guest is not asked). ENGINE_EV_GONE follows; whoever wants certainty kills
	 * the cgroup. */
	int (*quit)(struct engine *g);
	struct engine *(*free)(struct engine *g); /* NULL is fine; pending calls are dropped; returns NULL */
};
extern const struct engine_ops engine_qemu;

/* kHz of the host's time stamp counter against CLOCK_MONOTONIC over 200 ms, or 0 where it is not constant. Blocks. */
uint64_t engine_tsc_khz(void);

#endif
