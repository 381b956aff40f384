/* SPDX-License-Identifier: Apache-2.0 */
/* What crucibled asks of crucible-launch, the only process that stays root.
 *
 * One SOCK_SEQPACKET socket (base/msg.h). crucibled starts as root, makes the socketpair, forks and executes the
 * launcher with its end as descriptor 3, then drops its own privileges. The launcher takes its whole configuration from
 * its arguments (written by root): which programs may be executed, the uid range, the cgroup's name, the store.
 * Requests name things by kind, slot number and uuid only; nothing in them is a path that the launcher would open, but
 * for MOUNT's mount point, which must equal the configured one. Every request is answered by LAUNCH_REPLY with the
 * request's id: {i32 code (0 or -errno), str words, payload by type}; -EBADMSG a malformed request, -ENOTSUP an unknown
 * one. End of file: crucibled is gone; the launcher exits and touches nothing: running sandboxes are found again by the
 * next daemon, the dead mount stays until it is replaced.
 *
 * Uids: uid_base is crucibled's own uid and gid (the "service gid"); sandbox slot s >= 0 uses uid_base + 1 + 2*s for
 * its box (gid: the service gid) and uid_base + 2 + 2*s for its engine (uid and gid). A slot is held by an
 * open-file-description lock on byte s of /run/crucible/slots, whose descriptor the box and the engine inherit: it is
 * free exactly when both are gone, whatever died first, and two daemons on one host never share one. */
#ifndef CRUCIBLE_LAUNCH_H
#define CRUCIBLE_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/err.h"
#include "base/msg.h"
#include "base/wire.h"

#define LAUNCH_UID_BASE_DEFAULT 0x70000000u
#define LAUNCH_SLOTS_MAX	16384u
#define LAUNCH_UUID_LEN		36

enum launch_type {
	LAUNCH_REPLY = 1,
	/* {str mountpoint} -> fd 0: /dev/fuse descriptor of a fresh mount, options
	 * nosuid,nodev,noexec,default_permissions,allow_other, fsname crucible, type fuse.crucible. A dead mount of
	 * ours on the same place (ENOTCONN) is replaced. Errors: -ENOENT, -ENOTDIR, -EBUSY (something lives there),
	 * -EPERM (not the configured place). */
	LAUNCH_MOUNT,
	LAUNCH_UNMOUNT,	   /* {} lazily; -EINVAL when none is ours */
	LAUNCH_SLOT_ALLOC, /* {} -> {u32 slot}; -EAGAIN when all are taken */
	LAUNCH_SLOT_FREE,  /* {u32 slot}: the launcher closes its own hold on it */
	/* struct launch_spawn -> {i32 pid, str unenforced (comma separated)} fd 0: pidfd. Errors: -EINVAL slot not
	 * allocated here, or nofile < 32; -EEXIST that kind of that sandbox runs; -ENOENT, -ELOOP its folder, or a
	 * program that is absent; those of exec and of each step of the confinement, which the words name. Nothing is
	 * left then. */
	LAUNCH_SPAWN,
	/* {str uuid}: kill all in the sandbox's cgroups, wait until they are gone, remove them; fine when none.
	 * Answered after the exit events. -ETIMEDOUT: a process hangs in the kernel for 20 s. */
	LAUNCH_KILL,
	LAUNCH_STAT, /* {str uuid} -> struct launch_stat; -ENOENT no engine */
	/* {} -> {u32 n, n * str uuid}: sandboxes (not pager, store, netd) that have a cgroup; -EFBIG more than 3500 */
	LAUNCH_LIST,
	/* {str uuid} -> {u8 mask} fds: topology_up() in the namespace of the sandbox's engine: bit n says that enum
	 * topology_fd n is among them, in order. -ENOENT no engine runs; -ENODEV it has no tap; -EBUSY NET_JOBS_MAX
	 * wait; -ETIMEDOUT 5 s; those of topology_up() with their words. */
	LAUNCH_NET,
	/* {str uuid, u32 n} -> n fds: topology_sockets() there. 1 <= n <= MSG_FDS_MAX, else -EINVAL; else as NET. */
	LAUNCH_NET_SOCKETS,
	LAUNCH_EXIT_EVENT, /* launcher -> daemon, id 0: {str uuid, u8 kind, i32 wait status} of a child that ended */
	LAUNCH_TYPE_COUNT,
};

