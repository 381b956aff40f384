/* SPDX-License-Identifier: Apache-2.0 */
/* The real launcher, with this very program as box and engine: started under the name "probe" it tells what it sees
 * from inside of its confinement, and waits to be killed. The messages' parsers: test_launch_proto.c. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/proc.h"
#include "tests/unit/launch_fix.h"

/* -- confinement ---------------------------------------------------------------------------------- */

static bool same_namespace(pid_t pid, const char *which)
{
	char a[64], b[64], ours[64] = "", theirs[64] = "";

	snprintf(a, sizeof(a), "/proc/self/ns/%s", which);
	snprintf(b, sizeof(b), "/proc/%d/ns/%s", (int)pid, which);
	assert_true(readlink(a, ours, sizeof(ours) - 1) > 0);
	assert_true(readlink(b, theirs, sizeof(theirs) - 1) > 0);
	return !strcmp(ours, theirs);
}

static void test_box_confined(void **state)
{
	struct fix *f = *state;
	uint32_t slot = fix_new_slot(f);
	struct launch_spawn s = fix_spawn_of(LAUNCH_BOX, slot, UUID_A, "report");
	static const char *const ns[] = { "mnt", "pid", "net", "ipc", "uts" };
	char out[16384], line[64], adj[16];
	pid_t pid = fix_spawn_reporting(f, &s, out, sizeof(out));

	fix_common_checks(out);
	snprintf(line, sizeof(line), "uids: %u %u %u", UID_BASE + 1 + 2 * slot, UID_BASE + 1 + 2 * slot,
		 UID_BASE + 1 + 2 * slot);
	assert_says(out, line);
	snprintf(line, sizeof(line), "gids: %u %u %u", UID_BASE, UID_BASE, UID_BASE);
	assert_says(out, line);
	assert_says(out, "/: usr");
	assert_says(out, "/: box");
	assert_says(out, "/: run");
	assert_false(fix_says(out, "/: dev"));
	assert_false(fix_says(out, "/: boot"));
	assert_says(out, "write /box: ok");
	assert_says(out, "write /run: EROFS");
	assert_says(out, "thp_disable: 0");
	assert_says(out, "ring: ENOSYS");
	assert_says(out, "vsock: EAFNOSUPPORT");
	assert_says(out, "packets: EAFNOSUPPORT"); /* not EPERM: the filter says so */
	/* 0 1 2 and the slot's lock */
	assert_says(out, "fd: 3");
	assert_int_equal(fix_count_lines(out, "fd: "), 4);
	for (size_t i = 0; i < ARRAY_LEN(ns); i++)
		assert_false(same_namespace(pid, ns[i]));
	fix_oom_adj(pid, adj);
	assert_string_equal(adj, "100\n");
}

static void test_engine_confined(void **state)
{
	struct fix *f = *state;
	uint32_t slot = fix_new_slot(f);
	struct launch_spawn s = fix_spawn_of(LAUNCH_ENGINE, slot, UUID_A, "report");
	char out[16384], line[64], adj[16];
	pid_t pid;

	s.kvm = access("/dev/kvm", F_OK) == 0;
	pid = fix_spawn_reporting(f, &s, out, sizeof(out));
	fix_common_checks(out);
	snprintf(line, sizeof(line), "uids: %u %u %u", UID_BASE + 2 + 2 * slot, UID_BASE + 2 + 2 * slot,
		 UID_BASE + 2 + 2 * slot);
	assert_says(out, line);
	snprintf(line, sizeof(line), "gids: %u %u %u", UID_BASE + 2 + 2 * slot, UID_BASE + 2 + 2 * slot,
		 UID_BASE + 2 + 2 * slot);
	assert_says(out, line);
	assert_says(out, "/boot: vmlinuz");
	assert_false(fix_says(out, "/: box"));
	assert_says(out, "/: run");
	assert_int_equal(fix_count_lines(out, "/run: "), 1);
	assert_says(out, "/run: blocks");
	assert_says(out, "ring: ENOSYS");
	assert_says(out, "vsock: EAFNOSUPPORT");
	assert_says(out, "packets: EAFNOSUPPORT"); /* not EPERM: the filter says so */
	assert_says(out, "open /dev/null: ok");
	assert_says(out, "/dev: urandom");
	assert_int_equal(fix_count_lines(out, "/dev: "), s.kvm ? 3 : 2);
	if (s.kvm) /* it may be there and not work (ENODEV), but it is ours to open */
		assert_false(fix_says(out, "open /dev/kvm: EACCES") || fix_says(out, "open /dev/kvm: EPERM"));
	assert_says(out, "thp_disable: 1");
	fix_oom_adj(pid, adj);
	assert_string_equal(adj, "500\n");
}

