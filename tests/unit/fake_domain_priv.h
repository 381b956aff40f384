/* SPDX-License-Identifier: Apache-2.0 */
/* Innards of the fake domain, shared by fake_domain.c (sandboxes, journals), fake_exec.c (uploads, commands, slots) and
 * fake_snapshot.c. */
#ifndef CRUCIBLE_TESTS_FAKE_DOMAIN_PRIV_H
#define CRUCIBLE_TESTS_FAKE_DOMAIN_PRIV_H

#include "fake_domain.h"

struct execution {
	struct execution *prev, *next;
	struct sandbox *s;
	uint64_t n, changed_ns;
	enum exec_state state;
	char slot[CFS_NAME_MAX + 1];
	char *cmd;
	size_t cmd_len;
	char error[64];
	int exit_code;
	int out[2]; /* memfds */
	int pidfd;
	pid_t pid;
	loop_id pid_id;
};

struct slot {
	struct slot *next;
	char name[CFS_NAME_MAX + 1];
	uint64_t latest;
	size_t room;
	struct buf in;
};

struct log {
	struct log *next;
	char uuid[40], name[CFS_NAME_MAX + 1];
	uid_t owner;
	char view[40]; /* its uuid, or "" */
	uint64_t changed_ns;
	int fd;
};

struct sandbox {
	struct registry *r;
	struct sandbox *prev, *next;
	unsigned refs;
	bool gone, queue_full;
	char name[CFS_NAME_MAX + 1], uuid[40], error[320];
	struct cfs_who owner;
	enum sandbox_status status;
	uint64_t created_ns, changed_ns, last_n, latest;
	struct waitq waitq;
	char from[80];
	unsigned num[ATTR_COUNT];
	struct buf env, ctl, std_in;
	struct buf net_allow, net_ports; /* fake_net.c */
	int net_log;			 /* memfd; 0: none yet */
	unsigned env_stores, leases;
	struct execution *first, *last;
	struct slot *slots;
	struct log *log;
	char latest_snapshot[CFS_NAME_MAX + 1];
	uint64_t inherited; /* the command that runs on from a snapshot; 0: none */
};

struct registry {
	struct loop *loop;
	struct waitq journal_waitq;
	struct sandbox *first, *last;
	struct log *logs;
	size_t count;
	unsigned serial, uploads;
	unsigned num[ATTR_COUNT];
	bool at_once, for_real;
	int events_all; /* memfd */
	struct {
		uid_t uid;
		int fd;
	} events_of[8];
	size_t nevents_of;
	struct snapshot *snapshots;
	struct snapshot_job *jobs; /* that wait for the test */
	unsigned njobs;
	bool jobs_wait;
	char store_did[16];
};

void *fake_need(void *p); /* aborts on NULL */
void fake_changed(struct sandbox *s);
int fake_reopen(int fd, int *ret_fd); /* a memfd, for reading */
/* A line of a ctl file whose first word must be one of @words (NULL-ended); into @log. */
int fake_take_line(struct sandbox *s, struct buf *log, const char *line, const char *const *words,
		   const struct cfs_who *who, struct err *e);
void fake_free_exec(struct execution *x);
void fake_kill_all(struct sandbox *s);
void fake_snapshots_free(struct registry *r);

/* -- fake_net.c */
void fake_net_init(struct sandbox *s);
void fake_net_fini(struct sandbox *s);

#endif
