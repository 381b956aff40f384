/* SPDX-License-Identifier: Apache-2.0 */
#include "engine_rig.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/proto.h"
#include "base/confine.h"
#include "base/fd.h"
#include "base/proc.h"

#define PATIENCE_NS (60 * 1000000000ull)
#define CALL_MS	    20000u

static const char *env_or(const char *name, const char *other)
{
	const char *v = getenv(name);

	return v && *v ? v : other;
}

/* The absolute path, malloc'd; NULL: not there. The runner tells where the source tree is: it starts tests elsewhere.
 */
static char *find(const char *dir, const char *name)
{
	char path[1024];

	snprintf(path, sizeof(path), "%s/%s/%s", *dir == '/' ? "" : env_or("CRUCIBLE_TOP", "."), dir, name);
	return realpath(path, NULL);
}

/* -- the world --------------------------------------------------------------------------------- */

static void rig_drop(struct rig *r)
{
	free(r->kernel);
	free(r->initrd);
	free(r->image);
	free(r->library);
	free(r);
}

struct rig *rig_new(uint32_t memory_mib, uint32_t vcpus, uid_t uid, const char **why)
{
	static char words[320];
	const char *store = env_or("CRUCIBLE_TEST_STORE", "build/teststore");
	struct rig *r = calloc(1, sizeof(*r));
	struct err e = { 0 };

	*why = words;
	*r = (struct rig){ .memory_mib = memory_mib, .vcpus = vcpus, .uid = uid };
	/* In the nested machine. */
	r->accel = strcmp(env_or("CRUCIBLE_TEST_ACCEL", "tcg"), "kvm") == 0 ? ACCEL_KVM : ACCEL_TCG;
	r->kernel = find(store, "boot/current/vmlinux");
	r->initrd = find(store, "boot/current/initramfs");
	r->image = find(store, "profiles/tiny/root.img");
	r->library = find(env_or("CRUCIBLE_BUILD", "build/release"), "libexec/crucible-preload.so");
	if (getuid() != 0)
		snprintf(words, sizeof(words), "only root can show engines their block server");
	else if (engine_qemu.probe(NULL, &r->info, &e) < 0)
		snprintf(words, sizeof(words), "%s", e.msg);
	else if (access("/usr/bin/qemu-storage-daemon", X_OK) < 0)
		snprintf(words, sizeof(words), "qemu-storage-daemon is not installed");
	else if (!r->kernel || !r->initrd || !r->image)
		snprintf(words, sizeof(words), "%.200s holds no profile tiny (make teststore)", store);
	else
		words[0] = '\0';
	if (words[0]) {
		rig_drop(r);
		return NULL;
	}
	if (!r->library)
		fail_msg("the preload library is not built");
	assert_int_equal(loop_new(&r->loop), 0);
	/* A mount namespace of our own, in which the block server's socket lies where engines look for it. */
	assert_int_equal(unshare(CLONE_NEWNS), 0);
	assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	assert_int_equal(mount("tmpfs", "/run", "tmpfs", 0, "mode=755"), 0);
	assert_int_equal(mkdir("/run/blocks", 0755), 0);
	snprintf(r->dir, sizeof(r->dir), "%s/test_engine.XXXXXX", env_or("TMPDIR", "/tmp"));
	assert_non_null(mkdtemp(r->dir));
	return r;
}

void rig_free(struct rig *r)
{
	char cmd[300];

	if (r->blocks > 0) {
		kill(r->blocks, SIGKILL);
		proc_wait(r->blocks, NULL);
	}
	loop_free(r->loop);
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", r->dir);
	assert_int_equal(system(cmd), 0);
	assert_int_equal(umount2("/run", MNT_DETACH), 0);
	rig_drop(r);
}

void rig_disk(struct rig *r, const char *name, const char *from)
{
	char source[500], cmd[1200];

	snprintf(source, sizeof(source), "%s/%s", r->dir, from ? from : "");
	/* Into the same file: the block server may have it open. */
	snprintf(cmd, sizeof(cmd), "cp --sparse=always '%s' '%s/%s' && truncate -s %llu '%s/%s'",
		 from ? source : r->image, r->dir, name, (unsigned long long)ENGINE_DISK_BYTES, r->dir, name);
	assert_int_equal(system(cmd), 0);
}

/* No process outlives a test that failed. */
static int die_with_us(void *arg, struct err *e)
{
	(void)arg;
	return prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ? err_set(e, -errno, "pdeathsig") : 0;
}

static bool connects(const char *path)
{
	AUTO_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	return connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0;
}

