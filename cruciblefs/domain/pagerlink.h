/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's side of snapstore/pager/pager.h: one function a message, and its answer as a plain struct. What each
 * message means stands there. peer.h says how the process is found, started and started again.
 *
 * Every function returns 0 (@fn will be called exactly once, from the loop, unless it is NULL) or -errno (@fn will not
 * be called): -ENOTCONN the pager is not up, -ENOBUFS, -ENOMEM. Descriptors are borrowed. Names of snapshots and
 * machines are uuids. Thread: the loop's. Nothing blocks. */
#ifndef CRUCIBLE_DOMAIN_PAGERLINK_H
#define CRUCIBLE_DOMAIN_PAGERLINK_H

#include <json-c/json.h>
#include "cruciblefs/domain/peer.h"
#include "snapstore/pager/pager.h"

#define PAGER_UUID_LEN	 36
#define PAGER_LIST_MAX	 8192u /* machines, templates; each */
#define PAGER_LAYERS_MAX (MSG_FDS_MAX / 2)
#define PAGER_MEMORY_MAX (1ull << 40) /* bytes that anything here may speak of */

struct pager_range {
	uint64_t offset, bytes;
};
struct pager_machine {
	char machine[PAGER_UUID_LEN + 1], snapshot[PAGER_UUID_LEN + 1]; /* "": cold-booted */
};
struct pager_held {
	char snapshot[PAGER_UUID_LEN + 1];
	bool stored;
};

/* Valid until the callback returns. Of what does not belong to the message, nothing is set. */
struct pager_reply {
	int code; /* 0 or -errno; -EBADMSG: nonsense; -EPIPE: the pager is gone */
	const char *words;
	uint64_t bytes;	    /* CAPTURED: of the template. DISK_STAT: own */
	uint64_t pages, ns; /* CAPTURE */
	uint32_t layers;    /* DISK_STAT, DISK_FILES */
	uint32_t nranges;   /* TEMPLATE, CAPTURE, CAPTURED: checked to be whole pages in order, inside of the memory */
	struct pager_range ranges[PAGER_RANGES_MAX];
	struct json_object *json; /* STAT */
	/* LIST */
	size_t nmachines, nheld;
	struct pager_machine *machines;
	struct pager_held *held;
	/* As many as the message has; take_fd() those you want. TEMPLATE, CAPTURE_BEGIN: the template. CAPTURE: bits.
	 * CAPTURED: template, bits. WORKSET: the list. DISK_FILES: data, map of each layer. */
	size_t nfds;
	int *fds;
};
typedef void pager_fn(void *arg, struct pager_reply *r);

struct pagerlink;
struct pagerlink_ops {
	/* Calls are taken. Send PAGER_CONFIG; of a @fresh one, ADOPT and ATTACH again; else LIST what it has. */
	void (*on_up)(void *arg, bool fresh);
	void (*on_lost)(void *arg, const char *words);
	/* A fault cannot be served: end that machine. */
	void (*on_machine_lost)(void *arg, const char *machine, int code, const char *words);
};
/* Errors: those of peer_new(). */
int pagerlink_new(const struct peer_setup *setup, const struct pagerlink_ops *ops, void *arg, struct pagerlink **ret,
		  struct err *e);
struct pagerlink *pagerlink_free(struct pagerlink *k); /* waiting calls are answered with -EPIPE; the pager lives on */
bool pagerlink_is_up(const struct pagerlink *k);
const char *pagerlink_degraded(const struct pagerlink *k); /* see peer_degraded() */
void pagerlink_quit(struct pagerlink *k);

/* -- memory */
int pager_template(struct pagerlink *k, const char *snapshot, uint64_t bytes, pager_fn *fn, void *arg);
struct pager_attach {
	const char *machine, *snapshot; /* snapshot "": cold-booted; uffd is -1 then */
	uint64_t base, bytes;
	uint32_t nranges;
	const struct pager_range *ranges;
	int uffd, mem, pagemap; /* uffd -1: userfaultfd does not work there */
};
int pager_attach(struct pagerlink *k, const struct pager_attach *a, pager_fn *fn, void *arg);
int pager_detach(struct pagerlink *k, const char *machine, pager_fn *fn, void *arg);
int pager_capture_begin(struct pagerlink *k, const char *snapshot, uint64_t bytes, const char *parent, pager_fn *fn,
			void *arg);
int pager_capture(struct pagerlink *k, const char *machine, const char *snapshot, pager_fn *fn, void *arg);
int pager_captured(struct pagerlink *k, const char *snapshot, pager_fn *fn, void *arg);
/* @bits_fd -1: stored. */
int pager_adopt(struct pagerlink *k, const char *snapshot, uint64_t bytes, const char *parent, int template_fd,
		int bits_fd, pager_fn *fn, void *arg);
int pager_stored(struct pagerlink *k, const char *snapshot, pager_fn *fn, void *arg);
int pager_forget(struct pagerlink *k, const char *snapshot, pager_fn *fn, void *arg);
int pager_workset(struct pagerlink *k, const char *snapshot, pager_fn *fn, void *arg);
int pager_workset_set(struct pagerlink *k, const char *snapshot, int fd, pager_fn *fn, void *arg);

/* -- disks */
struct pager_disk {
	const char *id, *snapshot, *base_name; /* snapshot "": over the base */
	uint64_t bytes, limit_bytes;
	int base_fd;
};
int pager_disk_create(struct pagerlink *k, const struct pager_disk *d, pager_fn *fn, void *arg);
int pager_disk_remove(struct pagerlink *k, const char *id, pager_fn *fn, void *arg);
int pager_disk_export(struct pagerlink *k, const char *name, const char *id, uint32_t uid, pager_fn *fn, void *arg);
int pager_disk_unexport(struct pagerlink *k, const char *name, pager_fn *fn, void *arg);
int pager_disk_sync(struct pagerlink *k, const char *id, pager_fn *fn, void *arg);
int pager_disk_files(struct pagerlink *k, const char *snapshot, const char *parent, pager_fn *fn, void *arg);
int pager_disk_stat(struct pagerlink *k, const char *id, pager_fn *fn, void *arg);

/* -- the process */
int pager_stat(struct pagerlink *k, pager_fn *fn, void *arg);
int pager_list(struct pagerlink *k, pager_fn *fn, void *arg);
int pager_evict(struct pagerlink *k, const char *snapshot, pager_fn *fn, void *arg); /* "": the least used */
int pager_config(struct pagerlink *k, uint64_t budget_bytes, pager_fn *fn, void *arg);

/* What follows the words in a reply to @type of memory of @bytes (0: not known), which had @m's descriptors. -EBADMSG;
 * -ENOMEM. Frees nothing of @ret before it was set: pager_reply_fini() afterwards, also on failure. */
int pager_reply_parse(enum pager_type type, uint64_t bytes, struct wire_rd *r, struct msg *m, struct pager_reply *ret);
void pager_reply_fini(struct pager_reply *r);

#endif
