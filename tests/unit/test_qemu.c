/* SPDX-License-Identifier: Apache-2.0 */
/* QEMU as an engine: its command line, what it says of itself, and the calls over its monitor, against a fake and
 * against the real one. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/proc.h"
#include "vmm/engine.h"

/* -- the command line -------------------------------------------------------------------------- */

static struct engine_machine machine(void)
{
	return (struct engine_machine){ .accel = ACCEL_TCG,
					.memory_mib = 512,
					.vcpus = 2,
					.tsc_khz = 2596120,
					.kernel = "/boot/b/vmlinux",
					.initrd = "/boot/b/initramfs",
					.disk = true,
					.disk_export = "m-1",
					.net = true };
}

static struct engine_machine generic(void)
{
	return (struct engine_machine){
		.accel = ACCEL_TCG, .memory_mib = 512, .vcpus = 2, .tsc_khz = 2596120, .net = true
	};
}

static void joined(const struct engine_command *c, char *out, size_t cap)
{
	size_t at = 0;

	for (size_t i = 0; i < c->argc; i++)
		at += (size_t)snprintf(out + at, cap - at, "%s\n", c->argv[i]);
	assert_null(c->argv[c->argc]);
	assert_true(at < cap);
}

#define START "qemu-system-x86_64\n-M\nmicrovm,acpi=on,memory-backend=ram\n"
#define BEFORE_KERNEL                                                          \
	"-nodefaults\n-no-user-config\n-no-reboot\n-display\nnone\n-sandbox\n" \
	"on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny\n"
#define PORTS                                                                                                    \
	"-chardev\nsocket,id=monitor,fd=3\n-mon\nchardev=monitor,mode=control\n"                                 \
	"-add-fd\nfd=6,set=3\n-chardev\nfile,id=console,path=/dev/fdset/3,append=on\n-serial\nchardev:console\n" \
	"-chardev\nsocket,id=control,fd=4\n-chardev\nsocket,id=bulk,fd=5\n"                                      \
	"-device\nvirtio-serial-device,id=ports,max_ports=3\n"                                                   \
	"-device\nvirtserialport,bus=ports.0,nr=1,chardev=control,name=control,id=port1\n"                       \
	"-device\nvirtserialport,bus=ports.0,nr=2,chardev=bulk,name=bulk,id=port2\n"                             \
	"-object\nrng-builtin,id=entropy\n-device\nvirtio-rng-device,rng=entropy,id=rng0\n"

#define DISK		 "-device\nvirtio-blk-device,drive=disk0,id=vd0,cyls=16383,heads=16,secs=63,werror=enospc,rerror=report\n"
#define NO_ANNOUNCEMENTS "{\"announce-rounds\":0}"
#define CARD		 "-device\nvirtio-net-device,id=net0,netdev=tap0,mac=52:54:00:c0:00:01,status=off,guest_announce=off\n"
#define NET		 "-netdev\ntap,id=tap0,fd=8,vhost=off\n" CARD
#define HUB		 "-netdev\nhubport,id=tap0,hubid=0\n" CARD

/* What the guest sees hangs on each word of this: a change of it is a change of the machine's shape (snapshots!). */
static void test_golden_tcg(void **state)
{
	struct engine_machine m = machine();
	struct engine_command c;
	struct err e = { 0 };
	char text[8192];

	(void)state;
	assert_int_equal(engine_qemu.command(&m, &c, &e), 0);
	joined(&c, text, sizeof(text));
	assert_string_equal(
		text, START
		"-accel\ntcg,thread=multi,tb-size=128\n-cpu\nmax,erms=off,fsrm=off\n-m\n512M\n-smp\n2\n"
		"-object\nmemory-backend-memfd,id=ram,size=512M,share=on\n" BEFORE_KERNEL
		"-kernel\n/boot/b/vmlinux\n-initrd\n/boot/b/initramfs\n-append\n"
		"console=ttyS0 quiet panic=-1 tsc_early_khz=2596120 tsc=reliable crucible.root=vda crucible.rootfs=ext4\n" PORTS
		"-blockdev\ndriver=nbd,node-name=nbd0,server.type=unix,server.path=/run/blocks/nbd.sock,export=m-1,"
		"reconnect-delay=30,discard=unmap\n"
		"-blockdev\ndriver=raw,node-name=disk0,file=nbd0,discard=unmap,detect-zeroes=off\n" DISK NET);
}