void rig_serve(struct rig *r, const char *const *names, size_t n)
{
	static char text[16][400];
	char *argv[64];
	struct proc_spec spec = PROC_SPEC_INIT;
	uint64_t end = now_ns() + PATIENCE_NS;
	struct err e = { 0 };
	size_t argc = 0, t = 0;

	argv[argc++] = (char *)"qemu-storage-daemon";
	argv[argc++] = (char *)"--nbd-server";
	argv[argc++] = (char *)"addr.type=unix,addr.path=" ENGINE_BLOCKS_PATH;
	for (size_t i = 0; i < n; i++) {
		snprintf(text[t], sizeof(text[t]),
			 "driver=file,node-name=%s,filename=%s/%s,discard=unmap,cache.no-flush=on,locking=off",
			 names[i], r->dir, names[i]);
		argv[argc++] = (char *)"--blockdev";
		argv[argc++] = text[t++];
		snprintf(text[t], sizeof(text[t]), "type=nbd,id=e%zu,node-name=%s,name=%s,writable=on", i, names[i],
			 names[i]);
		argv[argc++] = (char *)"--export";
		argv[argc++] = text[t++];
	}
	argv[argc] = NULL;
	spec.name = "blocks";
	spec.path = "/usr/bin/qemu-storage-daemon";
	spec.argv = argv;
	spec.setup = die_with_us;
	if (proc_spawn(&spec, &r->blocks, NULL, &e) < 0)
		fail_msg("%s", e.msg);
	while (!connects(ENGINE_BLOCKS_PATH)) {
		assert_true(now_ns() < end);
		loop_once(r->loop, 5);
	}
	chmod(ENGINE_BLOCKS_PATH, 0666);
}

/* -- machines ---------------------------------------------------------------------------------- */

static void on_event(void *arg, enum engine_event ev, const char *detail)
{
	struct machine *m = arg;

	m->up += ev == ENGINE_EV_UP;
	m->gone += ev == ENGINE_EV_GONE;
	if (ev == ENGINE_EV_SHUTDOWN || ev == ENGINE_EV_PANICKED || ev == ENGINE_EV_IO_ERROR || ev == ENGINE_EV_STUCK)
		print_message("%s: event %d: %s\n", m->name, ev, detail);
}

static void on_done(void *arg, int code, const struct err *e)
{
	struct machine *m = arg;

	m->calls++;
	m->code = code;
	snprintf(m->words, sizeof(m->words), "%s", code < 0 && e ? e->msg : "");
}

static void on_ordered(void *arg, struct preload_done *d)
{
	struct machine *m = arg;

	m->orders++;
	m->code = d->code;
	snprintf(m->words, sizeof(m->words), "%s", d->words);
	if (d->code < 0)
		return;
	m->base = d->base;
	fd_close(&m->mem);
	fd_close(&m->pagemap);
	m->mem = take_fd(&d->mem);
	m->pagemap = take_fd(&d->pagemap);
	if (d->uffd >= 0) {
		fd_close(&m->uffd);
		m->uffd = take_fd(&d->uffd);
	}
}

static void until(struct machine *m, const int *n, int want)
{
	uint64_t end = now_ns() + PATIENCE_NS;

	while (*n < want && now_ns() < end && !(m->gone && n != &m->gone))
		assert_int_equal(loop_once(m->rig->loop, 50), 0);
	if (*n < want)
		fail_msg("%s: %s", m->name, m->gone ? "the engine ended" : "nothing happened in time");
}

static int become(void *arg, struct err *e)
{
	const struct rig *r = arg;
	int k = r->uid ? confine_drop(r->uid, r->uid, 0, e) : 0;

	/* A change of the uid takes it back. */
	return k < 0 ? k : die_with_us(NULL, e);
}

