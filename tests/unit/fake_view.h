/* SPDX-License-Identifier: Apache-2.0 */
/* view.h for tests of the FUSE layer: views in memory, whose policies are read by the real library. Needs nothing of
 * the registry but its address, so that it goes with any fake one. */
#ifndef CRUCIBLE_TESTS_FAKE_VIEW_H
#define CRUCIBLE_TESTS_FAKE_VIEW_H

#include "cruciblefs/view.h"

/* One whose document is @policy (NULL: none, `new`), made by root. Lives until fake_view_remove() and its last
 * reference. */
struct view *fake_view_new(struct registry *r, struct loop *l, const char *name, const char *policy);
void fake_view_expire(struct view *v);
void fake_view_remove(struct view *v); /* what registry_remove_view() does to the view itself */
void fake_views_free(struct registry *r);
unsigned fake_views_alive(void); /* objects, also removed ones that somebody holds */
/* A policy for whoever comes with @uid; NULL: none any more. */
void fake_policy_uid(struct registry *r, uid_t uid, const char *policy);

#endif
