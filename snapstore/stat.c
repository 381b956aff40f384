/* SPDX-License-Identifier: Apache-2.0 */
#include "snapstore/snap_priv.h"

int snap_stat(struct snap *s, struct snap_stat *ret, struct err *e)
{
	struct snap_stat st = { 0 };
	struct snap_manifest m;
	struct uuids all = { 0 };
	int r = snap_refresh(s, e);

	if (r == 0)
		r = uuids_list(s, &all, e);
	if (r < 0)
		return r;
	for (size_t i = 0; i < all.n; i++) {
		/* One that is damaged is a snapshot still; how large it was is not known. */
		st.snapshots++;
		if (snap_manifest_read(s, all.v[i], &m, NULL) < 0)
			continue;
		st.bytes_logical += (m.memory_pages + m.disk_blocks) * SNAP_PAGE_BYTES + m.state_bytes;
		snap_manifest_fini(&m);
	}
	uuids_fini(&all);
	for (size_t i = 0; i < s->packs.n; i++) {
		st.packs++;
		st.pages += s->packs.v[i]->x.npages;
		st.bytes_packs += s->packs.v[i]->x.pack_bytes;
		st.bytes_index += s->packs.v[i]->len;
	}
	*ret = st;
	return 0;
}