static void test_engine_without_kvm(void **state)
{
	struct fix *f = *state;
	struct launch_spawn s = fix_spawn_of(LAUNCH_ENGINE, fix_new_slot(f), UUID_A, "report");
	char out[16384];

	fix_spawn_reporting(f, &s, out, sizeof(out));
	assert_says(out, "open /dev/kvm: ENOENT");
}

/* More descriptors: they arrive at 3, 4, … in order, the slot's lock behind them. */
static void test_descriptors_placed(void **state)
{
	struct fix *f = *state;
	struct launch_spawn s = fix_spawn_of(LAUNCH_BOX, fix_new_slot(f), UUID_A, "connect");
	char path[128], c = 'x';
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct pollfd p;
	int pair[2], null, fds[2], listener;
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	fds[0] = null;
	fds[1] = pair[1];
	if (fix_spawn(f, &s, fds, 2, &pid, NULL) < 0)
		fail_msg("%s", f->words);
	close(pair[1]);
	close(null);
	p = (struct pollfd){ .fd = pair[0], .events = POLLIN };
	snprintf(path, sizeof(path), "%s/run/daemon.sock", f->store);
	assert_true(strlen(path) < sizeof(sa.sun_path));
	memcpy(sa.sun_path, path, strlen(path) + 1);
	/* Twice: a daemon that starts again makes its socket anew in the same folder. */
	for (int i = 0; i < 2; i++) {
		unlink(path);
		listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(bind(listener, (const struct sockaddr *)&sa, sizeof(sa)), 0);
		assert_int_equal(listen(listener, 4), 0);
		assert_int_equal(chown(path, UID_BASE, UID_BASE), 0);
		assert_int_equal(chmod(path, 0660), 0); /* the box is of the service's group */
		assert_int_equal(write(pair[0], &c, 1), 1);
		assert_int_equal(poll(&p, 1, 20000), 1);
		assert_int_equal(read(pair[0], &c, 1), 1);
		assert_int_equal(c, 'y');
		close(listener);
	}
	close(pair[0]);
}

/* -- limits --------------------------------------------------------------------------------------- */

