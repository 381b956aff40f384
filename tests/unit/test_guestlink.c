/* SPDX-License-Identifier: Apache-2.0 */
/* No symbolic link of a guest leads out of `.fs`: the texts of guestlink.c, one by one, all small ones, and in a model
 * of the kernel's walk, with honest and with lying agents, while directories are renamed under the walk. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/fd.h"
#include "cruciblefs/guestlink.h"

static struct glink link_of(const char *target, const char *resolved, unsigned state)
{
	return (struct glink){ target, strlen(target), resolved, strlen(resolved), state };
}

/* The text, or the name of the error. */
static const char *text_of(const char *target, const char *resolved, unsigned state, unsigned depth)
{
	static char out[GLINK_MAX + 1];
	struct glink l = link_of(target, resolved, state);
	size_t len = 0;
	int r = glink_text(&l, depth, "self", out, &len);

	if (r < 0)
		return r == -EIO ? "EIO" : r == -ENAMETOOLONG ? "ENAMETOOLONG" : "?";
	assert_int_equal(len, strlen(out));
	return out;
}

static void test_relative_targets_pass_unchanged(void **state)
{
	(void)state;
	assert_string_equal(text_of("b", "x", 0, 0), "b");
	assert_string_equal(text_of("lib/libc.so.6", "x", 0, 0), "lib/libc.so.6");
	assert_string_equal(text_of("../lib", "x", 0, 1), "../lib");
	assert_string_equal(text_of("..", "x", 0, 1), "..");
	assert_string_equal(text_of("../..", "x", 0, 2), "../..");
	assert_string_equal(text_of("self", "x", GLINK_LOOP, 2), "self");
	assert_string_equal(text_of("..a/...", "x", 0, 0), "..a/...");
	assert_string_equal(text_of("gone/away", "x", GLINK_DANGLING, 0), "gone/away");
}

static void test_every_other_target_is_built(void **state)
{
	(void)state;
	assert_string_equal(text_of("/usr/bin", "usr/bin", 0, 0), "usr/bin");
	assert_string_equal(text_of("/usr/bin", "usr/bin", 0, 3), "../../../usr/bin");
	assert_string_equal(text_of("/", "", 0, 0), ".");
	assert_string_equal(text_of("/", "", 0, 2), "../..");
	assert_string_equal(text_of("..", "", 0, 0), ".");
	assert_string_equal(text_of("../../../etc/passwd", "etc/passwd", 0, 2), "../../etc/passwd");
	assert_string_equal(text_of("a/../b", "b", 0, 1), "../b");
	assert_string_equal(text_of("./b", "d/b", 0, 1), "../d/b");
	assert_string_equal(text_of("b/", "d/b", 0, 1), "../d/b");
	assert_string_equal(text_of("b//c", "d/b/c", 0, 1), "../d/b/c");
	assert_string_equal(text_of("../", "", 0, 1), "..");
	assert_string_equal(text_of("", "d", 0, 1), "../d");
	assert_string_equal(text_of("/no/where", "no/where", GLINK_DANGLING, 1), "../no/where");
	assert_string_equal(text_of("/d/self", "d/self", GLINK_LOOP, 1), "self");
}

static void test_EIO_lies(void **state)
{
	static const char *const bad[] = {
		"/", "/etc", "..", "a/..", "../a", "a/../b", ".", "a/.", "a//b", "a/", "//"
	};
	struct glink l;
	char out[GLINK_MAX + 1], big[GLINK_MAX + 2];
	size_t len;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_string_equal(text_of("/x", bad[i], 0, 2), "EIO");
	assert_string_equal(text_of("/x", "x", GLINK_STATE_COUNT, 2), "EIO");
	l = (struct glink){ "/x", 2, "a\0b", 3, 0 };
	assert_int_equal(glink_text(&l, 1, "self", out, &len), -EIO);
	l = (struct glink){ "a\0b", 3, "x", 1, 0 }; /* not passed: built */
	assert_int_equal(glink_text(&l, 1, "self", out, &len), 0);
	assert_string_equal(out, "../x");
	memset(big, 'a', sizeof(big));
	l = (struct glink){ big, sizeof(big), "x", 1, 0 };
	assert_int_equal(glink_text(&l, 1, "self", out, &len), -EIO);
	l = (struct glink){ "/x", 2, big, sizeof(big), 0 };
	assert_int_equal(glink_text(&l, 1, "self", out, &len), -EIO);
}

