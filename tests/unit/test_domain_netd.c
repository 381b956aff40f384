/* SPDX-License-Identifier: Apache-2.0 */
/* Published ports; crucible-netd and the daemon restarted; what netd tells. */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/unit/net_fix.h"

/* -- ports -------------------------------------------------------------------------------------------------------- */

static void test_ports_are_bound_at_the_write(void **state)
{
	struct world *w = *state;
	struct sandbox *s = new_sandbox(w, "a", &root_user), *b = new_sandbox(w, "b", &root_user);
	unsigned one = free_port(), two;
	char text[128];
	struct err e;
	int taken, copy;

	taken = listener(one);
	assert_true(taken >= 0);
	two = free_port();
	snprintf(text, sizeof(text), "%u:80\n%u:81\n", two, one);
	assert_int_equal(ports(s, text, &e), -EADDRINUSE);
	assert_says(e.msg, "sandbox a: net/ports: 127.0.0.1 port");
	assert_true(can_listen(two)); /* nothing of it is kept */
	close(taken);
	assert_int_equal(ports(s, text, &e), 0);
	assert_false(can_listen(one) || can_listen(two));
	assert_int_equal(ports(b, text, &e), -EADDRINUSE);
	assert_says(e.msg, "by sandbox a");
	assert_int_equal(ports(s, "80\n", &e), -EINVAL);
	assert_int_equal(ports(s, "8080:80/udp\n", &e), -EINVAL);
	snprintf(text, sizeof(text), "%u:80\n%u:81\n", two, two);
	assert_int_equal(ports(s, text, &e), -EEXIST);
	assert_int_equal(ports(s, "192.0.2.1:8080:80\n", &e), -EADDRNOTAVAIL);
	/* Given back at once, though somebody still has a copy. */
	copy = fcntl(s->net.ports[1].fd, F_DUPFD_CLOEXEC, 3);
	snprintf(text, sizeof(text), "127.0.0.1:%u:8000/tcp\n", two);
	assert_int_equal(ports(s, text, &e), 0);
	shows(s, sandbox_net_ports_show, text);
	assert_true(can_listen(one));
	assert_false(can_listen(two));
	snprintf(text, sizeof(text), "%u:80\n", one);
	assert_int_equal(ports(b, text, &e), 0);
	close(copy);
	gone(w, s);
	gone(w, b);
	assert_true(can_listen(one) && can_listen(two));
	assert_clean(w);
}

static void test_ports_go_to_netd_and_outlive_the_machine(void **state)
{
	struct world *w = *state;
	struct sandbox *s = new_sandbox(w, "a", &root_user);
	unsigned one = free_port(), two;
	char text[128], line[64];
	struct err e;

	snprintf(text, sizeof(text), "%u:80\n", one);
	assert_int_equal(ports(s, text, &e), 0);
	starts(w, s); /* ports alone are a network: filtered, with nothing allowed */
	assert_int_equal(sandbox_status(s), SBX_READY);
	shows(s, sandbox_info_json, "\"network\":\"filtered\"");
	assert_string_equal(fakes.net_allow, "");
	assert_int_equal(fakes.nnet_ports, 1);
	assert_int_equal(fakes.net_sockets, 16);
	snprintf(line, sizeof(line), "127.0.0.1:%u:80/tcp", one);
	assert_string_equal(fakes.net_ports[0], line);
	two = free_port();
	snprintf(text, sizeof(text), "%u:80\n%u:81\n", one, two);
	assert_int_equal(ports(s, text, &e), 0);
	spin(w);
	assert_int_equal(fakes.nnet_ports, 2);
	fakes_netd_says(NETD_NEED_SOCKETS, s->uuid, NULL);
	spin(w);
	assert_int_equal(fakes.net_sockets, 48);
	assert_int_equal(fakes.net_no_sockets, 0);
	/* None can be had: netd hears it, and asks for the next client again. */
	w->fake.refuse_sockets = -EBUSY;
	fakes_netd_says(NETD_NEED_SOCKETS, s->uuid, NULL);
	spin(w);
	assert_int_equal(fakes.net_sockets, 48);
	assert_int_equal(fakes.net_no_sockets, 1);
	w->fake.refuse_sockets = 0;
	fakes_netd_says(NETD_NEED_SOCKETS, s->uuid, NULL);
	spin(w);
	assert_int_equal(fakes.net_sockets, 64);
	assert_int_equal(sandbox_ctl(s, "stop", &root_user, &e), 0);
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_STOPPED);
	assert_int_equal(fakes.nset[FAKE_NETS], 0);
	assert_false(can_listen(one) || can_listen(two));
	starts(w, s);
	assert_int_equal(fakes.nnet_ports, 2);
	assert_int_equal(ports(s, "#\n", &e), 0);
	spin(w);
	assert_int_equal(fakes.nnet_ports, 0);
	assert_true(can_listen(one) && can_listen(two));
	gone(w, s);
	assert_clean(w);
}