/* A limit of a process's cgroup, found as the kernel tells it: "0::/path" on v2, "7:memory:/path" on v1. */
static void read_limit(pid_t pid, const char *v2_file, const char *v1_tree, const char *v1_file, char *out, size_t cap)
{
	char path[512], v1_mark[32], line[256];
	ssize_t n = 0;
	FILE *list;
	int fd = -1;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	snprintf(v1_mark, sizeof(v1_mark), ":%s:", v1_tree);
	list = fopen(path, "re");
	assert_non_null(list);
	while (fd < 0 && fgets(line, sizeof(line), list)) {
		const char *v1 = strstr(line, v1_mark);

		line[strcspn(line, "\n")] = '\0';
		if (v1)
			snprintf(path, sizeof(path), "/sys/fs/cgroup/%s%s/%s", v1_tree, v1 + strlen(v1_mark), v1_file);
		else if (!strncmp(line, "0::", 3))
			snprintf(path, sizeof(path), "/sys/fs/cgroup%s/%s", line + 3, v2_file);
		else
			continue;
		fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	fclose(list);
	if (fd >= 0)
		n = read(fd, out, cap - 1);
	out[n > 0 ? n : 0] = '\0';
	fd_close(&fd);
}

static void test_limits_applied(void **state)
{
	struct fix *f = *state;
	struct launch_spawn s = fix_spawn_of(LAUNCH_ENGINE, fix_new_slot(f), UUID_A, "report");
	char unenforced[64] = "?", text[64];
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct launch_stat st;
	struct wire_rd rd;
	pid_t pid;

	s.memory_bytes = 256u << 20;
	s.cpu_percent = 250;
	s.pids = 40;
	s.io_bytes_per_s = 10u << 20;
	assert_int_equal(fix_spawn(f, &s, &null, 1, &pid, unenforced), 0);
	close(null);
	if (!strstr(unenforced, "memory")) {
		read_limit(pid, "memory.max", "memory", "memory.limit_in_bytes", text, sizeof(text));
		assert_string_equal(text, "268435456\n");
	}
	if (!strstr(unenforced, "pids")) {
		read_limit(pid, "pids.max", "pids", "pids.max", text, sizeof(text));
		assert_string_equal(text, "40\n");
	}
	if (!strstr(unenforced, "cpu")) {
		read_limit(pid, "cpu.max", "cpu", "cpu.cfs_quota_us", text, sizeof(text));
		assert_int_equal(strncmp(text, "250000", 6), 0);
	}
	assert_int_equal(fix_call_str(f, LAUNCH_STAT, UUID_A), 0);
	wire_rd_init(&rd, f->payload, f->payload_len);
	assert_int_equal(launch_stat_decode(&rd, &st), 0);
	assert_true(st.tasks >= 1);
	if (!strstr(unenforced, "memory"))
		assert_true(st.memory_bytes > 0 && st.memory_peak_bytes >= st.memory_bytes);
	assert_int_equal(fix_call_str(f, LAUNCH_STAT, UUID_B), -ENOENT);
}

/* -- ending --------------------------------------------------------------------------------------- */

static bool saw_exit(const struct fix *f, const char *uuid, enum launch_kind kind, int *ret_status)
{
	for (size_t i = 0; i < f->nexits; i++)
		if (!strcmp(f->exits[i].uuid, uuid) && f->exits[i].kind == kind) {
			*ret_status = f->exits[i].status;
			return true;
		}
	return false;
}

/* Start it and wait for its exit event. */
static int wait_exit(struct fix *f, const struct launch_spawn *s)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), status;
	uint64_t end = now_ns() + DEADLINE_NS;
	pid_t pid;

	assert_int_equal(fix_spawn(f, s, &null, 1, &pid, NULL), 0);
	close(null);
	while (!saw_exit(f, s->uuid, (enum launch_kind)s->kind, &status)) {
		assert_true(now_ns() < end);
		loop_once(f->loop, 100);
	}
	return status;
}

static void test_exit_event(void **state)
{
	struct fix *f = *state;
	struct launch_spawn s = fix_spawn_of(LAUNCH_BOX, fix_new_slot(f), UUID_A, "exit");
	int status;

	s.argv[s.argc++] = "7";
	status = wait_exit(f, &s);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 7);
}

/* The launcher's filter holds for what it starts. */
static void test_forbidden_call_kills(void **state)
{
	struct fix *f = *state;
	struct launch_spawn s = fix_spawn_of(LAUNCH_BOX, fix_new_slot(f), UUID_A, "forbidden");
	int status = wait_exit(f, &s);

	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSYS);
}

static unsigned int listed(struct fix *f)
{
	struct wire_rd r;
	uint32_t n;

	assert_int_equal(fix_call(f, LAUNCH_LIST, NULL, NULL, 0), 0);
	wire_rd_init(&r, f->payload, f->payload_len);
	n = wire_u32(&r);
	for (uint32_t i = 0; i < n; i++) {
		char uuid[LAUNCH_UUID_LEN + 1];

		wire_str(&r, uuid, sizeof(uuid));
		assert_true(launch_uuid_ok(uuid));
	}
	assert_int_equal(wire_done(&r), 0);
	return n;
}

static bool uid_lives(uid_t uid)
{
	DIR *d = opendir("/proc");
	const struct dirent *e;
	bool lives = false;
	struct stat st;

	while (d && (e = readdir(d)))
		if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && fstatat(dirfd(d), e->d_name, &st, 0) == 0 &&
		    st.st_uid == uid)
			lives = true;
	if (d)
		closedir(d);
	return lives;
}

