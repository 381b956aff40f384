/* SPDX-License-Identifier: Apache-2.0 */
/* What the real launcher does for snapshots: pager and store, of which there is one each, and engines whose memory the
 * preload library looks after. The probe (launch_probe.c) is this very program. */
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/confine.h"
#include "base/fd.h"
#include "cruciblefs/domain/peer.h"
#include "snapstore/pager/pager.h"
#include "tests/unit/launch_fix.h"

/* At most what the kernel and our own limits permit. */
static void check_memlock(const char *out)
{
	const char *at = strstr(out, "memlock: ");

	assert_non_null(at);
	assert_true(strtoull(at + strlen("memlock: "), NULL, 10) <= 16u << 20);
}

/* Not above @least, nor above what we run with ourselves. */
static void check_nice(const char *out, int least)
{
	int ours = getpriority(PRIO_PROCESS, 0);
	char line[32];

	snprintf(line, sizeof(line), "nice: %d", ours > least ? ours : least);
	assert_says(out, line);
}

static bool uffd_here(void)
{
	AUTO_FD fd = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);

	return fd >= 0;
}

static void check_ids(const char *out, uid_t uid, gid_t gid)
{
	char line[64];

	snprintf(line, sizeof(line), "uids: %u %u %u", uid, uid, uid);
	assert_says(out, line);
	snprintf(line, sizeof(line), "gids: %u %u %u", gid, gid, gid);
	assert_says(out, line);
}

static void test_pager_confined(void **state)
{
	struct fix *f = *state;
	struct launch_spawn s = fix_spawn_of(LAUNCH_PAGER, 0, LAUNCH_UUID_PAGER, "report");
	char out[16384], adj[16];
	pid_t pid = fix_spawn_reporting(f, &s, out, sizeof(out));

	/* As for the others, but that it has a /proc, in which only itself is. */
	assert_says(out, "/: proc");
	*strstr(out, "/: proc") = '#';
	fix_common_checks(out);
	check_ids(out, UID_BASE + LAUNCH_UID_PAGER, UID_BASE);
	assert_says(out, "/proc: self");
	assert_says(out, "/proc: 1");
	assert_int_equal(fix_count_lines(out, "/proc: "), 3); /* and thread-self */
	assert_says(out, "again ro: ok");
	assert_says(out, "again rw: EACCES"); /* by its mode, not by its owner's right */
	assert_says(out, "/snapstore: format");
	assert_says(out, "write /snapstore: EROFS");
	assert_says(out, "write /disks: ok");
	assert_says(out, "write /profiles: EROFS");
	assert_false(fix_says(out, "/: box") || fix_says(out, "/: run") || fix_says(out, "/: boot") ||
		     fix_says(out, "/: dev"));
	assert_false(fix_says(out, "ring: ENOSYS"));
	check_nice(out, -20);
	check_memlock(out);
	assert_int_equal(fix_count_lines(out, "fd: "), 3); /* no slot's lock */
	fix_oom_adj(pid, adj);
	if (confine_has(CONFINE_CAP(CAP_SYS_RESOURCE)))
		assert_string_equal(adj, "-500\n");
}

static void test_store_confined(void **state)
{
	struct fix *f = *state;
	struct launch_spawn s = fix_spawn_of(LAUNCH_STORE, 0, LAUNCH_UUID_STORE, "report");
	char out[16384], adj[16];
	pid_t pid = fix_spawn_reporting(f, &s, out, sizeof(out));

	fix_common_checks(out);
	check_ids(out, UID_BASE + LAUNCH_UID_STORE, UID_BASE);
	assert_says(out, "/snapstore: format");
	assert_says(out, "write /snapstore: ok");
	assert_false(fix_says(out, "/: disks") || fix_says(out, "/: profiles") || fix_says(out, "/: run"));
	assert_false(fix_says(out, "ring: ENOSYS"));
	assert_says(out, "again ro: ENOENT");
	check_nice(out, 10);
	fix_oom_adj(pid, adj);
	assert_string_equal(adj, "200\n");
}