static void test_ENAMETOOLONG(void **state)
{
	char out[GLINK_MAX + 1], big[GLINK_MAX];
	struct glink l = { "/x", 2, big, GLINK_MAX, 0 };
	size_t len;

	(void)state;
	memset(big, 'a', sizeof(big));
	assert_int_equal(glink_text(&l, 0, "self", out, &len), 0);
	assert_int_equal(len, GLINK_MAX);
	assert_int_equal(glink_text(&l, 1, "self", out, &len), -ENAMETOOLONG);
	l.resolved_len = GLINK_MAX - 3;
	assert_int_equal(glink_text(&l, 1, "self", out, &len), 0);
	assert_int_equal(len, GLINK_MAX);
	assert_int_equal(glink_text(&(struct glink){ "/", 1, "", 0, 0 }, 1365, "self", out, &len), 0);
	assert_int_equal(len, 3 * 1365 - 1);
	assert_int_equal(glink_text(&(struct glink){ "/", 1, "", 0, 0 }, 1366, "self", out, &len), -ENAMETOOLONG);
}

/* -- all small ones --------------------------------------------------------------------------- */

/* The whole of what guestlink.h promises: `..` at most @depth times, then plain names, or ".". */
static void check_shape(const char *text, unsigned depth)
{
	unsigned ups = 0;

	if (strcmp(text, ".") == 0)
		return;
	while (strncmp(text, "../", 3) == 0 || strcmp(text, "..") == 0) {
		ups++;
		text += text[2] ? 3 : 2;
	}
	assert_true(ups <= depth);
	while (*text) {
		size_t n = strcspn(text, "/");

		assert_true(gname_plain(text, n));
		text += n;
		if (*text) {
			text++;
			assert_true(*text); /* no '/' at the end */
		}
	}
}

/* The @number-th text over these parts; false when there are no more of @parts parts. */
static void make_text(unsigned number, unsigned parts, char *out)
{
	static const char *const part[] = { "a", "bb", "..", ".", "" };

	*out = '\0';
	for (unsigned i = 0; i < parts; i++, number /= (unsigned)ARRAY_LEN(part)) {
		if (i)
			strcat(out, "/");
		strcat(out, part[number % ARRAY_LEN(part)]);
	}
}

static unsigned count_texts(unsigned parts)
{
	unsigned n = 1;

	while (parts--)
		n *= 5;
	return n;
}

static void test_every_small_text_has_the_shape(void **state)
{
	unsigned passed = 0, built = 0, refused = 0;

	(void)state;
	for (unsigned parts = 0; parts <= 5; parts++) {
		for (unsigned t = 0; t < count_texts(parts); t++) {
			for (unsigned res = 0; res < count_texts(3); res++) {
				char target[64], resolved[64], out[GLINK_MAX + 1];
				struct glink l;
				size_t len;

				make_text(t, parts, target);
				make_text(res, 3, resolved);
				for (unsigned d = 0; d <= 3; d++) {
					l = link_of(target, resolved, res % 4);
					if (glink_text(&l, d, "self", out, &len) < 0) {
						refused++;
						continue;
					}
					check_shape(out, d);
					strcmp(out, target) == 0 ? passed++ : built++;
				}
			}
		}
	}
	assert_true(passed > 1000 && built > 1000 && refused > 1000);
}

/* -- a model of the kernel's walk -------------------------------------------------------------- */

enum { NNODES = 14, NAMES = 3, WALK_LINKS_MAX = 40 };

struct mnode {	    /* a dentry; [0] is `.fs` */
	int parent; /* -1: unused, or the root's */
	char name[2];
	enum { M_NONE, M_DIR, M_FILE, M_LINK } type;
	char target[64];
};

struct model {
	struct mnode n[NNODES];
	uint64_t rng;
	bool lying;	/* the agent */
	bool renames;	/* directories move while a walk goes on */
	bool any_depth; /* … to any depth: the rule is broken, for the test of the test */
	bool left;	/* a step led above `.fs` */
	unsigned links;
};

static unsigned rnd(struct model *m, unsigned n)
{
	m->rng = m->rng * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(m->rng >> 33) % n;
}

static unsigned depth_of(const struct model *m, int i)
{
	unsigned d = 0;

	for (; m->n[i].parent >= 0; i = m->n[i].parent)
		d++;
	return d;
}