/* Nothing lives on after KILL: not the box's children, not the cgroup. */
static void test_kill_leaves_nothing(void **state)
{
	struct fix *f = *state;
	uint32_t slot = fix_new_slot(f);
	struct launch_spawn box = fix_spawn_of(LAUNCH_BOX, slot, UUID_A, "forks");
	struct launch_spawn engine = fix_spawn_of(LAUNCH_ENGINE, slot, UUID_A, "forks");
	char out[4096];
	int status;

	fix_spawn_reporting(f, &box, out, sizeof(out));
	fix_spawn_reporting(f, &engine, out, sizeof(out));
	assert_int_equal(listed(f), 1);
	assert_true(uid_lives(UID_BASE + 1 + 2 * slot));
	assert_int_equal(fix_call_str(f, LAUNCH_KILL, UUID_A), 0);
	/* The exit events come before the reply. */
	assert_true(saw_exit(f, UUID_A, LAUNCH_BOX, &status));
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_true(saw_exit(f, UUID_A, LAUNCH_ENGINE, &status));
	assert_int_equal(listed(f), 0);
	assert_false(uid_lives(UID_BASE + 1 + 2 * slot));
	assert_false(uid_lives(UID_BASE + 2 + 2 * slot));
	assert_int_equal(fix_call_str(f, LAUNCH_KILL, UUID_A), 0); /* fine when none */
}

static bool slot_locked(uint32_t slot)
{
	struct flock fl = { .l_type = F_WRLCK, .l_start = slot, .l_len = 1 };
	int fd = open("/run/crucible/slots", O_RDWR | O_CLOEXEC);
	bool locked;

	if (fd < 0)
		return false;
	assert_int_equal(fcntl(fd, F_OFD_GETLK, &fl), 0);
	locked = fl.l_type != F_UNLCK;
	close(fd);
	return locked;
}

/* A slot is held until the launcher, the box and the engine have all let go. */
static void test_slot_free_when_both_gone(void **state)
{
	struct fix *f = *state;
	uint32_t slot = fix_new_slot(f), other = fix_new_slot(f);
	struct launch_spawn box = fix_spawn_of(LAUNCH_BOX, slot, UUID_A, "sleep");
	struct launch_spawn engine = fix_spawn_of(LAUNCH_ENGINE, slot, UUID_A, "sleep");
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), status;
	uint64_t end = now_ns() + DEADLINE_NS;
	pid_t box_pid, engine_pid;

	assert_int_not_equal(slot, other);
	assert_int_equal(fix_spawn(f, &box, &null, 1, &box_pid, NULL), 0);
	assert_int_equal(fix_spawn(f, &engine, &null, 1, &engine_pid, NULL), 0);
	close(null);
	assert_int_equal(fix_call_slot(f, LAUNCH_SLOT_FREE, slot), 0);
	assert_int_equal(fix_call_slot(f, LAUNCH_SLOT_FREE, slot), -EINVAL);
	assert_true(slot_locked(slot));
	kill(box_pid, SIGKILL);
	while (!saw_exit(f, UUID_A, LAUNCH_BOX, &status)) {
		assert_true(now_ns() < end);
		loop_once(f->loop, 100);
	}
	assert_true(slot_locked(slot)); /* the engine lives */
	assert_int_equal(fix_call_str(f, LAUNCH_KILL, UUID_A), 0);
	assert_false(slot_locked(slot));
	assert_true(slot_locked(other));
	assert_int_equal(fix_call_slot(f, LAUNCH_SLOT_FREE, other), 0);
	assert_false(slot_locked(other));
}

/* crucibled dies: the launcher ends, box and engine do not, and the next launcher finds and kills them. */
static void test_outlive_daemon(void **state)
{
	struct fix *f = *state;
	uint32_t slot = fix_new_slot(f);
	struct launch_spawn box = fix_spawn_of(LAUNCH_BOX, slot, UUID_A, "sleep");
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), status;
	pid_t pid;

	/* It becomes our child then, so that its end can be waited for here. */
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
	assert_int_equal(fix_spawn(f, &box, &null, 1, &pid, NULL), 0);
	close(null);
	fix_stop_launcher(f);
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	assert_true(slot_locked(slot));
	f->nexits = 0;
	fix_start_launcher(f, NULL);
	assert_int_equal(listed(f), 1);
	assert_int_not_equal(fix_new_slot(f), slot);
	assert_int_equal(fix_call_str(f, LAUNCH_KILL, UUID_A), 0);
	assert_int_equal(proc_wait(pid, &status), 0);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_false(slot_locked(slot));
}

