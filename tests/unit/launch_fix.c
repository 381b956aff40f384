/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the launcher stand on: a launcher with a store of its own. See launch_fix.h. */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/proc.h"
#include "tests/unit/launch_fix.h"

/* -- the fixture --------------------------------------------------------------------------------- */

static void on_exit_seen(void *arg, const char *uuid, enum launch_kind kind, int status)
{
	struct fix *f = arg;
	struct exit_seen *x = &f->exits[f->nexits++ % ARRAY_LEN(f->exits)];

	snprintf(x->uuid, sizeof(x->uuid), "%s", uuid);
	x->kind = kind;
	x->status = status;
}

static void on_gone_seen(void *arg)
{
	((struct fix *)arg)->gone = true;
}

void fix_on_answer(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct fix *f = arg;

	f->answered = true;
	f->code = code;
	snprintf(f->words, sizeof(f->words), "%s", words);
	f->payload_len = wire_left(r);
	assert_true(f->payload_len <= sizeof(f->payload));
	if (f->payload_len)
		memcpy(f->payload, r->p, f->payload_len);
	f->answer_fd = m->nfds ? take_fd(&m->fds[0]) : -1;
}

/* Run the loop until *flag, or fail. */
void fix_until(struct fix *f, const bool *flag)
{
	uint64_t end = now_ns() + DEADLINE_NS;

	while (!*flag) {
		assert_true(now_ns() < end);
		assert_int_equal(loop_once(f->loop, 100), 0);
	}
}

int fix_call(struct fix *f, enum launch_type type, const struct buf *b, const int *fds, size_t nfds)
{
	f->answered = false;
	assert_int_equal(launcher_call(f->l, type, b ? b->data : NULL, b ? b->len : 0, fds, nfds, fix_on_answer, f), 0);
	fix_until(f, &f->answered);
	return f->code;
}

int fix_call_str(struct fix *f, enum launch_type type, const char *s)
{
	struct buf b;
	int r;

	buf_init(&b, 8192);
	assert_int_equal(wire_put_str(&b, s), 0);
	r = fix_call(f, type, &b, NULL, 0);
	buf_fini(&b);
	return r;
}

int fix_call_slot(struct fix *f, enum launch_type type, uint32_t slot)
{
	struct buf b;
	int r;

	buf_init(&b, 64);
	assert_int_equal(wire_put_u32(&b, slot), 0);
	r = fix_call(f, type, &b, NULL, 0);
	buf_fini(&b);
	return r;
}

uint32_t fix_new_slot(struct fix *f)
{
	struct wire_rd r;
	uint32_t slot;

	assert_int_equal(fix_call(f, LAUNCH_SLOT_ALLOC, NULL, NULL, 0), 0);
	wire_rd_init(&r, f->payload, f->payload_len);
	slot = wire_u32(&r);
	assert_int_equal(wire_done(&r), 0);
	return slot;
}

int fix_spawn(struct fix *f, const struct launch_spawn *s, const int *fds, size_t nfds, pid_t *ret_pid,
	      char *unenforced)
{
	struct wire_rd rd;
	struct buf b;
	int r;

	buf_init(&b, MSG_MAX);
	assert_int_equal(launch_spawn_encode(s, &b), 0);
	r = fix_call(f, LAUNCH_SPAWN, &b, fds, nfds);
	buf_fini(&b);
	if (r == 0) {
		char words[64];

		wire_rd_init(&rd, f->payload, f->payload_len);
		*ret_pid = (pid_t)wire_u32(&rd);
		wire_str(&rd, words, sizeof(words));
		assert_int_equal(wire_done(&rd), 0);
		if (unenforced)
			memcpy(unenforced, words, sizeof(words));
		assert_true(f->answer_fd >= 0);
		fd_close(&f->answer_fd);
	}
	return r;
}

struct launch_spawn fix_spawn_of(enum launch_kind kind, uint32_t slot, const char *uuid, const char *what)
{
	struct launch_spawn s = {
		.kind = (uint8_t)kind, .slot = slot, .nofile = 256, .argc = 2, .argv = { "probe", what }
	};