static int child(const struct model *m, int dir, const char *name, size_t len)
{
	for (int i = 1; i < NNODES; i++)
		if (m->n[i].type && m->n[i].parent == dir && strlen(m->n[i].name) == len &&
		    memcmp(m->n[i].name, name, len) == 0)
			return i;
	return -1;
}

static void random_target(struct model *m, char *out)
{
	unsigned parts = 1 + rnd(m, 4);

	strcpy(out, rnd(m, 3) == 0 ? "/" : "");
	for (unsigned i = 0; i < parts; i++) {
		static const char *const part[] = { "a", "b", "c", "..", "..", "." };

		strcat(out, part[rnd(m, ARRAY_LEN(part))]);
		if (i + 1 < parts)
			strcat(out, "/");
	}
}

static void build_tree(struct model *m)
{
	memset(m->n, 0, sizeof(m->n));
	m->n[0] = (struct mnode){ .parent = -1, .type = M_DIR };
	for (int i = 1; i < NNODES; i++) {
		struct mnode *n = &m->n[i];
		int parent = (int)rnd(m, (unsigned)i);

		n->name[0] = (char)('a' + (int)rnd(m, NAMES));
		if (m->n[parent].type != M_DIR || child(m, parent, n->name, 1) >= 0)
			continue;
		n->parent = parent;
		n->type = rnd(m, 5) < 2 ? M_DIR : rnd(m, 4) ? M_LINK : M_FILE;
		random_target(m, n->target);
	}
}

/* What the guest's own kernel makes of @text from @dir, its root being [0]: the honest agent's answer. Writes plain
 * names from the root. Returns the node, or -1: dangling (*out is where it would be), -2: a loop. */
static int guest_walk(const struct model *m, int dir, const char *text, unsigned *links, char *out)
{
	int at = text[0] == '/' ? 0 : dir, parent;
	char lost[768] = "";
	bool absent = false;

	while (*text) {
		size_t len = strcspn(text, "/");

		if (len && m->n[at].type != M_DIR)
			absent = true; /* nothing is below a file, not even ".." */
		if (len == 2 && memcmp(text, "..", 2) == 0) {
			if (lost[0])
				*strrchr(lost, '/') = '\0';
			else if (m->n[at].parent >= 0)
				at = m->n[at].parent;
		} else if (len && !(len == 1 && text[0] == '.')) {
			int next = lost[0] || m->n[at].type != M_DIR ? -1 : child(m, at, text, len);

			if (next < 0) {
				absent = true;
				snprintf(lost + strlen(lost), sizeof(lost) - strlen(lost), "/%.*s", (int)len, text);
			} else if (m->n[next].type == M_LINK) {
				char sub[512];

				if (++*links > WALK_LINKS_MAX)
					return -2;
				at = guest_walk(m, at, m->n[next].target, links, sub);
				if (at == -2)
					return -2;
				if (at == -1) { /* goes on below what is not there */
					absent = true;
					snprintf(lost, sizeof(lost), "%s%s", sub[0] ? "/" : "", sub);
					at = 0;
				}
			} else {
				at = next;
			}
		}
		text += len + (text[len] == '/');
	}
	*out = '\0';
	for (parent = at; m->n[parent].parent >= 0; parent = m->n[parent].parent) {
		char tail[256];

		strcpy(tail, out);
		sprintf(out, "%s%s%s", m->n[parent].name, tail[0] ? "/" : "", tail);
	}
	if (lost[0])
		strcat(out, out[0] ? lost : lost + 1);
	return absent ? -1 : at;
}

/* Somebody renames a directory (or a link) through the mount: to the same depth only. */
static void rename_something(struct model *m)
{
	int i = 1 + (int)rnd(m, NNODES - 1), to = (int)rnd(m, NNODES), up;
	char name[2] = { (char)('a' + (int)rnd(m, NAMES)), 0 };

	if (!m->n[i].type || m->n[to].type != M_DIR || child(m, to, name, 1) >= 0)
		return;
	for (up = to; up >= 0; up = m->n[up].parent)
		if (up == i)
			return;
	if (!m->any_depth && depth_of(m, to) + 1 != depth_of(m, i))
		return;
	m->n[i].parent = to;
	memcpy(m->n[i].name, name, 2);
}

