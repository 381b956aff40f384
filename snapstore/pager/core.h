/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of crucible-pager share: the templates, the machines, and who fills what. All of it belongs to the
 * loop's thread; jobs in the pool get copies, or things that do not change while they run (said at each).
 *
 * A template's page is, by its bits:
 *   resident           in the memfd; every machine maps it natively
 *   zero               known to be zeros, a hole for ever: machines get the shared zero page
 *   own                captured into this very template: the parent shows something else (or nothing) there
 * A page that is neither resident nor zero is looked for up the line of parents, as long as nobody on the way owns it,
 * and in the snapstore, by the map of the first of them that is stored (pg_source). What nobody has is lost, never
 * zeros.
 *
 * Invariants:
 *  1. A resident bit is set after the page was pwritten whole, and cleared before it is punched out.
 *  2. own pages of a template that is not stored are resident or zero. Nothing evicts them.
 *  3. zero never changes once a template is PG_CAPTURED or PG_STORED.
 *  4. A template that is not stored holds its parent; a stored one only knows it while it is there. */
#ifndef CRUCIBLE_PAGER_CORE_H
#define CRUCIBLE_PAGER_CORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/loop.h"
#include "base/msg.h"
#include "base/pool.h"
#include "snapstore/pager/message.h"
#include "snapstore/snap.h"

#define PG_WINDOW	 SNAP_WINDOW_PAGES
#define PG_WINDOW_BYTES	 (PG_WINDOW * SNAP_PAGE_BYTES)
#define PG_DEPTH	 32u /* windows under way from the store at once; each with a locked buffer */
#define PG_DEPTH_AHEAD	 24u /* of them, at most, for what nobody waits for */
#define PG_WAITERS	 8u  /* remembered for one window; beyond: all machines of the template are woken */
#define PG_TEMPLATES_MAX 4096u
#define PG_WORKSET_MAX	 65536u /* pages of one list */
#define PG_WORKSETS_MAX	 256u	/* lists kept for templates to come */
#define PG_CAPTURE_MAX	 4u	/* at once */

struct pager;
struct pg_machine;
struct pg_ahead;
struct pg_disks;

enum pg_state {
	PG_OPENING,  /* its map is being looked through */
	PG_BEGUN,    /* made for a capture, empty */
	PG_FILLING,  /* the capture is under way */
	PG_CAPTURED, /* not in the snapstore yet */
	PG_STORED,
	PG_STATE_COUNT,
};

struct pg_template {
	struct pg_template *next;
	struct pager *p;
	char snapshot[PG_UUID_LEN + 1];
	enum pg_state state;
	uint64_t bytes;
	uint32_t pages;
	int fd;				 /* O_RDWR memfd */
	uint64_t *resident, *own, *zero; /* never NULL */
	uint64_t *single;		 /* a bit a window: it could not be read whole; page by page from then on */
	uint32_t nresident, nown;
	struct pg_template *parent; /* see invariant 4 */
	bool holds_parent;
	struct snap_digest root; /* PG_STORED: of its map */
	struct snap_map *map;	 /* PG_STORED, once it was needed */
	unsigned refs;		 /* machines, children that are not stored, jobs */
	unsigned nmachines;
	bool forgotten;
	bool pinned;	   /* captured of a machine without userfaultfd: counted in @whole until that is attached */
	unsigned whole;	   /* machines without userfaultfd, also coming ones, and reads ahead: nothing is evicted */
	uint64_t used_ns;  /* when the last machine went, or somebody asked for it */
	uint32_t evict_at; /* page where an eviction goes on; == pages: none */
	uint32_t stray_at; /* the same of strays (evict.c) */
	uint64_t faults, from_parent, from_store, strays;
	uint32_t *touched; /* order of first touches by the first fork */
	uint32_t ntouched;
	enum { PG_UNTOUCHED, PG_RECORDING, PG_RECORDED } touch;
};

