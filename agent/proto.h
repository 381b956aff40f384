/* SPDX-License-Identifier: Apache-2.0 */
/* The wire between a box (host) and the agent (PID 1 of the guest).
 *
 * Two virtio-serial ports, both byte streams of the same frames: `control` (port 1, /dev/vport0p1) for hello, requests,
 * kills and endings; `bulk` (port 2, /dev/vport0p2) for standard streams and file operations, so that a kill never
 * waits behind 64 MiB of input. Each side trusts the other for nothing: one parser, ag_frame_parse(), bounds
 * everything; a malformed frame ends the connection (the host marks the guest lost; the agent drops all handles and
 * waits for a new hello).
 *
 * Frame: u32 length of the payload (<= AG_PAYLOAD_MAX), u8 type, u8 flags, u16 zero, u32 stream, u32 seq, payload.
 * Little endian. `seq` counts the frames of one direction of one port since the last HELLO, from 0 (the HELLO itself);
 * a gap is malformed. (Before its first HELLO the agent's STAGE and BYE count from 0 as well. On bulk the agent sends
 * no HELLO: its first frame of an epoch has seq 0 there.) `stream` names an exec (host-chosen, never 0, never reused
 * within an epoch) or a file request; 0: the connection.
 *
 * Flow control: for each stream and direction the sender starts with AG_WINDOW bytes of credit; the receiver returns it
 * with CREDIT frames as it consumes. Sending beyond the credit is malformed. A file request has no credit: at most
 * AG_FS_INFLIGHT_MAX requests are outstanding.
 *
 * An epoch begins when the host sends HELLO on `control` and ends with the next HELLO. The host writes HELLO on both
 * ports (bulk: the same frame) and nothing else until the agent has answered. The agent answers HELLO on control once
 * both have arrived. Each side resets seq and all streams at HELLO; until the answer the host drops what comes on
 * control, and on bulk it drops everything up to the first frame with seq 0 (frames of the older epoch that were under
 * way); running commands of an older epoch go on, detached (their output is drained and dropped unless the host asks
 * for it in a later version).
 *
 * Ordering between ports: EXIT travels on `control`, output on `bulk`. EXIT carries the byte counts of stdout and
 * stderr that were sent; the host finishes a command when it has both EXIT and that many bytes. */
#ifndef CRUCIBLE_AGENT_PROTO_H
#define CRUCIBLE_AGENT_PROTO_H

#include <stddef.h>
#include <stdint.h>

#define AG_VERSION	   4u /* the host offers [min,max], the agent answers the one it takes or ends with AG_BYE */
#define AG_HEADER_LEN	   16u
#define AG_PAYLOAD_MAX	   (64u * 1024u)
#define AG_WINDOW	   (256u * 1024u) /* bytes of credit of a fresh stream, each of stdin, stdout, stderr, script */
#define AG_EXECS_MAX	   1024u	  /* commands at once in a guest */
#define AG_FS_INFLIGHT_MAX 64u
#define AG_PATH_MAX	   4095u
#define AG_NAME_MAX	   255u
#define AG_FS_IO_MAX	   (60u * 1024u) /* bytes of one READ or WRITE */

