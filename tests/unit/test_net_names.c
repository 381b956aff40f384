/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fd.h"
#include "netpolicy/names.h"

#define S 1000000000ull

struct found {
	char text[200];
	size_t n, stop_at;
};

static bool on_name(void *arg, const char *name)
{
	struct found *f = arg;

	if (strlen(f->text) + strlen(name) + 2 < sizeof(f->text))
		strcat(strcat(f->text, name), " ");
	return ++f->n == f->stop_at;
}

static const char *find(const struct names *t, const char *addr, uint64_t now, size_t stop_at)
{
	static struct found f;
	struct net_addr a;

	f = (struct found){ .stop_at = stop_at };
	assert_int_equal(net_addr_parse(addr, &a), 0);
	names_find(t, &a, now, on_name, &f);
	return f.text;
}

static void add(struct names *t, const char *name, const char *addr, uint32_t ttl, uint64_t now)
{
	struct net_addr a;

	assert_int_equal(net_addr_parse(addr, &a), 0);
	assert_int_equal(names_add(t, name, &a, ttl, now), 0);
}

static void test_newest_first(void **state)
{
	struct names *t;

	(void)state;
	assert_int_equal(names_new(&t), 0);
	assert_string_equal(find(t, "8.8.8.8", 0, 0), "");
	add(t, "a.example", "8.8.8.8", 60, 1);
	add(t, "b.example", "8.8.8.8", 60, 2);
	add(t, "c.example", "8.8.8.9", 60, 3);
	add(t, "c.example", "2606::1", 60, 3);
	assert_string_equal(find(t, "8.8.8.8", 5, 0), "b.example a.example ");
	assert_string_equal(find(t, "8.8.8.8", 5, 1), "b.example ");
	assert_string_equal(find(t, "2606::1", 5, 0), "c.example ");
	add(t, "a.example", "8.8.8.8", 60, 4);
	assert_string_equal(find(t, "8.8.8.8", 5, 0), "a.example b.example ");
	assert_null(names_free(t));
	assert_null(names_free(NULL));
}

static void test_age(void **state)
{
	struct names *t;

	(void)state;
	assert_int_equal(names_new(&t), 0);
	add(t, "a.example", "8.8.8.8", 60, 0);
	add(t, "b.example", "8.8.8.8", 0, 0);
	assert_string_equal(find(t, "8.8.8.8", NAMES_GRACE_NS, 0), "b.example a.example ");
	assert_string_equal(find(t, "8.8.8.8", NAMES_GRACE_NS + 1, 0), "a.example ");
	assert_string_equal(find(t, "8.8.8.8", NAMES_GRACE_NS + 60 * S, 0), "a.example ");
	/* A shorter answer later takes nothing back. */
	add(t, "a.example", "8.8.8.8", 1, 1);
	assert_string_equal(find(t, "8.8.8.8", NAMES_GRACE_NS + 60 * S, 0), "a.example ");
	assert_string_equal(find(t, "8.8.8.8", NAMES_GRACE_NS + 61 * S, 0), "");
	/* Nobody's answer is for ever. */
	add(t, "a.example", "8.8.8.8", UINT32_MAX, 0);
	assert_string_equal(find(t, "8.8.8.8", NAMES_GRACE_NS + 86401 * S, 0), "");
	names_free(t);
}

static void test_oldest_go(void **state)
{
	char name[40], addr[40];
	struct names *t;

	(void)state;
	assert_int_equal(names_new(&t), 0);
	for (unsigned i = 0; i < NAMES_MAX; i++) {
		snprintf(name, sizeof(name), "h%u.example", i);
		snprintf(addr, sizeof(addr), "8.8.%u.%u", i / 256, i % 256);
		add(t, name, addr, 60, i);
	}
	assert_string_equal(find(t, "8.8.0.0", NAMES_MAX, 0), "h0.example ");
	add(t, "h0.example", "8.8.0.0", 60, NAMES_MAX); /* is the newest again */
	add(t, "one.more.example", "9.9.9.9", 60, NAMES_MAX);
	assert_string_equal(find(t, "8.8.0.0", NAMES_MAX, 0), "h0.example ");
	assert_string_equal(find(t, "8.8.0.1", NAMES_MAX, 0), "");
	assert_string_equal(find(t, "8.8.0.2", NAMES_MAX, 0), "h2.example ");
	assert_string_equal(find(t, "9.9.9.9", NAMES_MAX, 0), "one.more.example ");
	/* All in one chain. */
	for (unsigned i = 0; i < NAMES_MAX + 10; i++) {
		snprintf(name, sizeof(name), "n%u.example", i);
		add(t, name, "7.7.7.7", 60, NAMES_MAX + i);
	}
	assert_string_equal(find(t, "9.9.9.9", NAMES_MAX, 0), "");
	assert_string_equal(find(t, "7.7.7.7", NAMES_MAX, 2), "n4105.example n4104.example ");
	names_free(t);
}

/* A fork's table: what is good still, as long as it was. */
static void test_copy(void **state)
{
	struct names *from, *t;

	(void)state;
	assert_int_equal(names_new(&from), 0);
	assert_int_equal(names_new(&t), 0);
	assert_false(names_any(from));
	add(from, "a.example", "8.8.8.8", 60, 0);
	add(from, "b.example", "8.8.8.8", 0, 0);
	add(from, "c.example", "8.8.8.8", 90, 0);
	assert_true(names_any(from));
	add(t, "own.example", "8.8.8.8", 3600, 0);
	assert_int_equal(names_copy(t, from, NAMES_GRACE_NS + S), 0);
	assert_string_equal(find(t, "8.8.8.8", NAMES_GRACE_NS, 0), "c.example a.example own.example ");
	assert_string_equal(find(t, "8.8.8.8", NAMES_GRACE_NS + 61 * S, 0), "c.example own.example ");
	names_free(from);
	assert_string_equal(find(t, "8.8.8.8", NAMES_GRACE_NS + 91 * S, 0), "own.example ");
	names_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_newest_first),
		cmocka_unit_test(test_age),
		cmocka_unit_test(test_oldest_go),
		cmocka_unit_test(test_copy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
