/* SPDX-License-Identifier: Apache-2.0 */
/* The probe: a test program that the launcher started tells what it sees from inside. See launch_fix.h. */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <link.h>
#include <linux/capability.h>
#include <linux/if_tun.h>
#include <linux/userfaultfd.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
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
#include "tests/unit/launch_fix.h"

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

static int say_library(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size, (void)arg;
	if (!strcmp(info->dlpi_name, LAUNCH_PRELOAD_SO))
		printf("library: %s\n", info->dlpi_name);
	return 0;
}

/* A memfd of our own, opened once more: only where there is a /proc. */
static int open_again(int flags)
{
	char path[64];
	int fd = memfd_create("again", MFD_CLOEXEC), again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	fchmod(fd, 0400);
	again = open(path, flags | O_CLOEXEC);
	fd_close(&fd);
	if (again >= 0)
		close(again);
	return again;
}

/* What came with snapshots: folders of the store, rings, memory on demand. */
static void report_snapshots(void)
{
	static const char *const folders[] = { "/snapstore", "/disks", "/profiles", "/proc", "/run/blocks" };
	const char *uffd = getenv("CRUCIBLE_PRELOAD_UFFD");
	struct rlimit memlock;
	char path[64];
	int s;

	for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
		say_names(folders[i]);
		snprintf(path, sizeof(path), "%s/x", folders[i]);
		s = open(path, O_CREAT | O_WRONLY, 0600);
		snprintf(path, sizeof(path), "write %s", folders[i]);
		say_errno(path, s);
	}
	dl_iterate_phdr(say_library, NULL);
	getrlimit(RLIMIT_MEMLOCK, &memlock);
	printf("memlock: %llu\nnice: %d\n", (unsigned long long)memlock.rlim_max, getpriority(PRIO_PROCESS, 0));
	say_errno("ring", (int)syscall(SYS_io_uring_setup, 0, NULL));
	say_errno("vsock", socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0));
	say_errno("packets", socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
	say_errno("again ro", open_again(O_RDONLY));
	say_errno("again rw", open_again(O_RDWR));
	s = connect_to("/run/blocks/nbd.sock");
	say_errno("blocks", s);
	fd_close(&s);
	if (uffd && atoi(uffd) >= 0)
		say_errno("uffd", ioctl(atoi(uffd), USERFAULTFD_IOC_NEW, O_CLOEXEC));
}

/* Descriptors that are taps, and whether those are up. */
static void report_taps(void)
{
	for (int fd = 3; fd < 64; fd++) {
		struct ifreq req = { 0 };
		int s;

		if (ioctl(fd, TUNGETIFF, &req) < 0)
			continue;
		s = socket(AF_INET, SOCK_DGRAM, 0);
		ioctl(s, SIOCGIFFLAGS, &req);
		close(s);
		printf("tap %d: %s %s\n", fd, req.ifr_name, req.ifr_flags & IFF_UP ? "up" : "down");
	}
	say_errno("setns", (int)syscall(SYS_setns, -1, 0));
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
	report_snapshots();
	report_taps();
	printf("end\n");
	fflush(stdout);
}

/* A pager that has nothing: any request is answered by an empty list. */
static void serve(void)
{
	static const uint8_t nothing[4 + 4 + 4 + 4]; /* code, words, two counts */
	static uint8_t in[MSG_MAX];
	struct msg m;

	for (;;) {
		AUTO_FD fd = accept4(3, NULL, NULL, SOCK_CLOEXEC);

		while (fd >= 0 && msg_recv(fd, in, sizeof(in), &m) == 0) {
			msg_close_fds(&m);
			msg_send(fd, 1, m.id, nothing, sizeof(nothing), NULL, 0);
		}
	}
}

void fix_probe(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "sleep";
	char c;

	if (!strcmp(what, "report"))
		report();
	else if (!strcmp(what, "serve"))
		serve();
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