/* The same devices in the same order; no kernel, nobody's disk. */
static void test_golden_generic(void **state)
{
	struct engine_machine m = generic();
	struct engine_command c;
	struct err e = { 0 };
	char text[8192];

	(void)state;
	assert_int_equal(engine_qemu.command(&m, &c, &e), 0);
	joined(&c, text, sizeof(text));
	assert_string_equal(
		text,
		START "-accel\ntcg,thread=multi,tb-size=128\n-cpu\nmax,erms=off,fsrm=off\n-m\n512M\n-smp\n2\n"
		      "-object\nmemory-backend-memfd,id=ram,size=512M,share=on\n" BEFORE_KERNEL
		      "-incoming\ndefer\n-S\n" PORTS "-blockdev\ndriver=null-co,node-name=none0,size=68719476736\n"
		      "-blockdev\ndriver=raw,node-name=disk0,file=none0,discard=unmap,detect-zeroes=off\n" DISK NET);
}

static void test_fingerprint(void **state)
{
	const struct engine_info i = { .name = "qemu", .version = "7.2.22" };
	struct engine_info other = i;
	struct engine_machine m = machine(), g = generic();
	char a[128], b[128];

	(void)state;
	/* Of the shape, not of what is booted, nor of the host, nor of a security update. */
	assert_int_equal(engine_fingerprint(&i, &m, a, sizeof(a)), 0);
	print_message("%s\n", a);
	assert_true(strncmp(a, "qemu-7.2 ", 9) == 0);
	assert_non_null(strstr(a, " max,erms=off,fsrm=off"));
	g.tsc_khz = 1;
	g.net = false; /* what is behind its network card */
	strcpy(other.version, "7.2.99");
	assert_int_equal(engine_fingerprint(&other, &g, b, sizeof(b)), 0);
	assert_string_equal(a, b);
	strcpy(other.version, "7.2");
	assert_int_equal(engine_fingerprint(&other, &g, b, sizeof(b)), 0);
	assert_string_equal(a, b);
	strcpy(other.version, "8.2.1");
	assert_int_equal(engine_fingerprint(&other, &g, b, sizeof(b)), 0);
	assert_string_not_equal(a, b);
	g.vcpus = 1;
	assert_int_equal(engine_fingerprint(&i, &g, b, sizeof(b)), 0);
	assert_string_not_equal(a, b);
	g = generic();
	g.memory_mib = 1024;
	assert_int_equal(engine_fingerprint(&i, &g, b, sizeof(b)), 0);
	assert_string_not_equal(a, b);
	g.accel = ACCEL_KVM;
	assert_int_equal(engine_fingerprint(&i, &g, b, sizeof(b)), 0);
	assert_non_null(strstr(b, " Nehalem-v1,vme=off,enforce"));
	/* Under KVM, and only there, of who made the processor. */
	other = i;
	strcpy(other.cpu_vendor, "GenuineIntel");
	assert_int_equal(engine_fingerprint(&other, &m, b, sizeof(b)), 0);
	assert_string_equal(a, b);
	assert_int_equal(engine_fingerprint(&other, &g, a, sizeof(a)), 0);
	assert_non_null(strstr(a, " Nehalem-v1,vme=off,enforce GenuineIntel"));
	strcpy(other.cpu_vendor, "AuthenticAMD");
	assert_int_equal(engine_fingerprint(&other, &g, b, sizeof(b)), 0);
	assert_non_null(strstr(b, " Nehalem-v1,vme=off,enforce AuthenticAMD"));
	/* -EINVAL: a shape that there is not, a version that is none, too little room. */
	g.memory_mib = 1;
	assert_int_equal(engine_fingerprint(&i, &g, b, sizeof(b)), -EINVAL);
	strcpy(other.version, "7");
	assert_int_equal(engine_fingerprint(&other, &m, b, sizeof(b)), -EINVAL);
	assert_int_equal(engine_fingerprint(&i, &m, b, 20), -EINVAL);
}

static void test_golden_kvm_without_disk(void **state)
{
	struct engine_machine m = machine();
	struct engine_command c;
	struct err e = { 0 };
	char text[8192];

	(void)state;
	m.accel = ACCEL_KVM;
	m.disk = false;
	m.tsc_khz = 0;
	m.memory_mib = 4096;
	m.vcpus = 1;
	m.append = "crucible.trial=1";
	m.net = false;
	assert_int_equal(engine_qemu.command(&m, &c, &e), 0);
	joined(&c, text, sizeof(text));
	assert_string_equal(text, START "-accel\nkvm\n-cpu\nNehalem-v1,vme=off,enforce\n-m\n4096M\n-smp\n1\n"
					"-object\nmemory-backend-memfd,id=ram,size=4096M,share=on\n" BEFORE_KERNEL
					"-kernel\n/boot/b/vmlinux\n-initrd\n/boot/b/initramfs\n-append\n"
					"console=ttyS0 quiet panic=-1 crucible.trial=1\n" PORTS HUB);
}