static void spawn(struct machine *m, const struct engine_machine *em, int *theirs)
{
	struct proc_spec spec = PROC_SPEC_INIT;
	struct engine_command *c = calloc(1, sizeof(*c));
	char preload[400], ram[64], sock[64], uffd[64];
	char *envp[] = { preload, ram, sock, uffd, NULL };
	int fds[ENGINE_FD_COUNT + 1];
	struct err e = { 0 };
	AUTO_FD device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	AUTO_FD log = -1;
	char path[300];

	if (engine_qemu.command(em, c, &e) < 0)
		fail_msg("%s", e.msg);
	snprintf(path, sizeof(path), "%s/%s.log", m->rig->dir, m->name);
	log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	memcpy(fds, theirs, sizeof(int) * ENGINE_FD_COUNT);
	fds[ENGINE_FD_CONSOLE] = log;
	fds[ENGINE_FD_COUNT] = device;
	snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", m->rig->library);
	snprintf(ram, sizeof(ram), "CRUCIBLE_PRELOAD_RAM=%llu", (unsigned long long)em->memory_mib << 20);
	snprintf(sock, sizeof(sock), "CRUCIBLE_PRELOAD_SOCKET=%d", 3 + ENGINE_FD_MEMORY);
	snprintf(uffd, sizeof(uffd), "CRUCIBLE_PRELOAD_UFFD=%d", device < 0 ? -1 : 3 + ENGINE_FD_COUNT);
	spec.name = "engine";
	spec.path = m->rig->info.path;
	spec.argv = (char *const *)c->argv;
	spec.envp = envp;
	spec.stdio[1] = spec.stdio[2] = log;
	spec.fds = fds;
	spec.nfds = device < 0 ? ENGINE_FD_COUNT : ENGINE_FD_COUNT + 1;
	spec.setup = become;
	spec.arg = m->rig;
	if (proc_spawn(&spec, &m->pid, NULL, &e) < 0)
		fail_msg("%s", e.msg);
	free(c);
}

struct machine *machine_start(struct rig *r, const char *name, const char *export_name)
{
	static const struct engine_events events = { .on_event = on_event };
	struct machine *m = calloc(1, sizeof(*m));
	struct engine_machine em = { .accel = r->accel, .memory_mib = r->memory_mib, .vcpus = r->vcpus };
	int ours[ENGINE_FD_COUNT], theirs[ENGINE_FD_COUNT], pair[2];
	struct err e = { 0 };

	*m = (struct machine){ .rig = r, .mem = -1, .pagemap = -1, .uffd = -1, .state_fd = -1 };
	snprintf(m->name, sizeof(m->name), "%s", name);
	for (int i = 0; i < ENGINE_FD_COUNT; i++) {
		int type = i == ENGINE_FD_MEMORY ? SOCK_SEQPACKET : SOCK_STREAM;

		assert_int_equal(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair), 0);
		ours[i] = pair[0];
		theirs[i] = pair[1];
	}
	if (export_name) {
		em.tsc_khz = engine_tsc_khz();
		em.kernel = r->kernel;
		em.initrd = r->initrd;
		em.disk = true;
		em.disk_export = export_name;
	}
	spawn(m, &em, theirs);
	for (int i = 0; i < ENGINE_FD_COUNT; i++)
		close(theirs[i]);
	close(ours[ENGINE_FD_CONSOLE]);
	close(ours[ENGINE_FD_NET]);
	m->control = ours[ENGINE_FD_CONTROL];
	m->bulk = ours[ENGINE_FD_BULK];
	assert_int_equal(
		engine_qemu.connect(r->loop, ours[ENGINE_FD_MONITOR], !export_name, &events, m, &m->engine, &e), 0);
	assert_int_equal(preload_new(r->loop, ours[ENGINE_FD_MEMORY], &m->preload), 0);
	until(m, &m->up, 1);
	return m;
}

void machine_end(struct machine *m)
{
	if (!m->gone) {
		assert_int_equal(engine_qemu.quit(m->engine), 0);
		until(m, &m->gone, 1);
	}
	m->engine = engine_qemu.free(m->engine);
	m->preload = preload_free(m->preload);
	proc_wait(m->pid, NULL);
	if (m->paged) {
		close(m->stop[1]);
		pthread_join(m->pager, NULL);
		close(m->stop[0]);
	}
	close(m->control);
	close(m->bulk);
	fd_close(&m->mem);
	fd_close(&m->pagemap);
	fd_close(&m->uffd);
	fd_close(&m->state_fd);
	free(m);
}

/* -- the agent --------------------------------------------------------------------------------- */

static void put32(uint8_t *p, uint32_t v)
{
	memcpy(p, &v, sizeof(v)); /* little endian, as this machine is */
}

static void say(int fd, uint8_t type, uint32_t seq, const char *text)
{
	uint8_t frame[2048] = { 0 };
	size_t n = strlen(text); /* no NUL travels */

	assert_true(n < sizeof(frame) - AG_HEADER_LEN);
	put32(frame, (uint32_t)n);
	frame[4] = type;
	put32(frame + 12, seq);
	memcpy(frame + AG_HEADER_LEN, text, n); /* NOLINT(bugprone-not-null-terminated-result) */
	assert_int_equal(send(fd, frame, AG_HEADER_LEN + n, MSG_NOSIGNAL), (ssize_t)(AG_HEADER_LEN + n));
}

