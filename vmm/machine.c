/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * The machine is QEMU's microvm: no PCI, no firmware to speak of, devices on virtio-mmio that the guest finds through
 * ACPI. What the guest sees must not depend on the host, or a snapshot could not move: CPU model, device order, ids,
 * port numbers and memory size are all written out here, and nothing comes from a default or a configuration file
 * (-nodefaults -no-user-config). Everything that the process touches is an inherited descriptor (engine.h, enum
 * engine_fd):
 *
 *   3 monitor, 4 control, 5 bulk   sockets, taken as they are by -chardev socket,fd=
 *   6 console                      handed to QEMU as a descriptor set and opened as /dev/fdset/N, because -chardev file
 *                                  does not take a bare number
 *   7 memory                       the preload library's; QEMU knows nothing of it
 *   8 net                          the tap, made by the launcher: QEMU may make none
 *
 * The only paths are the kernel, the initramfs and the block server's socket. RAM is a memfd and shared, as far as QEMU
 * knows, so that migration leaves it out (x-ignore-shared); the preload library makes the mapping private.
 *
 * A machine is booted cold (a kernel, its disk from the start) or generic (no kernel, a placeholder for its disk, waits
 * for a state). Both have the same devices in the same order with the same ids, so what was saved from either loads
 * into a generic one. Where QEMU looks at names, they are those of devices; the nodes below `disk0` may differ. The
 * disk has one size, and says its geometry: else virtio-blk would guess it from the placeholder's first sector.
 *
 * microvm has no hotplug, so each machine has its network device, and what is behind it is there from the start, too: a
 * tap in the engine's own namespace, which is down until the sandbox is allowed something, and the guest has no driver
 * loaded for it. On a host without taps a hub with nobody else takes its place. The guest sees which by the offloads of
 * its card, so a state saved with the tap does not load without (QEMU says so).
 *
 * CPU model. TCG: `max`: whatever QEMU can emulate; it does not depend on the host. KVM: `Nehalem`, version 1: exactly
 * the features of x86-64-v2 (cx16 lahf_lm popcnt sse3 sse4.1 sse4.2 ssse3), which every host of the last ten years has,
 * Intel or AMD (QEMU keeps the host's vendor); less vme, which no 64-bit guest uses and the only one that QEMU's own
 * `max` lacks, so that it also runs under KVM nested in a TCG machine. `enforce`: a host that lacks a feature is
 * refused by the trial boot in words, rather than given a machine of another shape. `host` would tie each snapshot to
 * one generation of CPUs.
 */
#include "vmm/machine.h"

#include <assert.h>
#include <cpuid.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

#include "agent/proto.h"
#include "base/fd.h"

static const char *const accel_name[] = { [ACCEL_TCG] = "tcg", [ACCEL_KVM] = "kvm" };
static_assert(ARRAY_LEN(accel_name) == ACCEL_COUNT, "an accelerator without a name");

const char *engine_accel_name(enum engine_accel a)
{
	return a < ACCEL_COUNT ? accel_name[a] : "?";
}

static uint32_t class_of(const uint32_t *classes, size_t n, uint32_t want)
{
	for (size_t i = 0; i < n; i++)
		if (want <= classes[i])
			return classes[i];
	return 0;
}

uint32_t engine_memory_class(uint32_t memory_mib)
{
	static const uint32_t classes[] = { 256, 512, 1024, 2048, 4096 };

	return class_of(classes, ARRAY_LEN(classes), memory_mib);
}

uint32_t engine_vcpus_class(uint32_t vcpus)
{
	static const uint32_t classes[] = { 1, 2, 4 };

	return class_of(classes, ARRAY_LEN(classes), vcpus);
}

/* -- the clock --------------------------------------------------------------------------------- */

struct tsc_sample {
	uint64_t tsc, ns;
};

/* Both clocks at one instant: of several tries, the one whose two readings of the clock lie closest together. */
static struct tsc_sample tsc_sample(void)
{
	struct tsc_sample best = { 0 };
	uint64_t best_gap = UINT64_MAX;

	for (int i = 0; i < 20; i++) {
		uint64_t before = now_ns();
		uint64_t tsc = __rdtsc();
		uint64_t gap = now_ns() - before;

		if (gap < best_gap) {
			best_gap = gap;
			best = (struct tsc_sample){ tsc, before + gap / 2 };
		}
	}
	return best;
}

uint64_t engine_tsc_khz(void)
{
	const struct timespec pause = { .tv_nsec = 200 * 1000 * 1000 };
	struct tsc_sample a, b;
	unsigned int eax, ebx, ecx, edx;

	/* Invariant TSC: it ticks at one rate in every power state. */
	if (!__get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx) || !(edx & (1u << 8)))
		return 0;
	a = tsc_sample();
	nanosleep(&pause, NULL); /* cut short by a signal it measures a shorter while, no worse */
	b = tsc_sample();
	if (b.ns <= a.ns || b.tsc <= a.tsc)
		return 0;
	return (uint64_t)((__uint128_t)(b.tsc - a.tsc) * 1000000u / (b.ns - a.ns));
}