static void test_command_einval(void **state)
{
	struct engine_machine m;
	struct engine_command c;
	struct err e = { 0 };
	static char endless[10000];

	(void)state;
	m = machine();
	m.memory_mib = 500;
	assert_int_equal(engine_qemu.command(&m, &c, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "500 MiB"));
	m = machine();
	m.vcpus = 3;
	assert_int_equal(engine_qemu.command(&m, &c, &e), -EINVAL);
	m = machine();
	m.accel = ACCEL_COUNT;
	assert_int_equal(engine_qemu.command(&m, &c, &e), -EINVAL);
	m = machine();
	m.kernel = NULL;
	assert_int_equal(engine_qemu.command(&m, &c, &e), -EINVAL);
	m = machine();
	m.disk_export = "a,server.path=/etc/shadow";
	assert_int_equal(engine_qemu.command(&m, &c, &e), -EINVAL);
	m.disk_export = NULL;
	assert_int_equal(engine_qemu.command(&m, &c, &e), -EINVAL);
	m = machine();
	m.initrd = NULL;
	assert_int_equal(engine_qemu.command(&m, &c, &e), -EINVAL);
	m = generic();
	m.append = "words";
	assert_int_equal(engine_qemu.command(&m, &c, &e), -EINVAL);
	m = machine();
	memset(endless, 'x', sizeof(endless) - 1);
	m.append = endless;
	assert_int_equal(engine_qemu.command(&m, &c, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "does not fit"));
}

static void test_classes(void **state)
{
	(void)state;
	assert_int_equal(engine_memory_class(1), 256);
	assert_int_equal(engine_memory_class(256), 256);
	assert_int_equal(engine_memory_class(257), 512);
	assert_int_equal(engine_memory_class(4096), 4096);
	assert_int_equal(engine_memory_class(4097), 0);
	assert_int_equal(engine_vcpus_class(1), 1);
	assert_int_equal(engine_vcpus_class(3), 4);
	assert_int_equal(engine_vcpus_class(5), 0);
	assert_string_equal(engine_accel_name(ACCEL_TCG), "tcg");
	assert_string_equal(engine_accel_name(ACCEL_KVM), "kvm");
}

static void test_tsc(void **state)
{
	uint64_t a = engine_tsc_khz(), b = engine_tsc_khz();

	(void)state;
	print_message("tsc: %llu kHz\n", (unsigned long long)a);
	/* Twice the same within a tenth of a percent, or twice "not constant". */
	assert_in_range(b, a - a / 1000, a + a / 1000);
}

/* -- probe ------------------------------------------------------------------------------------- */

static char script[200];

/* A program that answers as the real one would. */
static const char *fake_qemu(const char *version, const char *accels)
{
	char text[400];
	int n = snprintf(text, sizeof(text), "#!/bin/sh\ncase $1 in --version) %s;; -accel) %s;; esac\n", version,
			 accels);

	snprintf(script, sizeof(script), "%s/test_qemu.%d", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp",
		 (int)getpid());
	unlink(script);
	assert_int_equal(fd_replace(AT_FDCWD, script, text, (size_t)n, 0755, false), 0);
	return script;
}

static void test_probe(void **state)
{
	struct engine_info info;
	struct err e = { 0 };

	(void)state;
	assert_int_equal(engine_qemu.probe(fake_qemu("echo 'QEMU emulator version 8.2.1 (Debian 1:8)'",
						     "printf 'Accelerators supported in QEMU binary:\\ntcg\\nkvm\\n'"),
					   &info, &e),
			 0);
	assert_string_equal(info.name, "qemu");
	assert_string_equal(info.version, "8.2.1");
	assert_string_equal(info.path, script);
	assert_int_equal(info.caps & ENGINE_CAP_NET ? 1 : 0,
			 access("/dev/net/tun", F_OK) == 0); /* where it is, it works */
	assert_int_equal(info.caps & ~(unsigned)ENGINE_CAP_NET,
			 ENGINE_CAP_PAUSE | ENGINE_CAP_SAVE_STATE | ENGINE_CAP_TCG | ENGINE_CAP_KVM);
	assert_int_equal(strlen(info.cpu_vendor), 12); /* "AuthenticAMD", "GenuineIntel", … */
	assert_int_equal(engine_qemu.probe(fake_qemu("echo version 7.2", "echo kvm"), &info, &e), 0);
	assert_int_equal(info.caps & (ENGINE_CAP_TCG | ENGINE_CAP_KVM), ENGINE_CAP_KVM);
	unlink(script);
}