/* -- netd and the daemon, restarted ------------------------------------------------------------------------------- */

static void test_netd_dies_and_comes_back(void **state)
{
	struct world *w = *state;
	struct sandbox *s = networked(w, "a", "a.test\n"), *cold = running(w, "cold"), *b;
	char text[64];
	struct err e;

	snprintf(text, sizeof(text), "%u:80\n", free_port());
	assert_int_equal(ports(s, text, &e), 0);
	spin(w);
	fakes_lose(FAKE_NETD);
	command(s, "true\n"); /* commands do not wait for that */
	spin(w);
	assert_int_equal(fakes.asked[FAKE_BOX][BOX_EXEC], 1);
	assert_int_equal(sandbox_status(s), SBX_READY);
	fakes.trace[0] = '\0';
	fakes_up(FAKE_NETD, true);
	spin(w);
	assert_true(fakes_traced("N:CONFIG N:OPEN N:ALLOW N:PORTS "));
	assert_int_equal(w->fake.nets, 2);
	assert_int_equal(fakes.nnet_ports, 1);
	assert_int_equal(fakes.asked[FAKE_BOX][BOX_NET], 0); /* the guest has noticed nothing */
	/* It was only away: its connections go on. A list was written meanwhile. */
	fakes_lose(FAKE_NETD);
	assert_int_equal(allow(s, "b.test\n", &e), 0);
	spin(w);
	fakes_up(FAKE_NETD, false);
	spin(w);
	assert_int_equal(w->fake.nets, 2);
	assert_string_equal(fakes.net_allow, "b.test\n");
	assert_int_equal(fakes.nnet_ports, 1);
	/* It dies in the midst of a step. */
	fakes.hold[FAKE_NETD][NETD_ALLOW] = true;
	assert_int_equal(allow(s, "c.test\n", &e), 0);
	spin(w);
	fakes_lose(FAKE_NETD);
	fakes_obey();
	fakes_up(FAKE_NETD, true);
	spin(w);
	assert_string_equal(fakes.net_allow, "c.test\n");
	assert_string_equal(sandbox_error(s), "");
	/* Cut off when it may have opened one, or not: that goes before the namespace is asked for again. */
	fakes.hold[FAKE_NETD][NETD_OPEN] = true;
	b = new_sandbox(w, "b", &root_user);
	assert_int_equal(allow(b, "b.test\n", &e), 0);
	starts(w, b);
	assert_true(fakes_have(FAKE_NETS, b->uuid));
	fakes_lose(FAKE_NETD);
	fakes_obey();
	fakes.trace[0] = '\0';
	fakes_up(FAKE_NETD, false);
	spin(w);
	assert_true(fakes_traced("N:CLOSE N:OPEN N:ALLOW "));
	assert_int_equal(sandbox_status(b), SBX_READY);
	gone(w, b);
	gone(w, s);
	gone(w, cold);
	assert_clean(w);
}

/* A sandbox that ended while netd was away is closed there when it is back. */
static void test_what_is_nobodys_is_closed(void **state)
{
	struct world *w = *state;
	struct sandbox *s = networked(w, "a", "a.test\n");

	fakes_lose(FAKE_NETD);
	gone(w, s);
	assert_int_equal(fakes.nset[FAKE_NETS], 1);
	fakes_up(FAKE_NETD, false);
	spin(w);
	assert_clean(w);
}

/* As boxlink.c does when a box comes back. */
static struct sandbox *come_back(struct world *w, const char *machine)
{
	struct sandbox *s;
	struct err e = { 0 };
	int pair[2];

	bring_up_with(w, machine);
	s = registry_find(w->reg, NULL, "a");
	assert_non_null(s);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	fake_box_add(NULL, machine, pair[1]);
	assert_int_equal(boxlink_new(w->reg, s, NULL, pair[0], &s->link, &e), 0);
	loop_del(w->loop, &s->adopt_timer);
	net_adopted(s);
	return s;
}