	memcpy(s.uuid, uuid, sizeof(s.uuid));
	return s;
}

bool fix_says(const char *text, const char *line)
{
	size_t len = strlen(line);

	for (const char *p = text; (p = strstr(p, line)); p++)
		if ((p == text || p[-1] == '\n') && p[len] == '\n')
			return true;
	return false;
}

unsigned int fix_count_lines(const char *text, const char *start)
{
	unsigned int n = 0;

	for (const char *p = text; (p = strstr(p, start)); p++)
		n += p == text || p[-1] == '\n';
	return n;
}

void fix_common_checks(const char *out)
{
	assert_says(out, "groups: 0");
	assert_says(out, "caps: 0 0 0");
	assert_says(out, "bounding: 0");
	assert_says(out, "no_new_privs: 1");
	assert_says(out, "pid: 1");
	assert_says(out, "session: 1");
	assert_says(out, "core: 0");
	assert_says(out, "nofile: 256");
	assert_says(out, "host: crucible");
	assert_says(out, "net: lo");
	assert_int_equal(fix_count_lines(out, "net: "), 1);
	assert_says(out, "route: ENETUNREACH");
	assert_int_equal(fix_count_lines(out, "env: "), 0);
	assert_says(out, "write /: EROFS");
	assert_says(out, "setresuid 0: EPERM");
	assert_says(out, "mount: EPERM");
	assert_false(fix_says(out, "/: proc"));
	assert_false(fix_says(out, "/: etc"));
	assert_false(fix_says(out, "/: tmp"));
	assert_false(fix_says(out, "write /usr: ok"));
}

void fix_oom_adj(pid_t pid, char out[16])
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = read(fd, out, 15);
	assert_true(n > 0);
	out[n] = '\0';
	close(fd);
}

/* The text that comes through a pipe up to the line "end". */
static void read_to_end(int fd, char *out, size_t cap)
{
	uint64_t end = now_ns() + DEADLINE_NS;
	size_t n = 0;

	out[0] = '\0';
	while (!strstr(out, "end\n")) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t got;

		assert_true(now_ns() < end);
		if (poll(&p, 1, 100) <= 0)
			continue;
		assert_true(n < cap - 1);
		got = read(fd, out + n, cap - 1 - n);
		if (got <= 0)
			fail_msg("the probe ended after: %s", out);
		n += (size_t)got;
		out[n] = '\0';
	}
}

/* Start a probe and return what it reports. */
pid_t fix_spawn_reporting(struct fix *f, const struct launch_spawn *s, char *out, size_t cap)
{
	pid_t pid = -1;
	int p[2];

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	if (fix_spawn(f, s, &p[1], 1, &pid, NULL) < 0)
		fail_msg("spawn: %s", f->words);
	close(p[1]);
	read_to_end(p[0], out, cap);
	close(p[0]);
	return pid;
}