static void test_probe_enoent(void **state)
{
	struct engine_info info;
	struct err e = { 0 };

	(void)state;
	assert_int_equal(engine_qemu.probe("/nonexistent/qemu", &info, &e), -ENOENT);
	assert_non_null(strstr(e.msg, "apt-get install qemu-system-x86"));
}

static void test_probe_enosys_and_eio(void **state)
{
	struct engine_info info;
	struct err e = { 0 };

	(void)state;
	assert_int_equal(engine_qemu.probe(fake_qemu("echo version 7.1.9", "echo tcg"), &info, &e), -ENOSYS);
	assert_non_null(strstr(e.msg, "7.1.9 is too old"));
	assert_int_equal(engine_qemu.probe(fake_qemu("echo hello", "echo tcg"), &info, &e), -EIO);
	assert_int_equal(engine_qemu.probe(fake_qemu("echo cannot 1>&2; exit 1", "echo tcg"), &info, &e), -EIO);
	assert_non_null(strstr(e.msg, "cannot"));
	assert_int_equal(engine_qemu.probe(fake_qemu("echo version 9.0", "echo hvf"), &info, &e), -EIO);
	assert_int_equal(engine_qemu.probe(fake_qemu("yes", "echo tcg"), &info, &e), -EIO); /* without end */
	unlink(script);
}

/* -- the calls --------------------------------------------------------------------------------- */

struct fix {
	struct loop *loop;
	struct engine *engine;
	int far;
	char events[512]; /* numbers and words of what came */
	int up, gone, done, code;
	char words[320];
	bool free_in_event;
};

static void on_event(void *arg, enum engine_event ev, const char *detail)
{
	struct fix *f = arg;

	snprintf(f->events + strlen(f->events), sizeof(f->events) - strlen(f->events), "%d:%s;", ev, detail);
	f->up += ev == ENGINE_EV_UP;
	f->gone += ev == ENGINE_EV_GONE;
	if (f->free_in_event)
		f->engine = engine_qemu.free(f->engine);
}

static void on_done(void *arg, int code, const struct err *e)
{
	struct fix *f = arg;

	f->done++;
	f->code = code;
	snprintf(f->words, sizeof(f->words), "%s", e ? e->msg : "");
}

static void until(struct fix *f, const int *n, int want)
{
	uint64_t end = now_ns() + 20000000000ull;

	while (*n < want && now_ns() < end)
		assert_int_equal(loop_once(f->loop, 50), 0);
	assert_true(*n >= want);
}

static void connect_to(struct fix *f, int fd, bool is_generic)
{
	static const struct engine_events events = { .on_event = on_event };
	struct err e = { 0 };

	assert_int_equal(engine_qemu.connect(f->loop, fd, is_generic, &events, f, &f->engine, &e), 0);
}

static struct fix *fake_of(bool is_generic)
{
	struct fix *f = calloc(1, sizeof(*f));
	int pair[2];

