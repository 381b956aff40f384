/* SPDX-License-Identifier: Apache-2.0 */
/* The relay outward, where a name counts: ports of TLS, DNS, and a policy that changes. */
#include "tests/unit/relay_fix.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

#define MIB  (1ull << 20)
#define PORT 443

const uint16_t fix_port = PORT;
static uint8_t hello[SNIFF_MAX * 2];

/* The relay has seen what the guest sent, and waits for more of it. */
static void assert_waits(size_t len)
{
	rig_run(&rig, rig.relay->conns && rig.relay->conns->from_guest.head.len == len);
	assert_int_equal(rig.relay->conns->state, RELAY_HELLO);
	assert_int_equal(rig.decided, 0);
}

static void expect_bytes(int fd, const uint8_t *data, size_t len)
{
	uint8_t got[sizeof(hello)];
	size_t at = 0;

	while (at < len) {
		ssize_t n = rig_read(&rig, fd, got + at, len - at);

		assert_true(n > 0);
		at += (size_t)n;
	}
	assert_memory_equal(got, data, len);
}

/* A connection whose hello names @name: open when this returns. */
static void join(const char *name, int *ret_guest, int *ret_far)
{
	size_t len = rig_hello(hello, name, 10);

	*ret_guest = rig_dial(INSIDE, THERE, PORT);
	rig_write(&rig, *ret_guest, hello, len);
	*ret_far = rig_accept(&rig, server);
	expect_bytes(*ret_far, hello, len);
}

/* -- hellos -------------------------------------------------------------------------------------------------------- */

static void test_a_name(void **state)
{
	int guest, far;

	(void)state;
	join("pypi.org", &guest, &far);
	assert_string_equal(rig.decided_tls, "pypi.org");
	assert_int_equal(rig.decided_port, PORT);
	rig_talk(&rig, guest, far, MIB);
	(void)rig_event(&rig, 1, "out", "ended", "");
	assert_string_equal(rig.events[0].name, "pypi.org");
	assert_int_equal(rig.events[0].ev.bytes_out, MIB + rig_hello(hello, "pypi.org", 10));
}

static void test_a_name_in_pieces(void **state)
{
	size_t len = rig_hello(hello, "files.example.com", 9000);
	int guest = rig_dial(INSIDE, THERE, PORT), far;

	(void)state;
	for (size_t at = 0; at < len;) {
		size_t n = at < 120 ? 1 : len - at < 1500 ? len - at : 1500;

		rig_write(&rig, guest, hello + at, n);
		at += n;
		if (at < len)
			assert_waits(at);
	}
	far = rig_accept(&rig, server);
	assert_string_equal(rig.decided_tls, "files.example.com");
	expect_bytes(far, hello, len);
	rig_echo(&rig, guest, far);
	fd_close(&guest);
	fd_close(&far);
}

/* What follows the hello at once goes with it. */
static void test_more_than_a_hello(void **state)
{
	size_t len = rig_hello(hello, "pypi.org", 0);
	int guest = rig_dial(INSIDE, THERE, PORT), far;

	(void)state;
	memset(hello + len, 0x5b, 700);
	rig_write(&rig, guest, hello, len + 700);
	assert_int_equal(shutdown(guest, SHUT_WR), 0);
	far = rig_accept(&rig, server);
	expect_bytes(far, hello, len + 700);
	assert_int_equal(rig_read(&rig, far, hello, 1), 0);
	fd_close(&guest);
	fd_close(&far);
	(void)rig_event(&rig, 1, "out", "ended", "");
}

static void refused(const void *data, size_t len, const char *reason)
{
	int guest = rig_dial(INSIDE, THERE, PORT);
	unsigned n = rig.nevents, decided = rig.decided;

	rig_write(&rig, guest, data, len);
	rig_expect_reset(&rig, &guest);
	(void)rig_event(&rig, n + 1, "out", "refused", reason);
	assert_int_equal(rig.decided, decided); /* nobody can allow it */
	assert_int_equal(accept4(server, NULL, NULL, 0), -1);
	assert_int_equal(rig_stat(&rig).open, 0);
}

static void test_no_name(void **state)
{
	(void)state;
	refused(hello, rig_hello(hello, NULL, 100), "its TLS hello names no server");
	refused(hello, rig_hello(hello, "198.51.100.7", 100), "its TLS hello names no server");
}

static void test_not_tls(void **state)
{
	(void)state;
	refused("GET / HTTP/1.1\r\n\r\n", 18, "not TLS, on a port of TLS");
}

static void test_malformed(void **state)
{
	size_t len = rig_hello(hello, "pypi.org", 100);

	(void)state;
	hello[43] = 200; /* a session's id has 32 bytes at most */
	refused(hello, len, "its TLS hello cannot be read");
}

/* It says that it has more than 16 KiB, in as many records as that needs. */
static void test_too_large(void **state)
{
	size_t at = 0;

	(void)state;
	for (unsigned i = 0; i < 17; i++, at += 5 + 1000) {
		memcpy(hello + at, "\x16\x03\x01\x03\xe8", 5);
		memset(hello + at + 5, 0, 1000);
	}
	memcpy(hello + 5, "\x01\x00\x43\x00", 4);
	memcpy(hello + 9, "\x03\x03", 2);
	refused(hello, at, "its TLS hello is too large");
}