static void launcher_path(char *out, size_t cap)
{
	char exe[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	assert_true(n > 0);
	exe[n] = '\0';
	*strrchr(exe, '/') = '\0';
	assert_true(snprintf(out, cap, "%s/../libexec/crucible-launch", exe) < (int)cap);
}

static void make_dir(const char *path)
{
	assert_int_equal(mkdir(path, 0770), 0);
	assert_int_equal(chmod(path, 0770), 0); /* past the umask: boxes write by their group */
	assert_int_equal(chown(path, UID_BASE, UID_BASE), 0);
}

void fix_start_launcher(struct fix *f, const char *engine)
{
	static const struct launcher_ops ops = { .on_exit = on_exit_seen, .on_gone = on_gone_seen };
	char path[PATH_MAX], exe[PATH_MAX], uid[16];
	char *argv[] = { (char *)"crucible-launch",
			 (char *)"--sock-fd",
			 (char *)"3",
			 (char *)"--uid-base",
			 uid,
			 (char *)"--mount",
			 f->mnt,
			 (char *)"--store",
			 f->store,
			 (char *)"--cgroup",
			 f->cgroup,
			 (char *)"--box",
			 exe,
			 (char *)"--engine",
			 (char *)(engine ? engine : exe),
			 (char *)"--pager",
			 exe,
			 (char *)"--store-writer",
			 exe,
			 (char *)"--netd",
			 exe,
			 (char *)"--preload",
			 f->preload,
			 NULL };
	struct proc_spec spec = PROC_SPEC_INIT;
	struct err e = { 0 };
	int pair[2];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	assert_true(n > 0);
	exe[n] = '\0';
	snprintf(uid, sizeof(uid), "%u", UID_BASE);
	launcher_path(path, sizeof(path));
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	spec.name = "launcher";
	spec.path = path;
	spec.argv = argv;
	spec.envp = environ;
	spec.stdio[2] = getenv("V") ? 2 : -1;
	spec.fds = &pair[1];
	spec.nfds = 1;
	if (proc_spawn(&spec, &f->pid, NULL, &e) < 0)
		fail_msg("%s", e.msg);
	close(pair[1]);
	f->fd = pair[0];
	assert_int_equal(loop_new(&f->loop), 0);
	/* Sync first, on the bare descriptor: the launcher is up. */
	if (launcher_call_sync(f->fd, LAUNCH_LIST, NULL, 0, NULL, NULL, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(launcher_new(f->loop, take_fd(&f->fd), &ops, f, &f->l), 0);
}

void fix_stop_launcher(struct fix *f)
{
	int status;

	f->l = launcher_free(f->l);
	f->loop = loop_free(f->loop);
	assert_int_equal(proc_wait(f->pid, &status), 0);
	assert_int_equal(status, 0);
}

/* As the daemon's root part does. */
static void make_owned(struct fix *f, const char *name, mode_t mode, uid_t uid)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/%s", f->store, name);
	make_dir(path);
	assert_int_equal(chown(path, uid, UID_BASE), 0);
	assert_int_equal(chmod(path, mode), 0);
}

/* Where a library that we are linked to lies. */
static void library_path(const char *name, char *out, size_t cap)
{
	AUTO_FREE char *maps = NULL;
	char *at;

	assert_int_equal(fd_slurp(AT_FDCWD, "/proc/self/maps", 1u << 20, &maps, NULL), 0);
	at = strstr(maps, name);
	assert_non_null(at);
	at[strcspn(at, "\n")] = '\0';
	while (at > maps && at[-1] != ' ')
		at--;
	assert_true(snprintf(out, cap, "%s", at) < (int)cap);
}

/* Any library will do; the tests' own is there. */
static void make_preload(struct fix *f)
{
	char path[PATH_MAX];
	AUTO_FD in = -1;
	AUTO_FD out = -1;

	library_path("/libcmocka", path, sizeof(path));
	in = open(path, O_RDONLY | O_CLOEXEC);
	snprintf(f->preload, sizeof(f->preload), "%s/any.so", f->dir);
	out = open(f->preload, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0755);
	assert_true(in >= 0 && out >= 0);
	while (copy_file_range(in, NULL, out, NULL, 1u << 20, 0) > 0)
		;
	assert_true(lseek(out, 0, SEEK_END) > 4096);
}

static void make_store(struct fix *f)
{
	char path[160];

	snprintf(f->dir, sizeof(f->dir), "/tmp/crucible-test-launch-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	assert_int_equal(chmod(f->dir, 0755), 0);
	snprintf(f->store, sizeof(f->store), "%s/store", f->dir);
	snprintf(f->mnt, sizeof(f->mnt), "%s/mnt dir", f->dir);
	assert_int_equal(mkdir(f->mnt, 0755), 0);
	make_dir(f->store);
	snprintf(path, sizeof(path), "%s/sandboxes", f->store);
	make_dir(path);
	snprintf(path, sizeof(path), "%s/sandboxes/" UUID_A, f->store);
	make_dir(path);
	snprintf(path, sizeof(path), "%s/sandboxes/" UUID_A "/box", f->store);
	make_dir(path);
	snprintf(path, sizeof(path), "%s/sandboxes/" UUID_B, f->store);
	make_dir(path);
	snprintf(path, sizeof(path), "%s/sandboxes/" UUID_B "/box", f->store);
	make_dir(path);
	snprintf(path, sizeof(path), "%s/run", f->store);
	make_dir(path);
	assert_int_equal(chmod(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/boot", f->store);
	make_dir(path);
	assert_int_equal(chmod(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/boot/vmlinuz", f->store);
	close(open(path, O_CREAT | O_WRONLY, 0644));
	make_owned(f, "snapstore", 02750, UID_BASE + LAUNCH_UID_STORE);
	make_owned(f, "snapstore/format", 0750, UID_BASE + LAUNCH_UID_STORE);
	make_owned(f, "disks", 02770, UID_BASE + LAUNCH_UID_PAGER);
	make_owned(f, "profiles", 0755, 0);
	make_owned(f, "blocks", 0700, UID_BASE);
	make_owned(f, LAUNCH_BLOCKS_DIR, 0711, UID_BASE);
}

int fix_setup(void **state)
{
	static unsigned int nth;
	struct fix *f = calloc(1, sizeof(*f));

	f->fd = f->answer_fd = -1;
	snprintf(f->cgroup, sizeof(f->cgroup), "test-%d-%u", (int)getpid(), nth++);
	make_store(f);
	make_preload(f);
#ifdef __SANITIZE_ADDRESS__
	/* The probe is instrumented, which no engine is: its runtime wants to come before any library. */
	char asan[PATH_MAX];

	library_path("/libasan", asan, sizeof(asan));
	setenv("LD_PRELOAD", asan, 1);
#endif
	*state = f;
	fix_start_launcher(f, NULL);
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

/* Whether any hierarchy has a folder of ours. */
static bool cgroup_left(const struct fix *f)
{
	DIR *d = opendir("/sys/fs/cgroup");
	const struct dirent *e;
	char path[512];
	bool left = false;

	snprintf(path, sizeof(path), "/sys/fs/cgroup/crucible-%s", f->cgroup);
	left = access(path, F_OK) == 0;
	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/crucible-%s", e->d_name, f->cgroup);
		left = left || access(path, F_OK) == 0;
	}
	if (d)
		closedir(d);
	return left;
}

/* What a failed test left running, without the launcher's help. */
static void sweep(const struct fix *f)
{
	static const char *const uuids[] = { UUID_A, UUID_B, LAUNCH_UUID_PAGER, LAUNCH_UUID_STORE, LAUNCH_UUID_NETD };
	uint64_t end = now_ns() + DEADLINE_NS;
	struct cgroup_root *c;

	if (cgroup_root_new(f->cgroup, 0, &c, NULL) < 0)
		return;
	for (size_t i = 0; i < ARRAY_LEN(uuids); i++)
		while ((cgroup_kill(c, uuids[i], NULL) > 0 || cgroup_remove(c, uuids[i], NULL) < 0) && now_ns() < end)
			usleep(1000);
	cgroup_root_remove(c);
	cgroup_root_free(c);
}

int fix_teardown(void **state)
{
	struct fix *f = *state;
	bool left;

	/* First what must not stay, whatever is found to be wrong below. */
	umount2(f->mnt, MNT_DETACH);
	nftw(f->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	if (f->l) {
		fix_call_str(f, LAUNCH_KILL, UUID_A);
		fix_call_str(f, LAUNCH_KILL, UUID_B);
		fix_call_str(f, LAUNCH_KILL, LAUNCH_UUID_PAGER);
		fix_call_str(f, LAUNCH_KILL, LAUNCH_UUID_STORE);
		fix_call_str(f, LAUNCH_KILL, LAUNCH_UUID_NETD);
		fix_stop_launcher(f);
	}
	left = cgroup_left(f);
	sweep(f);
	free(f);
	assert_false(left);
	return 0;
}