/* A folder of the store belongs to somebody who may be taken over: what it became is not followed. */
static void test_store_links_eloop(void **state)
{
	struct fix *f = *state;
	static const struct {
		enum launch_kind kind;
		const char *uuid, *folder;
	} cases[] = {
		{ LAUNCH_PAGER, LAUNCH_UUID_PAGER, "disks" },	 { LAUNCH_PAGER, LAUNCH_UUID_PAGER, "snapstore" },
		{ LAUNCH_PAGER, LAUNCH_UUID_PAGER, "profiles" }, { LAUNCH_STORE, LAUNCH_UUID_STORE, "snapstore" },
		{ LAUNCH_ENGINE, UUID_A, LAUNCH_BLOCKS_DIR },
	};
	uint32_t slot = fix_new_slot(f);

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct launch_spawn s = fix_spawn_of(cases[i].kind, slot, cases[i].uuid, "sleep");
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);
		char path[256], away[300];
		pid_t pid;

		snprintf(path, sizeof(path), "%s/%s", f->store, cases[i].folder);
		snprintf(away, sizeof(away), "%s.away", path);
		assert_int_equal(rename(path, away), 0);
		assert_int_equal(symlink("/etc", path), 0);
		assert_int_equal(fix_spawn(f, &s, &null, 1, &pid, NULL), -ELOOP);
		assert_non_null(strstr(f->words, cases[i].folder));
		assert_int_equal(unlink(path), 0);
		assert_int_equal(rename(away, path), 0);
		close(null);
	}
}

/* No profile was built yet. */
static void test_pager_without_profiles(void **state)
{
	struct fix *f = *state;
	struct launch_spawn s = fix_spawn_of(LAUNCH_PAGER, 0, LAUNCH_UUID_PAGER, "report");
	char out[16384], path[128];

	snprintf(path, sizeof(path), "%s/profiles", f->store);
	assert_int_equal(rmdir(path), 0);
	fix_spawn_reporting(f, &s, out, sizeof(out));
	assert_false(fix_says(out, "/: profiles"));
	assert_says(out, "write /disks: ok");
}

/* The launcher of another daemon took the run folder along when it ended. (While others of this host hold slots, it
 * stays, and nothing is shown.) */
static void test_pager_without_run_folder(void **state)
{
	struct fix *f = *state;
	struct launch_spawn s = fix_spawn_of(LAUNCH_PAGER, 0, LAUNCH_UUID_PAGER, "report");
	char out[16384];

	rmdir(LAUNCH_RUN_DIR);
	fix_spawn_reporting(f, &s, out, sizeof(out));
	assert_says(out, "write /disks: ok");
}

/* One each, which no sandbox's list shows, and which KILL ends. */
static void test_one_pager(void **state)
{
	struct fix *f = *state;
	struct launch_spawn s = fix_spawn_of(LAUNCH_PAGER, 0, LAUNCH_UUID_PAGER, "sleep");
	struct launch_spawn w = fix_spawn_of(LAUNCH_STORE, 0, LAUNCH_UUID_STORE, "sleep");
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	char unenforced[64];
	struct wire_rd r;
	pid_t pid;

	assert_int_equal(fix_spawn(f, &s, &null, 1, &pid, unenforced), 0);
	assert_int_equal(strstr(unenforced, "oom_score_adj") != NULL, !confine_has(CONFINE_CAP(CAP_SYS_RESOURCE)));
	assert_int_equal(fix_spawn(f, &s, &null, 1, &pid, NULL), -EEXIST);
	assert_int_equal(fix_spawn(f, &w, &null, 1, &pid, NULL), 0);
	assert_int_equal(fix_call(f, LAUNCH_LIST, NULL, NULL, 0), 0);
	wire_rd_init(&r, f->payload, f->payload_len);
	assert_int_equal(wire_u32(&r), 0);
	assert_int_equal(fix_call_str(f, LAUNCH_KILL, LAUNCH_UUID_PAGER), 0);
	assert_int_equal(f->nexits, 1);
	assert_int_equal(f->exits[0].kind, LAUNCH_PAGER);
	assert_string_equal(f->exits[0].uuid, LAUNCH_UUID_PAGER);
	assert_true(WIFSIGNALED(f->exits[0].status) && WTERMSIG(f->exits[0].status) == SIGKILL);
	assert_int_equal(fix_spawn(f, &s, &null, 1, &pid, NULL), 0);
	close(null);
}

static void test_uuids_einval(void **state)
{
	struct fix *f = *state;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	uint32_t slot = fix_new_slot(f);
	struct launch_spawn s;
	pid_t pid;

	s = fix_spawn_of(LAUNCH_PAGER, slot, UUID_A, "sleep");
	assert_int_equal(fix_spawn(f, &s, &null, 1, &pid, NULL), -EINVAL);
	s = fix_spawn_of(LAUNCH_PAGER, slot, LAUNCH_UUID_STORE, "sleep");
	assert_int_equal(fix_spawn(f, &s, &null, 1, &pid, NULL), -EINVAL);
	s = fix_spawn_of(LAUNCH_STORE, slot, LAUNCH_UUID_PAGER, "sleep");
	assert_int_equal(fix_spawn(f, &s, &null, 1, &pid, NULL), -EINVAL);
	s = fix_spawn_of(LAUNCH_BOX, slot, LAUNCH_UUID_PAGER, "sleep");
	assert_int_equal(fix_spawn(f, &s, &null, 1, &pid, NULL), -EINVAL);
	s = fix_spawn_of(LAUNCH_ENGINE, slot, LAUNCH_UUID_STORE, "sleep");
	assert_int_equal(fix_spawn(f, &s, &null, 1, &pid, NULL), -EINVAL);
	close(null);
}

