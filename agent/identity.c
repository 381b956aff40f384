/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/identity.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/random.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/paths.h"
#include "base/buf.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/loop.h"

#ifndef EXT4_IOC_RESIZE_FS
#define EXT4_IOC_RESIZE_FS _IOW('f', 16, uint64_t)
#endif
#define CLOCK_NEAR_NS 1000000ll /* nearer than a millisecond is the same */

/* -- parsing ------------------------------------------------------------------------ */

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

static int parse_entropy(const char *hex, struct hello *h, struct err *e)
{
	size_t n = strlen(hex) / 2;

	if (strlen(hex) != 2 * n || n > sizeof(h->entropy))
		return err_set(e, -EINVAL, "entropy: at most %u bytes in hex", ENTROPY_BYTES);
	for (size_t i = 0; i < n; i++) {
		int high = hex_digit(hex[2 * i]), low = hex_digit(hex[2 * i + 1]);

		if (high < 0 || low < 0)
			return err_set(e, -EINVAL, "entropy: not hex");
		h->entropy[i] = (uint8_t)(high << 4 | low);
	}
	h->entropy_len = n;
	return 0;
}

static int parse_hostname(const char *name, struct hello *h, struct err *e)
{
	size_t len = strlen(name);

	if (len > HOSTNAME_MAX ||
	    strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") != len)
		return err_set(e, -EINVAL, "hostname: letters, digits, . - _ and at most %u of them", HOSTNAME_MAX);
	memcpy(h->hostname, name, len + 1);
	return 0;
}

/* @form: '-' stands for itself, every other character for a hex digit. */
static bool copy_hex(const char *text, const char *form, char *out)
{
	size_t i;

	for (i = 0; form[i]; i++) {
		if (form[i] == '-' ? text[i] != '-' : hex_digit(text[i]) < 0)
			return false;
		out[i] = text[i] >= 'A' && text[i] <= 'F' ? (char)(text[i] - 'A' + 'a') : text[i];
	}
	out[i] = '\0';
	return text[i] == '\0';
}

#define UUID_FORM "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"

static int parse_instance(const char *uuid, struct hello *h, struct err *e)
{
	return copy_hex(uuid, UUID_FORM, h->instance) ? 0 : err_set(e, -EINVAL, "instance: not a uuid");
}

/* {"fork":"uuid","parent":"name","machine_id":"32 hex","hold":bool}; what a fork cannot do without must be there. */
static int parse_clone(struct json_object *o, struct hello *h, struct err *e)
{
	const char *uuid = "", *parent = "", *machine_id = "";
	struct json_object *clone = NULL;
	int r = json_get_obj(o, "clone", json_type_object, &clone, e);

	if (r < 0 || !clone)
		return r;
	r = json_get_str(clone, "fork", &uuid, e);
	if (r == 0)
		r = json_get_str(clone, "parent", &parent, e);
	if (r == 0)
		r = json_get_str(clone, "machine_id", &machine_id, e);
	if (r == 0)
		r = json_get_bool(clone, "hold", &h->hold, e);
	if (r < 0)
		return err_wrap(e, "clone");
	if (!copy_hex(uuid, UUID_FORM, h->fork))
		return err_set(e, -EINVAL, "clone: fork: not a uuid");
	if (!copy_hex(machine_id, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", h->machine_id))
		return err_set(e, -EINVAL, "clone: machine_id: not 32 hex digits");
	if (strlen(parent) > PARENT_MAX)
		return err_set(e, -EINVAL, "clone: parent: at most %u bytes", PARENT_MAX);
	snprintf(h->parent, sizeof(h->parent), "%s", parent);
	if (h->entropy_len != ENTROPY_BYTES || h->wall_ns == 0)
		return err_set(e, -EINVAL, "clone: needs wall_ns and %u bytes of entropy", ENTROPY_BYTES);
	h->clone = true;
	return 0;
}

static int parse_texts(struct json_object *o, struct hello *h, struct err *e)
{
	const struct {
		const char *key;
		int (*parse)(const char *text, struct hello *h, struct err *e);
	} texts[] = { { "entropy", parse_entropy }, { "hostname", parse_hostname }, { "instance", parse_instance } };
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(texts) && r == 0; i++) {
		const char *text = NULL;

		r = json_get_str(o, texts[i].key, &text, e);
		if (r == 0 && text && *text)
			r = texts[i].parse(text, h, e);
	}
	return r;
}

int hello_parse(const void *json, size_t len, struct hello *ret, struct err *e)
{
	struct hello h = { 0 };
	const struct {
		const char *key;
		uint64_t max, *to;
	} numbers[] = {
		{ "version_min", UINT32_MAX, &h.version_min },
		{ "version_max", UINT32_MAX, &h.version_max },
		{ "epoch", UINT64_MAX, &h.epoch },
		{ "wall_ns", INT64_MAX, &h.wall_ns },
		{ "root_mib", UINT32_MAX, &h.root_mib },
		{ "memory_bytes", INT64_MAX, &h.memory_bytes },
		{ "cpu_percent", 1000000, &h.cpu_percent },
		{ "pids", UINT32_MAX, &h.pids },
	};
	AUTO_JSON *o = NULL;
	int r = json_parse(json, len, &o, e);

	for (size_t i = 0; i < ARRAY_LEN(numbers) && r == 0; i++)
		r = json_get_u64(o, numbers[i].key, 0, numbers[i].max, numbers[i].to, e);
	if (r == 0)
		r = parse_texts(o, &h, e);
	if (r == 0)
		r = parse_clone(o, &h, e);
	if (r == 0)
		r = net_parse(o, &h.net, &h.has_net, e);
	if (r == 0)
		*ret = h;
	return r;
}

/* -- doing -------------------------------------------------------------------------- */

static int set_entropy(const struct guest *g, const struct hello *h, struct err *e)
{
	/* struct rand_pool_info: bits, bytes, and the bytes. */
	int pool[2 + ENTROPY_BYTES / sizeof(int)] = { (int)h->entropy_len * 8, (int)h->entropy_len };

	static_assert(offsetof(struct rand_pool_info, buf) == 2 * sizeof(int), "the kernel's layout");
	memcpy(pool + 2, h->entropy, h->entropy_len);
	if (g->random_fd < 0)
		return err_set(e, -ENOENT, "entropy: no /dev/urandom in this guest");
	if (ioctl(g->random_fd, RNDADDENTROPY, pool) < 0 || ioctl(g->random_fd, RNDRESEEDCRNG) < 0)
		return err_set(e, -errno, "entropy: the kernel's generator did not take it: %s", strerror(errno));
	return 0;
}

/* Write an id file, only if it is a file already or, with @make, nothing. No link is followed. */
static int write_id(int root_fd, const char *path, const char *text, bool make)
{
	const char *name;
	AUTO_FD dir = path_parent(root_fd, path, &name);
	struct stat st;

	if (dir < 0)
		return dir == -ENOENT ? 0 : dir;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno != ENOENT)
			return -errno;
		if (!make)
			return 0;
	} else if (!S_ISREG(st.st_mode)) {
		return S_ISLNK(st.st_mode) && !make ? 0 : -EINVAL;
	}
	return fd_replace(dir, name, text, strlen(text), 0444, false);
}

