/* SPDX-License-Identifier: Apache-2.0 */
/* What crucibled and a box say to each other, over SOCK_SEQPACKET (base/msg.h).
 *
 * A box is started by the launcher with: stdout/stderr = a log, and the descriptors of enum box_fd at 3.. .
 * Its root is empty but for /box (= <store>/sandboxes/<uuid>/box, read-write) and /run (= <store>/run, with the
 * daemon's socket /run/daemon.sock). The daemon end of BOX_FD_DAEMON may vanish at any time (the daemon was killed):
 * the box goes on, tries to connect to /run/daemon.sock every 250 ms, sends HELLO again; 60 s without a daemon and it
 * ends the sandbox. The daemon checks SO_PEERCRED of a connecting box against the uid of the slot that it recorded for
 * that uuid.
 *
 * Files, all below /box; made with umask 0007 (group = the service gid, so that the daemon reads and removes them):
 *   exec/<n>/cmd          written by the daemon before EXEC: the raw command
 *   exec/<n>/stdin        the same, if there is any (not for live ones)
 *   exec/<n>/{stdout,stderr}  made by the box, appended as output arrives, up to output_mib each
 *   exec/<n>/result.json  made by the box by rename, when the command has ended; its presence is the end
 *   inherited/<n>.out     what command n of the machine that was snapshotted printed since, both streams, 1 MiB at most
 *   console.log           the guest's console, the newest 2..4 MiB
 * A box that cannot write (ENOSPC) ends that command with `error` in a record as small as it can be; the output files
 * are cut, not the box.
 *
 * A command is a number n (> 0, growing, never reused in the sandbox). Those of the queue run one after another in the
 * order of EXEC; `beside` ones run at once. Unknown or untimely n: -ENOENT. */
#ifndef CRUCIBLE_VMM_BOX_H
#define CRUCIBLE_VMM_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"
#include "base/msg.h"

enum box_fd {
	BOX_FD_DAEMON = 3,
	BOX_FD_MONITOR,
	BOX_FD_CONTROL,
	BOX_FD_BULK,
	BOX_FD_CONSOLE, /* read end of a pipe */
	BOX_FD_ENGINE,	/* pidfd */
	BOX_FD_MEMORY,	/* SOCK_SEQPACKET to the preload library in the engine */
};

#define BOX_QUEUE_MAX	  64u /* waiting commands; the daemon refuses more with EBUSY */
#define BOX_BESIDE_MAX	  256u
#define BOX_CMD_MAX	  (8u * 1024 * 1024)
#define BOX_KEEP_EXECS	  1000u		/* finished ones; the oldest are removed by the box */
#define BOX_STDIN_WINDOW  (256u * 1024) /* credit of a live stdin */
#define BOX_LOST_AFTER_MS 5000u		/* beyond a command's own deadline: the guest is lost */
#define BOX_ORPHAN_S	  60u

enum box_state { BOX_BOOTING, BOX_READY, BOX_PAUSED, BOX_STOPPING, BOX_GONE, BOX_STATE_COUNT };

enum box_type {
	/* -- daemon -> box ---------------------------------------------------------------------- */
	/* JSON, the first message to a new box: struct box_config. No reply; the box's first HELLO follows it. */
	BOX_START = 1,
	/* {u64 n, u8 flags (BOX_EXEC_*), u32 uid, u64 accepted wall ns; with TIMEOUT_MAX u32 seconds (> 0)} -> REPLY
	 * when accepted */
	BOX_EXEC,
	/* {u64 n, u8 eof, bytes}: live ones; beyond the credit is -ENOBUFS; no reply unless id != 0 */
	BOX_STDIN,
	/* {u64 n (0: the running one of the queue), u8 enum box_verb, u32 a, u32 b} -> REPLY */
	BOX_CTL,
	/* {u8 enum box_vm, u32 grace_ms} -> REPLY when done */
	BOX_VM,
	/* {u8 op, raw: payload of AG_FS_REQ to the end}
	 * -> REPLY {i32 code, str words, raw: what follows the code in AG_FS_REP} */
	BOX_FS,
	/* JSON: any of struct box_config's "name", "env": from now on; what was accepted before keeps its environment.
	 * -> REPLY */
	BOX_SET,