/* -- engines -------------------------------------------------------------------------------------- */

/* Start a probe with two descriptors more, the second of them its socket to the box. */
static void report_engine(struct fix *f, struct launch_spawn *s, char *out, size_t cap)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), p[2];
	size_t n = 0;
	pid_t pid;

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	if (fix_spawn(f, s, (int[]){ p[1], null, null }, 3, &pid, NULL) < 0)
		fail_msg("spawn: %s", f->words);
	close(p[1]);
	close(null);
	for (out[0] = '\0'; !strstr(out, "end\n"); out[n] = '\0') {
		ssize_t got = read(p[0], out + n, cap - 1 - n);

		if (got <= 0)
			fail_msg("the probe ended after: %s", out);
		n += (size_t)got;
	}
	close(p[0]);
}

static void test_engine_preload(void **state)
{
	struct fix *f = *state;
	struct launch_spawn s = fix_spawn_of(LAUNCH_ENGINE, fix_new_slot(f), UUID_A, "report");
	bool uffd = uffd_here();
	char out[16384];

	s.ram_bytes = 512ull << 20;
	s.memory_fd = 4;
	report_engine(f, &s, out, sizeof(out));
	assert_says(out, "library: " LAUNCH_PRELOAD_SO);
	assert_says(out, "env: CRUCIBLE_PRELOAD_SOCKET=4");
	assert_says(out, "env: CRUCIBLE_PRELOAD_RAM=536870912");
	assert_says(out, uffd ? "env: CRUCIBLE_PRELOAD_UFFD=5" : "env: CRUCIBLE_PRELOAD_UFFD=-1");
	assert_int_equal(fix_count_lines(out, "env: "), 3);
	/* 0 1 2, two of the caller's, /dev/userfaultfd, the slot's lock */
	assert_int_equal(fix_count_lines(out, "fd: "), uffd ? 7 : 6);
	if (uffd)
		assert_says(out, "uffd: ok");
	assert_says(out, "ring: ENOSYS");
	assert_says(out, "/: preload.so");
	assert_says(out, "write /: EROFS");
}

/* Without its RAM's size there is nothing for the library to do. */
static void test_engine_no_preload(void **state)
{
	struct fix *f = *state;
	struct launch_spawn s = fix_spawn_of(LAUNCH_ENGINE, fix_new_slot(f), UUID_A, "report");
	char out[16384];

	report_engine(f, &s, out, sizeof(out));
	assert_int_equal(fix_count_lines(out, "env: "), 0);
	assert_int_equal(fix_count_lines(out, "fd: "), 6);
	assert_false(fix_says(out, "/: preload.so"));
}

static void test_preload_refused(void **state)
{
	struct fix *f = *state;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), fds[2] = { null, null };
	struct launch_spawn s = fix_spawn_of(LAUNCH_ENGINE, fix_new_slot(f), UUID_A, "sleep");
	pid_t pid;

	s.ram_bytes = 1u << 20;
	for (uint32_t bad = 0; bad < 3; bad++) {
		s.memory_fd = bad; /* its standard ones */
		assert_int_equal(fix_spawn(f, &s, fds, 2, &pid, NULL), -EINVAL);
	}
	s.memory_fd = 4; /* one too far: that would be what the launcher adds */
	assert_int_equal(fix_spawn(f, &s, fds, 2, &pid, NULL), -EINVAL);
	s.memory_fd = UINT32_MAX;
	assert_int_equal(fix_spawn(f, &s, fds, 2, &pid, NULL), -EINVAL);
	s.memory_fd = 3;
	s.kind = LAUNCH_BOX;
	assert_int_equal(fix_spawn(f, &s, fds, 2, &pid, NULL), -EINVAL);
	s.kind = LAUNCH_ENGINE;
	s.ram_bytes = 0;
	assert_int_equal(fix_spawn(f, &s, fds, 2, &pid, NULL), -EINVAL);
	s.ram_bytes = 1u << 20;
	assert_int_equal(unlink(f->preload), 0);
	assert_int_equal(fix_spawn(f, &s, fds, 2, &pid, NULL), -ENOENT);
	assert_non_null(strstr(f->words, "any.so"));
	close(null);
}

