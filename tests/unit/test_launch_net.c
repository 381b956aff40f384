/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher and the network: an engine's tap, what is made in its namespace later, and the one process that stays in
 * the host's. See launch_fix.h. */
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/confine.h"
#include "base/fd.h"
#include "base/proc.h"
#include "netpolicy/topology.h"
#include "tests/unit/launch_fix.h"

#include <linux/capability.h>

#define TAP_AT 4 /* of the descriptors that engines are given here */

/* What a request brought back. */
struct back {
	bool answered;
	int code, fds[MSG_FDS_MAX];
	size_t nfds, len;
	char words[320];
	uint8_t payload[64];
};

static void on_answer(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct back *b = arg;

	b->answered = true;
	b->code = code;
	snprintf(b->words, sizeof(b->words), "%s", words);
	b->len = wire_left(r);
	assert_true(b->len <= sizeof(b->payload));
	if (b->len)
		memcpy(b->payload, r->p, b->len);
	for (; b->nfds < m->nfds; b->nfds++)
		b->fds[b->nfds] = take_fd(&m->fds[b->nfds]);
}

static void back_close(struct back *b)
{
	for (size_t i = 0; i < b->nfds; i++)
		fd_close(&b->fds[i]);
	b->nfds = 0;
}

static void begin_net(struct fix *f, const char *uuid, struct back *b)
{
	uint8_t raw[LAUNCH_UUID_BYTES];

	*b = (struct back){ 0 };
	launch_uuid_encode(uuid, raw);
	assert_int_equal(launcher_call(f->l, LAUNCH_NET, raw, sizeof(raw), NULL, 0, on_answer, b), 0);
}

static int net(struct fix *f, const char *uuid, struct back *b)
{
	begin_net(f, uuid, b);
	fix_until(f, &b->answered);
	return b->code;
}

static int net_sockets(struct fix *f, const char *uuid, uint32_t n, struct back *b)
{
	struct buf req;

	*b = (struct back){ 0 };
	buf_init(&req, 128);
	assert_int_equal(launch_net_sockets_encode(uuid, n, &req), 0);
	assert_int_equal(launcher_call(f->l, LAUNCH_NET_SOCKETS, req.data, req.len, NULL, 0, on_answer, b), 0);
	buf_fini(&req);
	fix_until(f, &b->answered);
	return b->code;
}

/* An engine with a placeholder for its tap. What it reports goes to @out, when that is not NULL. */
static pid_t engine(struct fix *f, uint32_t slot, const char *uuid, bool tap, char *out, size_t cap)
{
	struct launch_spawn s = fix_spawn_of(LAUNCH_ENGINE, slot, uuid, out ? "report" : "sleep");
	AUTO_FD null = open("/dev/null", O_RDWR | O_CLOEXEC);
	char unenforced[64];
	size_t n = 0;
	pid_t pid;
	int p[2];

	s.net_fd = tap ? TAP_AT : 0;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	if (fix_spawn(f, &s, (int[]){ p[1], null, null }, 3, &pid, unenforced) < 0)
		fail_msg("spawn: %s", f->words);
	assert_null(strstr(unenforced, "network"));
	close(p[1]);
	for (; out && (n == 0 || !strstr(out, "end\n")); out[n] = '\0') {
		ssize_t got = read(p[0], out + n, cap - 1 - n);

		if (got <= 0)
			fail_msg("the probe ended after: %.*s", (int)n, out);
		n += (size_t)got;
	}
	close(p[0]);
	return pid;
}