static void test_a_daemon_restarted(void **state)
{
	struct world *w = *state;
	struct sandbox *s = networked(w, "a", "a.test\n");
	char machine[LAUNCH_UUID_LEN + 1], text[64];
	unsigned port = free_port();
	struct err e;

	snprintf(text, sizeof(text), "%u:80\n", port);
	assert_int_equal(ports(s, text, &e), 0);
	spin(w);
	snprintf(machine, sizeof(machine), "%s", s->machine);
	bring_down(w);
	fakes.trace[0] = '\0';
	s = come_back(w, machine);
	command(s, "true\n");
	assert_int_equal(fakes.asked[FAKE_BOX][BOX_EXEC], 0);
	spin(w);
	/* netd has gone on: nothing is made anew, the port is netd's alone. */
	assert_int_equal(w->fake.nets, 1);
	assert_int_equal(fakes.nnet_ports, 1);
	assert_true(s->net.ports[0].with_netd);
	assert_int_equal(s->net.ports[0].fd, -1);
	assert_true(fakes_traced("N:OPEN N:ALLOW N:PORTS B:EXEC "));
	assert_int_equal(fakes.asked[FAKE_BOX][BOX_NET], 0);
	shows(s, sandbox_info_json, "\"network\":\"filtered\"");
	/* The port is bound anew when netd has let go of it. */
	assert_int_equal(sandbox_ctl(s, "stop", &root_user, &e), 0);
	spin(w);
	assert_true(s->net.ports[0].fd >= 0);
	assert_false(can_listen(port));
	starts(w, s);
	assert_int_equal(fakes.nnet_ports, 1);
	gone(w, s);
	assert_clean(w);
}

/* netd has died with it. */
static void test_a_daemon_and_netd_restarted(void **state)
{
	struct world *w = *state;
	struct sandbox *s = networked(w, "a", "a.test\n");
	char machine[LAUNCH_UUID_LEN + 1], text[64];
	struct err e;

	snprintf(text, sizeof(text), "%u:80\n", free_port());
	assert_int_equal(ports(s, text, &e), 0);
	spin(w);
	snprintf(machine, sizeof(machine), "%s", s->machine);
	bring_down(w);
	fakes.nset[FAKE_NETS] = fakes.nnet_ports = 0;
	s = come_back(w, machine);
	spin(w);
	assert_int_equal(w->fake.nets, 2);
	assert_int_equal(fakes.nnet_ports, 1);
	assert_string_equal(fakes.net_allow, "a.test\n");
	gone(w, s);
	assert_clean(w);
}

/* -- what netd tells ---------------------------------------------------------------------------------------------- */

static void read_log(struct sandbox *s, char *out, size_t cap)
{
	int fd = -1;
	ssize_t n;

	assert_int_equal(sandbox_net_log_open(s, &fd), 0);
	n = read(fd, out, cap - 1);
	assert_true(n >= 0);
	out[n] = '\0';
	close(fd);
}