enum ag_type {
	/* both, control (and bulk, host only): JSON. The host:
	 *
	 *  {"version_min":3, "version_max":3, "epoch":N, "wall_ns":N, "entropy":"hex of 32 bytes", "hostname":"a",
	 *   "instance":"uuid", "root_mib":N, "memory_bytes":N, "cpu_percent":N, "pids":N}
	 *
	 * root_mib: grow the root file system to that, within its disk. The last three are limits of all commands
	 * together. 0: none. One that has a network, whose gateway is its resolver:
	 *
	 *   "net":{"address":"10.77.0.2", "prefix":24, "gateway":"10.77.0.1", "address6":"fd77::2", "prefix6":64,
	 *	    "gateway6":"fd77::1", "mtu":1500}
	 *
	 * With "clone" TCP connections of the parent are reset before anything is thawed. A guest that was restored
	 * from a snapshot and is another one now is told by
	 *
	 *   "clone":{"fork":"uuid", "parent":"name of the snapshot", "machine_id":"32 hex", "hold":true}
	 *
	 * Before it answers, the agent, each step fatal (BYE): entropy credited and the generator reseeded, machine-id
	 * (also D-Bus's copy, no link followed), hostname, clock, /run/crucible/fork (JSON: fork, parent, epoch). Then
	 * it thaws all commands, then it answers. With "hold", which may be absent, it is a rehearsal, in a frozen
	 * guest only (BYE else): the same steps, but no limit is set, the commands stay frozen and suspended, none is
	 * inherited, and after its answer the agent is as quiet as before. Another HELLO follows. The agent:
	 *
	 *  {"version":3, "epoch":N, "agent":"0.1.0", "kernel":"6.1…", "boot_id":"…", "page_size":4096,
	 *   "shells":["/bin/sh",…], "unenforced":["…"],
	 *   "inherited":[{"stream":N, "pid":N, "name":"text of EXEC's name"}]}
	 *
	 * inherited: with "clone", but not with "hold": commands of the epoch before that run on. Their streams stay:
	 * output comes as DATA (from byte 0 of the new epoch, credit anew), their end as EXIT; KILL, SIGNAL and CLOSE
	 * work; what was left of timeout_ms counts; stdin is at its end. */
	AG_HELLO = 1,
	AG_PING, /* both, control: payload <= 64 bytes, sent back as PONG */
	AG_PONG,
	AG_BYE, /* agent, control: {"error":"words"}: cannot go on (bad version, malformed frame, no root disk …) */
	/* agent, control, before HELLO allowed: text: where the boot stands, for the error of a guest that never gets
	 * ready. The last one is AG_STAGE_HELLO. */
	AG_STAGE,

	/* host, control: open exec `stream`. JSON:
	 * {"argv":[..] or "script":true, "env":["K=V",..], "cwd":"/x", "user":"name[:group]", "stdin":bool,
	 *  "tty":{"rows":24,"cols":80}, "timeout_ms":N, "memory_bytes":N, "pids":N, "name":"text for the cgroup"}
	 * All but the first may be absent; 0: no limit. Unknown keys are refused.
	 * With "script" the host then sends the script as DATA/script with EOF; the agent stores it in a file of its
	 * own and runs its `#!` line or /bin/sh. The process starts when the script is whole. Without "stdin": end of
	 * file at once.
	 * JSON longer than a frame (64 KiB of environment) is cut: every EXEC frame of it but the last has the flag
	 * AG_MORE; all together <= AG_EXEC_JSON_MAX; no EXEC of another stream comes between them (other types may).
	 * DATA may be seen before its EXEC, since the ports are read in any order: the agent holds bulk back for it,
	 * for at most a second.
	 * argv ["//import"] and ["//list"] are the agent's own: agent/import.h, agent/list.h. */
	AG_EXEC,
	/* agent, control: {"pid":N, "script":"path of the script's file in the guest" (if there is one)} */
	AG_EXEC_STARTED,
	/* agent, control: the command's own process has ended (or never began). JSON:
	 * {"exit_code":N or -1, "signal":"SIGKILL" or "", "timed_out":bool, "oom_killed":bool, "error":"words" or "",
	 *  "stdout_bytes":N, "stderr_bytes":N, "duration_ns":N,
	 *  "usage":{"cpu_user_ms":N, "cpu_sys_ms":N, "peak_memory_bytes":N, "page_faults_major":N,
	 *	     "context_switches_involuntary":N, "io_read_bytes":N, "io_write_bytes":N}}
	 * The bytes are those sent on bulk (with a tty all is stdout); the duration is the guest's monotonic clock's.
	 * On a timeout the whole cgroup is killed. On a normal end children in the background live on; their later
	 * output is dropped (their pipe is kept open and drained, so that they get no SIGPIPE) until they end. */
	AG_EXIT,
	AG_SIGNAL, /* host, control: u32 Linux signal number, to the command's process group (tty: foreground group) */
	AG_KILL,   /* host, control: SIGKILL for the command's whole cgroup, background children included */
	AG_RESIZE, /* host, control: u16 rows, u16 cols */
	AG_DATA,   /* both, bulk: flags: enum ag_which | AG_EOF; payload may be empty only with AG_EOF */
	AG_CREDIT, /* both, bulk: flags: enum ag_which; payload u32 bytes given back */
	AG_CLOSE,  /* host, control: forget the stream after EXIT (no more drained output is wanted) */

