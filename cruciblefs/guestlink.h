/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a guest's symbolic link as the host's kernel gets it. Pure functions. Thread: any. Blocks: no.
 *
 * Why no chain of links leads out of `.fs`
 * ----------------------------------------
 * Call depth(D) the number of steps from `.fs` down to the directory D as the *kernel* sees it, that is along the
 * parents of its dentries; `.fs` itself has depth 0. Two facts:
 *
 *  (a) Every text that this file lets out is `..` k times, then plain names only (or "."), and k is not larger than the
 *      depth of the directory that holds the link. The agent chooses names, never k, and no name can be "", "." or ".."
 *      or hold a '/'. So whatever it answers, and whenever, the shape stands.
 *  (b) A directory's dentry stays at the depth at which its node was made (guestpath.h: nodes are known by path, a
 *      rename of a directory to another depth is EXDEV, a link renamed to another depth loses its node).
 *
 * The kernel follows a link from the directory in which it found it. By (a) the text first takes k <= depth steps up,
 * each of them along a parent dentry and hence exactly one level by (b): it is still at or below `.fs`. After that it
 * only goes down: a name that is a directory is one level deeper. A name that is itself a link is followed from the
 * directory that holds it, which is at or below `.fs`, by its own text, which again begins with its `..`: the same
 * argument holds, and the rest of the first text holds no `..` that could undo the second one's steps. So by induction
 * over the steps of the walk no link, no link through a link, and no link whose middle component is a link stands above
 * `.fs` at any moment. Only a `..` that the *user* wrote can leave, and the user may.
 *
 * This is also why a target such as "a/../b" is never passed on: when "a" is a link to a directory of a smaller depth,
 * the `..` after it is taken from there; and why the count is compared to the depth and not left to the guest: at the
 * time of the walk a directory can stand where it did not when the target was read. Renames inside the guest move no
 * dentry.
 *
 * What this cannot help: a bind mount of a directory *below* `.fs` has its own root, above which `..` leads. Bind `.fs`
 * itself. */
#ifndef CRUCIBLE_GUESTLINK_H
#define CRUCIBLE_GUESTLINK_H

#include <stdbool.h>
#include <stddef.h>

#define GLINK_MAX 4095u /* bytes of a text: PATH_MAX without the NUL */

enum glink_state { GLINK_RESOLVED, GLINK_DANGLING, GLINK_LOOP, GLINK_STATE_COUNT };

struct glink {		    /* what the agent says of a link; nothing in it is trusted */
	const char *target; /* as stored in the guest; not terminated */
	size_t target_len;
	const char *resolved; /* where it leads, plain names from the guest's root, "" is the root; not terminated */
	size_t resolved_len;
	unsigned state; /* enum glink_state */
};

/* Is this one component of a path: not empty, not "." or "..", no '/' and no NUL? Of any length. */
bool gname_plain(const char *name, size_t len);
/* The same, and short enough for a directory entry (255 bytes). */
bool gname_entry(const char *name, size_t len);

/* May @target be passed unchanged by a link in a directory at @depth: relative, at most @depth times `..`, then plain
 * names only? */
bool glink_passes(const char *target, size_t len, unsigned depth);

/* Write the text of the link called @name in a directory at @depth into @out, with a NUL behind it.
 * Errors: -EIO the answer is not what an honest agent says (bad names, unknown state, too long a target);
 * -ENAMETOOLONG the text would be longer than GLINK_MAX. */
int glink_text(const struct glink *l, unsigned depth, const char *name, char out[GLINK_MAX + 1], size_t *ret_len);

#endif