static void test_closed_too_early(void **state)
{
	int guest = rig_dial(INSIDE, THERE, PORT);

	(void)state;
	rig_write(&rig, guest, hello, rig_hello(hello, "pypi.org", 100) - 1);
	assert_int_equal(shutdown(guest, SHUT_WR), 0);
	rig_expect_reset(&rig, &guest);
	(void)rig_event(&rig, 1, "out", "refused", "closed before its TLS hello was whole");
}

static void test_reset_too_early(void **state)
{
	int guest = rig_dial(INSIDE, THERE, PORT);

	(void)state;
	rig_run(&rig, rig_stat(&rig).open == 1);
	rig_reset(&guest);
	(void)rig_event(&rig, 1, "out", "failed", strerror(ECONNRESET));
}

static void test_slow(void **state)
{
	int guest;

	(void)state;
	rig.relay->hello_ns = 1;
	guest = rig_dial(INSIDE, THERE, PORT);
	rig_expect_reset(&rig, &guest);
	(void)rig_event(&rig, 1, "out", "refused", "no TLS hello came in time");
}

/* The time is that of the whole hello: bytes that trickle do not stretch it. */
static void test_trickling(void **state)
{
	size_t len = rig_hello(hello, "pypi.org", 100);
	int guest = rig_dial(INSIDE, THERE, PORT);
	loop_id timer;

	(void)state;
	rig_write(&rig, guest, hello, 10);
	assert_waits(10);
	timer = rig.relay->conns->timer;
	rig_write(&rig, guest, hello + 10, len - 20);
	assert_waits(len - 10);
	assert_true(timer == rig.relay->conns->timer);
	fd_close(&guest);
	rig_run(&rig, rig_stat(&rig).open == 0);
}

static void test_every_port_of_tls(void **state)
{
	static const uint16_t tls[] = { 443, 465, 563, 636, 853, 989, 990, 992, 993, 994, 995, 5061, 8443 };
	size_t n = 0;

	(void)state;
	for (unsigned p = 0; p <= UINT16_MAX; p++)
		n += relay_tls_port((uint16_t)p);
	assert_int_equal(n, ARRAY_LEN(tls));
	for (size_t i = 0; i < ARRAY_LEN(tls); i++)
		assert_true(relay_tls_port(tls[i]));
}

/* -- policy -------------------------------------------------------------------------------------------------------- */

static void test_a_name_that_is_forbidden(void **state)
{
	int guest = rig_dial(INSIDE, THERE, PORT);

	(void)state;
	rig.denied_name = "evil.example";
	rig_write(&rig, guest, hello, rig_hello(hello, "evil.example", 100));
	rig_expect_reset(&rig, &guest);
	(void)rig_event(&rig, 1, "out", "refused", "no rule allows it");
	assert_int_equal(accept4(server, NULL, NULL, 0), -1);
}

static void test_recheck(void **state)
{
	int kept, kept_far, evil, evil_far, early = rig_dial(INSIDE, THERE, PORT);

	(void)state;
	rig_run(&rig, rig_stat(&rig).open == 1); /* has said nothing: it is decided when it does */
	join("pypi.org", &kept, &kept_far);
	join("evil.example", &evil, &evil_far);
	assert_string_equal(rig.decided_name, "");
	relay_recheck(rig.relay);
	assert_string_equal(rig.decided_name, "evil.example"); /* it need not be looked for again */
	rig_echo(&rig, evil, evil_far);
	rig.denied_name = "evil.example";
	relay_recheck(rig.relay);
	assert_int_equal(rig_stat(&rig).open, 2);
	(void)rig_event(&rig, 1, "out", "ended", "no rule allows it");
	assert_string_equal(rig.events[0].name, "evil.example");
	rig_expect_reset(&rig, &evil);
	rig_expect_reset(&rig, &evil_far);
	rig_echo(&rig, kept, kept_far);
	rig_write(&rig, early, hello, rig_hello(hello, "evil.example", 0));
	rig_expect_reset(&rig, &early);
	rig_talk(&rig, kept, kept_far, MIB);
}

/* -- DNS ----------------------------------------------------------------------------------------------------------- */

static void test_dns_is_handed_over(void **state)
{
	struct relay_rig dns;
	int guest;
	char got[3];

	(void)state;
	rig_start(&dns, 53);
	guest = rig_dial(INSIDE, THERE, 53);
	rig_run(&dns, dns.dns_fd >= 0);
	assert_int_equal(write(guest, "ask", 3), 3);
	assert_int_equal(rig_read(&dns, dns.dns_fd, got, 3), 3);
	assert_int_equal(dns.decided + dns.nevents + dns.relay->stat.open, 0);
	fd_close(&guest);
	rig_stop(&dns);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, fix_setup, fix_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_a_name),
		TEST(test_a_name_in_pieces),
		TEST(test_more_than_a_hello),
		TEST(test_no_name),
		TEST(test_not_tls),
		TEST(test_malformed),
		TEST(test_too_large),
		TEST(test_closed_too_early),
		TEST(test_reset_too_early),
		TEST(test_slow),
		TEST(test_trickling),
		TEST(test_every_port_of_tls),
		TEST(test_a_name_that_is_forbidden),
		TEST(test_recheck),
		TEST(test_dns_is_handed_over),
	};

	return cmocka_run_group_tests(tests, rig_world, NULL);
}