static void test_its_lines_are_the_sandboxs_log(void **state)
{
	struct world *w = *state;
	struct sandbox *s = networked(w, "a", "a.test\n");
	static char text[65536], big[2000];
	struct stat st;
	int fd = -1;

	read_log(s, text, sizeof(text));
	assert_string_equal(text, "");
	fakes_netd_says(NETD_LOG, s->uuid, "{\"event\":\"question\",\"name\":\"a.test\"}");
	fakes_netd_says(NETD_LOG, s->uuid, "no JSON");
	fakes_netd_says(NETD_LOG, s->uuid, "[1]");
	fakes_netd_says(NETD_LOG, "nobody", "{}");
	fakes_netd_says(NETD_LOG, s->uuid, NULL);
	read_log(s, text, sizeof(text));
	assert_string_equal(text, "{\"event\":\"question\",\"name\":\"a.test\"}\n");
	snprintf(big, sizeof(big), "{\"a\":\"%01900d\"}", 1);
	for (int i = 0; i < 700; i++)
		fakes_netd_says(NETD_LOG, s->uuid, big);
	assert_int_equal(sandbox_net_log_open(s, &fd), 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true(st.st_size > 0 && st.st_size < 1024 * 1024 + 4096);
	close(fd);
	assert_int_equal(fstatat(s->dirfd, "net.jsonl.1", &st, 0), 0);
	gone(w, s);
	assert_clean(w);
}

static void test_figures_and_health(void **state)
{
	struct world *w = *state;
	struct sandbox *s = networked(w, "a", "a.test\n");
	struct err e = { 0 };
	struct buf b;

	shows(s, sandbox_usage_json, "\"net_bytes_out\":0");
	spin(w);
	shows(s, sandbox_usage_json, "\"net_bytes_out\":11");
	shows(s, sandbox_usage_json, "\"net_questions_denied\":77");
	buf_init(&b, 1 << 20);
	assert_int_equal(registry_metrics(w->reg, &root_user, &b), 0);
	spin(w);
	buf_reset(&b);
	assert_int_equal(registry_metrics(w->reg, &root_user, &b), 0);
	assert_says(buf_str(&b), "\ncrucible_net_connections_total{verdict=\"refused\"} 44\n");
	buf_reset(&b);
	assert_int_equal(registry_health_json(w->reg, &root_user, &b), 0);
	assert_says(buf_str(&b), "\"net\":\"up\"");
	fakes_lose(FAKE_NETD);
	fakes.degraded[FAKE_NETD] = "crucible-netd: failed";
	buf_reset(&b);
	assert_int_equal(registry_health_json(w->reg, &root_user, &b), 0);
	assert_says(buf_str(&b), "\"net\":\"failed\"");
	assert_says(buf_str(&b), "\"crucible-netd: failed\"");
	/* What it does not take of root's configuration is said. */
	fakes.refuse[FAKE_NETD][NETD_CONFIG] = -EINVAL;
	fakes_up(FAKE_NETD, true);
	spin(w);
	buf_reset(&b);
	assert_int_equal(registry_health_json(w->reg, &root_user, &b), 0);
	assert_says(buf_str(&b), "net: refused by the test");
	buf_reset(&b);
	assert_int_equal(registry_policy_json(w->reg, &root_user, &b), 0);
	assert_null(strstr(buf_str(&b), "net_allow_max"));
	assert_int_equal(config_set(&w->cfg, "net_allow_max", "a.test", &e), 0);
	assert_int_equal(config_finish(&w->cfg, &e), 0);
	buf_reset(&b);
	assert_int_equal(registry_policy_json(w->reg, &root_user, &b), 0);
	assert_says(buf_str(&b), "\"net_allow_max\":[\"a.test\"]");
	buf_fini(&b);
	gone(w, s);
	assert_clean(w);
}

static void test_upstreams_of_the_host_are_followed(void **state)
{
	struct world *w = *state;
	char path[128];
	struct err e = { 0 };

	snprintf(path, sizeof(path), "%s/resolv.conf", w->dir);
	put(w, "resolv.conf", "nameserver 192.0.2.53\n");
	netd_resolv_conf = path;
	gone(w, networked(w, "a", "a.test\n")); /* another file than netd has */
	assert_string_equal(fakes.net_config, "nameserver 192.0.2.53\n");
	fakes.asked[FAKE_NETD][NETD_CONFIG] = 0;
	gone(w, networked(w, "a", "a.test\n"));
	assert_int_equal(fakes.asked[FAKE_NETD][NETD_CONFIG], 0);
	put(w, "resolv.conf", "nameserver 192.0.2.54\n");
	gone(w, networked(w, "a", "a.test\n"));
	assert_string_equal(fakes.net_config, "nameserver 192.0.2.54\n");
	/* Root names others. */
	assert_int_equal(config_set(&w->cfg, "net_upstream", "192.0.2.1#5353 2001:db8::1", &e), 0);
	fakes_lose(FAKE_NETD);
	fakes_up(FAKE_NETD, true);
	spin(w);
	assert_string_equal(fakes.net_config, "nameserver 192.0.2.1#5353\nnameserver 2001:db8::1\n");
	netd_resolv_conf = "/etc/resolv.conf";
	assert_clean(w);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, snapshot_world, world_teardown)
	const struct CMUnitTest tests[] = {
		T(test_ports_are_bound_at_the_write),
		T(test_ports_go_to_netd_and_outlive_the_machine),
		T(test_netd_dies_and_comes_back),
		T(test_what_is_nobodys_is_closed),
		T(test_a_daemon_restarted),
		T(test_a_daemon_and_netd_restarted),
		T(test_its_lines_are_the_sandboxs_log),
		T(test_figures_and_health),
		T(test_upstreams_of_the_host_are_followed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
