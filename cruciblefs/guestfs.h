/* SPDX-License-Identifier: Apache-2.0 */
/* `.fs`: the files of a guest, below run/<id>/. How this works:
 *
 * A request of the kernel becomes one or more calls of the guest's agent (sandbox_fs()) and is answered from its
 * answers (guestcall.h). Nothing is kept between requests but the table of nodes (guestpath.h) and the open handles
 * (guestio.c): timeouts are 0, so that sizes and names are asked for each time; the page cache lives from one open to
 * the next, and the kernel asks for size and times before each read of it. The agent is not trusted: guestreply.h,
 * guestlink.h.
 *
 * What waits: every operation waits for the guest, those on directories too, while the kernel holds that directory's
 * lock, so that others in the same directory wait behind it (the guest's directories, below `.fs`; the tree's own never
 * wait). The wait is bounded: sandbox_fs() gives each call 5 s once the guest is ready, then -ETIMEDOUT for it and at
 * once for those behind it. It can be interrupted, but not by a signal that comes in its first 50 ms. What was
 * interrupted, or timed out, may happen in the guest all the same.
 *
 * Ownership and modes: everything shows as the owner's. uid and gid of the sandbox's owner become the guest's root in a
 * chown, other ids are given to the guest as they are (and still show as the owner's). Modes are shown as the guest has
 * them, and a chmod shows what it set: an owner who is root passes everywhere (CAP_DAC_OVERRIDE), as root does in the
 * guest; another owner is let in as the owner of a file on any disk is, so a file of mode 0400 must be made writable
 * first, which always works. To show modes wider than they are would make `cp -a`, tar, rsync and git carry the wrong
 * ones away. The root of `.fs` shows as 0700 whatever the guest's modes, and its chmod is accepted and ignored: `rsync
 * -a` would otherwise carry that 0700 into the guest and lock its other users out of `/`.
 *
 * What differs from a local disk:
 *  - a directory does not move to another depth (EXDEV; mv copies), and paths longer than 4095 bytes from the guest's
 *    root are ENAMETOOLONG;
 *  - FIFOs, sockets and devices show as empty regular files that refuse writing (EPERM); mknod of such is EPERM;
 *  - links show the text of guestlink.h, and that text's length;
 *  - two names of one file (hard links), and host and guest, have separate page caches. They are brought together at
 *    each open, and by mtime and size at each read: a descriptor that stays open misses a change in place, of the same
 *    size, within the same tick (4 ms) of the guest's clock as the change before it;
 *  - a descriptor opened with O_APPEND has no shared mmap; an append of more than 60 KiB is not one step in the guest;
 *  - fsync of a directory does nothing; an open removed file cannot be opened again through /proc/self/fd.
 *
 * Errors, beside those of the guest's own kernel: -EBUSY paused, or too much outstanding; -ENOTCONN stopped;
 * -ETIMEDOUT; -ESTALE a handle of a guest that has been restarted; -ENFILE too many nodes or open files; -EXDEV; -EIO
 * an answer that no honest agent gives.
 *
 * Policies: everything needs `files`. A guest's nodes belong to the view of their sandbox's owner, so it is in that
 * view that they are asked for.
 *
 * Thread: the loop's. */
#ifndef CRUCIBLE_GUESTFS_H
#define CRUCIBLE_GUESTFS_H

#include <sys/stat.h>
#include "cruciblefs/sandbox.h"
#include "cruciblefs/session.h"

/* The living root node of the guest's tree of @s, or a new one: *ret carries a reference of the caller's.
 * *ret_st: what LOOKUP tells without asking the guest (so that `ls run/a` neither starts nor waits): S_IFDIR|0700,
 * owner of @s, st_ino, nlink 1, times. Errors: -ENOMEM, -ENFILE. */
int guestfs_root(struct cfs_session *cs, struct sandbox *s, struct cfs_node **ret, struct stat *ret_st);

#endif