/* -- refusals ------------------------------------------------------------------------------------- */

static void test_exec_failure_in_words(void **state)
{
	struct fix *f = *state;
	struct launch_spawn s = fix_spawn_of(LAUNCH_ENGINE, 0, UUID_A, "sleep");
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	char plain[128];
	pid_t pid;

	fix_stop_launcher(f);
	snprintf(plain, sizeof(plain), "%s/not-a-program", f->dir);
	fix_start_launcher(f, plain);
	s.slot = fix_new_slot(f);
	assert_int_equal(fix_spawn(f, &s, &null, 1, &pid, NULL), -ENOENT); /* absent, at the start and now */
	assert_non_null(strstr(f->words, "not-a-program"));
	close(open(plain, O_CREAT | O_WRONLY, 0644));
	assert_int_equal(fix_spawn(f, &s, &null, 1, &pid, NULL), -EACCES);
	assert_non_null(strstr(f->words, "engine: exec"));
	assert_non_null(strstr(f->words, "Permission denied"));
	assert_int_equal(listed(f), 0); /* nothing of it stays */
	close(null);
}

static void test_spawn_refused(void **state)
{
	struct fix *f = *state;
	uint32_t slot = fix_new_slot(f);
	struct launch_spawn s = fix_spawn_of(LAUNCH_BOX, slot, UUID_A, "sleep");
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	char path[256], elsewhere[256];
	pid_t pid;

	s.slot = slot + 1;
	assert_int_equal(fix_spawn(f, &s, &null, 1, &pid, NULL), -EINVAL);
	s.slot = slot;
	assert_int_equal(fix_spawn(f, &s, NULL, 0, &pid, NULL), -EBADMSG); /* nowhere to write to */
	s.nofile = 1;
	assert_int_equal(fix_spawn(f, &s, &null, 1, &pid, NULL), -EINVAL);
	s.nofile = 64;
	assert_int_equal(fix_spawn(f, &s, &null, 1, &pid, NULL), 0);
	assert_int_equal(fix_spawn(f, &s, &null, 1, &pid, NULL), -EEXIST);
	/* A folder that a taken-over daemon replaced by a link to somewhere else. */
	s = fix_spawn_of(LAUNCH_BOX, slot, UUID_B, "sleep");
	snprintf(path, sizeof(path), "%s/sandboxes/" UUID_B, f->store);
	snprintf(elsewhere, sizeof(elsewhere), "%s/sandboxes/elsewhere", f->store);
	assert_int_equal(rename(path, elsewhere), 0);
	assert_int_equal(symlink("elsewhere", path), 0);
	assert_int_equal(fix_spawn(f, &s, &null, 1, &pid, NULL), -ELOOP);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(fix_spawn(f, &s, &null, 1, &pid, NULL), -ENOENT);
	assert_non_null(strstr(f->words, UUID_B));
	close(null);
}

static void test_malformed_requests(void **state)
{
	struct fix *f = *state;
	static const char *const bad[] = { "", "..", "0f0e0d0c-0b0a-4908-8706-05040302010",
					   "0F0E0D0C-0B0A-4908-8706-050403020100",
					   "../0d0c-0b0a-4908-8706-050403020100x" };
	struct buf b;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(fix_call_str(f, LAUNCH_KILL, bad[i]), -EBADMSG);
		assert_int_equal(fix_call_str(f, LAUNCH_STAT, bad[i]), -EBADMSG);
	}
	buf_init(&b, 1024);
	assert_int_equal(buf_add(&b, "\xff\xff\xff\xff\xff", 5), 0);
	for (int t = LAUNCH_REPLY; t < LAUNCH_TYPE_COUNT + 2; t++) {
		int want = t == LAUNCH_REPLY || t >= LAUNCH_EXIT_EVENT ? -ENOTSUP : -EBADMSG;

		assert_int_equal(fix_call(f, (enum launch_type)t, &b, NULL, 0), want);
		assert_true(f->words[0] != '\0');
	}
	buf_fini(&b);
	assert_int_equal(listed(f), 0); /* it lives */
}