	/* -- memory, snapshots, restore (vmm/preload/preload.h) -- */
	/* {u64 bytes, u32 n, n * {u64 offset, u64 bytes}, str snapshot} fd0: the template of @snapshot (read-only), or
	 * none: bytes is 0 and @snapshot "" then. Puts it in place of the RAM: of a generic engine before LOAD, of a
	 * machine that is FROZEN (-EBUSY else; without a template: any time).
	 * -> REPLY {u64 base, u8 has userfaultfd} fds: mem, pagemap, userfaultfd. The box keeps copies of all four. */
	BOX_MEMORY,
	/* {} -> REPLY {u64 base, u64 bytes, u8 has userfaultfd, str snapshot} fds: mem, pagemap, template, userfaultfd,
	 * as far as there are any: the copies, for a pager that was restarted, or a daemon that does not know whether
	 * the one before it has come to replace the memory. -ENOENT: no BOX_MEMORY yet. */
	BOX_MEMORY_AGAIN,
	/* {u32 ms} fd0: a file. Freeze the guest's commands (AG_FREEZE), pause the machine, write its device state into
	 * the file. -> REPLY {u64 wall ns of the pause}. READY only (a paused machine: frozen too, for the agent has to
	 * answer: -EBUSY). On failure (-ETIMEDOUT: the guest does not freeze) all is undone. Requests of the daemon
	 * wait meanwhile (FS, EXEC …). No THAW within 30 s, or the daemon goes: thawed by itself (BOX_EVENT "thawed").
	 */
	BOX_FREEZE,
	/* {} -> REPLY {u64 ns that it was paused}: go on as before. -EBUSY: not frozen. */
	BOX_THAW,
	/* {u8 enum box_hold, str export} fd0: the device state. Of a generic engine, after MEMORY: disk assigned, state
	 * loaded. -> REPLY when loaded. The guest is greeted (AG_HELLO with "clone") as soon as START has come (before
	 * or after), then READY; while no START has come, enum box_hold. A failure of that is no failure of LOAD's. */
	BOX_LOAD,
	/* {} sync, trim, drop caches in the guest (AG_TRIM) -> REPLY */
	BOX_TRIM,
	/* {u8 on} -> REPLY {}: the first list of a guest that is READY: it gets its network (AG_NET). On 0 nothing is
	 * done: what it may reach is netd's. -EBUSY not READY; -ENODEV and others, the guest's own, in words. */
	BOX_NET,
	/* {u64 bytes of the machine's RAM} before FREEZE: memory that the guest has freed, but that is the machine's
	 * own still, is given back, when that is worth it: it is not captured then. What was written goes to its disk
	 * first (AG_SYNC, in a few seconds at most), so that deleted files are free blocks, too. Never fails for want
	 * of the guest. -> REPLY {u64 bytes given back}. -EBUSY: not READY, or one is under
	 * way; one that a daemon began who went since is waited for. -ENOENT: no BOX_MEMORY yet. */
	BOX_RECLAIM,

	/* -- box -> daemon ---------------------------------------------------------------------- */
	/* {i32 code (0 or -errno), str words, …} with the request's id */
	BOX_REPLY = 64,
	/* JSON: struct box_hello; first message on every connection, from the box. On a connection after the first, the
	 * daemon's credit for live stdin begins at 0 and STDIN_CREDIT of what is free follows the HELLO. */
	BOX_HELLO,
	/* {u8 enum box_state, str error words or "", str json of the guest (hello's members) or ""}; GONE is the last
	 * message */
	BOX_STATE,
	/* {u64 n, u8 started, u64 stdout_bytes, u64 stderr_bytes}: at most every 20 ms per command while it prints */
	BOX_PROGRESS,
	/* {u64 n, i32 exit_code, str signal, str error, u64 duration_ms, u64 spool_bytes of the whole sandbox} after
	 * result.json stands */
	BOX_DONE,
	/* {u64 n, u32 bytes} */
	BOX_STDIN_CREDIT,
	/* JSON object for the activity log, of the box's own making: {"event": "disk_error" | "monitor_stuck" |
	 * "exec_removed" (with "first" and "last": records that went to make room) | "thawed" ("reason": "timeout" or
	 * "daemon") | "held" ("warm": bool; of a pooled machine after LOAD with hold) | "inherited_ended" ("n",
	 * "exit_code", "signal", "bytes", "dropped")} */
	BOX_EVENT,
	BOX_TYPE_COUNT,
};

enum box_hold {
	BOX_HOLD_NOT,	    /* the loaded machine stands */
	BOX_HOLD_WARM,	    /* first commands are run, for 5 s at most, then they are frozen, then as REHEARSED */
	BOX_HOLD_REHEARSED, /* greeted as nobody (AG_HELLO with "hold"), then paused: no command of it runs */
	BOX_HOLD_COUNT,
};

#define BOX_EXEC_BESIDE	     1u
#define BOX_EXEC_LIVE_STDIN  2u /* with BESIDE: standard input comes by BOX_STDIN until eof */
#define BOX_EXEC_TIMEOUT_MAX 4u /* it gets at most so much time, whatever it asks for */

enum box_verb {
	BOX_KILL,
	BOX_SIGNAL,	    /* a = number */
	BOX_RESIZE,	    /* a = rows, b = cols */
	BOX_CANCEL,	    /* out of the queue; or kill */
	BOX_KILL_INHERITED, /* all of them; n and a unused */
	BOX_VERB_COUNT,
};
/* STOP: commands get SIGTERM, the guest syncs and powers off within grace_ms, then the engine is killed; queued
 * commands are ended as cancelled. SYNC: sync(2) in the guest, then reply. QUIT: no grace. */
