/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the pager share: a store, a pager in a process of its own that can be killed, the daemon's side of
 * its messages, and machines: processes that map a template as an engine does, and touch it when told. */
#ifndef CRUCIBLE_TEST_PAGER_RIG_H
#define CRUCIBLE_TEST_PAGER_RIG_H

#include "snap_rig.h"

#include <sys/types.h>
#include "base/buf.h"
#include "base/msg.h"
#include "snapstore/pager/core.h"

#define RIG_LOST_MAX 8

struct pager_rig {
	struct snap_rig store;
	struct pager_params params; /* changed before pager_rig_start() */
	uid_t as;		    /* 0: our own process; else the real program, as this user */
	int listen_fd, blocks_fd;
	pid_t pid;
	int client;
	uint32_t next_id;
	struct {
		char machine[PG_UUID_LEN + 1];
		int code;
		char words[200];
	} lost[RIG_LOST_MAX];
	unsigned nlost;
};

struct rig_reply {
	int code;
	char words[320];
	uint8_t data[MSG_MAX + 512];
	size_t len;
	int fds[MSG_FDS_MAX];
	size_t nfds;
};

void pager_rig_new(struct pager_rig *r); /* and starts it */
void pager_rig_start(struct pager_rig *r);
void pager_rig_kill(struct pager_rig *r); /* SIGKILL */
int pager_rig_end(struct pager_rig *r);	  /* wait for its own end; the exit status */
void pager_rig_connect(struct pager_rig *r);
void pager_rig_free(struct pager_rig *r);

/* Ask, wait, and keep what came in *ret (descriptors are the caller's: rig_close()). Returns the code. @b is reset. */
int rig_ask(struct pager_rig *r, uint16_t type, struct buf *b, const int *fds, size_t nfds, struct rig_reply *ret);
void rig_send(struct pager_rig *r, uint16_t type, struct buf *b, const int *fds, size_t nfds);
int rig_receive(struct pager_rig *r, struct rig_reply *ret);
void rig_wait_lost(struct pager_rig *r, unsigned n);
void rig_close(struct rig_reply *y);
/* {str} and {str, u64}: the commonest requests; descriptors that come back are closed. */
int rig_ask_str(struct pager_rig *r, uint16_t type, const char *s);
/* A number of PAGER_STAT: of a template, or (@snapshot NULL) of all. */
uint64_t rig_stat(struct pager_rig *r, const char *snapshot, const char *key);

/* -- pages -------------------------------------------------------------------------------------------------- */
/* Words that depend on @seed and their place; 0: zeros. */
void rig_words(uint64_t seed, uint64_t page[SNAP_PAGE_BYTES / 8]);
/* A snapshot of @n pages; seeds[i] tells page i. */
void rig_store_pages(struct pager_rig *r, const char *uuid, const uint64_t *seeds, uint32_t n);

/* -- machines ----------------------------------------------------------------------------------------------- */
struct rig_template { /* what TEMPLATE and CAPTURE_BEGIN told */
	int fd;
	uint32_t pages, nranges;
	struct pg_range ranges[PAGER_RANGES_MAX];
};
int rig_template(struct pager_rig *r, const char *snapshot, uint32_t pages, struct rig_template *ret);
int rig_template_ask(struct pager_rig *r, const char *snapshot, uint32_t pages, bool whole, struct rig_template *ret);

struct rig_machine {
	pid_t pid;
	int sock;
	char id[PG_UUID_LEN + 1];
	char disk[PG_UUID_LEN + 1]; /* frozen with its memory; "": none */
	uint64_t base;
	uint32_t pages;
	int uffd, mem, pagemap; /* the box's copies */
	uint32_t nranges;
	struct pg_range ranges[PAGER_RANGES_MAX];
};
/* Start one; @t NULL: private anonymous memory of @pages. It is not attached yet. */
void rig_machine_new(struct rig_machine *m, unsigned number, const struct rig_template *t, uint32_t pages, bool uffd);
void rig_machine_map(struct rig_machine *m, const struct rig_template *t, bool uffd); /* another one in its place */
int rig_machine_attach(struct pager_rig *r, struct rig_machine *m, const char *snapshot);
void rig_machine_free(struct rig_machine *m);

/* Pages [page, page+n) against seeds (as rig_words): how many differ. */
uint32_t rig_machine_check(struct rig_machine *m, uint32_t page, uint32_t n, const uint64_t *seeds);
void rig_machine_check_send(struct rig_machine *m, uint32_t page, uint32_t n, const uint64_t *seeds);
uint32_t rig_machine_check_receive(struct rig_machine *m);
void rig_machine_write(struct rig_machine *m, uint32_t page, uint32_t n, const uint64_t *seeds); /* whole pages */
void rig_machine_touch(struct rig_machine *m, uint32_t page, uint32_t n, bool write, uint64_t *ret_ns);
bool rig_machine_answers(struct rig_machine *m, int timeout_ms); /* the answer to a _send is there */

/* A snapshot of @m, paused by its nature: it becomes @to, that grew out of @from ("": anonymous memory). */
int rig_snapshot(struct pager_rig *r, struct rig_machine *m, const char *from, const char *to, struct rig_reply *ret);

#endif