static void take_machine_id(const struct guest *g, const struct hello *h, struct unenforced *u)
{
	char text[34];
	size_t n = 0;
	int r;

	for (const char *p = h->instance; *p; p++)
		if (*p != '-')
			text[n++] = *p;
	text[n++] = '\n';
	text[n] = '\0';
	r = guest_write_own(g, "machine-id", text);
	if (r > 0)
		r = write_id(g->root_fd, "etc/machine-id", text, true);
	if (r < 0)
		unenforced_add(u, "machine-id: /etc/machine-id: %s", strerror(-r));
	/* D-Bus' own copy, where it is one: usually it is a link to the first. */
	r = write_id(g->root_fd, "var/lib/dbus/machine-id", text, false);
	if (r < 0)
		unenforced_add(u, "machine-id: /var/lib/dbus/machine-id: %s", strerror(-r));
}

static int set_clock(const struct hello *h, struct err *e)
{
	struct timespec ts = { .tv_sec = (time_t)(h->wall_ns / 1000000000u),
			       .tv_nsec = (long)(h->wall_ns % 1000000000u) };
	int64_t ahead = (int64_t)(wall_ns() - h->wall_ns);

	if (ahead > -CLOCK_NEAR_NS && ahead < CLOCK_NEAR_NS)
		return 0;
	return clock_settime(CLOCK_REALTIME, &ts) < 0 ? err_set(e, -errno, "clock: %s", strerror(errno)) : 0;
}