struct pg_machine {
	struct pg_machine *next;
	struct pager *p;
	char id[PG_UUID_LEN + 1];
	struct pg_template *t; /* NULL: cold-booted */
	uint64_t base, bytes;
	int uffd, mem, pagemap; /* uffd -1: none */
	loop_id watch;
	bool stalled; /* events wait in its userfaultfd for a free slot */
	bool records; /* its touches are the working set, until: */
	loop_id record_timer;
	uint32_t record_at; /* page where the look at its page tables goes on */
	bool capturing;	    /* a job uses mem and pagemap: it is freed afterwards */
	bool detached;	    /* while capturing */
	int lost;	    /* -errno: cannot be served any more */
	bool lost_told;
	char lost_words[160];
	uint32_t nranges;
	struct pg_range ranges[]; /* anonymous: not ours */
};

/* One window on its way from the store. */
struct pg_fill {
	struct pg_template *t; /* NULL: a free slot */
	struct pg_template *source;
	uint32_t first, n, page; /* @page: filled and woken first */
	uint32_t absent;
	uint8_t *buf;
	struct pg_machine *waiters[PG_WAITERS];
	unsigned nwaiters;
	bool wake_all;
	struct pg_ahead *ahead;
	struct pager *p;
};

typedef void pg_done_fn(void *arg, int code, const char *words);

struct pager_params {
	int listen_fd;	       /* taken; -1: none */
	int blocks_fd;	       /* taken; -1: no disks are served */
	uid_t daemon_uid;      /* the only one that may speak to us */
	int procfd;	       /* O_PATH of /proc/self/fd; taken */
	int rootfd;	       /* folder of the store; taken */
	const char *store;     /* the snapstore's name below it */
	int disksfd;	       /* folder of disks; taken; -1: none */
	bool uring;	       /* try it */
	bool scan;	       /* try PAGEMAP_SCAN */
	uint64_t budget_bytes; /* of templates; 0: a quarter of the machine's memory */
	uint64_t workset_ns;   /* how long the first fork's touches are recorded */
	uint64_t orphan_ns;
};
#define PAGER_PARAMS_INIT                                                                                          \
	{                                                                                                          \
		.listen_fd = -1, .blocks_fd = -1, .procfd = -1, .rootfd = -1, .disksfd = -1, .store = "snapstore", \
		.uring = true, .scan = true, .workset_ns = UINT64_C(2000000000),                                   \
		.orphan_ns = PAGER_ORPHAN_S * UINT64_C(1000000000),                                                \
	}

struct pager {
	struct loop *loop;
	struct pool *pool;
	struct pager_params params;
	struct snap *snap; /* the loop's; NULL: no store yet */
	struct snap_reader *reader;
	loop_id reader_watch;
	bool uring;
	struct snap *look;     /* for the job that looks through a map; one at a time */
	struct pg_look *looks; /* the first of them runs */
	struct pg_wait *waits; /* requests that wait for a template to be opened */
	uint8_t *slab;	       /* locked: a buffer a slot, and one for copies in the loop */
	struct pg_fill fills[PG_DEPTH];
	unsigned nfills;
	unsigned nstalled;
	struct pg_template *templates;
	unsigned ntemplates;
	struct pg_machine *machines;
	unsigned nmachines;
	struct pg_ahead *aheads;
	struct pg_workset *worksets;
	unsigned nworksets;
	loop_id reader_defer, ahead_defer, stall_defer, evict_defer, orphan_timer;
	uint64_t budget_bytes, resident_pages, faults;
	unsigned ncaptures;
	char degraded[160];
	/* the client */
	loop_id listen_watch;
	struct msgconn *client;
	uint32_t client_round; /* so that an answer meant for one that went is dropped */
	uint64_t orphan_since_ns;
	struct pg_disks *disks;
	bool quit;
};

/* -- core.c ------------------------------------------------------------------------------------------------- */
/* Takes the descriptors of @pp, also on failure. Blocks: on the disk. */
int pager_new(struct loop *l, const struct pager_params *pp, struct pager **ret, struct err *e);
struct pager *pager_free(struct pager *p);	      /* NULL is fine; waits for jobs */
void pg_degraded(struct pager *p, const char *words); /* the first is kept */
int pg_store(struct pager *p, struct err *e);	      /* p->snap and p->reader, or why not */
void pg_reader_kick(struct pager *p);		      /* after each snap_read() */