/* -- the mount ------------------------------------------------------------------------------------ */

static void test_mount(void **state)
{
	struct fix *f = *state;
	struct statx sx;
	int fuse;

	if (access("/dev/fuse", F_OK) < 0) {
		if (getenv("CRUCIBLE_MUST_RUN"))
			fail_msg("no /dev/fuse here");
		skip();
	}
	assert_int_equal(fix_call_str(f, LAUNCH_MOUNT, "/tmp"), -EPERM);
	assert_int_equal(fix_call(f, LAUNCH_UNMOUNT, NULL, NULL, 0), -EINVAL);
	assert_int_equal(fix_call_str(f, LAUNCH_MOUNT, f->mnt), 0);
	fuse = take_fd(&f->answer_fd);
	assert_true(fuse >= 0);
	/* Its daemon is gone: the mount is dead (ENOTCONN) and is replaced. */
	close(fuse);
	assert_int_equal(statx(AT_FDCWD, f->mnt, AT_STATX_FORCE_SYNC, STATX_MODE, &sx), -1);
	assert_int_equal(errno, ENOTCONN);
	assert_int_equal(fix_call_str(f, LAUNCH_MOUNT, f->mnt), 0);
	fuse = take_fd(&f->answer_fd);
	/* One that lives, and answers nothing, is not. Waits for the probe's three seconds. */
	assert_int_equal(fix_call_str(f, LAUNCH_MOUNT, f->mnt), -EBUSY);
	assert_int_equal(fix_call(f, LAUNCH_UNMOUNT, NULL, NULL, 0), 0);
	assert_int_equal(fix_call(f, LAUNCH_UNMOUNT, NULL, NULL, 0), -EINVAL);
	close(fuse);
	assert_int_equal(rmdir(f->mnt), 0);
	assert_int_equal(fix_call_str(f, LAUNCH_MOUNT, f->mnt), -ENOENT);
	close(open(f->mnt, O_CREAT | O_WRONLY, 0644));
	assert_int_equal(fix_call_str(f, LAUNCH_MOUNT, f->mnt), -ENOTDIR);
}

static void test_mount_over_another(void **state)
{
	struct fix *f = *state;

	assert_int_equal(mount("test", f->mnt, "tmpfs", 0, NULL), 0);
	assert_int_equal(fix_call_str(f, LAUNCH_MOUNT, f->mnt), -EBUSY);
	assert_int_equal(fix_call(f, LAUNCH_UNMOUNT, NULL, NULL, 0), -EINVAL);
	assert_int_equal(umount(f->mnt), 0);
}

/* -- the client ----------------------------------------------------------------------------------- */

static void test_launcher_dies(void **state)
{
	struct fix *f = *state;
	int status;

	f->answered = false;
	kill(f->pid, SIGKILL);
	assert_int_equal(proc_wait(f->pid, &status), 0);
	/* Either the send fails at once or the call is answered with -EPIPE; never silence. */
	if (launcher_call(f->l, LAUNCH_LIST, NULL, 0, NULL, 0, fix_on_answer, f) == 0) {
		fix_until(f, &f->answered);
		assert_int_equal(f->code, -EPIPE);
	}
	fix_until(f, &f->gone);
	f->l = launcher_free(f->l);
	f->loop = loop_free(f->loop);
	fix_start_launcher(f, NULL); /* and for the tear-down, which also removes the slots' file */
}

static void test_signals_do_not_end_it(void **state)
{
	struct fix *f = *state;

	kill(f->pid, SIGINT);
	kill(f->pid, SIGTERM);
	kill(f->pid, SIGHUP);
	assert_int_equal(listed(f), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_box_confined, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_engine_confined, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_engine_without_kvm, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_descriptors_placed, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_limits_applied, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_exit_event, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_forbidden_call_kills, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_kill_leaves_nothing, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_slot_free_when_both_gone, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_outlive_daemon, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_exec_failure_in_words, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_spawn_refused, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_malformed_requests, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_mount, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_mount_over_another, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_launcher_dies, fix_setup, fix_teardown),
		cmocka_unit_test_setup_teardown(test_signals_do_not_end_it, fix_setup, fix_teardown),
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