/* -- the command line -------------------------------------------------------------------------- */

/* Where the arguments are written. The first one that does not fit sets `full`; it is asked for once, at the end. */
struct args {
	struct engine_command *cmd;
	size_t used;
	bool full;
};

static void __attribute__((format(printf, 2, 3))) arg(struct args *a, const char *fmt, ...)
{
	size_t room = sizeof(a->cmd->text) - a->used;
	va_list ap;
	int n;

	if (a->full || a->cmd->argc == ENGINE_ARGS_MAX) {
		a->full = true;
		return;
	}
	va_start(ap, fmt);
	n = vsnprintf(a->cmd->text + a->used, room, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= room) {
		a->full = true;
		return;
	}
	a->cmd->argv[a->cmd->argc++] = a->cmd->text + a->used;
	a->used += (size_t)n + 1;
}

#define opt(a, name, ...) (arg(a, "%s", name), arg(a, __VA_ARGS__))

/* With erms and fsrm the guest's kernel copies by "rep movsb", which TCG emulates byte by byte: off, it copies twice as
 * fast. */
static const char *const cpu_model[] = {
	[ACCEL_TCG] = "max,erms=off,fsrm=off",
	[ACCEL_KVM] = "Nehalem-v1,vme=off,enforce",
};
static_assert(ARRAY_LEN(cpu_model) == ACCEL_COUNT, "an accelerator without a CPU model");

static void add_accel(struct args *a, const struct engine_machine *m)
{
	if (m->accel == ACCEL_KVM) {
		opt(a, "-accel", "kvm");
	} else {
		/* tb-size: the default of 1 GiB of translated code is a gift to nobody; below 64 MiB python thrashes.
		 */
		opt(a, "-accel", "tcg,thread=multi,tb-size=128");
	}
	opt(a, "-cpu", "%s", cpu_model[m->accel]);
}

static void add_kernel(struct args *a, const struct engine_machine *m)
{
	char tsc[56] = "", root[64] = "";

	/* Under TCG the kernel calibrates the TSC against an emulated timer, and on a busy host it then hangs for ever.
	 * Later it would check the TSC, which is the host's, against ticks that a busy host loses, and go on with
	 * those: a clock at half the speed, in every fork of that machine, too. Under KVM it must measure: nested, the
	 * number is not true of it, and a guest that may not find that out waits far too long for its devices. */
	if (m->tsc_khz > 0)
		snprintf(tsc, sizeof(tsc), " tsc_early_khz=%llu%s", (unsigned long long)m->tsc_khz,
			 m->accel == ACCEL_TCG ? " tsc=reliable" : "");
	if (m->disk)
		snprintf(root, sizeof(root), " crucible.root=vda crucible.rootfs=ext4");
	opt(a, "-kernel", "%s", m->kernel);
	opt(a, "-initrd", "%s", m->initrd);
	opt(a, "-append", "console=ttyS0 quiet panic=-1%s%s%s%s", tsc, root, m->append ? " " : "",
	    m->append ? m->append : "");
}

static void add_incoming(struct args *a)
{
	opt(a, "-incoming", "defer");
	/* It stays paused after the load, whatever it was when it was saved. */
	arg(a, "-S");
}