/* -- template.c --------------------------------------------------------------------------------------------- */
struct pg_template *pg_template_find(struct pager *p, const char *snapshot);
/* An empty one. @parent may be NULL; held when @hold. -ENOMEM, -EMFILE, -ENOSPC too many. */
int pg_template_new(struct pager *p, const char *snapshot, uint64_t bytes, struct pg_template *parent, bool hold,
		    struct pg_template **ret, struct err *e);
/* The same of a descriptor that a former pager made; -EPERM: it is not one of ours. */
int pg_template_adopt(struct pager *p, int fd, const char *snapshot, uint64_t bytes, struct pg_template *parent,
		      bool hold, struct pg_template **ret, struct err *e);
int pg_template_reopen(struct pg_template *t, int *ret_fd, struct err *e); /* O_RDONLY, for an engine */
int pg_bits_memfd(struct pg_template *t, int *ret_fd, struct err *e);	   /* own */
void pg_template_unref(struct pg_template *t);				   /* frees what nobody wants */
void pg_template_gone(struct pg_template *t); /* free it when nothing holds it and it is forgotten */
void pg_template_drop_parent(struct pg_template *t);
void pg_template_stored(struct pg_template *t); /* captured: in the snapstore now */
void pg_template_unpin(struct pg_template *t);	/* nobody is about to go on with it */
void pg_template_empty(struct pg_template *t);	/* punch everything, no bits; blocks a little */
/* Runs of zeros of PAGER_RANGE_MIN and more: the largest PAGER_RANGES_MAX, in order. */
uint32_t pg_zero_ranges(const struct pg_template *t, struct pg_range out[PAGER_RANGES_MAX]);
int pg_page_put(struct pg_template *t, uint32_t page, uint32_t n, const void *pages); /* pwrite and bits */
void pg_close_later(struct pager *p, int fd); /* in a thread: the last close of a memfd takes its time */

/* -- look.c: templates of stored snapshots ------------------------------------------------------------------ */
/* @t (PG_OPENING) of a stored snapshot: read its manifest and find its zeros, in a thread; then it is PG_STORED. @fn
 * is called from the loop; @t stays referenced until then. */
int pg_look(struct pg_template *t, pg_done_fn *fn, void *arg, struct err *e);
void pg_look_fini(struct pager *p);
int pg_map(struct pg_template *s, struct err *e); /* s->map, opened when needed */
/* A captured one: find it in the store. After that it is PG_STORED. -ENOENT, -EBADMSG: it is not (rightly) there. */
int pg_look_stored(struct pg_template *t, struct err *e);

/* -- fill.c ------------------------------------------------------------------------------------------------- */
int pg_fill_init(struct pager *p, struct err *e);
void pg_fill_fini(struct pager *p);
/* A thread of @m waits for @page. */
void pg_fill_fault(struct pg_machine *m, uint32_t page);
/* Nobody waits: fill the window of @page. What one read does not cover, the next call goes on with. Or -errno. */
enum {
	PG_AHEAD_DONE,
	PG_AHEAD_WAITS, /* pg_ahead_filled() will be called; then ask again */
	PG_AHEAD_LATER, /* no slot is free */
};
int pg_fill_ahead(struct pg_template *t, uint32_t page, struct pg_ahead *a, struct err *e);
bool pg_fill_room(const struct pager *p);
void pg_fill_forget_machine(struct pg_machine *m);

/* -- ahead.c: many windows, then an answer ------------------------------------------------------------------ */
/* Fill the windows of @pages (n of them; NULL: all), then @fn, from the loop, never inside this. @strict: the first
 * window that cannot be read is the answer, else those are left to their faults. -ENOMEM. */
int pg_ahead(struct pg_template *t, const uint32_t *pages, uint32_t n, bool strict, pg_done_fn *fn, void *arg);
void pg_ahead_filled(struct pg_ahead *a, uint32_t page, int code, const char *words);
void pg_ahead_go_on(struct pager *p); /* a slot became free */
void pg_ahead_fini(struct pager *p);

/* -- machine.c, fault.c ------------------------------------------------------------------------------------- */
struct pg_machine *pg_machine_find(struct pager *p, const char *id);
/* Takes uffd (-1: none; then the caller has filled @t, and counted it in @t->whole), mem, pagemap, also on failure. */
int pg_machine_attach(struct pager *p, const struct pg_request *q, struct pg_template *t, int uffd, int mem,
		      int pagemap, struct err *e);
