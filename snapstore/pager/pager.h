/* SPDX-License-Identifier: Apache-2.0 */
/* crucible-pager: memory and disks of every machine, served; and what crucibled asks of it.
 *
 * Started by the launcher (kind LAUNCH_PAGER) with: 3 a listening SOCK_SEQPACKET socket bound at
 * <store>/run/pager.sock, 4 a listening stream socket bound at <store>/blocks/nbd.sock (engines see it as
 * /run/blocks/nbd.sock). Its root holds /snapstore (read-only), /disks (read-write), nothing else of the store, and a
 * /proc of its pid namespace. Clients: a peer of uid @daemon_uid (argv) only, one at a time; a newer one replaces the
 * older. It outlives crucibled: machines go on, the next daemon connects to the same socket. It ends by PAGER_QUIT, or
 * by itself when for PAGER_ORPHAN_S no daemon was there and no machine lives.
 *
 * Messages are base/msg.h; every request is answered by PAGER_REPLY with its id: {i32 code (0 or -errno), str words,
 * payload by type}. uuids are text of 36 characters. Requests that copy memory or touch disks are done by threads of
 * their own, so that no fault waits behind them; replies come in any order.
 *
 * Memory. A template is a memfd of the guest's RAM size, sealed against growing, shrinking and sealing, mode 0400. It
 * is named by the snapshot that it is the memory of. Engines map O_RDONLY re-opens privately; a hole is filled when an
 * engine touches it: from the template that it grew out of, while that has the page, else from the snapstore. Pages
 * that were captured and are not in the snapstore yet are never evicted.
 *
 * Life of a template: CAPTURE_BEGIN makes it empty; CAPTURE puts the machine's own pages into it ("captured"); the
 * daemon has them ingested; STORED says that the snapstore has it all. Or: TEMPLATE of a stored snapshot makes it
 * empty, to be filled from the store. It is freed when no machine is attached and it is FORGOTten, or for room (then
 * TEMPLATE makes it again). */
#ifndef CRUCIBLE_PAGER_H
#define CRUCIBLE_PAGER_H

#include <stdint.h>
#include "base/msg.h"
#include "base/wire.h"

#define PAGER_FD_LISTEN	   3
#define PAGER_FD_BLOCKS	   4
#define PAGER_ORPHAN_S	   90u
#define PAGER_RANGES_MAX   256u	  /* zero ranges of one template */
#define PAGER_RANGE_MIN	   65536u /* bytes */
#define PAGER_MACHINES_MAX 4096u

enum pager_type {
	PAGER_REPLY = 1,

