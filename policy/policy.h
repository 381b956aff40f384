/* SPDX-License-Identifier: Apache-2.0 */
/* What whoever comes through a view, or whom the daemon's configuration binds a policy to, may do at most: a small JSON
 * document, crucible-policy(5). Several may hold for one caller (a view's, a user's, a group's, the host's): each of
 * them must permit what is done, so that another one can only narrow what is permitted.
 *
 * A policy is never changed: a new document is a new policy. Thread: any; nothing blocks. Nothing here decides who the
 * caller is, and nothing counts: maxima are told, the daemon keeps them. */
#ifndef CRUCIBLE_POLICY_POLICY_H
#define CRUCIBLE_POLICY_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "netpolicy/policy.h"

/* What can be done to the tree, a bit each. */
enum policy_op {
	POLICY_CREATE = 1u << 0,   /* sandboxes: mkdir run/NAME, its limits */
	POLICY_EXEC = 1u << 1,	   /* commands: cmd, stdin, exec/, ctl */
	POLICY_SNAPSHOT = 1u << 2, /* take snapshots */
	POLICY_FORK = 1u << 3,	   /* sandboxes out of snapshots */
	POLICY_DELETE = 1u << 4,   /* rmdir of sandboxes and snapshots */
	POLICY_READ = 1u << 5,	   /* output, records, logs */
	POLICY_FILES = 1u << 6,	   /* fs/, import */
	POLICY_NETWORK = 1u << 7,  /* net/allow, net/ports */
	POLICY_IMAGES = 1u << 8,   /* fetch and remove images */
	POLICY_ADMIN = 1u << 9,	   /* what else only root may: defaults/, views/, the store; others' objects */
};
#define POLICY_OP_COUNT	   10u
#define POLICY_OPS_ALL	   ((1u << POLICY_OP_COUNT) - 1)
#define POLICY_OPS_DEFAULT (POLICY_OPS_ALL & ~(unsigned)POLICY_ADMIN) /* where a document names none */

/* The field of the document has this name in small letters: max_sandboxes. */
enum policy_max {
	POLICY_MAX_SANDBOXES,  /* at once */
	POLICY_MAX_FORK,       /* sandboxes of one batch */
	POLICY_MAX_TIMEOUT_S,  /* of a command, and of a sandbox's life */
	POLICY_MAX_VCPUS,      /* of one sandbox */
	POLICY_MAX_MEMORY_MIB, /* of one sandbox */
	POLICY_MAX_DISK_MIB,   /* of one sandbox */
	POLICY_MAX_SNAPSHOTS,  /* kept at once */
	POLICY_MAX_COUNT
};

#define POLICY_TEXT_MAX	 (64u * 1024) /* bytes of a document */
#define POLICY_LIST_MAX	 256u	      /* entries of each list */
#define POLICY_IMAGE_MAX 511u	      /* bytes of an entry of allow_images */

struct policy; /* immutable, counted */

/* Read a document: one JSON object, nothing behind it, no field that is not known, none given twice.
 * @reach: which private ranges net_allow_max may name; NULL: the host is not known, any range that root could open is
 * taken. Nothing of it is kept.
 * @ret: on success only; the caller's, to be given to policy_unref().
 * @faults: all that is wrong, a line each: "field: what is wrong; what is permitted". What does not fit into it is left
 * out, whole lines of it. NULL: not wanted.
 * Errors: -EINVAL with at least one line in @faults if one fits; -EFBIG more than POLICY_TEXT_MAX, as it is or as
 * policy_text() writes it (with its line);
 * -ENOMEM. */
int policy_parse(const char *text, size_t len, const struct net_reach *reach, struct policy **ret, struct buf *faults);
struct policy *policy_ref(struct policy *p);   /* NULL is fine; returns @p */
struct policy *policy_unref(struct policy *p); /* NULL is fine; returns NULL */

const char *policy_op_name(enum policy_op op);	    /* "create"; NULL: not exactly one of them */
const char *policy_max_name(enum policy_max which); /* "max_sandboxes" */

/* The document in its one form: JSON, a field a line, `operations` always there, newline at the end. Read again it is
 * the same policy, and is written the same. Errors: -ENOMEM; -EFBIG of @out. */
int policy_text(const struct policy *p, struct buf *out);

/* -- several at once ----------------------------------------------------------------------------------------------- */

#define POLICY_SET_MAX 4

/* All of them hold. None: everything is permitted but POLICY_ADMIN. The pointers are borrowed, none is NULL. */
struct policy_set {
	const struct policy *of[POLICY_SET_MAX];
	size_t n;
};

bool policy_set_allows(const struct policy_set *set, enum policy_op op); /* each of them does */
/* Is admin named, by each of them? Whoever is root without any policy is root all the same: that is the caller's. */
bool policy_set_names_admin(const struct policy_set *set);
uint64_t policy_set_max(const struct policy_set *set, enum policy_max which); /* the smallest; 0: no limit */

/* Exactly that name stands in each list of profiles there is. */
bool policy_set_allows_profile(const struct policy_set *set, const char *name);
/* Each list of images there is has it: as an entry of exactly that text, or by an entry that ends in '*' and else
 * begins it. Nothing is added to @ref or resolved: whoever asks gives the reference in full, as the tree writes it. */
bool policy_set_allows_image(const struct policy_set *set, const char *ref);
/* What to take where nobody named a profile: the first name of the narrowest list that all of them have. NULL: no list
 * limits it. "": the lists have none in common, so no profile is permitted. Borrowed from the set's policies. */
const char *policy_set_first_profile(const struct policy_set *set);

bool policy_set_net_limited(const struct policy_set *set); /* has one of them net_allow_max? */
/* May a sandbox have @wanted as its net/allow? By the lists alone; POLICY_NETWORK is another question. An empty @wanted
 * always is.
 * Errors: -EPERM one of the lists is empty, so there is no network at all; -EDQUOT beyond a list, with words that name
 * the rule. */
int policy_set_net_check(const struct policy_set *set, const struct net_policy *wanted, struct err *e);

/* Add to @into what the set amounts to, as fields of a document (policy.json): operations; net_allow_max,
 * allow_profiles, allow_images and max_* only where there is a limit. Of net_allow_max what all lists permit, at most
 * NET_RULES_MAX rules of it.
 * Errors: -ENOMEM; @into may then have some of it. */
int policy_set_json(const struct policy_set *set, struct json_object *into);

#endif