void pg_machine_detach(struct pg_machine *m);
void pg_machine_free(struct pg_machine *m); /* of one detached while its capture ran: by the capture's end */
bool pg_machine_lives(const struct pg_machine *m);
void pg_machine_lost(struct pg_machine *m, int code, const char *words);
int pg_fault_watch(struct pg_machine *m, struct err *e);
void pg_fault_unstall(struct pager *p); /* a slot became free */
void pg_wake(struct pg_machine *m, uint32_t first, uint32_t n);
int pg_zero(struct pg_machine *m, uint32_t first, uint32_t n); /* give it the zero page; 0 or -errno */

/* -- capture.c ---------------------------------------------------------------------------------------------- */
struct pg_capture_result {
	uint64_t pages, ns;
};
typedef void pg_capture_fn(void *arg, const struct pg_capture_result *r, int code, const char *words);
/* Copy the own pages of @m into @t (PG_BEGUN), in a thread, then @fn from the loop: with PG_FILLING, for the caller to
 * make it PG_CAPTURED; on failure it is empty and PG_BEGUN again. -EBUSY, -ENOMEM. */
int pg_capture(struct pg_machine *m, struct pg_template *t, pg_capture_fn *fn, void *arg, struct err *e);

/* -- workset.c ---------------------------------------------------------------------------------------------- */
void pg_workset_touch(struct pg_machine *m, uint32_t page);
void pg_workset_attached(struct pg_machine *m, bool again);
void pg_workset_detached(struct pg_machine *m);
int pg_workset_list(struct pg_template *t, int *ret_fd, struct err *e); /* -EAGAIN not known yet */
int pg_workset_set(struct pager *p, const char *snapshot, int fd, struct err *e);
const uint32_t *pg_workset_get(struct pager *p, const char *snapshot, uint32_t *ret_n); /* NULL: none; borrowed */
void pg_workset_forget(struct pager *p, const char *snapshot);
void pg_workset_fini(struct pager *p);

/* -- evict.c ------------------------------------------------------------------------------------------------ */
void pg_evict_check(struct pager *p); /* beyond the budget: the least recently used idle ones go, in steps */
void pg_evict(struct pg_template *t); /* its filled pages go, in steps; machines fault again */
/* Pages that no bit tells of go, in steps; then pg_looked(). false: there are none. */
bool pg_evict_strays(struct pg_template *t);
struct pg_template *pg_evict_least(struct pager *p, bool live);

/* -- client.c, request.c ------------------------------------------------------------------------------------ */
struct pg_call { /* whom an answer is for */
	struct pager *p;
	uint32_t round, id;
};
int pg_client_listen(struct pager *p, struct err *e);
void pg_client_fini(struct pager *p);
void pg_client_lost(struct pg_machine *m);
/* Answer; @fds are borrowed. @payload may be NULL. */
void pg_reply(const struct pg_call *c, int code, const char *words, const struct buf *payload, const int *fds,
	      size_t nfds);
void pg_reply_err(const struct pg_call *c, const struct err *e);
void pg_request(const struct pg_call *c, struct pg_request *q, struct msg *m);
void pg_orphan(struct pager *p);		    /* look again whether anybody wants us */
int pg_stat_text(struct pager *p, struct buf *out); /* stat.c */
int pg_list(struct pager *p, struct buf *out);
void pg_request_fini(struct pager *p);

/* -- disks.c: a thread of its own --------------------------------------------------------------------------- */
/* Descriptors handed to pg_disks_ask() are taken. The answer is given by it, also on failure. */
int pg_disks_new(struct pager *p, struct pg_disks **ret, struct err *e);
struct pg_disks *pg_disks_free(struct pg_disks *d);
void pg_disks_ask(struct pg_disks *d, const struct pg_call *c, const struct pg_request *q, int base_fd);
/* Freeze @machine's disk, if it has one, as @snapshot's; then @fn from the loop. */
int pg_disks_freeze(struct pg_disks *d, const char *id, const char *snapshot, pg_done_fn *fn, void *arg);
void pg_disks_stored(struct pg_disks *d, const char *snapshot); /* failures are left to the next restart */
void pg_disks_forget(struct pg_disks *d, const char *snapshot);

#endif