enum box_vm { BOX_VM_PAUSE, BOX_VM_RESUME, BOX_VM_STOP, BOX_VM_SYNC, BOX_VM_QUIT, BOX_VM_COUNT };

struct box_config { /* as JSON: the same names */
	char uuid[40], name[64];
	char engine[16], accel[8], network[16]; /* for `isolation` of each record; network "none" */
	char unenforced[512];			/* comma separated, of the host's side; the guest's are added */
	/* Until the agent's hello; then the sandbox failed, with the console's tail in words; 0: none. */
	uint32_t boot_timeout_s;
	uint32_t exec_timeout_s; /* default of a command without its own; 0: none */
	uint32_t output_mib, spool_mib;
	uint32_t memory_mib; /* exact, enforced in the guest (of commands together) */
	uint32_t cpu_percent, pids;
	uint32_t root_mib; /* size of the root disk; the agent grows the file system */
	/* Restored, not booted: MEMORY and LOAD come; the guest is told that it is another one now (AG_HELLO "clone").
	 */
	bool restore;
	bool net;	     /* it has a network: in HELLO, so that it stands before READY */
	char parent[64];     /* name of the snapshot, for "clone" */
	char machine_id[33]; /* 32 hex, for "clone" */
	char *env;	     /* lines KEY=VALUE for every command; malloc'd, may be NULL */
};
int box_config_parse(const void *json, size_t len, struct box_config *ret, struct err *e); /* -EINVAL, -ENOMEM */
int box_config_format(const struct box_config *c, struct buf *out);
void box_config_fini(struct box_config *c);

struct box_hello { /* as JSON */
	char uuid[40];
	enum box_state state; /* by name: booting ready paused stopping gone */
	uint64_t last_exec;   /* the highest n that was ever accepted: higher ones are to be sent again */
	uint64_t *open;
	size_t nopen;	  /* accepted and not ended, in order; malloc'd */
	char guest[2048]; /* the agent's hello, "" before */
	bool pooled;	  /* no START yet */
};
int box_hello_parse(const void *json, size_t len, struct box_hello *ret, struct err *e);
int box_hello_format(const struct box_hello *h, struct buf *out);
void box_hello_fini(struct box_hello *h);

/* -- the request text of a command (request.c): what a user wrote into `cmd` ------------------- */
struct box_request {
	bool script; /* run `text` as a script; else argv */
	char *text;
	size_t text_len;  /* malloc'd: BOM dropped, CRLF made LF if every line has them */
	char **argv;	  /* NULL-ended, malloc'd */
	char **env;	  /* KEY=VALUE, NULL-ended */
	char *cwd, *user; /* or NULL */
	char *stdin_text;
	size_t stdin_len;
	bool has_stdin;
	uint64_t timeout_ns; /* 0: the default */
	bool tty;
	uint16_t rows, cols;
	uint32_t output_mib; /* 0: the default */
};
/* TREE.md "A command": text, or a JSON request when it begins with '{' (after blanks). Blank text, bad JSON, unknown
 * keys, wrong types: -EINVAL with words. Thread: any. Untrusted input; fuzzed. */
int box_request_parse(const void *data, size_t len, struct box_request *ret, struct err *e);
void box_request_fini(struct box_request *r);

/* -- the record (record.c) --------------------------------------------------------------------- */
struct box_record {
	uint64_t n;
	const char *sandbox; /* name */
	char **argv;	     /* NULL-ended or NULL */
	int exit_code;	     /* -1: none */
	const char *signal;  /* "SIGKILL" or "" */
	bool timed_out, oom_killed, cancelled;
	const char *error;	  /* or "" */
	uint64_t started_wall_ns; /* 0: never started */
	uint64_t duration_ns, queued_ns;
	uint64_t stdout_bytes, stderr_bytes; /* true counts */
	bool stdout_truncated, stderr_truncated;
	/* From the agent, or NULL: zeros; its members are checked one by one, never copied as text. */
	const char *usage_json;
	const char *engine, *accel, *network, *unenforced;
};
#define BOX_RECORD_TEXT_MAX (64u * 1024)
/* Write exec/<n>/result.json below @dirfd (the sandbox's directory), reading the first 64 KiB of exec/<n>/stdout and
 * stderr for its texts. Also used by the daemon for commands that never reached a box. Errors: those of fd_replace. */
int box_record_write(int dirfd, const struct box_record *r, struct err *e);
/* Open exec/<n> below @dirfd; neither may be a symbolic link. The descriptor, or those of openat as -errno. */
int box_exec_open(int dirfd, uint64_t n);

#endif
