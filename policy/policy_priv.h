/* SPDX-License-Identifier: Apache-2.0 */
/* What the sources of this library share: a policy's parts. */
#ifndef CRUCIBLE_POLICY_POLICY_PRIV_H
#define CRUCIBLE_POLICY_POLICY_PRIV_H

#include <stdatomic.h>
#include "policy/policy.h"

/* Texts in the order of the document. `given` apart from n: an empty list permits nothing, an absent one all. */
struct policy_list {
	bool given;
	size_t n;
	char **of; /* malloc'd, each of them too */
};

struct policy {
	atomic_uint refs;
	unsigned ops;		/* of enum policy_op */
	struct net_policy *net; /* NULL: no limit */
	struct policy_list profiles, images;
	uint64_t max[POLICY_MAX_COUNT]; /* 0: no limit */
};

uint64_t policy_max_most(enum policy_max which); /* the largest number that a document may say */
/* Does @entry of a list of images (an exact text, or one that ends in '*') have all that @ref, the same kind of text,
 * has? */
bool policy_image_covers(const char *entry, const char *ref);

#endif