static void add_ports(struct args *a)
{
	opt(a, "-chardev", "socket,id=monitor,fd=%d", 3 + ENGINE_FD_MONITOR);
	opt(a, "-mon", "chardev=monitor,mode=control");

	/* A pipe's write end. It is non-blocking in QEMU: a console that nobody drains stalls the guest's printing, not
	 * the machine. */
	opt(a, "-add-fd", "fd=%d,set=%d", 3 + ENGINE_FD_CONSOLE, ENGINE_FD_CONSOLE);
	opt(a, "-chardev", "file,id=console,path=/dev/fdset/%d,append=on", ENGINE_FD_CONSOLE);
	opt(a, "-serial", "chardev:console");

	/* nr: the guest has no udev, so /dev/vport0p1 and /dev/vport0p2 are all that names them. */
	opt(a, "-chardev", "socket,id=control,fd=%d", 3 + ENGINE_FD_CONTROL);
	opt(a, "-chardev", "socket,id=bulk,fd=%d", 3 + ENGINE_FD_BULK);
	opt(a, "-device", "virtio-serial-device,id=ports,max_ports=3");
	opt(a, "-device", "virtserialport,bus=ports.0,nr=1,chardev=control,name=control,id=port1");
	opt(a, "-device", "virtserialport,bus=ports.0,nr=2,chardev=bulk,name=bulk,id=port2");
}

static void add_disk(struct args *a, const struct engine_machine *m)
{
	const char *below = MACHINE_PLACEHOLDER;

	/* reconnect-delay: a block server that is restarted is not seen by the guest. */
	if (m->kernel) {
		opt(a, "-blockdev",
		    "driver=nbd,node-name=" MACHINE_BLOCKS ",server.type=unix,server.path=" ENGINE_BLOCKS_PATH
		    ",export=%s,reconnect-delay=" MACHINE_RECONNECT_S ",discard=unmap",
		    m->disk_export);
		below = MACHINE_BLOCKS;
	} else {
		opt(a, "-blockdev", "driver=null-co,node-name=" MACHINE_PLACEHOLDER ",size=%llu",
		    (unsigned long long)ENGINE_DISK_BYTES);
	}
	opt(a, "-blockdev", "driver=raw,node-name=" MACHINE_DISK ",file=%s,discard=unmap,detect-zeroes=off", below);
	/* A full host stops the machine (ENGINE_EV_IO_ERROR) instead of breaking the guest's file system: room is made,
	 * it goes on. */
	opt(a, "-device",
	    "virtio-blk-device,drive=" MACHINE_DISK ",id=vd0,cyls=16383,heads=16,secs=63,werror=enospc,rerror=report");
}

static void add_net(struct args *a, const struct engine_machine *m)
{
	if (m->net)
		opt(a, "-netdev", "tap,id=" MACHINE_TAP ",fd=%d,vhost=off", 3 + ENGINE_FD_NET);
	else
		opt(a, "-netdev", "hubport,id=" MACHINE_TAP ",hubid=0");
	/* No link state and no announcements: the tap is there for life, and nobody learns from a fork's announcement
	 * where its addresses are now. Each of them is a guest's first packet in cold translated code; and the kernel
	 * takes up to a second to believe a link, then tells all multicast groups of it again, in whatever fork runs by
	 * then. */
	opt(a, "-device",
	    "virtio-net-device,id=net0,netdev=" MACHINE_TAP ",mac=" MACHINE_MAC ",status=off,guest_announce=off");
}

bool machine_export_name(const char *s)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
	size_t n = s ? strspn(s, allowed) : 0;

	return n > 0 && n <= MACHINE_EXPORT_MAX && s[n] == '\0';
}

/* Cold: a kernel and an initramfs; generic: neither. */
static int check_boot(const struct engine_machine *m, struct err *e)
{
	if (!m->kernel && !m->initrd)
		return m->append ? err_set(e, -EINVAL, "machine: words for a kernel, but none to boot") : 0;
	if (!m->kernel || !*m->kernel || !m->initrd || !*m->initrd)
		return err_set(e, -EINVAL, "machine: no kernel or no initramfs");
	if (m->disk && !machine_export_name(m->disk_export))
		return err_set(e, -EINVAL, "machine: a disk without a name at the block server");
	return 0;
}