static void test_engine_tap(void **state)
{
	struct fix *f = *state;
	char out[16384];

	engine(f, fix_new_slot(f), UUID_A, true, out, sizeof(out));
	assert_says(out, "net: lo");
	assert_says(out, "net: " NET_TAP);
	assert_int_equal(fix_count_lines(out, "net: "), 2);
	assert_says(out, "tap 4: " NET_TAP " down");
	assert_int_equal(fix_count_lines(out, "tap "), 1);
	assert_says(out, "route: ENETUNREACH");
	assert_says(out, "caps: 0 0 0");
	/* 0 1 2, the first placeholder, the tap, the slot's lock */
	assert_int_equal(fix_count_lines(out, "fd: "), 6);
	assert_says(out, "setns: ENOSYS");
	assert_int_equal(if_nametoindex(NET_TAP), 0);
}

static void test_engine_no_tap(void **state)
{
	struct fix *f = *state;
	char out[16384];

	engine(f, fix_new_slot(f), UUID_A, false, out, sizeof(out));
	assert_int_equal(fix_count_lines(out, "net: "), 1);
	assert_int_equal(fix_count_lines(out, "tap "), 0);
}

/* A host without taps: the engine starts all the same, with what kept the place, and it is said. */
static void test_no_tun(void **state)
{
	struct fix *f = *state;
	AUTO_FD mounts = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	AUTO_FD null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct launch_spawn s;
	char unenforced[64];
	struct back back;
	pid_t pid;

	fix_stop_launcher(f);
	assert_int_equal(unshare(CLONE_NEWNS), 0);
	assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	assert_int_equal(mount("tmpfs", "/dev/net", "tmpfs", 0, NULL), 0);
	fix_start_launcher(f, NULL);
	assert_int_equal(setns(mounts, CLONE_NEWNS), 0);
	s = fix_spawn_of(LAUNCH_ENGINE, fix_new_slot(f), UUID_A, "sleep");
	s.net_fd = TAP_AT;
	assert_int_equal(fix_spawn(f, &s, (int[]){ null, null, null }, 3, &pid, unenforced), 0);
	assert_non_null(strstr(unenforced, "network"));
	assert_int_equal(net(f, UUID_A, &back), -ENODEV);
}

static void test_tap_refused_einval(void **state)
{
	struct fix *f = *state;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), fds[3] = { null, null, null };
	struct launch_spawn s = fix_spawn_of(LAUNCH_ENGINE, fix_new_slot(f), UUID_A, "sleep");
	static const uint32_t bad[] = { 1, 2, 5, UINT32_MAX };
	pid_t pid;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		s.net_fd = bad[i];
		assert_int_equal(fix_spawn(f, &s, fds, 3, &pid, NULL), -EINVAL);
	}
	s.net_fd = s.memory_fd = 3;
	s.ram_bytes = 1u << 20;
	assert_int_equal(fix_spawn(f, &s, fds, 3, &pid, NULL), -EINVAL);
	s.ram_bytes = s.memory_fd = 0;
	s.kind = LAUNCH_BOX;
	assert_int_equal(fix_spawn(f, &s, fds, 3, &pid, NULL), -EINVAL);
	close(null);
}

/* -- what is made in its namespace ------------------------------------------------------------------- */

static void check_sockets(const struct back *b)
{
	int on, six = 0, listening;
	socklen_t len;

	assert_int_equal(b->len, 1);
	assert_int_equal(b->nfds, (size_t)__builtin_popcount(b->payload[0]));
	assert_true(b->payload[0] & 1u << TOPOLOGY_TCP4 && b->payload[0] & 1u << TOPOLOGY_UDP4);
	for (size_t i = 0, at = 0; i < TOPOLOGY_FD_COUNT; i++) {
		struct sockaddr_storage sa;
		bool tcp = i == TOPOLOGY_TCP4 || i == TOPOLOGY_TCP6;

		if (!(b->payload[0] & 1u << i))
			continue;
		len = sizeof(sa);
		assert_int_equal(getsockname(b->fds[at], (struct sockaddr *)&sa, &len), 0);
		six = i == TOPOLOGY_TCP6 || i == TOPOLOGY_UDP6;
		assert_int_equal(sa.ss_family, six ? AF_INET6 : AF_INET);
		len = sizeof(on);
		assert_int_equal(getsockopt(b->fds[at], six ? IPPROTO_IPV6 : IPPROTO_IP,
					    six ? IPV6_TRANSPARENT : IP_TRANSPARENT, &on, &len),
				 0);
		assert_int_equal(on, 1);
		len = sizeof(listening);
		assert_int_equal(getsockopt(b->fds[at], SOL_SOCKET, SO_ACCEPTCONN, &listening, &len), 0);
		assert_int_equal(listening, tcp);
		assert_true(fcntl(b->fds[at], F_GETFL) & O_NONBLOCK);
		at++;
	}
}

