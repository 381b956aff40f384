/* SPDX-License-Identifier: Apache-2.0 */
/* A guest for tests: sandbox_fs() over a temporary directory, served by the agent's own code for file operations, in
 * this process. It can be made to hang, to pause, to stop, to restart, and to lie. It also stands in for the rest of
 * sandbox.h that guestfs uses. Ends the test program when it cannot work at all. */
#ifndef CRUCIBLE_TESTS_FAKE_GUEST_H
#define CRUCIBLE_TESTS_FAKE_GUEST_H

#include "agent/proto.h"
#include "base/buf.h"
#include "base/loop.h"
#include "cruciblefs/sandbox.h"
#include "cruciblefs/session.h"

/* Called with each answer (i32 code, then what follows) before it is delivered; may change it. */
typedef void fake_twist_fn(void *arg, uint8_t op, const void *payload, size_t len, struct buf *answer);

struct sandbox { /* the fake guest */
	struct loop *loop;
	struct cfs_who owner;
	enum sandbox_status status;
	uint64_t epoch;
	unsigned refs;
	bool gone;
	char error[320];
	bool hung; /* requests stay unanswered */
	fake_twist_fn *twist;
	void *twist_arg;
	unsigned started;		/* times that a call found it SBX_CONFIGURED */
	unsigned calls[AG_FS_OP_COUNT]; /* of each operation, since the beginning */
	unsigned in_flight, most_in_flight;
	unsigned late_releases; /* handles of unwanted answers that were given back */
	char root[64];		/* the directory */
	/* private */
	int root_fd, proc_fd;
	struct files *files;
	struct fs_call *first, *last;
	loop_id deferred;
};

struct sandbox *fake_guest_new(struct loop *l, uid_t uid, gid_t gid);
void fake_guest_free(struct sandbox *g); /* removes the directory */
/* Everybody who waits gets @code (the deadline, a dead guest); what was asked then happens all the same when @late. */
void fake_guest_fail(struct sandbox *g, int code, bool late);
void fake_guest_go_on(struct sandbox *g);   /* after hung or paused: what waits is answered in the loop's next rounds */
void fake_guest_restart(struct sandbox *g); /* another epoch: handles are dead */
unsigned fake_guest_open(const struct sandbox *g); /* handles that are open in the guest */

/* Give @cs a root that holds `fs`, the tree of @g, and `other`, that of @other (may be NULL). */
void fake_guest_install(struct sandbox *g, struct sandbox *other, struct cfs_session *cs);

#endif