int machine_command(const struct engine_machine *m, struct engine_command *ret, struct err *e)
{
	struct args a = { .cmd = ret };
	int r;

	if (m->accel >= ACCEL_COUNT)
		return err_set(e, -EINVAL, "machine: no such accelerator");
	if (m->memory_mib == 0 || engine_memory_class(m->memory_mib) != m->memory_mib)
		return err_set(e, -EINVAL, "machine: %u MiB is no memory class", m->memory_mib);
	if (m->vcpus == 0 || engine_vcpus_class(m->vcpus) != m->vcpus)
		return err_set(e, -EINVAL, "machine: %u is no number of vCPUs", m->vcpus);
	r = check_boot(m, e);
	if (r < 0)
		return r;

	ret->argc = 0;
	arg(&a, "qemu-system-x86_64");
	/* acpi: the guest finds virtio-mmio through it. The PIT, the PIC and the RTC stay on under TCG (QEMU's choice).
	 */
	opt(&a, "-M", "microvm,acpi=on,memory-backend=ram");
	add_accel(&a, m);
	opt(&a, "-m", "%uM", m->memory_mib);
	opt(&a, "-smp", "%u", m->vcpus);
	opt(&a, "-object", "memory-backend-memfd,id=ram,size=%uM,share=on", m->memory_mib);
	arg(&a, "-nodefaults");
	arg(&a, "-no-user-config");
	arg(&a, "-no-reboot");
	opt(&a, "-display", "none");
	opt(&a, "-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
	if (m->kernel)
		add_kernel(&a, m);
	else
		add_incoming(&a);
	add_ports(&a);
	opt(&a, "-object", "rng-builtin,id=entropy");
	opt(&a, "-device", "virtio-rng-device,rng=entropy,id=rng0");
	if (m->disk || !m->kernel)
		add_disk(&a, m);
	add_net(&a, m);
	/* deflate-on-oom: what it is asked to give up before a snapshot comes back sooner than a command is killed. */
	opt(&a, "-device", "virtio-balloon-device,id=balloon,deflate-on-oom=on");
	if (a.full)
		return err_set(e, -EINVAL, "machine: the command line does not fit");
	ret->argv[ret->argc] = NULL;
	return 0;
}

/* -- what a saved state depends on --------------------------------------------------------------- */

/* FNV-1a. It only has to tell shapes of ours apart; nobody gains by a collision. The NUL counts: "a" "b" is not "ab".
 */
static uint64_t hash_text(uint64_t h, const char *text)
{
	do
		h = (h ^ (unsigned char)*text) * 0x100000001b3u;
	while (*text++);
	return h;
}

/* Of a command line, what the guest sees; what is behind its devices may change under a saved state. */
static uint64_t hash_shape(const struct engine_command *c)
{
	static const char *const seen[] = { "-M", "-cpu", "-m", "-smp", "-device" };
	uint64_t h = 0xcbf29ce484222325u;

	for (size_t i = 0; i + 1 < c->argc; i++)
		for (size_t k = 0; k < ARRAY_LEN(seen); k++)
			if (strcmp(c->argv[i], seen[k]) == 0)
				h = hash_text(hash_text(h, c->argv[i]), c->argv[i + 1]);
	return h;
}

void machine_cpu_vendor(char *ret)
{
	unsigned int max, part[3];

	ret[0] = '\0';
	if (!__get_cpuid(0, &max, &part[0], &part[2], &part[1]))
		return;
	memcpy(ret, part, sizeof(part));
	ret[sizeof(part)] = '\0';
}

int engine_fingerprint(const struct engine_info *i, const struct engine_machine *m, char *ret, size_t cap)
{
	struct engine_machine generic = { .accel = m->accel, .memory_mib = m->memory_mib, .vcpus = m->vcpus };
	size_t minor = strcspn(i->version, ".");
	const char *vendor = m->accel == ACCEL_KVM ? i->cpu_vendor : "";
	struct engine_command c = { .argc = 0 };
	int n;

	if (!i->version[minor] || machine_command(&generic, &c, NULL) < 0)
		return -EINVAL;
	minor += 1 + strcspn(i->version + minor + 1, ".");
	/* The CPU model leaves out what is not in all of them, but not who made it: errata, MSRs, how TSC and SYSCALL
	 * behave are the vendor's. */
	n = snprintf(ret, cap, "%s-%.*s %016llx %s%s%s agent-%u", i->name, (int)minor, i->version,
		     (unsigned long long)hash_shape(&c), cpu_model[m->accel], vendor[0] ? " " : "", vendor, AG_VERSION);
	return n < 0 || (size_t)n >= cap ? -EINVAL : 0;
}
