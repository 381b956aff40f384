/* SPDX-License-Identifier: Apache-2.0 */
/* Just as much of a snapstore as a disk's lowest layer asks for: maps and pages in memory. */
#ifndef CRUCIBLE_TEST_FAKE_SNAP_H
#define CRUCIBLE_TEST_FAKE_SNAP_H

#include "snapstore/snap.h"

struct snap *fake_snap_new(void);
struct snap *fake_snap_free(struct snap *s);
/* A map of @entries that are all absent. */
struct snap_digest fake_snap_map(struct snap *s, uint64_t entries);
/* @page NULL: zeros */
void fake_snap_put(struct snap *s, const struct snap_digest *root, uint64_t index, const void *page);
void fake_snap_damage(struct snap *s, uint64_t index); /* entry @index of every map; UINT64_MAX: none */
unsigned fake_snap_reads(const struct snap *s);
unsigned fake_snap_maps_open(const struct snap *s);

#endif