/* Skip frames on control until one of @type has come; its payload. Malformed ones are found by their length. */
static void hear(struct machine *m, uint8_t type, char *out, size_t cap)
{
	uint64_t end = now_ns() + PATIENCE_NS;

	for (;;) {
		uint32_t len = 0;
		ssize_t n;

		if (m->in_len >= AG_HEADER_LEN)
			memcpy(&len, m->in, sizeof(len));
		assert_true(len <= AG_PAYLOAD_MAX);
		if (m->in_len >= AG_HEADER_LEN && m->in_len >= AG_HEADER_LEN + len) {
			uint8_t got = m->in[4];

			snprintf(out, cap, "%.*s", (int)len, (char *)m->in + AG_HEADER_LEN);
			m->in_len -= AG_HEADER_LEN + len;
			memmove(m->in, m->in + AG_HEADER_LEN + len, m->in_len);
			if (got == type)
				return;
			if (got == AG_BYE)
				fail_msg("%s: the agent ended: %s", m->name, out);
			continue;
		}
		n = recv(m->control, m->in + m->in_len, sizeof(m->in) - m->in_len, MSG_DONTWAIT);
		if (n > 0)
			m->in_len += (size_t)n;
		else if (n == 0 || m->gone || now_ns() > end)
			fail_msg("%s: nothing from the agent", m->name);
		else {
			struct pollfd p = { .fd = m->control, .events = POLLIN };

			loop_once(m->rig->loop, 0);
			poll(&p, 1, 20);
		}
	}
}

void machine_hello(struct machine *m)
{
	char text[1024], hello[600];

	do
		hear(m, AG_STAGE, text, sizeof(text));
	while (strcmp(text, AG_STAGE_HELLO) != 0);
	snprintf(hello, sizeof(hello),
		 "{\"version_min\":1,\"version_max\":%u,\"epoch\":1,\"wall_ns\":%llu,\"entropy\":\"%064d\","
		 "\"hostname\":\"rig\",\"instance\":\"00000000-0000-0000-0000-000000000000\",\"root_mib\":0,"
		 "\"memory_bytes\":0,\"cpu_percent\":0,\"pids\":0}",
		 AG_VERSION, (unsigned long long)wall_ns(), 7);
	say(m->bulk, AG_HELLO, 0, hello);
	say(m->control, AG_HELLO, 0, hello);
	m->seq_control = 1;
	hear(m, AG_HELLO, text, sizeof(text));
}

void machine_ping(struct machine *m, const char *text)
{
	char back[128];

	say(m->control, AG_PING, m->seq_control++, text);
	hear(m, AG_PONG, back, sizeof(back));
	assert_string_equal(back, text);
}

/* -- calls ------------------------------------------------------------------------------------- */

static int finished(struct machine *m, int begun)
{
	int calls = m->calls;

	if (begun < 0)
		return begun;
	until(m, &m->calls, calls + 1); /* the call ends before the engine is gone */
	if (m->code < 0)
		print_message("%s: %s\n", m->name, m->words);
	return m->code;
}

int machine_pause(struct machine *m)
{
	return finished(m, engine_qemu.pause(m->engine, CALL_MS, on_done, m));
}

int machine_resume(struct machine *m)
{
	return finished(m, engine_qemu.resume(m->engine, CALL_MS, on_done, m));
}

int machine_save(struct machine *m)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/state", m->rig->dir);
	fd_close(&m->state_fd);
	m->state_fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	unlink(path);
	return finished(m, engine_qemu.save(m->engine, m->state_fd, CALL_MS, on_done, m));
}

int machine_assign(struct machine *m, const char *export_name)
{
	return finished(m, engine_qemu.assign_disk(m->engine, export_name, CALL_MS, on_done, m));
}

int machine_load(struct machine *m, int state_fd)
{
	return finished(m, engine_qemu.load(m->engine, state_fd, CALL_MS, on_done, m));
}

/* -- memory ------------------------------------------------------------------------------------ */

/* One thread a machine is enough: what is there already is left alone by it. */
static void *pager_main(void *arg)
{
	uint8_t page[RIG_PAGE] = { 0 };
	struct machine *m = arg;

	for (;;) {
		struct pollfd p[] = { { .fd = m->uffd, .events = POLLIN }, { .fd = m->stop[0], .events = POLLIN } };
		struct uffd_msg msg;
		struct uffdio_range wake;
		off_t at;

		poll(p, ARRAY_LEN(p), -1);
		if (p[1].revents)
			return NULL;
		if (read(m->uffd, &msg, sizeof(msg)) != sizeof(msg) || msg.event != UFFD_EVENT_PAGEFAULT)
			continue;
		at = (off_t)(msg.arg.pagefault.address - m->base) & ~(off_t)(RIG_PAGE - 1);
		if (lseek(m->template->fd, at, SEEK_DATA) != at) {
			if (m->template->source >= 0 && pread(m->template->source, page, RIG_PAGE, at) != RIG_PAGE)
				return NULL;
			if (pwrite(m->template->fd, page, RIG_PAGE, at) != RIG_PAGE)
				return NULL;
		}
		m->faults++;
		wake = (struct uffdio_range){ .start = m->base + (uint64_t)at, .len = RIG_PAGE };
		ioctl(m->uffd, UFFDIO_WAKE, &wake);
	}
}