/* An engine may connect to the block server; no other user of the host gets as far as the socket. */
static void test_blocks_socket(void **state)
{
	struct fix *f = *state;
	struct launch_spawn s = fix_spawn_of(LAUNCH_ENGINE, fix_new_slot(f), UUID_A, "report");
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	char out[16384], path[128];
	AUTO_FD listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int status;
	pid_t pid;

	snprintf(path, sizeof(path), "%s/" LAUNCH_BLOCKS_DIR "/nbd.sock", f->store);
	assert_true(strlen(path) < sizeof(sa.sun_path));
	memcpy(sa.sun_path, path, strlen(path) + 1);
	assert_int_equal(bind(listener, (const struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(chown(path, UID_BASE, UID_BASE), 0);
	assert_int_equal(chmod(path, 0666), 0);
	assert_int_equal(listen(listener, 4), 0);
	fix_spawn_reporting(f, &s, out, sizeof(out));
	assert_says(out, "blocks: ok");
	assert_says(out, "write /run/blocks: EROFS");
	assert_int_equal(fix_count_lines(out, "/run/blocks: "), 0); /* it can be passed, not listed */
	pid = fork();
	if (pid == 0) {
		int c = socket(AF_UNIX, SOCK_STREAM, 0);

		if (setresuid(65534, 65534, 65534) < 0)
			_exit(2);
		_exit(connect(c, (const struct sockaddr *)&sa, sizeof(sa)) < 0 && errno == EACCES ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* -- the daemon's link ---------------------------------------------------------------------------- */

struct linked {
	bool up, lost, answered;
	bool fresh;
	int code;
};

static void on_up(void *arg, bool fresh)
{
	struct linked *l = arg;

	l->up = true;
	l->fresh = fresh;
}

static void on_lost(void *arg, const char *words)
{
	struct linked *l = arg;

	assert_non_null(strstr(words, "crucible-pager"));
	l->up = false;
	l->lost = true;
}

static void on_listed(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct linked *l = arg;

	(void)words, (void)r, (void)m;
	l->answered = true;
	l->code = code;
}

/* Link, launcher and a process, all real: started, found by the next daemon, killed and started again. */
static void test_link(void **state)
{
	struct fix *f = *state;
	static const char *const argv[] = { "probe", "serve" };
	static const struct peer_ops ops = { on_up, on_lost, NULL };
	static const struct peer_kind kind = {
		.name = "crucible-pager",
		.kind = LAUNCH_PAGER,
		.uuid = LAUNCH_UUID_PAGER,
		.listen = { { "run", "pager.sock", SOCK_SEQPACKET, 0600 },
			    { LAUNCH_BLOCKS_DIR, "nbd.sock", SOCK_STREAM, 0666 } },
		.nlisten = 2,
		.reply = PAGER_REPLY,
		.greeting = PAGER_LIST,
	};
	AUTO_FD store = open(f->store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct peer_setup setup = {
		.loop = f->loop,
		.launcher = f->l,
		.store_fd = store,
		.log_fd = 2,
		.nofile = 256,
		.argc = ARRAY_LEN(argv),
		.argv = argv,
	};
	struct linked l = { 0 };
	struct peer *k;

	assert_int_equal(peer_new(&kind, &setup, &ops, &l, &k, NULL), 0);
	fix_until(f, &l.up);
	assert_true(l.fresh);
	assert_int_equal(peer_call(k, PAGER_LIST, NULL, 0, NULL, 0, on_listed, &l, NULL), 0);
	fix_until(f, &l.answered);
	assert_int_equal(l.code, 0);
	peer_free(k);
	l = (struct linked){ 0 };
	assert_int_equal(peer_new(&kind, &setup, &ops, &l, &k, NULL), 0);
	fix_until(f, &l.up);
	assert_false(l.fresh);
	assert_int_equal(f->nexits, 0);
	assert_int_equal(fix_call_str(f, LAUNCH_KILL, LAUNCH_UUID_PAGER), 0);
	fix_until(f, &l.lost);
	assert_false(l.up);
	fix_until(f, &l.up);
	assert_true(l.fresh);
	assert_int_equal(f->nexits, 1);
	peer_free(k);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_pager_confined, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_store_confined, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_store_links_eloop, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_pager_without_profiles, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_pager_without_run_folder, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_one_pager, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_uuids_einval, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_engine_preload, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_engine_no_preload, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_preload_refused, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_blocks_socket, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_link, fix_setup, fix_teardown),
	};
	const char *must = getenv("CRUCIBLE_MUST_RUN");

	if (argc > 0 && !strcmp(argv[0], "probe"))
		fix_probe(argc, argv);
	if (geteuid() != 0) {
		fprintf(stderr, "SKIP: the launcher itself needs root\n");
		return must && *must == '1' ? 1 : 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
