/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's configuration: crucible.conf(5) and the command line over it. */
#ifndef CRUCIBLE_CONFIG_H
#define CRUCIBLE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "netpolicy/addr.h"
#include "policy/policy.h"

#define CONFIG_POLICIES_MAX 256u /* of uids and gids together */

struct config_policy { /* policy_uid, policy_gid */
	bool of_gid;
	uint32_t id;
	char *file;	       /* absolute */
	struct policy *policy; /* NULL until config_read_policies() */
};

enum config_accel { CONFIG_ACCEL_AUTO, CONFIG_ACCEL_TCG, CONFIG_ACCEL_KVM };

struct config {
	char mount[1024]; /* absolute; default /crucible */
	char store[1024]; /* absolute; default /var/lib/crucible */
	char qemu[256];	  /* "": found in /usr/bin */
	char cgroup[64];  /* name below the cgroup root; default derived from the store's path */
	enum log_level log_level;
	enum config_accel accel;
	uint32_t uid_base; /* of the reserved range, see cruciblefs/launch/launch.h */
	uint32_t max_sandboxes, max_sandboxes_per_uid;
	uint32_t memory_floor_mib;   /* new sandboxes are refused when less is available */
	uint32_t overcommit_percent; /* sum of memory_mib of what runs, against the host's memory */
	uint32_t disk_floor_mib;     /* nothing new is made when the store has less */
	uint32_t logs_max_mib, logs_keep_days;
	uint32_t spool_total_mib; /* output of all sandboxes together */
	uint32_t max_snapshots_per_uid;
	uint32_t pool_size; /* machines that are made before anybody wants them; 0: none */
	uint32_t warm_size; /* of them, beside those: that go on from a profile's prepared snapshot, and wait warm */
	uint32_t prepare;   /* 1: profiles are booted once and sandboxes go on from there; 0: each boots */
	/* Lists: lines, each with its newline. */
	char net_upstream[512]; /* ADDRESS[#PORT] of resolvers; "": those of /etc/resolv.conf */
	char net_private[2048]; /* ranges that sandboxes may be allowed though they are private */
	bool net_limited;	/* net_allow_max was given */
	char net_allow_max[8192];
	struct policy *net_policy; /* the same as a policy, by config_finish(); NULL: not limited */
	struct config_policy *policies;
	size_t npolicies;
	uint32_t template_percent; /* of the host's memory: what snapshots nobody uses may keep in it */
};

void config_defaults(struct config *c);
void config_fini(struct config *c); /* what settings have allocated */
/* Read `key = value` lines; '#' begins a comment. Errors: -ENOENT, -EINVAL with file, line and the permitted values.
 * Blocks. */
int config_load(struct config *c, const char *path, struct err *e);
/* One setting, as from the file. -EINVAL. */
int config_set(struct config *c, const char *key, const char *value, struct err *e);
/* After all settings: fills what is derived; -EINVAL for what cannot go together (a store inside the mount, relative
 * paths). */
int config_finish(struct config *c, struct err *e);
/* Read what policy_uid and policy_gid name. Blocks. @faults: all that is wrong with all of them, a line each, "FILE:
 * field: what". Errors: -EINVAL a file is no policy; those of reading one, -ENOMEM; @e has the first file. */
int config_read_policies(struct config *c, struct buf *faults, struct err *e);
/* What is bound to that uid, or gid; NULL: nothing. Borrowed. */
const struct policy *config_policy(const struct config *c, bool of_gid, uint32_t id);
/* -- config_policy.c, for config.c */
int config_bind_policy(struct config *c, bool of_gid, const char *value,
		       struct err *e);			 /* "ID FILE"; -EINVAL, -ENOMEM */
int config_host_policy(struct config *c, struct err *e); /* c->net_policy; -EINVAL, -ENOMEM */

#define CONFIG_NET_RANGES_MAX 64u
/* net_private, parsed. -EINVAL, -E2BIG. */
int config_net_private(const struct config *c, struct net_cidr out[CONFIG_NET_RANGES_MAX], size_t *ret_n,
		       struct err *e);

bool config_is_inside(const char *path, const char *dir); /* @path is @dir or below it, by their texts */

#endif