static const char *read_link(struct model *m, int link, char out[GLINK_MAX + 1])
{
	struct mnode *n = &m->n[link];
	char resolved[512], target[64];
	unsigned links = 1, depth = depth_of(m, n->parent);
	struct glink l;
	size_t len;
	int r;

	if (m->lying) {
		random_target(m, target);
		random_target(m, resolved);
		l = link_of(target, resolved, rnd(m, 4));
	} else {
		r = guest_walk(m, n->parent, n->target, &links, resolved);
		l = link_of(n->target, resolved, r == -2 ? GLINK_LOOP : r == -1 ? GLINK_DANGLING : GLINK_RESOLVED);
	}
	r = glink_text(&l, depth, n->name, out, &len);
	if (!m->lying)
		assert_int_equal(r, 0);
	return r == 0 ? out : NULL;
}

/* The host's kernel: from @dir along @text; links on the way are followed. -1: nothing there, -2: too many links. */
static int host_walk(struct model *m, int dir, const char *text)
{
	int at = dir;

	while (*text && !m->left) {
		size_t len = strcspn(text, "/");
		char sub[GLINK_MAX + 1];
		int next;

		if (m->renames)
			rename_something(m);
		if (len == 2 && memcmp(text, "..", 2) == 0) {
			if (at == 0) {
				m->left = true;
				return -1;
			}
			at = m->n[at].parent;
		} else if (len && !(len == 1 && text[0] == '.')) {
			next = m->n[at].type == M_DIR ? child(m, at, text, len) : -1;
			if (next < 0)
				return -1;
			if (m->n[next].type == M_LINK) {
				if (++m->links > WALK_LINKS_MAX)
					return -2;
				/* Found in `at`, read, and then anything may happen before it is followed. */
				if (!read_link(m, next, sub))
					return -1;
				next = host_walk(m, at, sub);
				if (next < 0)
					return next;
			}
			at = next;
		}
		text += len + (text[len] == '/');
	}
	return at;
}

/* Follow every link of many random trees. Returns how many walks left `.fs`. */
static unsigned walk_all(bool lying, bool renames, bool any_depth, unsigned trees)
{
	unsigned left = 0;

	for (unsigned seed = 1; seed <= trees; seed++) {
		struct model m = { .rng = seed * 7919, .lying = lying, .renames = renames, .any_depth = any_depth };

		build_tree(&m);
		for (int i = 1; i < NNODES; i++) {
			char resolved[512];
			unsigned links = 1;
			int host, guest;

			if (m.n[i].type != M_LINK)
				continue;
			guest = guest_walk(&m, m.n[i].parent, m.n[i].target, &links, resolved);
			m.left = false;
			m.links = 0;
			host = host_walk(&m, m.n[i].parent, m.n[i].name);
			left += m.left;
			/* And the links of an honest guest lead where they lead in the guest. (For "gone/../b" the
			 * agent names "b", which may exist: that one is not compared.) */
			if (!lying && !renames && guest != -1)
				assert_int_equal(host, guest);
		}
	}
	return left;
}

static void test_honest_links_lead_where_the_guest_says(void **state)
{
	(void)state;
	assert_int_equal(walk_all(false, false, false, 6000), 0);
}

static void test_lies_never_lead_out(void **state)
{
	(void)state;
	assert_int_equal(walk_all(true, false, false, 6000), 0);
}

static void test_renames_under_the_walk_never_lead_out(void **state)
{
	(void)state;
	assert_int_equal(walk_all(false, true, false, 6000), 0);
	assert_int_equal(walk_all(true, true, false, 6000), 0);
}

/* The model can see an escape: without the rule about depths there are some. */
static void test_without_the_depth_rule_links_lead_out(void **state)
{
	(void)state;
	assert_true(walk_all(false, true, true, 6000) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_relative_targets_pass_unchanged),
		cmocka_unit_test(test_every_other_target_is_built),
		cmocka_unit_test(test_EIO_lies),
		cmocka_unit_test(test_ENAMETOOLONG),
		cmocka_unit_test(test_every_small_text_has_the_shape),
		cmocka_unit_test(test_honest_links_lead_where_the_guest_says),
		cmocka_unit_test(test_lies_never_lead_out),
		cmocka_unit_test(test_renames_under_the_walk_never_lead_out),
		cmocka_unit_test(test_without_the_depth_rule_links_lead_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