static bool tap_is_up(pid_t pid)
{
	char path[64], text[8192];
	ssize_t n;
	AUTO_FD fd = -1;

	snprintf(path, sizeof(path), "/proc/%d/net/route", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	assert_true(n >= 0);
	text[n] = '\0';
	return strstr(text, NET_TAP "\t") != NULL;
}

static void test_net(void **state)
{
	struct fix *f = *state;
	pid_t a = engine(f, fix_new_slot(f), UUID_A, true, NULL, 0);
	pid_t b = engine(f, fix_new_slot(f), UUID_B, true, NULL, 0);
	struct back back;
	uint64_t begun;

	assert_false(tap_is_up(a) || tap_is_up(b));
	begun = now_ns();
	if (net(f, UUID_A, &back) < 0)
		fail_msg("%s", back.words);
	print_message("LAUNCH_NET: %.1f ms\n", (double)(now_ns() - begun) / 1e6);
	check_sockets(&back);
	assert_true(tap_is_up(a));
	assert_false(tap_is_up(b));
	back_close(&back);
	/* Again, as after a restart of the daemon. */
	assert_int_equal(net(f, UUID_A, &back), 0);
	check_sockets(&back);
	back_close(&back);
}

/* The launcher that answers is not the one that started the engine. */
static void test_net_after_restart(void **state)
{
	struct fix *f = *state;
	struct back back;

	engine(f, fix_new_slot(f), UUID_A, true, NULL, 0);
	fix_stop_launcher(f);
	fix_start_launcher(f, NULL);
	if (net(f, UUID_A, &back) < 0)
		fail_msg("%s", back.words);
	check_sockets(&back);
	back_close(&back);
}

/* More at once than work at once, and two for the same sandbox; all are answered, each with its own. */
static void test_net_many(void **state)
{
	struct fix *f = *state;
	struct back all[24];
	size_t failed = 0;

	engine(f, fix_new_slot(f), UUID_A, true, NULL, 0);
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		begin_net(f, i == 0 ? UUID_A : UUID_B, &all[i]);
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		fix_until(f, &all[i].answered);
		failed += all[i].code == -ENOENT && all[i].nfds == 0;
	}
	assert_int_equal(failed, ARRAY_LEN(all) - 1);
	check_sockets(&all[0]);
	/* Its ports are taken as long as those are open; the words say so. */
	assert_int_equal(net(f, UUID_A, &all[1]), -EADDRINUSE);
	assert_non_null(strstr(all[1].words, UUID_A));
	back_close(&all[0]);
	assert_int_equal(net(f, UUID_A, &all[0]), 0);
	back_close(&all[0]);
}

/* Wait until the launcher has a child besides @engine_pid, which is at work, or none. Returns it. */
static pid_t worker(const struct fix *f, pid_t engine_pid, bool one)
{
	uint64_t end = now_ns() + DEADLINE_NS;
	char path[64], text[256];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)f->pid, (int)f->pid);
	for (;;) {
		AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t n = read(fd, text, sizeof(text) - 1);
		pid_t found = 0;
		char *save = NULL;

		assert_true(n >= 0 && now_ns() < end);
		text[n] = '\0';
		for (const char *p = strtok_r(text, " ", &save); p; p = strtok_r(NULL, " ", &save))
			if (strtol(p, NULL, 10) != engine_pid)
				found = (pid_t)strtol(p, NULL, 10);
		if (one == (found > 0))
			return found;
		usleep(1000);
	}
}

