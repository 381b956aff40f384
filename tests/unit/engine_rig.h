/* SPDX-License-Identifier: Apache-2.0 */
/* Real machines for tests: QEMU with the preload library, the guest of the test store, a block server, a pager. What
 * the product spreads over five processes, in one and without its limits. */
#ifndef CRUCIBLE_TEST_ENGINE_RIG_H
#define CRUCIBLE_TEST_ENGINE_RIG_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/loop.h"
#include "vmm/engine.h"
#include "vmm/preload/preload.h"

#define RIG_PAGE 4096u

struct rig {
	struct loop *loop;
	struct engine_info info;
	char dir[200];
	char *kernel, *initrd, *image, *library; /* absolute */
	pid_t blocks;				 /* the block server */
	uid_t uid;				 /* of engines; 0: as we are */
	uint32_t memory_mib, vcpus;
	enum engine_accel accel;
};

struct template
{
	int fd;		/* for writing */
	int ro;		/* for engines */
	uint64_t pages; /* that were written into it */
	uint64_t bytes;
	int source; /* -1: what is not in the template is zeros; else the pager takes it from here when it is touched */
};

struct machine {
	struct rig *rig;
	char name[32];
	pid_t pid;
	struct engine *engine;
	struct preload *preload;
	int control, bulk, state_fd;
	uint32_t seq_control;
	uint8_t in[128 * 1024];
	size_t in_len;

	int up, gone, calls, code, orders;
	char words[400];
	uint64_t base;
	int mem, pagemap, uffd;

	struct template *template; /* its pager fills the holes of this one */
	pthread_t pager;
	bool paged;
	int stop[2]; /* a pipe; closed: the pager ends */
	uint64_t faults;
};

/* NULL: cannot run here; @why says it. */
struct rig *rig_new(uint32_t memory_mib, uint32_t vcpus, uid_t uid, const char **why);
void rig_free(struct rig *r);
/* An empty disk of the machines' size with this name; a copy of @from, or of the profile's image (NULL). */
void rig_disk(struct rig *r, const char *name, const char *from);
void rig_serve(struct rig *r, const char *const *names, size_t n);

/* Cold: @export; generic: NULL. Returns when its monitor is up. */
struct machine *machine_start(struct rig *r, const char *name, const char *export_name);
void machine_end(struct machine *m);
void machine_hello(struct machine *m);
void machine_ping(struct machine *m, const char *text);
/* Each waits for its end and returns its code. */
int machine_order(struct machine *m, struct template *t, const struct preload_range *ranges, uint32_t n);
int machine_pause(struct machine *m);
int machine_resume(struct machine *m);
int machine_save(struct machine *m);
int machine_assign(struct machine *m, const char *export_name);
int machine_load(struct machine *m, int state_fd);

/* What @m has written since its mapping was made, over what @below holds (may be NULL); m->mem must be there. */
void template_take(struct template *t, struct machine *m, const struct template *below);
/* The same memory, all of it still in @from: nothing is there before it is touched. */
void template_empty(struct template *t, const struct template *from);
/* Runs of 64 KiB and more that are nowhere in the template, at most @max. */
uint32_t template_holes(const struct template *t, struct preload_range *ranges, uint32_t max);
void template_drop(struct template *t);

#endif
