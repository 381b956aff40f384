/* SPDX-License-Identifier: Apache-2.0 */
/* Give privileges up, for good. Used twice on the way down: by the launcher for its children before the exec, and by
 * every program for itself once it is set up. Order: set up -> confine_drop() -> confine_seccomp() -> serve.
 * Thread: the only one of the process, unless a function says otherwise. Nothing here blocks. After an error
 * the process is half confined and must end. */
#ifndef CRUCIBLE_BASE_CONFINE_H
#define CRUCIBLE_BASE_CONFINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define CONFINE_CAP(cap) (UINT64_C(1) << (cap)) /* CAP_… of <linux/capability.h> */

/* Become @uid and @gid without supplementary groups, keep only the capabilities of the mask @keep_caps that we
 * have (permitted, effective and bounding; 0 for none; inheritable and ambient are emptied), and set no_new_privs. What
 * was given up is checked. Errors: -EPERM (not allowed to, or something was not given up), those of setresuid, capset
 * and prctl. */
int confine_drop(uid_t uid, gid_t gid, uint64_t keep_caps, struct err *e);

/* Whether all of @caps are effective. */
bool confine_has(uint64_t caps);

/* Soft and hard limit of RLIMIT_@resource; @name for the words. Errors: those of setrlimit. */
int confine_rlimit(int resource, const char *name, uint64_t value, struct err *e);

/* Allow the system calls of the table (base/syscalls.sh makes it from <folder>/syscalls.txt), in all threads; one with
 * '!' before its name is answered with ENOSYS; any other kills the process. Names that this libseccomp or machine does
 * not know are skipped, so that one list serves several. Needs no_new_privs or CAP_SYS_ADMIN. Children inherit it,
 * programs that they execute too.
 * Errors: -ENOMEM, those of seccomp(2). */
int confine_seccomp(const char *const names[], size_t n, struct err *e);

/* What a program does with itself once all is open that its table does not allow: confine_drop() to who it is, without
 * capabilities, and confine_seccomp(). Built with a sanitizer it keeps all calls: their run-times need some of their
 * own, ptrace at the exit among them. Errors: those of both. */
int confine_program(const char *const names[], size_t n, struct err *e);

/* Answer these system calls with ENOSYS, in all threads and whatever is executed; the others are as they were. On top
 * of an allowlist that serves several programs, for those that get less. Needs and errors: those of confine_seccomp().
 */
int confine_seccomp_without(const char *const names[], size_t n, struct err *e);

/* Answer socket() and socketpair() of other families than AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK with EAFNOSUPPORT:
 * some, vsock for one, lead out of every network namespace. As confine_seccomp_without() otherwise. */
int confine_seccomp_families(struct err *e);

#endif
