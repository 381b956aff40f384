/* SPDX-License-Identifier: Apache-2.0 */
/* The processes around the daemon's domain, played by the test: pager and store (fake_peers.c stands in for
 * cruciblefs/domain/peer.h at link time) and boxes (fake_box.c is at the other end of their sockets). They answer each
 * request sensibly, unless the test says otherwise, and keep what a real one would: which templates, disks, exports and
 * machines there are. All of it is one table, so that nothing in here fails by fault injection. */
#ifndef CRUCIBLE_TEST_FAKES_H
#define CRUCIBLE_TEST_FAKES_H

#include "base/loop.h"
#include "cruciblefs/launch/launch.h"
#include "netpolicy/netd/netd.h"
#include "snapstore/pager/pager.h"
#include "snapstore/stored/stored.h"
#include "vmm/box/box.h"

enum fake_who { FAKE_PAGER, FAKE_STORE, FAKE_NETD, FAKE_BOX, FAKE_COUNT };
#define FAKE_PEERS 3u  /* those before the boxes */
#define FAKE_TYPES 72u /* of any of them */
#define FAKE_BOXES 32u

/* What is known to exist: uuids. */
enum fake_set {
	FAKE_TEMPLATES, /* of the pager */
	FAKE_CAPTURED,	/* of those, the ones that are not in the store yet */
	FAKE_MACHINES,	/* ATTACHed */
	FAKE_DISKS,
	FAKE_EXPORTS,
	FAKE_STORED, /* of the store */
	FAKE_NETS,   /* of netd: sandboxes */
	FAKE_SET_COUNT,
};

struct fakes {
	struct loop *loop;
	int refuse[FAKE_COUNT][FAKE_TYPES]; /* -errno for each request of that type; 0: none */
	bool hold[FAKE_COUNT][FAKE_TYPES];  /* the answer waits for fakes_answer() */
	unsigned asked[FAKE_COUNT][FAKE_TYPES];
	bool away[FAKE_COUNT];		  /* of the pager or the store: does not come up by itself */
	const char *degraded[FAKE_PEERS]; /* and why; NULL: "" */
	bool silent;			  /* boxes do not say READY by themselves */
	bool no_uffd;			  /* engines have no userfaultfd */
	bool no_state;			  /* engines write none when they are frozen */
	bool runs_commands;		  /* boxes run and end each at once */
	uint32_t last_timeout_max;	  /* of BOX_EXEC, seconds; 0: none */
	bool not_warm;			  /* boxes that are to be held are, but not warm */
	unsigned holds[BOX_HOLD_COUNT];	  /* of each BOX_LOAD */
	char trace[32768];		  /* what was asked, in order: "P:TEMPLATE B:MEMORY S:STATE " */
	char last_json[2048];		  /* of STORE_INGEST, or of BOX_START */
	char last_text[4][64];		  /* the strings of what the pager was asked last */
	uint64_t last_budget;		  /* of CONFIG */
	char net_config[256];		  /* of netd: the upstreams' text */
	char net_allow[512];		  /* the last list */
	char net_ports[8][64];		  /* that it has, of one sandbox */
	size_t nnet_ports;
	unsigned net_sockets;	 /* that it was given */
	unsigned net_no_sockets; /* how often it was told that there are none */
	size_t nset[FAKE_SET_COUNT];
	char set[FAKE_SET_COUNT][64][LAUNCH_UUID_LEN + 1];
};
extern struct fakes fakes;

/* Nothing is known, nobody is refused; the rest as it was. Boxes are hung up. */
void fakes_reset(struct loop *l);
void fakes_obey(void); /* no refusals, no holds */
bool fakes_have(enum fake_set set, const char *uuid);
/* Is it a subsequence of the trace? Words as there, each followed by a blank. */
bool fakes_traced(const char *words);
void fakes_answer(enum fake_who who, int type); /* those that were held; from now on at once */

/* -- pager and store: fake_peers.c -- */
void fakes_up(enum fake_who who, bool fresh); /* one that is away comes; a fresh one knows nothing but disks */
void fakes_lose(enum fake_who who);	      /* it dies: what waits is answered -EPIPE; it stays away */
void fakes_pager_lost(const char *machine, const char *words);
void fakes_store_progress(int type, uint64_t done, uint64_t total); /* of every request of @type that waits */
void fakes_netd_says(int type, const char *uuid, const char *text); /* LOG, NEED_SOCKETS (text NULL) */

/* -- boxes: fake_box.c -- */
void fake_box_add(void *arg, const char *machine, int fd); /* fake_launcher's on_box */
void fake_box_kill(void *arg, const char *machine);	   /* on_kill */
bool fake_box_lives(const char *machine);
bool fake_box_frozen(const char *machine);
void fake_box_hang_up(const char *machine);
void fake_box_state(const char *machine, enum box_state st, const char *words);
size_t fake_box_count(void);
void fake_boxes_serve(void); /* read and answer what has come */

/* -- for those two -- */
void fakes_note(enum fake_who who, int type);
void fakes_put(enum fake_set set, const char *uuid);
void fakes_drop(enum fake_set set, const char *uuid);
int fakes_fd(void); /* a new memfd */
void fake_peers_reset(void);
void fake_peers_answer(enum fake_who who, int type);
void fake_boxes_reset(void);
void fake_boxes_answer(int type);

#endif
