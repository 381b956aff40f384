/* SPDX-License-Identifier: Apache-2.0 */
/* QEMU as an engine: its command line, the fingerprint of it, and what the program says of itself. */
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

#define DISK	"-device\nvirtio-blk-device,drive=disk0,id=vd0,cyls=16383,heads=16,secs=63,werror=enospc,rerror=report\n"
#define BALLOON "-device\nvirtio-balloon-device,id=balloon,deflate-on-oom=on\n"
#define CARD \
	"-device\nvirtio-net-device,id=net0,netdev=tap0,mac=52:54:00:c0:00:01,status=off,guest_announce=off\n" BALLOON
#define NET "-netdev\ntap,id=tap0,fd=8,vhost=off\n" CARD
#define HUB "-netdev\nhubport,id=tap0,hubid=0\n" CARD

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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