/* One that hangs is ended, and the launcher has not waited for it. */
static void test_net_etimedout(void **state)
{
	struct fix *f = *state;
	pid_t pid = engine(f, fix_new_slot(f), UUID_A, true, NULL, 0);
	struct back held, late;

	assert_int_equal(net(f, UUID_A, &held), 0);
	worker(f, pid, false);
	begin_net(f, UUID_A, &late); /* waits for the ports, so it can be met */
	assert_int_equal(loop_once(f->loop, 0), 0);
	assert_int_equal(kill(worker(f, pid, true), SIGSTOP), 0);
	assert_int_equal(fix_call(f, LAUNCH_LIST, NULL, NULL, 0), 0);
	assert_false(late.answered);
	back_close(&held);
	fix_until(f, &late.answered);
	assert_int_equal(late.code, -ETIMEDOUT);
	assert_int_equal(net(f, UUID_A, &held), 0);
	back_close(&held);
}

static void test_net_enoent(void **state)
{
	struct fix *f = *state;
	struct launch_spawn s = fix_spawn_of(LAUNCH_BOX, fix_new_slot(f), UUID_B, "sleep");
	AUTO_FD null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct back back;
	pid_t pid;

	assert_int_equal(net(f, UUID_A, &back), -ENOENT);
	assert_non_null(strstr(back.words, "no engine runs"));
	/* A box is none, nor is what has ended. */
	assert_int_equal(fix_spawn(f, &s, &null, 1, &pid, NULL), 0);
	assert_int_equal(net(f, UUID_B, &back), -ENOENT);
	engine(f, fix_new_slot(f), UUID_A, true, NULL, 0);
	assert_int_equal(fix_call_str(f, LAUNCH_KILL, UUID_A), 0);
	assert_int_equal(net(f, UUID_A, &back), -ENOENT);
	assert_int_equal(net_sockets(f, UUID_A, 3, &back), -ENOENT);
	/* An engine that was given no tap. */
	engine(f, fix_new_slot(f), UUID_A, false, NULL, 0);
	assert_int_equal(net(f, UUID_A, &back), -ENODEV);
	assert_non_null(strstr(back.words, NET_TAP));
}

static void test_net_sockets(void **state)
{
	struct fix *f = *state;
	struct back back;

	engine(f, fix_new_slot(f), UUID_A, true, NULL, 0);
	for (uint32_t n = 1; n <= MSG_FDS_MAX; n += MSG_FDS_MAX - 1) {
		assert_int_equal(net_sockets(f, UUID_A, n, &back), 0);
		assert_int_equal(back.len, 0);
		assert_int_equal(back.nfds, n);
		for (size_t i = 0; i < n; i++) {
			int type;
			socklen_t len = sizeof(type);

			assert_int_equal(getsockopt(back.fds[i], SOL_SOCKET, SO_TYPE, &type, &len), 0);
			assert_int_equal(type, SOCK_STREAM);
		}
		back_close(&back);
	}
	assert_int_equal(net_sockets(f, UUID_A, 0, &back), -EINVAL);
	assert_int_equal(net_sockets(f, UUID_A, MSG_FDS_MAX + 1, &back), -EINVAL);
}

static void test_net_ebadmsg(void **state)
{
	struct fix *f = *state;
	struct buf b;

	assert_int_equal(fix_call(f, LAUNCH_NET, NULL, NULL, 0), -EBADMSG);
	assert_int_equal(fix_call_str(f, LAUNCH_NET, "../../../../../../../../../../../etc"), -EBADMSG);
	assert_int_equal(fix_call_str(f, LAUNCH_NET_SOCKETS, UUID_A), -EBADMSG);
	buf_init(&b, 128);
	assert_int_equal(launch_net_sockets_encode(UUID_A, 1, &b), 0);
	assert_int_equal(wire_put_u8(&b, 0), 0);
	assert_int_equal(fix_call(f, LAUNCH_NET_SOCKETS, &b, NULL, 0), -EBADMSG);
	buf_fini(&b);
}

