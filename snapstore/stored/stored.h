/* SPDX-License-Identifier: Apache-2.0 */
/* crucible-store: the one process that writes the snapstore: ingest, verify, gc. All that is slow, at low priority.
 *
 * Started by the launcher (kind LAUNCH_STORE) with 3: a listening SOCK_SEQPACKET socket bound at
 * <store>/run/store.sock; /snapstore read-write. Clients as of the pager. Requests are done one after another by a
 * thread; progress comes in between. STATE, MANIFEST and LIST do not wait for the others, unless an INGEST or REMOVE of
 * that snapshot is before them. A client that goes takes nothing with it: what runs is finished; it ends 90 s later, or
 * by STORE_QUIT. Every request is answered by STORE_REPLY with its id: {i32 code, str words, payload}. */
#ifndef CRUCIBLE_STORED_H
#define CRUCIBLE_STORED_H

#include "base/msg.h"
#include "base/wire.h"

#define STORED_FD_LISTEN 3
#define STORED_ORPHAN_S	 90u

enum stored_type {
	STORE_REPLY = 1,
	/* {str json, u32 nlayers} fds: device state (a file, read from 0), template, bits of captured pages, then
	 * nlayers * (data, map) of the disk, oldest first. json: {"uuid", "parent" (uuid or ""), "base": uuid of the
	 * stored snapshot whose maps this one changes, or "", "memory_whole": true: its disk's map only (the machine
	 * was booted anew since), "created_ns", "memory_bytes", "disk_bytes", "meta":{}}. A template may be absent
	 * ("memory_bytes":0, no fds for it): disk only.
	 * -> {str json: {"pages_new":N,"pages_known":N,"pages_zero":N,"bytes_stored":N,"shared_with_parent":N,
	 *     "disk_root":"hex", "memory_root":"hex"}}. -ENOSPC, -EBADMSG (the base), -EEXIST. */
	STORE_INGEST,
	STORE_VERIFY,	/* {str uuid or ""} -> {str json: {"pages":N,"damaged":N,"first":"words","bytes_read":N}} */
	STORE_REMOVE,	/* {str uuid}: its manifest; space comes back by gc; none is fine */
	STORE_GC,	/* {} -> {str json of struct snap_gc} */
	STORE_STAT,	/* {} -> {str json of struct snap_stat} */
	STORE_MANIFEST, /* {str uuid} -> {str json: the manifest, as snap_manifest_parse() takes it} -ENOENT, -EBADMSG
			 */
	STORE_LIST,	/* {} -> {u32 n, n * str uuid} */
	/* {str uuid} -> {} fd0: memfd with the device state; nobody can write into it */
	STORE_STATE,
	STORE_CANCEL,	/* {u32 id of a request}: it ends with -ECANCELED if it had not yet; no reply */
	STORE_PROGRESS, /* store -> daemon, id of the request: {u64 done, u64 total}; at most every 100 ms */
	STORE_QUIT,
	STORE_PING, /* {} -> {}: are you there? Answered at once, whatever is under way, without the disk */
	STORE_TYPE_COUNT,
};

#endif