int machine_order(struct machine *m, struct template *t, const struct preload_range *ranges, uint32_t n)
{
	int orders = m->orders, r;

	r = preload_order(m->preload, t ? t->ro : -1, t ? t->bytes : 0, ranges, n, CALL_MS, on_ordered, m);
	if (r < 0)
		return r;
	until(m, &m->orders, orders + 1);
	if (m->code < 0)
		print_message("%s: %s\n", m->name, m->words);
	else if (t)
		m->template = t;
	if (m->code == 0 && m->uffd >= 0 && !m->paged) {
		m->paged = true;
		assert_int_equal(pipe2(m->stop, O_CLOEXEC), 0);
		assert_int_equal(pthread_create(&m->pager, NULL, pager_main, m), 0);
	}
	return m->code;
}

static uint64_t copy_written(struct template *t, struct machine *m)
{
	static uint64_t entries[4096];
	static uint8_t page[RIG_PAGE];
	uint64_t pages = 0, total = t->bytes / RIG_PAGE;

	for (uint64_t at = 0; at < total; at += ARRAY_LEN(entries)) {
		off_t off = (off_t)((m->base / RIG_PAGE + at) * 8);

		assert_int_equal(pread(m->pagemap, entries, sizeof(entries), off), sizeof(entries));
		for (uint64_t i = 0; i < ARRAY_LEN(entries); i++) {
			uint64_t addr = (at + i) * RIG_PAGE;

			if (!(entries[i] >> 62) || (entries[i] >> 61 & 1))
				continue;
			assert_int_equal(pread(m->mem, page, RIG_PAGE, (off_t)(m->base + addr)), RIG_PAGE);
			assert_int_equal(pwrite(t->fd, page, RIG_PAGE, (off_t)addr), RIG_PAGE);
			pages++;
		}
	}
	return pages;
}

static void copy_below(struct template *t, const struct template *below)
{
	static uint8_t page[RIG_PAGE];
	off_t at = 0;

	while ((at = lseek(below->fd, at, SEEK_DATA)) >= 0) {
		off_t end = lseek(below->fd, at, SEEK_HOLE);

		for (; at < end; at += RIG_PAGE) {
			assert_int_equal(pread(below->fd, page, RIG_PAGE, at), RIG_PAGE);
			assert_int_equal(pwrite(t->fd, page, RIG_PAGE, at), RIG_PAGE);
		}
	}
}

static void template_make(struct template *t, uint64_t bytes)
{
	char path[64];

	*t = (struct template){ .bytes = bytes, .source = -1 };
	t->fd = memfd_create("template", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(fchmod(t->fd, 0400), 0);
	assert_int_equal(ftruncate(t->fd, (off_t)t->bytes), 0);
	assert_int_equal(fcntl(t->fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", t->fd);
	t->ro = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(t->ro >= 0);
}

void template_take(struct template *t, struct machine *m, const struct template *below)
{
	template_make(t, (uint64_t)m->rig->memory_mib << 20);
	if (below)
		copy_below(t, below);
	t->pages = copy_written(t, m);
}

void template_empty(struct template *t, const struct template *from)
{
	template_make(t, from->bytes);
	t->source = dup(from->fd);
}

uint32_t template_holes(const struct template *t, struct preload_range *ranges, uint32_t max)
{
	off_t at = 0;
	uint32_t n = 0;

	while (n < max && (at = lseek(t->fd, at, SEEK_HOLE)) >= 0 && (uint64_t)at < t->bytes) {
		off_t end = lseek(t->fd, at, SEEK_DATA);

		if (end < 0)
			end = (off_t)t->bytes;
		if (end - at >= 64 * 1024)
			ranges[n++] = (struct preload_range){ (uint64_t)at, (uint64_t)(end - at) };
		at = end;
	}
	return n;
}

void template_drop(struct template *t)
{
	fd_close(&t->ro);
	fd_close(&t->fd);
	fd_close(&t->source);
}