	assert_int_equal(loop_new(&f->loop), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	f->far = pair[1];
	connect_to(f, pair[0], is_generic);
	return f;
}

static struct fix *fake(void)
{
	return fake_of(false);
}

static void say(struct fix *f, const char *text)
{
	assert_int_equal(send(f->far, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* The next command's name, and its id for the answer. */
static unsigned long long hear(struct fix *f, const char *want)
{
	char text[4096];
	uint64_t end = now_ns() + 5000000000ull;
	ssize_t n = -1;

	while (n < 0 && now_ns() < end) {
		loop_once(f->loop, 1);
		n = recv(f->far, text, sizeof(text) - 1, MSG_DONTWAIT);
	}
	assert_true(n > 0);
	text[n] = '\0';
	if (!strstr(text, want))
		fail_msg("%s, not %s", text, want);
	return strtoull(strstr(text, "\"id\":") + 5, NULL, 10);
}

static void answer(struct fix *f, unsigned long long id, const char *what)
{
	char text[256];

	snprintf(text, sizeof(text), "{%s,\"id\":%llu}\n", what, id);
	say(f, text);
}

static struct fix *fake_up_of(bool is_generic)
{
	struct fix *f = fake_of(is_generic);

	say(f, "{\"QMP\":{}}\n");
	answer(f, hear(f, "qmp_capabilities"), "\"return\":{}");
	until(f, &f->up, 1);
	f->events[0] = '\0';
	return f;
}

static struct fix *fake_up(void)
{
	return fake_up_of(false);
}

static void over(struct fix *f)
{
	f->engine = engine_qemu.free(f->engine);
	assert_null(engine_qemu.free(NULL));
	fd_close(&f->far);
	loop_free(f->loop);
	free(f);
}

static void test_states(void **state)
{
	struct fix *f = fake();

	(void)state;
	assert_int_equal(engine_qemu.pause(f->engine, 1000, on_done, f), -EBUSY); /* connecting */
	say(f, "{\"QMP\":{}}\n");
	answer(f, hear(f, "qmp_capabilities"), "\"return\":{}");
	until(f, &f->up, 1);
	assert_int_equal(engine_qemu.resume(f->engine, 1000, on_done, f), -EBUSY);
	assert_int_equal(engine_qemu.save(f->engine, 0, 1000, on_done, f), -EBUSY);
	assert_int_equal(engine_qemu.pause(f->engine, 1000, on_done, f), 0);
	assert_int_equal(engine_qemu.pause(f->engine, 1000, on_done, f), -EBUSY); /* one at a time */
	say(f, "{\"event\":\"STOP\"}\n");
	answer(f, hear(f, "\"stop\""), "\"return\":{}");
	until(f, &f->done, 1);
	assert_int_equal(f->code, 0);
	assert_int_equal(engine_qemu.pause(f->engine, 1000, on_done, f), -EBUSY); /* it is */
	assert_int_equal(engine_qemu.resume(f->engine, 1000, on_done, f), 0);
	say(f, "{\"event\":\"RESUME\"}\n");
	answer(f, hear(f, "\"cont\""), "\"return\":{}");
	until(f, &f->done, 2);
	assert_int_equal(engine_qemu.quit(f->engine), 0);
	hear(f, "\"quit\"");
	fd_close(&f->far);
	until(f, &f->gone, 1);
	assert_int_equal(engine_qemu.pause(f->engine, 1000, on_done, f), -EPIPE);
	assert_int_equal(engine_qemu.quit(f->engine), -EPIPE);
	over(f);
}

static void test_events(void **state)
{
	struct fix *f = fake_up();
	char want[512];

	(void)state;
	say(f, "{\"event\":\"SHUTDOWN\",\"data\":{\"guest\":true,\"reason\":\"guest-shutdown\"}}\n"
	       "{\"event\":\"SHUTDOWN\",\"data\":{\"reason\":\"odd\\u0007one\"}}\n{\"event\":\"SHUTDOWN\"}\n"
	       "{\"event\":\"GUEST_PANICKED\",\"data\":{}}\n{\"event\":\"VSERPORT_CHANGE\",\"data\":{}}\n"
	       "{\"event\":\"BLOCK_IO_ERROR\",\"data\":{\"nospace\":true}}\n"
	       "{\"event\":\"BLOCK_IO_ERROR\",\"data\":{\"operation\":\"read\",\"reason\":\"bad\\nsector\"}}\n");
	fd_close(&f->far);
	until(f, &f->gone, 1);
	snprintf(
		want, sizeof(want),
		"%d:the guest powered off;%d:odd?one;%d:;%d:the guest's kernel panicked;"
		"%d:the host's disk is full: the machine is paused; make room and resume it;%d:the disk failed on a read: bad?sector;"
		"%d:its monitor closed;",
		ENGINE_EV_SHUTDOWN, ENGINE_EV_SHUTDOWN, ENGINE_EV_SHUTDOWN, ENGINE_EV_PANICKED, ENGINE_EV_IO_ERROR,
		ENGINE_EV_IO_ERROR, ENGINE_EV_GONE);
	assert_string_equal(f->events, want);
	over(f);
}

static void test_etimedout_is_stuck(void **state)
{
	struct fix *f = fake_up();

	(void)state;
	assert_int_equal(engine_qemu.pause(f->engine, 10, on_done, f), 0);
	until(f, &f->done, 1);
	assert_int_equal(f->code, -ETIMEDOUT);
	assert_int_equal(f->events[0] - '0', ENGINE_EV_STUCK);
	/* It may be asked again. */
	assert_int_equal(engine_qemu.pause(f->engine, 1000, on_done, f), 0);
	over(f);
}

static void pause_fake(struct fix *f)
{
	int done = f->done;

	assert_int_equal(engine_qemu.pause(f->engine, 5000, on_done, f), 0);
	say(f, "{\"event\":\"STOP\"}\n");
	answer(f, hear(f, "stop"), "\"return\":{}");
	until(f, &f->done, done + 1);
}

static void test_save_step_by_step(void **state)
{
	struct fix *f = fake_up();
	int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

	(void)state;
	pause_fake(f);
	assert_int_equal(engine_qemu.save(f->engine, fd, 5000, on_done, f), 0);
	answer(f, hear(f, "x-ignore-shared"), "\"return\":{}");
	answer(f, hear(f, "getfd"), "\"return\":{}");
	answer(f, hear(f, "fd:state"), "\"return\":{}");
	answer(f, hear(f, "query-migrate"), "\"return\":{\"status\":\"active\"}");
	answer(f, hear(f, "query-migrate"), "\"return\":{\"status\":\"completed\"}");
	until(f, &f->done, 2);
	assert_int_equal(f->code, 0);
	/* Refused at a step, and failed at the end. */
	assert_int_equal(engine_qemu.save(f->engine, fd, 5000, on_done, f), 0);
	answer(f, hear(f, "x-ignore-shared"), "\"error\":{\"desc\":\"no such capability\"}");
	until(f, &f->done, 3);
	assert_int_equal(f->code, -EIO);
	assert_non_null(strstr(f->words, "no such capability"));
	assert_int_equal(engine_qemu.save(f->engine, fd, 5000, on_done, f), 0);
	answer(f, hear(f, "x-ignore-shared"), "\"return\":{}");
	answer(f, hear(f, "getfd"), "\"return\":{}");
	answer(f, hear(f, "fd:state"), "\"return\":{}");
	answer(f, hear(f, "query-migrate"), "\"return\":{\"status\":\"failed\",\"error-desc\":\"broken pipe\"}");
	until(f, &f->done, 4);
	assert_non_null(strstr(f->words, "broken pipe"));
	close(fd);
	over(f);
}

static void test_gone_in_mid_save(void **state)
{
	struct fix *f = fake_up();

	(void)state;
	pause_fake(f);
	assert_int_equal(engine_qemu.save(f->engine, 0, 5000, on_done, f), 0);
	hear(f, "x-ignore-shared");
	fd_close(&f->far);
	until(f, &f->gone, 1);
	assert_int_equal(f->done, 2);
	assert_int_equal(f->code, -EPIPE);
	over(f);
}

/* Between two questions no command is under way: the call ends all the same, and once. */
static void test_gone_between_two_questions(void **state)
{
	struct fix *f = fake_up();

	(void)state;
	pause_fake(f);
	assert_int_equal(engine_qemu.save(f->engine, 0, 5000, on_done, f), 0);
	answer(f, hear(f, "x-ignore-shared"), "\"return\":{}");
	answer(f, hear(f, "getfd"), "\"return\":{}");
	answer(f, hear(f, "fd:state"), "\"return\":{}");
	answer(f, hear(f, "query-migrate"), "\"return\":{\"status\":\"active\"}");
	fd_close(&f->far);
	until(f, &f->gone, 1);
	assert_int_equal(f->done, 2);
	assert_int_equal(f->code, -EPIPE);
	over(f);
}

static void test_a_generic_one_step_by_step(void **state)
{
	struct fix *f = fake_up_of(true);
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	(void)state;
	assert_int_equal(engine_qemu.pause(f->engine, 5000, on_done, f), -EBUSY);
	assert_int_equal(engine_qemu.resume(f->engine, 5000, on_done, f), -EBUSY);
	assert_int_equal(engine_qemu.save(f->engine, fd, 5000, on_done, f), -EBUSY);
	assert_int_equal(engine_qemu.load(f->engine, fd, 5000, on_done, f), -EBUSY); /* no disk yet */
	assert_int_equal(engine_qemu.assign_disk(f->engine, "a\",\"b", 5000, on_done, f), -EINVAL);
	assert_int_equal(engine_qemu.assign_disk(f->engine, "", 5000, on_done, f), -EINVAL);
	assert_int_equal(engine_qemu.assign_disk(f->engine, "m-2", 5000, on_done, f), 0);
	assert_int_equal(engine_qemu.assign_disk(f->engine, "m-3", 5000, on_done, f), -EBUSY);
	answer(f,
	       hear(f, "\"execute\":\"blockdev-add\",\"id\":2,\"arguments\":{\"driver\":\"nbd\",\"node-name\":\"nbd0\","
		       "\"server\":{\"type\":\"unix\",\"path\":\"/run/blocks/nbd.sock\"},\"export\":\"m-2\","
		       "\"reconnect-delay\":30,\"discard\":\"unmap\"}}"),
	       "\"return\":{}");
	answer(f,
	       hear(f, "\"execute\":\"blockdev-reopen\",\"id\":3,\"arguments\":{\"options\":[{\"driver\":\"raw\","
		       "\"node-name\":\"disk0\",\"file\":\"nbd0\",\"discard\":\"unmap\",\"detect-zeroes\":\"off\"}]}}"),
	       "\"return\":{}");
	until(f, &f->done, 1);
	assert_int_equal(f->code, 0);
	assert_int_equal(engine_qemu.assign_disk(f->engine, "m-3", 5000, on_done, f), -EBUSY); /* it has one */

	assert_int_equal(engine_qemu.load(f->engine, fd, 5000, on_done, f), 0);
	assert_int_equal(engine_qemu.load(f->engine, fd, 5000, on_done, f), -EBUSY);
	answer(f, hear(f, "x-ignore-shared"), "\"return\":{}");
	answer(f, hear(f, NO_ANNOUNCEMENTS), "\"return\":{}");
	answer(f, hear(f, "getfd"), "\"return\":{}");
	answer(f, hear(f, "\"migrate-incoming\",\"id\":7,\"arguments\":{\"uri\":\"fd:state\"}"), "\"return\":{}");
	answer(f, hear(f, "query-status"), "\"return\":{\"status\":\"inmigrate\",\"running\":false}");
	answer(f, hear(f, "query-status"), "\"return\":{\"status\":\"paused\",\"running\":false}");
	until(f, &f->done, 2);
	assert_int_equal(f->code, 0);
	assert_int_equal(engine_qemu.load(f->engine, fd, 5000, on_done, f), -EBUSY);
	assert_int_equal(engine_qemu.resume(f->engine, 5000, on_done, f), 0); /* paused, like any other */
	say(f, "{\"event\":\"RESUME\"}\n");
	answer(f, hear(f, "\"cont\""), "\"return\":{}");
	until(f, &f->done, 3);
	pause_fake(f);
	close(fd);
	over(f);
}

static void test_a_generic_one_refused(void **state)
{
	struct fix *f = fake_up_of(true);
	int pair[2];

	(void)state;
	assert_int_equal(engine_qemu.assign_disk(f->engine, "m", 5000, on_done, f), 0);
	answer(f, hear(f, "blockdev-add"), "\"error\":{\"desc\":\"no such export\"}");
	until(f, &f->done, 1);
	assert_int_equal(f->code, -EIO);
	assert_non_null(strstr(f->words, "no such export"));
	assert_int_equal(engine_qemu.assign_disk(f->engine, "m", 5000, on_done, f), 0);
	answer(f, hear(f, "blockdev-add"), "\"return\":{}");
	answer(f, hear(f, "blockdev-reopen"), "\"return\":{}");
	until(f, &f->done, 2);
	assert_int_equal(engine_qemu.load(f->engine, -1, 5000, on_done, f), -EBADF);
	/* A state that was saved from a machine that no one can go on with. */
	assert_int_equal(pipe(pair), 0);
	assert_int_equal(engine_qemu.load(f->engine, pair[0], 5000, on_done, f), 0);
	answer(f, hear(f, "x-ignore-shared"), "\"return\":{}");
	answer(f, hear(f, NO_ANNOUNCEMENTS), "\"return\":{}");
	answer(f, hear(f, "getfd"), "\"return\":{}");
	answer(f, hear(f, "migrate-incoming"), "\"return\":{}");
	answer(f, hear(f, "query-status"), "\"return\":{\"status\":\"internal-error\",\"running\":false}");
	until(f, &f->done, 3);
	assert_int_equal(f->code, -EIO);
	assert_non_null(strstr(f->words, "internal-error"));
	/* An answer without a status; and an engine that goes. */
	assert_int_equal(engine_qemu.load(f->engine, pair[0], 5000, on_done, f), 0);
	answer(f, hear(f, "x-ignore-shared"), "\"return\":{}");
	answer(f, hear(f, NO_ANNOUNCEMENTS), "\"return\":{}");
	answer(f, hear(f, "getfd"), "\"return\":{}");
	answer(f, hear(f, "migrate-incoming"), "\"return\":{}");
	answer(f, hear(f, "query-status"), "\"return\":{}");
	until(f, &f->done, 4);
	assert_int_equal(f->code, -EIO);
	assert_int_equal(engine_qemu.load(f->engine, pair[0], 5000, on_done, f), 0);
	fd_close(&f->far);
	until(f, &f->gone, 1);
	assert_int_equal(f->done, 5);
	assert_int_equal(f->code, -EPIPE);
	assert_int_equal(engine_qemu.load(f->engine, pair[0], 5000, on_done, f), -EPIPE);
	assert_int_equal(engine_qemu.assign_disk(f->engine, "m", 5000, on_done, f), -EPIPE);
	close(pair[0]);
	close(pair[1]);
	over(f);
}

static void test_free_inside_of_an_event(void **state)
{
	struct fix *f = fake_up();
	uint64_t end = now_ns() + 5000000000ull;

	(void)state;
	f->free_in_event = true;
	say(f, "{\"event\":\"STOP\"}\n{\"event\":\"RESUME\"}\n");
	while (f->engine && now_ns() < end)
		loop_once(f->loop, 50);
	assert_null(f->engine);
	assert_int_equal(loop_once(f->loop, 0), 0);
	over(f);
}

/* -- the real one (see test_engine.c for whole machines) ---------------------------------------- */

static void skip_because(const char *why)
{
	const char *must = getenv("CRUCIBLE_MUST_RUN");

	if (must && strcmp(must, "1") == 0)
		fail_msg("may not be skipped: %s", why);
	fprintf(stderr, "skipped: %s\n", why);
	skip();
}

static void test_real_pause_save_quit(void **state)
{
	static char *argv[] = { (char *)"qemu-system-x86_64",
				(char *)"-M",
				(char *)"none",
				(char *)"-nodefaults",
				(char *)"-display",
				(char *)"none",
				(char *)"-chardev",
				(char *)"socket,id=m,fd=3",
				(char *)"-mon",
				(char *)"chardev=m,mode=control",
				NULL };
	struct proc_spec spec = PROC_SPEC_INIT;
	struct engine_info info;
	struct err e = { 0 };
	struct fix *f;
	char path[200];
	int pair[2], fd, status;
	pid_t pid;

	(void)state;
	if (engine_qemu.probe(NULL, &info, &e) < 0)
		skip_because(e.msg);
	f = calloc(1, sizeof(*f));
	f->far = -1;
	assert_int_equal(loop_new(&f->loop), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	spec.name = "qemu";
	spec.path = info.path;
	spec.argv = argv;
	spec.stdio[2] = 2;
	spec.fds = &pair[1];
	spec.nfds = 1;
	if (proc_spawn(&spec, &pid, NULL, &e) < 0)
		fail_msg("%s", e.msg);
	close(pair[1]);
	connect_to(f, pair[0], false);
	until(f, &f->up, 1);
	assert_int_equal(engine_qemu.pause(f->engine, 10000, on_done, f), 0);
	until(f, &f->done, 1);
	assert_int_equal(f->code, 0);
	snprintf(path, sizeof(path), "%s/test_qemu.state.%d", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp",
		 (int)getpid());
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	unlink(path);
	assert_int_equal(engine_qemu.save(f->engine, fd, 10000, on_done, f), 0);
	until(f, &f->done, 2);
	if (f->code < 0)
		fail_msg("%s", f->words);
	assert_true(lseek(fd, 0, SEEK_END) > 4);
	assert_int_equal(pread(fd, path, 4, 0), 4);
	assert_memory_equal(path, "QEVM", 4);
	assert_int_equal(engine_qemu.quit(f->engine), 0);
	until(f, &f->gone, 1);
	assert_int_equal(proc_wait(pid, &status), 0);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(fd);
	over(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden_tcg),
		cmocka_unit_test(test_golden_kvm_without_disk),
		cmocka_unit_test(test_golden_generic),
		cmocka_unit_test(test_fingerprint),
		cmocka_unit_test(test_command_einval),
		cmocka_unit_test(test_classes),
		cmocka_unit_test(test_tsc),
		cmocka_unit_test(test_probe),
		cmocka_unit_test(test_probe_enoent),
		cmocka_unit_test(test_probe_enosys_and_eio),
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_etimedout_is_stuck),
		cmocka_unit_test(test_save_step_by_step),
		cmocka_unit_test(test_gone_in_mid_save),
		cmocka_unit_test(test_gone_between_two_questions),
		cmocka_unit_test(test_a_generic_one_step_by_step),
		cmocka_unit_test(test_a_generic_one_refused),
		cmocka_unit_test(test_free_inside_of_an_event),
		cmocka_unit_test(test_real_pause_save_quit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