	AG_FS_REQ, /* host, bulk: flags = enum ag_fs_op; stream = request id; payload below */
	AG_FS_REP, /* agent, bulk: same op and id; payload: i32 0 or -errno (Linux numbers), then the answer if 0 */

	AG_SYNC, /* host, control: stream = request id: sync(2); answered by AG_SYNCED */
	AG_SYNCED,
	AG_SHUTDOWN, /* host, control: end all commands (SIGTERM, 2 s, SIGKILL), sync, unmount, power off */

	/* host, control: u32 milliseconds (<= 10000). Freeze every command (the guest's cgroup freezer, background
	 * children included) and the file server, then go quiet: FROZEN on control and on bulk, after which the agent
	 * sends nothing, on either port, before THAW or HELLO. The host sends nothing after FREEZE but THAW or HELLO.
	 * Nothing is lost: output that was read from a pipe was sent or is kept, requests that came are answered before
	 * or after. */
	AG_FREEZE,
	/* agent, both ports: payload i32: 0, or -ETIMEDOUT: not frozen in time: all was thawed again, the agent is not
	 * quiet (on control only, then) */
	AG_FROZEN,
	AG_THAW, /* host, control: go on as before; no answer */
	/* host, control: stream = request id: sync, give unused blocks back (FITRIM), drop caches; answered by SYNCED.
	 * Before a profile's snapshot. */
	AG_TRIM,
	/* host, control: stream = request id: the guest gets its network: {"net":{…}} as in HELLO. Answered by NET_UP
	 * with the same id. Once it is up, it stays so: what it may reach is the host's to decide. */
	AG_NET,
	AG_NET_UP, /* agent, control: {i32 0 or -errno, str words} */
	/* host, control: stream = request id: how much memory can be taken away without anybody missing it? Answered by
	 * SPARE_IS with the same id. */
	AG_SPARE,
	AG_SPARE_IS, /* agent, control: {i32 0 or -errno, u64 bytes: free beyond what the kernel keeps for itself} */
	AG_TYPE_COUNT,
};

enum ag_which { AG_STDIN, AG_STDOUT, AG_STDERR, AG_SCRIPT, AG_WHICH_COUNT };
#define AG_WHICH_MASK	 0x0fu
#define AG_EOF		 0x80u
#define AG_MORE		 0x40u /* AG_EXEC only */
#define AG_EXEC_JSON_MAX (1024u * 1024u)

/* File operations. Strings and bytes as in base/wire.h (u32 length, bytes). A path is relative to the guest's root (""
 * is the root itself, never begins with '/', no "." or ".." component); the agent opens its parent with
 * openat2(RESOLVE_IN_ROOT|RESOLVE_NO_MAGICLINKS|RESOLVE_NO_SYMLINKS), never follows a link at the last step. `attr` is:
 * u32 mode (with S_IFMT), u32 nlink, u32 uid, u32 gid, u64 size, u64 blocks512, u64 ino, u64 atime_ns, u64 mtime_ns,
 * u64 ctime_ns, u32 rdev. The operations run in a child process of the agent (the file server), so that one that hangs
 * in the guest hangs nothing else; when it hangs or dies it is replaced and its handles are -ESTALE. */
