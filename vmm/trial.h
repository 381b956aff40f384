/* SPDX-License-Identifier: Apache-2.0 */
/* KVM or TCG? Decided by booting the real guest once under KVM: /dev/kvm can exist, open and make virtual machines on
 *hosts where no stock kernel boots. The answer is remembered (trial_outcome_format) until the host, its kernel, the
 *engine or the guest's boot files change.
 *
 * Use, on the daemon's loop:
 *	trial_outcome_parse(<store>/trial.json) fits the key: done. Else
 *	trial_new() -> ops.spawn() -> trial_spawned() -> … -> ops.done()                                         */
#ifndef CRUCIBLE_VMM_TRIAL_H
#define CRUCIBLE_VMM_TRIAL_H

#include "base/buf.h"
#include "vmm/engine.h"

#define TRIAL_TIMEOUT_MS 15000u /* a guest under KVM needs a second; one nested in an emulated machine eight */

struct trial_outcome {
	enum engine_accel accel;
	char reason[512]; /* one line for people: why not KVM, or that it works */
};

/* -- remembering ------------------------------------------------------------------------------- */

struct trial_key {	       /* the outcome holds as long as these are the same */
	char host_boot_id[64]; /* /proc/sys/kernel/random/boot_id */
	char host_kernel[128]; /* uname -r and -v */
	char engine[64];       /* name and version */
	char bootid[64];       /* of the guest's kernel and initramfs */
};
/* Fill in what is this host's. @bootid: as in <store>/boot/<bootid>. Blocks: reads one file of /proc. */
void trial_key_make(const struct engine_info *info, const char *bootid, struct trial_key *ret);
int trial_outcome_format(const struct trial_key *k, const struct trial_outcome *o,
			 struct buf *out); /* -EFBIG, -ENOMEM */
/* -ESTALE: of another key; -EINVAL: not one. Thread: any. */
int trial_outcome_parse(const void *json, size_t len, const struct trial_key *k, struct trial_outcome *ret);

/* -- trying ------------------------------------------------------------------------------------ */

struct trial;
struct trial_ops { /* from the loop */
	/* Start the engine: its 3, 4, … are @fds, its standard error @log; all are borrowed until trial_spawned() was
	 * called, which must follow once, at once or later. */
	void (*spawn)(void *arg, struct trial *t, const struct engine_command *cmd, const int *fds, size_t nfds,
		      int log);
	/* End what was spawned, if it still runs. Called before done(). */
	void (*kill)(void *arg);
	/* The answer; may free the trial. */
	void (*done)(void *arg, const struct trial_outcome *o);
};
extern const char *trial_kvm_device; /* "/dev/kvm"; tests point it elsewhere */
/* @m: the machine to try; its accel and disk are ignored (KVM; none: the agent speaks up from the initramfs).
 * @timeout_ms: TRIAL_TIMEOUT_MS. An engine without KVM, or a host without /dev/kvm, is answered without a boot; done()
 * comes from the loop in any case. Errors: -ENOMEM, -EMFILE, -EINVAL: no trial, no answer. */
int trial_new(struct loop *l, const struct engine_ops *engine, const struct engine_info *info,
	      const struct engine_machine *m, uint32_t timeout_ms, const struct trial_ops *ops, void *arg,
	      struct trial **ret, struct err *e);
/* The engine runs (@code 0, @pidfd taken), or could not be started (@words). */
void trial_spawned(struct trial *t, int code, const char *words, int pidfd);
struct trial *trial_free(struct trial *t); /* NULL is fine; kills what runs; returns NULL */

#endif