/* PAGER, STORE and NETD are one each: slot is not used (uids: LAUNCH_UID_PAGER, _STORE, _NETD beyond uid_base; gid: the
 * service gid), uuid is LAUNCH_UUID_PAGER, _STORE or _NETD, and stands for them in KILL and EXIT_EVENT. */
enum launch_kind { LAUNCH_BOX, LAUNCH_ENGINE, LAUNCH_PAGER, LAUNCH_STORE, LAUNCH_NETD, LAUNCH_KIND_COUNT };
#define LAUNCH_UID_PAGER  (1u + 2u * LAUNCH_SLOTS_MAX)
#define LAUNCH_UID_STORE  (2u + 2u * LAUNCH_SLOTS_MAX)
#define LAUNCH_UID_NETD	  (3u + 2u * LAUNCH_SLOTS_MAX)
#define LAUNCH_UUID_PAGER "00000000-0000-0000-0000-000000000001"
#define LAUNCH_UUID_STORE "00000000-0000-0000-0000-000000000002"
#define LAUNCH_UUID_NETD  "00000000-0000-0000-0000-000000000003"

/* Of the store, shown to engines: mode 0711 in a folder of mode 0700, so that nobody else of the host comes through to
 * the socket, which all may connect to. */
#define LAUNCH_BLOCKS_DIR "blocks/engines"

#define LAUNCH_ARGS_MAX	      128
#define LAUNCH_ARGS_BYTES_MAX (32 * 1024)

/* Start one process, confined, in <cgroup base>/<uuid>/{box,engine}:
 * both:   own mount namespace with an empty read-only root (tmpfs) holding /usr /lib /lib64 /bin read-only, and /proc
 *only for none; own pid, network, ipc and uts namespaces; all capabilities gone, no_new_privs, core 0, nofile from
 *`nofile`, oom_score_adj (engine 500, box 100); environment empty but for LD_PRELOAD of a sanitizer build, nothing
 *else; stdin /dev/null, stdout and stderr: fds[0] (a log or console descriptor; it is not counted below). box:
 *<store>/sandboxes/<uuid>/box at /box (rw,nosuid,nodev,noexec), <store>/run at /run (ro). engine: <store>/boot at /boot
 *(ro: kernel and initramfs), /usr/share/{qemu,seabios}; /dev/{null,urandom}; a /dev/kvm node of its own when `kvm`;
 *PR_SET_THP_DISABLE; <store>/blocks/engines (the block server's socket) at /run/blocks; LD_PRELOAD of
 *crucible-preload.so (shown at /preload.so), CRUCIBLE_PRELOAD_{SOCKET,RAM,UFFD} from `memory_fd` and `ram_bytes`, with
 *an open /dev/userfaultfd that the launcher adds behind fds (a host without: -1, and "userfaultfd" in unenforced).
 *pager: <store>/snapstore at /snapstore (ro), <store>/disks at /disks (rw), <store>/profiles at /profiles (ro); no
 *memory limit. store: <store>/snapstore rw; nice 10. netd: nothing of the store; the HOST's network namespace; oom
 *-400. fds[1..] become descriptors 3, 4, … of the new process, in order. The slot's lock is inherited behind them. */
