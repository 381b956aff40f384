/* SPDX-License-Identifier: Apache-2.0 */
/* What test_launch.c stands on: the probe, which is this very program started by the launcher, and a launcher with a
 * store of its own. See launch_fix.h. */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/capability.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/proc.h"
#include "tests/unit/launch_fix.h"

/* -- inside ------------------------------------------------------------------------------------- */

static void say_names(const char *dir)
{
	DIR *d = opendir(dir);
	const struct dirent *e;

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			printf("%s: %s\n", dir, e->d_name);
	if (d)
		closedir(d);
}

static void say_errno(const char *what, int r)
{
	printf("%s: %s\n", what, r < 0 ? strerrorname_np(errno) : "ok");
}

static int connect_to(const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
	if (s >= 0 && connect(s, (const struct sockaddr *)&sa, sizeof(sa)) < 0)
		fd_close(&s);
	return s;
}

static void report(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2];
	struct sockaddr_in inet = { .sin_family = AF_INET,
				    .sin_port = htons(53),
				    .sin_addr.s_addr = htonl(0x08080808) };
	const struct if_nameindex *nets = if_nameindex();
	struct rlimit core, nofile;
	struct utsname uts;
	gid_t groups[8];
	uid_t r, e, s;
	gid_t rg, eg, sg;
	int udp, n = 0;

	getresuid(&r, &e, &s);
	getresgid(&rg, &eg, &sg);
	printf("uids: %u %u %u\ngids: %u %u %u\ngroups: %d\n", r, e, s, rg, eg, sg, getgroups(8, groups));
	memset(caps, 0xff, sizeof(caps));
	syscall(SYS_capget, &head, caps);
	printf("caps: %x %x %x\n", caps[0].permitted | caps[1].permitted, caps[0].effective | caps[1].effective,
	       caps[0].inheritable | caps[1].inheritable);
	for (unsigned long c = 0; c < 64; c++)
		n += prctl(PR_CAPBSET_READ, c, 0, 0, 0) == 1;
	printf("bounding: %d\nno_new_privs: %d\npid: %d\n", n, prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), (int)getpid());
	printf("session: %d\nthp_disable: %d\n", getsid(0) == getpid(), prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
	getrlimit(RLIMIT_CORE, &core);
	getrlimit(RLIMIT_NOFILE, &nofile);
	printf("core: %llu\nnofile: %llu\n", (unsigned long long)core.rlim_max, (unsigned long long)nofile.rlim_max);
	uname(&uts);
	printf("host: %s\n", uts.nodename);
	for (; nets && nets->if_index; nets++)
		printf("net: %s\n", nets->if_name);
	udp = socket(AF_INET, SOCK_DGRAM, 0);
	say_errno("route", udp < 0 ? -1 : connect(udp, (const struct sockaddr *)&inet, sizeof(inet)));
	close(udp);
	for (int fd = 0; fd < 64; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			printf("fd: %d\n", fd);
	for (char **v = environ; *v; v++)
		if (strncmp(*v, "LD_PRELOAD=", 11) != 0)
			printf("env: %s\n", *v);
	say_names("/");
	say_names("/dev");
	say_names("/box");
	say_names("/run");
	say_names("/boot");
	say_errno("write /", open("/x", O_CREAT | O_WRONLY, 0600));
	say_errno("write /usr", open("/usr/x", O_CREAT | O_WRONLY, 0600));
	say_errno("write /run", open("/run/x", O_CREAT | O_WRONLY, 0600));
	say_errno("write /box", open("/box/x", O_CREAT | O_WRONLY, 0600));
	say_errno("open /dev/kvm", open("/dev/kvm", O_RDWR));
	say_errno("open /dev/null", open("/dev/null", O_RDWR));
	say_errno("setresuid 0", setresuid(0, 0, 0));
	say_errno("mount", mount("x", "/usr", "tmpfs", 0, NULL));
	printf("end\n");
	fflush(stdout);
}

void fix_probe(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "sleep";
	char c;

	if (!strcmp(what, "report"))
		report();
	else if (!strcmp(what, "exit"))
		_exit((int)strtol(argv[2], NULL, 10));
	else if (!strcmp(what, "forbidden"))
		syscall(SYS_swapoff, "/x"); /* of no list */
	else if (!strcmp(what, "connect")) {
		/* Each byte on descriptor 3 is an order to connect once more; the answer is the result. */
		while (read(3, &c, 1) == 1) {
			int s = connect_to("/run/daemon.sock");

			c = s < 0 ? 'n' : 'y';
			fd_close(&s);
			if (write(3, &c, 1) != 1)
				break;
		}
	} else if (!strcmp(what, "forks")) {
		/* Children that hear nothing but SIGKILL, as a guest that took over would leave. */
		for (int i = 0; i < 8; i++)
			if (fork() == 0) {
				signal(SIGTERM, SIG_IGN);
				for (;;)
					pause();
			}
		printf("end\n");
		fflush(stdout);
	}
	for (;;)
		pause();
}

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
}

int fix_setup(void **state)
{
	static unsigned int nth;
	struct fix *f = calloc(1, sizeof(*f));

	f->fd = f->answer_fd = -1;
	snprintf(f->cgroup, sizeof(f->cgroup), "test-%d-%u", (int)getpid(), nth++);
	make_store(f);
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
	static const char *const uuids[] = { UUID_A, UUID_B };
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
		fix_stop_launcher(f);
	}
	left = cgroup_left(f);
	sweep(f);
	free(f);
	assert_false(left);
	return 0;
}