enum ag_fs_op {
	AG_FS_GETATTR = 1, /* str path -> attr */
	AG_FS_FGETATTR,	   /* u32 handle -> attr */
	/* str path, u32 valid (FUSE_SET_ATTR_* bits as AG_SET_* below), u32 mode, u32 uid, u32 gid, u64 size, u64
	 * atime_ns, u64 mtime_ns, u32 handle (0: by path) -> attr */
	AG_FS_SETATTR,
	/* str path -> bytes target (as stored), bytes resolved, u8 state.
	 * resolved: what the link leads to inside the root, as plain names from the root ("usr/bin"; "" is the root).
	 * state: 0 resolved, 1 dangling (resolved = the longest plain name it would have), 2 loop. */
	AG_FS_READLINK,
	/* str path, u64 cookie (0: start), u32 max bytes -> u8 end, n * {u64 next cookie, str name, attr} to the
	 * payload's end */
	AG_FS_READDIR,
	AG_FS_MKDIR,   /* str path, u32 mode -> attr */
	AG_FS_UNLINK,  /* str path */
	AG_FS_RMDIR,   /* str path */
	AG_FS_SYMLINK, /* str path, bytes target -> attr */
	AG_FS_RENAME,  /* str from, str to, u32 flags (RENAME_NOREPLACE, RENAME_EXCHANGE) */
	AG_FS_LINK,    /* str from, str to -> attr */
	/* str path, u32 flags (O_ACCMODE, O_TRUNC, O_APPEND; Linux x86-64) -> u32 handle, attr. Regular files only:
	 * else -EPERM */
	AG_FS_OPEN,
	AG_FS_CREATE,	   /* str path, u32 flags, u32 mode -> u32 handle, attr */
	AG_FS_READ,	   /* u32 handle, u64 off, u32 n (<= AG_FS_IO_MAX) -> bytes */
	AG_FS_WRITE,	   /* u32 handle, u64 off, bytes -> u32 written */
	AG_FS_RELEASE,	   /* u32 handle */
	AG_FS_FSYNC,	   /* u32 handle, u8 datasync */
	AG_FS_STATFS,	   /* -> u64 bsize, u64 blocks, u64 bfree, u64 bavail, u64 files, u64 ffree, u32 namelen */
	AG_FS_FALLOCATE,   /* u32 handle, u32 mode, u64 off, u64 len */
	AG_FS_GETXATTR,	   /* str path, str name -> bytes (user.* only; else -ENOTSUP) */
	AG_FS_SETXATTR,	   /* str path, str name, bytes value, u32 flags */
	AG_FS_LISTXATTR,   /* str path -> bytes (NUL-separated, user.* only) */
	AG_FS_REMOVEXATTR, /* str path, str name */
	AG_FS_IMPORT,	   /* reserved: `import` is a command, argv ["//import"], with stdin = the tar stream */
	AG_FS_OP_COUNT,
};
/* The text of the last STAGE of a boot: the agent reads its ports from now on. The host sends HELLO then, and not
 * before, since it carries the time. */
#define AG_STAGE_HELLO "waiting for hello"

#define AG_SET_MODE	 (1u << 0)
#define AG_SET_UID	 (1u << 1)
#define AG_SET_GID	 (1u << 2)
#define AG_SET_SIZE	 (1u << 3)
#define AG_SET_ATIME	 (1u << 4)
#define AG_SET_MTIME	 (1u << 5)
#define AG_SET_ATIME_NOW (1u << 7)
#define AG_SET_MTIME_NOW (1u << 8)

/* The guest's kernel command line carries what the agent needs before the first HELLO:
 * crucible.root=vda (the root disk; absent: stay in the initramfs) crucible.rootfs=ext4 */

struct ag_frame {
	uint8_t type, flags;
	uint32_t stream, seq, len;
	const uint8_t *payload; /* borrowed from the buffer that was parsed */
};

/* Parse the first frame of @data. Returns the bytes it takes, 0 when more bytes are needed, -EBADMSG when it can never
 * be one (length, type, flags or the zero field; types of a fixed size, such as CREDIT, have exactly that). Checks the
 * frame alone: order, credit and streams are the caller's. Thread: any. Blocks: no. */
long ag_frame_parse(const uint8_t *data, size_t len, struct ag_frame *ret);
/* Write the header of a frame with @len bytes of payload into @out. */
void ag_frame_header(uint8_t out[AG_HEADER_LEN], uint8_t type, uint8_t flags, uint32_t stream, uint32_t seq,
		     uint32_t len);

struct wire_rd;
struct buf;
#define AG_ATTR_LEN 68u /* bytes of `attr` on the wire */
struct ag_attr {
	uint32_t mode, nlink, uid, gid, rdev;
	uint64_t size, blocks512, ino, atime_ns, mtime_ns, ctime_ns;
};
void ag_attr_get(struct wire_rd *r, struct ag_attr *ret); /* @r is bad when it was too short */
int ag_attr_put(struct buf *b, const struct ag_attr *a);  /* 0, -EFBIG, -ENOMEM */
/* "SIGKILL" for 9 …; "SIG34" beyond the named ones; -EINVAL for an unknown name ("KILL" and "9" are taken too). */
const char *ag_signal_name(int signo, char tmp[16]);
int ag_signal_number(const char *name);

#endif