	/* -- memory ----------------------------------------------------------------------------------- */
	/* {str snapshot, u64 bytes, u8 whole} -> {u32 n, n * {u64 offset, u64 bytes}} fd0: the template for an engine
	 * (O_RDONLY). The ranges, >= PAGER_RANGE_MIN each, largest first chosen, then in order, are all zeros: map them
	 * anonymous. Of a stored snapshot it is made when it is not there, and its working set is read ahead. @whole:
	 * all of it is, before the answer: an engine that was taken over can put a zero page into a hole of a template
	 * (by reading it through a mapping of its own), so what users who distrust each other share has none. -ENOENT;
	 * -EBADMSG. */
	PAGER_TEMPLATE,
	/* {str machine, str snapshot, u64 base address in the engine, u64 bytes, u32 n, n * {u64 offset, u64 bytes}:
	 * the ranges that are anonymous} fds: userfaultfd (registered, MISSING), the engine's mem, its pagemap. Faults
	 * are served from now on. The machine's former attachment, if any, is let go. @snapshot "": a cold-booted
	 * machine, RAM is private anonymous memory; fds: mem, pagemap only. With a snapshot and those two only (no
	 * userfaultfd on this host): answered when the template is full; the machine must not touch its memory before.
	 * Nor when an engine has put zeros into holes of the template: answered when these are out again. */
	PAGER_ATTACH,
	PAGER_DETACH, /* {str machine}; none is fine */
	/* {str snapshot, u64 bytes, str parent ("": none)} -> {} fd0: the new template, for the engine. Its holes show
	 * @parent's pages; "": zeros. -EEXIST, -ENOMEM (budget), -ENOENT the parent is not here. */
	PAGER_CAPTURE_BEGIN,
	/* {str machine, str snapshot, str disk ("": none)}: the machine is paused. Copies the pages that it has of its
	 * own (written since its mapping was made) into the template, and freezes the disk as snapshot @snapshot's. Of
	 * a machine that has a template and no userfaultfd the new one is filled, too: it may go on with it at once.
	 * -> {u64 pages, u64 ns, u32 n, n ranges as in TEMPLATE} fd0: a memfd with one bit a page of what was captured.
	 * On failure nothing has changed: the template is empty, the disk as before. */
	PAGER_CAPTURE,
	/* {str snapshot}, of a template that was captured and is not stored -> {u64 bytes, u32 n, n ranges} fds:
	 * template, bits of captured pages. -ENOENT. For a daemon that was restarted. */
	PAGER_CAPTURED,
	/* {str snapshot, u64 bytes, str parent, u8 stored} fds: the template (any descriptor of it) and, unless stored,
	 * the bits of captured pages: to a pager that was restarted, before the machines of it are ATTACHed again. What
	 * the template holds (SEEK_DATA) is kept. -EPERM: not a template of a pager's, or that of another snapshot. */
	PAGER_ADOPT,
	PAGER_STORED, /* {str snapshot}: the snapstore has its memory and disk */
	/* {str snapshot}: not wanted (any more): freed with its last machine; its disk stack goes. None is fine. With
	 * machines on it: answered when all of it is in memory, so that they do not need the store any more. */
	PAGER_FORGET,
	/* {str snapshot}: which pages the first machine of it touched, in order -> {} fd0: memfd of u32 page numbers.
	 * -EAGAIN: not known yet. */
	PAGER_WORKSET,
	/* {str snapshot} fd0: such a list, kept with the snapshot: read in one batch by the next TEMPLATE */
	PAGER_WORKSET_SET,

	/* -- disks (snapstore/disk/disk.h) ------------------------------------------------------------ */
	/* {str id, u64 bytes, u64 limit, str snapshot or "", str base name} fd0: the base image, or none: then it is
	   bases/<base name> */
	PAGER_DISK_CREATE,
	PAGER_DISK_REMOVE,   /* {str id} */
	PAGER_DISK_EXPORT,   /* {str export, str id, u32 uid} */
	PAGER_DISK_UNEXPORT, /* {str export} */
	PAGER_DISK_SYNC,     /* {str id} */
	/* {str snapshot, str parent or ""} -> {u32 n} fds: n * (data, map), oldest first */
	PAGER_DISK_FILES,
	PAGER_DISK_STAT, /* {str id} -> {u64 own bytes, u32 layers} */

	/* -- the process ------------------------------------------------------------------------------ */
	/* {} -> {str json: {"templates":[{"snapshot","bytes","resident_bytes","captured_bytes","machines","faults",
	 * "from_parent","from_store","strays" (pages that engines put there and that were taken out),"stored"}],
	 * "more":N left out,"machines":N,"uring":bool,"budget_bytes":N,"faults":N, "degraded":"words or ''"}} */
	PAGER_STAT,
	PAGER_LIST,  /* {} -> {u32 n, n * {str machine, str snapshot}, u32 m, m * {str template, u8 stored}} */
	PAGER_EVICT, /* {str snapshot ("": the least used)}: give its filled pages back; live ones refault. For a host
		      * that is short of memory: what goes beyond the budget goes by itself */
	/* {u64 template budget bytes} */
	PAGER_CONFIG,
	PAGER_QUIT,
	/* pager -> daemon, id 0: {str machine, i32 code, str words}: a fault that cannot be served; end the machine */
	PAGER_LOST,
	PAGER_TYPE_COUNT,
};

#endif
