/* SPDX-License-Identifier: Apache-2.0 */
#include "cruciblefs/guestlink.h"

#include <errno.h>
#include <string.h>

#define ENTRY_MAX 255u

bool gname_plain(const char *name, size_t len)
{
	if (len == 0 || (len == 1 && name[0] == '.') || (len == 2 && name[0] == '.' && name[1] == '.'))
		return false;
	return !memchr(name, '/', len) && !memchr(name, '\0', len);
}

bool gname_entry(const char *name, size_t len)
{
	return len <= ENTRY_MAX && gname_plain(name, len);
}

/* Are these only plain names with one '/' between two? Nothing at all is fine. */
static bool all_plain(const char *p, size_t len)
{
	const char *end = p + len;

	if (len == 0)
		return true;
	for (;;) {
		const char *slash = memchr(p, '/', (size_t)(end - p));

		if (!gname_plain(p, (size_t)((slash ? slash : end) - p)))
			return false;
		if (!slash)
			return true;
		p = slash + 1;
	}
}

bool glink_passes(const char *target, size_t len, unsigned depth)
{
	unsigned ups = 0;

	if (len == 0 || len > GLINK_MAX)
		return false;
	while (len >= 2 && target[0] == '.' && target[1] == '.' && (len == 2 || target[2] == '/')) {
		size_t step = len == 2 ? 2 : 3;

		if (++ups > depth)
			return false;
		target += step;
		len -= step;
		if (len == 0) /* "../.." or "../": the last is no name, the kernel takes it for ".." all the same */
			return step == 2;
	}
	return all_plain(target, len);
}

/* `..` @depth times and the plain names @rest. */
static int build(unsigned depth, const char *rest, size_t rest_len, char *out, size_t *ret_len)
{
	size_t ups = depth ? 3 * (size_t)depth - 1 : 0; /* "../../.." */
	size_t len = ups + (ups && rest_len ? 1 : 0) + rest_len;

	if (len > GLINK_MAX)
		return -ENAMETOOLONG;
	if (len == 0) {
		memcpy(out, ".", 2);
		*ret_len = 1;
		return 0;
	}
	for (size_t i = 0; i < len - rest_len; i++)
		out[i] = i % 3 == 2 ? '/' : '.';
	if (rest_len)
		memcpy(out + len - rest_len, rest, rest_len);
	out[len] = '\0';
	*ret_len = len;
	return 0;
}

int glink_text(const struct glink *l, unsigned depth, const char *name, char out[GLINK_MAX + 1], size_t *ret_len)
{
	size_t name_len = strlen(name);

	if (l->target_len > GLINK_MAX || l->state >= GLINK_STATE_COUNT)
		return -EIO;
	if (glink_passes(l->target, l->target_len, depth)) {
		memcpy(out, l->target, l->target_len);
		out[l->target_len] = '\0';
		*ret_len = l->target_len;
		return 0;
	}
	if (l->state == GLINK_LOOP) /* itself: whoever follows gets ELOOP, as in the guest */
		return gname_plain(name, name_len) ? build(0, name, name_len, out, ret_len) : -EIO;
	if (l->resolved_len > GLINK_MAX || !all_plain(l->resolved, l->resolved_len))
		return -EIO;
	return build(depth, l->resolved, l->resolved_len, out, ret_len);
}