/* -- the one in the host's network --------------------------------------------------------------------- */

static void test_netd_confined(void **state)
{
	struct fix *f = *state;
	struct launch_spawn s = fix_spawn_of(LAUNCH_NETD, 0, LAUNCH_UUID_NETD, "report");
	char out[65536], line[64], adj[16], ours[64] = "", theirs[64] = "";
	pid_t pid = fix_spawn_reporting(f, &s, out, sizeof(out)), again;
	AUTO_FD null = open("/dev/null", O_RDWR | O_CLOEXEC);

	snprintf(line, sizeof(line), "/proc/%d/ns/net", (int)pid);
	assert_true(readlink("/proc/self/ns/net", ours, sizeof(ours) - 1) > 0);
	assert_true(readlink(line, theirs, sizeof(theirs) - 1) > 0);
	assert_string_equal(ours, theirs);
	snprintf(line, sizeof(line), "uids: %u %u %u", UID_BASE + LAUNCH_UID_NETD, UID_BASE + LAUNCH_UID_NETD,
		 UID_BASE + LAUNCH_UID_NETD);
	assert_says(out, line);
	snprintf(line, sizeof(line), "gids: %u %u %u", UID_BASE, UID_BASE, UID_BASE);
	assert_says(out, line);
	assert_says(out, "groups: 0");
	assert_says(out, "caps: 0 0 0");
	assert_says(out, "bounding: 0");
	assert_says(out, "no_new_privs: 1");
	assert_says(out, "pid: 1");
	assert_says(out, "write /: EROFS");
	assert_says(out, "/: usr");
	assert_false(fix_says(out, "/: box") || fix_says(out, "/: run") || fix_says(out, "/: boot") ||
		     fix_says(out, "/: dev") || fix_says(out, "/: snapstore") || fix_says(out, "/: proc") ||
		     fix_says(out, "/: etc"));
	assert_says(out, "ring: ENOSYS");
	assert_says(out, "setns: ENOSYS");
	assert_int_equal(fix_count_lines(out, "fd: "), 3);
	fix_oom_adj(pid, adj);
	if (confine_has(CONFINE_CAP(CAP_SYS_RESOURCE)))
		assert_string_equal(adj, "-400\n");
	/* One is enough, and it is no sandbox. */
	assert_int_equal(fix_spawn(f, &s, &null, 1, &again, NULL), -EEXIST);
	memcpy(s.uuid, UUID_A, sizeof(s.uuid));
	assert_int_equal(fix_spawn(f, &s, &null, 1, &again, NULL), -EINVAL);
	assert_int_equal(fix_call(f, LAUNCH_LIST, NULL, NULL, 0), 0);
	assert_int_equal(f->payload_len, 4);
	assert_int_equal(fix_call_str(f, LAUNCH_KILL, LAUNCH_UUID_NETD), 0);
	assert_int_equal(f->nexits, 1);
	assert_int_equal(f->exits[0].kind, LAUNCH_NETD);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_engine_tap, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_engine_no_tap, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_no_tun, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_tap_refused_einval, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_net, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_net_after_restart, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_net_many, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_net_etimedout, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_net_enoent, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_net_sockets, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_net_ebadmsg, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_netd_confined, fix_setup, fix_teardown),
	};
	const char *must = getenv("CRUCIBLE_MUST_RUN");

	if (argc > 0 && !strcmp(argv[0], "probe"))
		fix_probe(argc, argv);
	if (geteuid() != 0 || access("/dev/net/tun", F_OK) < 0) {
		fprintf(stderr, "skip: needs root and /dev/net/tun\n");
		return must && *must == '1' ? 1 : 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