/* /etc/hostname as the image has it stays, unless it is the agent's own. */
static int set_hostname_file(const struct guest *g, const struct hello *h)
{
	char text[HOSTNAME_MAX + 2];

	snprintf(text, sizeof(text), "%s\n", h->hostname);
	return guest_write_own(g, "hostname", text);
}

static int set_hostname(const struct hello *h, struct err *e)
{
	return sethostname(h->hostname, strlen(h->hostname)) < 0 ? err_set(e, -errno, "hostname: %s", strerror(errno))
								 : 0;
}

static uint64_t get_le(const uint8_t *p, size_t n)
{
	uint64_t v = 0;

	for (size_t i = 0; i < n; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

/* How many blocks the ext4 on this disk has, and their size, by its superblock: statfs leaves out what it needs for
 * itself. */
static int ext4_size(int disk_fd, uint64_t *ret_blocks, uint64_t *ret_block_bytes)
{
	uint8_t super[1024];

	if (pread(disk_fd, super, sizeof(super), 1024) != (ssize_t)sizeof(super))
		return -EIO;
	if (get_le(super + 0x38, 2) != 0xef53 || super[0x18] > 6)
		return -EINVAL;
	*ret_block_bytes = 1024u << super[0x18];
	*ret_blocks = get_le(super + 0x04, 4);
	if (get_le(super + 0x60, 4) & 0x80) /* 64bit */
		*ret_blocks |= get_le(super + 0x150, 4) << 32;
	return 0;
}

/* Growing online. Never asked to shrink: the kernel would complain in its log. */
static void grow_root(const struct guest *g, uint64_t mib, struct unenforced *u)
{
	uint64_t want = mib << 20, disk, blocks, have, block_bytes;

	if (g->disk_fd < 0 || ioctl(g->disk_fd, BLKGETSIZE64, &disk) < 0 ||
	    ext4_size(g->disk_fd, &have, &block_bytes) < 0) {
		unenforced_add(u, "root_mib: the root is not an ext4 on a disk that could grow");
		return;
	}
	if (want > disk) {
		unenforced_add(u, "root_mib: the disk has %llu MiB only", (unsigned long long)(disk >> 20));
		want = disk;
	}
	blocks = want / block_bytes;
	if (blocks > have && ioctl(g->root_fd, EXT4_IOC_RESIZE_FS, &blocks) < 0)
		unenforced_add(u, "root_mib: cannot grow the root: %s", strerror(errno));
}

void identity_take(const struct guest *g, const struct hello *h, struct unenforced *u)
{
	struct err e = { 0 };

	if (g->test) {
		unenforced_add(u, "identity: not changed: this agent is no guest's");
		return;
	}
	if (h->entropy_len && set_entropy(g, h, &e) < 0)
		unenforced_add(u, "%s", e.msg);
	if (h->instance[0])
		take_machine_id(g, h, u);
	if (h->hostname[0] && set_hostname(h, &e) < 0)
		unenforced_add(u, "%s", e.msg);
	if (h->hostname[0] && set_hostname_file(g, h) < 0)
		unenforced_add(u, "hostname: /etc/hostname could not be written");
	if (h->wall_ns && set_clock(h, &e) < 0)
		unenforced_add(u, "%s", e.msg);
	if (h->root_mib)
		grow_root(g, h->root_mib, u);
}

/* -- a fork ------------------------------------------------------------------------- */

/* A file of an id below the root. No link is followed at its name; one on the way (/var/lib) leads on inside of the
 * root only. Not there: 0, unless @make, and that works. A link in its place: replaced if @make, else left alone. On a
 * disk without room, or mounted upon, the old file is written over. */
static int set_id(int root_fd, const char *dir_path, const char *name, const char *text, bool make)
{
	char resolved[AG_PATH_MAX + 1], path[AG_PATH_MAX + AG_NAME_MAX + 2];
	enum link_state state;
	const char *last;
	AUTO_FD dir = -1;
	AUTO_FD old = -1;
	struct stat st;
	int r;

	/* Most guests have no D-Bus: one look, not a walk. */
	snprintf(path, sizeof(path), "%s/%s", dir_path, name);
	if (!make && path_absent(root_fd, path))
		return 0;
	r = path_follow(root_fd, dir_path, resolved, &state);
	if (r < 0 || state != LINK_RESOLVED)
		return r;
	snprintf(path, sizeof(path), "%s%s%s", resolved, *resolved ? "/" : "", name);
	dir = path_parent(root_fd, path, &last);
	if (dir < 0)
		return dir == -ENOENT || dir == -ENOTDIR ? 0 : dir;
	if (fstatat(dir, last, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno != ENOENT)
			return -errno;
		if (make)
			fd_replace(dir, last, text, strlen(text), 0444,
				   false); /* or there is none: nobody reads the old one */
		return 0;
	}
	if (!S_ISREG(st.st_mode) && !make)
		return 0;
	r = fd_replace(dir, last, text, strlen(text), 0444, false);
	if (r == 0 || !S_ISREG(st.st_mode))
		return r;
	old = openat(dir, last, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (old < 0)
		return r;
	r = fd_pwrite_all(old, text, strlen(text), 0);
	return r == 0 && ftruncate(old, (off_t)strlen(text)) < 0 ? -errno : r;
}

static int clone_files(const struct guest *g, const struct hello *h, struct err *e)
{
	char id[34], host[HOSTNAME_MAX + 2];
	const struct {
		const char *dir, *name, *text;
		bool make, own;
	} files[] = {
		{ "etc", "machine-id", id, true, true },
		{ "var/lib/dbus", "machine-id", id, false, false }, /* usually a link to the first */
		{ "etc", "hostname", host, false, true },
	};

	snprintf(id, sizeof(id), "%s\n", h->machine_id);
	snprintf(host, sizeof(host), "%s\n", h->hostname);
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		int r = files[i].text == host && !h->hostname[0] ? 0
			: files[i].own				 ? guest_write_own(g, files[i].name, files[i].text)
								 : 1;

		if (r > 0)
			r = set_id(g->root_fd, files[i].dir, files[i].name, files[i].text, files[i].make);
		if (r < 0)
			return err_set(e, r, "/%s/%s: %s", files[i].dir, files[i].name, strerror(-r));
	}
	return 0;
}

static int clone_marker(const struct guest *g, const struct hello *h, struct err *e)
{
	AUTO_JSON *o = json_object_new_object();
	struct buf text;
	int r;

	json_object_object_add(o, "fork", json_object_new_string(h->fork));
	json_object_object_add(o, "parent", json_text(h->parent, strlen(h->parent)));
	json_object_object_add(o, "epoch", json_object_new_uint64(h->epoch));
	buf_init(&text, 4096);
	r = buf_addf(&text, "%s\n", json_line(o) ? json_line(o) : "");
	if (r == 0)
		r = g->scripts_fd < 0 ? -ENOENT : fd_replace(g->scripts_fd, "fork", text.data, text.len, 0444, false);
	buf_fini(&text);
	return r < 0 ? err_set(e, r, "%s/fork: %s", g->scripts_path, strerror(-r)) : 0;
}

int identity_clone(const struct guest *g, const struct hello *h, struct unenforced *u, struct err *e)
{
	int r = g->test ? 0 : set_entropy(g, h, e);

	if (r == 0)
		r = clone_files(g, h, e);
	if (r == 0 && h->hostname[0] && !g->test)
		r = set_hostname(h, e);
	if (r == 0 && !g->test)
		r = set_clock(h, e);
	if (r == 0)
		r = clone_marker(g, h, e);
	if (r < 0)
		return err_wrap(e, "clone");
	if (g->test)
		unenforced_add(u, "clone: entropy, host name and clock not changed: this agent is no guest's");
	else if (h->root_mib)
		grow_root(g, h->root_mib, u);
	return 0;
}