struct launch_spawn {
	uint8_t kind;  /* enum launch_kind */
	uint32_t slot; /* from LAUNCH_SLOT_ALLOC */
	char uuid[LAUNCH_UUID_LEN + 1];
	bool kvm;		 /* engine: give it /dev/kvm */
	uint64_t memory_bytes;	 /* cgroup memory limit; 0: none */
	uint32_t cpu_percent;	 /* of one CPU: 250 is two and a half; 0: none */
	uint32_t pids;		 /* tasks; 0: none */
	uint64_t io_bytes_per_s; /* on the store's disk; 0: none */
	uint32_t nofile;	 /* RLIMIT_NOFILE */
	uint64_t ram_bytes;	 /* engine: of the guest, for the preload library; 0: no preload library */
	uint32_t memory_fd;	 /* engine: number (3, 4, …) of its socket to the box */
	uint32_t net_fd; /* engine: number of a placeholder that its tap (topology_tap()) takes the place of; 0: none. A
			    host without /dev/net/tun: the placeholder stays, "network" in unenforced */
	size_t argc;
	const char *argv[LAUNCH_ARGS_MAX]; /* argv[0] is the program's name; the path is the launcher's configuration */
};
/* Wire order of the members as above: u8, u32, str, u8, u64, u32, u32, u64, u32, u64, u32, u32, u32 argc,
 * argc * str. */
int launch_spawn_encode(const struct launch_spawn *s, struct buf *out);
/* argv points into @store (cap LAUNCH_ARGS_BYTES_MAX). -EBADMSG on anything out of bounds. */
int launch_spawn_decode(const void *data, size_t len, struct launch_spawn *ret, char *store, size_t cap);

/* Payloads of KILL, STAT, NET and SLOT_FREE, written without asking for memory: these must go out when there is none.
 */
#define LAUNCH_UUID_BYTES (4 + LAUNCH_UUID_LEN)
void launch_uuid_encode(const char *uuid, uint8_t out[LAUNCH_UUID_BYTES]); /* @uuid: LAUNCH_UUID_LEN characters */
void launch_slot_encode(uint32_t slot, uint8_t out[4]);
int launch_net_sockets_encode(const char *uuid, uint32_t n, struct buf *out); /* payload of NET_SOCKETS */

struct launch_stat {
	uint32_t tasks;	       /* alive in the engine's cgroup */
	uint64_t memory_bytes; /* current, engine */
	uint64_t memory_peak_bytes;
	uint64_t cpu_usec;  /* engine */
	uint64_t oom_kills; /* host-side, engine */
	uint64_t io_read_bytes, io_write_bytes;
};
int launch_stat_encode(const struct launch_stat *s, struct buf *out);
int launch_stat_decode(struct wire_rd *r, struct launch_stat *ret);

/* -- the client, used by crucibled on its loop -------------------------------------------------- */

struct launcher;
/* Answer of one call: @code 0 or -errno, @words from the launcher, @r: what follows them in the reply (valid until
 * return), @fds: take those you want. Called from the loop exactly once per call, with -EPIPE when the launcher dies.
 */
typedef void launcher_fn(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m);
struct launcher_ops {
	void (*on_exit)(void *arg, const char *uuid, enum launch_kind kind, int status);
	void (*on_gone)(void *arg);
};
/* Takes @fd (the daemon's end). Thread: loop. Errors: -ENOMEM and those of msgconn_new. */
int launcher_new(struct loop *l, int fd, const struct launcher_ops *ops, void *arg, struct launcher **ret);
struct launcher *launcher_free(struct launcher *l); /* pending calls are dropped without a callback */
/* Send a request; @fn may be NULL. Returns 0 or -errno of msgconn_send (then @fn is not called). */
int launcher_call(struct launcher *l, enum launch_type type, const void *data, size_t len, const int *fds, size_t nfds,
		  launcher_fn *fn, void *arg);
/* The same, blocking, on the bare descriptor, before the loop runs (MOUNT, LIST) or when it does not any more
 * (UNMOUNT): returns the code. @ret_payload and @ret_fd may be NULL. */
int launcher_call_sync(int fd, enum launch_type type, const void *data, size_t len, struct buf *ret_payload,
		       int *ret_fd, struct err *e);

#endif
