/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * Runs in the child, in a mount namespace of its own, still as root. A small tmpfs becomes the root. What is shown in
 * it are clones of the host's mounts that got their attributes (read-only, nosuid, nodev) while they were detached, so
 * there is no instant in which they are writable. Then pivot_root, and the host's tree is detached.
 *
 * The store belongs to crucibled, which may have been taken over: paths below it are resolved without
 * following any symbolic link, without leaving the store and without crossing a mount.
 */
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"
#include "cruciblefs/launch/launch_priv.h"

static int fail(struct err *e, const char *what, const char *step)
{
	return err_set(e, -errno, "root: %s: %s: %s", what, step, strerror(errno));
}

enum show_how { SHOW_FOLDER, SHOW_DEEP /* with what is mounted below */, SHOW_FILE };

static int make_place(const char *to, bool file)
{
	AUTO_FD fd = -1;

	if (!file)
		return mkdir(to, 0755) < 0 && errno != EEXIST ? -1 : 0;
	fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	return fd < 0 ? -1 : 0;
}

/* Should: show the mount behind @fd (or, when it is -1, the host's @path) as @to in the new root, with at least these
 * restrictions. Mustn't: follow a symbolic link at the last step. */
static int show(int fd, const char *path, const char *to, uint64_t attrs, enum show_how how, struct err *e)
{
	bool recursive = how == SHOW_DEEP, file = how == SHOW_FILE;
	struct mount_attr attr = { .attr_set = attrs, .propagation = MS_PRIVATE };
	unsigned int deep = recursive ? AT_RECURSIVE : 0;
	AUTO_FD tree = -1;

	tree = open_tree(fd >= 0 ? fd : AT_FDCWD, fd >= 0 ? "" : path,
			 OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW | deep |
				 (fd >= 0 ? AT_EMPTY_PATH : 0));
	if (tree < 0)
		return fail(e, path, "open_tree");
	if (mount_setattr(tree, "", AT_EMPTY_PATH | deep, &attr, sizeof(attr)) < 0)
		return fail(e, path, "mount_setattr");
	if (make_place(to, file) < 0)
		return fail(e, to, "make a place");
	if (move_mount(tree, "", AT_FDCWD, to, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return fail(e, to, "move_mount");
	return 0;
}

/* Should: show what programs are linked to. On most hosts all but /usr are links into it, and stay links. */
static int show_system(struct err *e)
{
	static const char *const dirs[] = { "/usr", "/lib", "/lib64", "/bin" };
	char link[256];

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		ssize_t n = readlink(dirs[i], link, sizeof(link) - 1);
		int r;

		if (n >= 0) {
			link[n] = '\0';
			if (symlink(link, dirs[i] + 1) < 0)
				return fail(e, dirs[i], "symlink");
			continue;
		}
		if (errno == ENOENT)
			continue; /* no /lib64 on some machines */
		if (errno != EINVAL)
			return fail(e, dirs[i], "readlink");
		r = show(-1, dirs[i], dirs[i] + 1, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, SHOW_DEEP,
			 e);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Should: open a folder of the store, to be shown. Mustn't: trust anything that crucibled could have put on the way. */
static int open_in_store(int store_fd, const char *path, struct err *e)
{
	struct open_how how = {
		.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
	};
	long fd = syscall(SYS_openat2, store_fd, path, &how, sizeof(how));

	return fd < 0 ? fail(e, path, "open in the store") : (int)fd;
}

static int show_store(int store_fd, const char *path, const char *to, uint64_t attrs, struct err *e)
{
	AUTO_FD fd = open_in_store(store_fd, path, e);

	return fd < 0 ? fd
		      : show(fd, path, to, attrs | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
			     SHOW_FOLDER, e);
}

/* Should: let the pager open its own descriptors anew, read-only, and an engine its own memory, to hand it over.
 * Mustn't: show other processes, or anything of the kernel's. The process namespace is ours, so this is not the host's
 * /proc. */
static int make_proc(struct err *e)
{
	if (mkdir("proc", 0755) < 0)
		return fail(e, "proc", "mkdir");
	if (mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, "subset=pid,hidepid=2") < 0)
		return fail(e, "proc", "mount");
	return 0;
}

static int make_node(const char *path, mode_t mode, dev_t dev, uid_t uid, gid_t gid, struct err *e)
{
	if (mknod(path, S_IFCHR | mode, dev) < 0)
		return fail(e, path, "mknod");
	if (chmod(path, mode) < 0) /* past the umask; before it is another's, we have no CAP_FOWNER */
		return fail(e, path, "chmod");
	if (chown(path, uid, gid) < 0)
		return fail(e, path, "chown");
	return 0;
}

/* Should: give the engine the few devices that QEMU opens. Mustn't: show the host's nodes, whose owner and mode are the
 * host's. */
static int make_dev(const struct root_plan *p, struct err *e)
{
	struct stat kvm;
	int r;

	if (p->kvm && stat("/dev/kvm", &kvm) < 0)
		return fail(e, "/dev/kvm", "stat");
	if (mkdir("dev", 0755) < 0)
		return fail(e, "dev", "mkdir");
	if (mount("tmpfs", "dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "size=16k,nr_inodes=16,mode=755") < 0)
		return fail(e, "dev", "mount");
	r = make_node("dev/null", 0666, makedev(1, 3), 0, 0, e);
	if (r == 0)
		r = make_node("dev/urandom", 0444, makedev(1, 9), 0, 0, e);
	if (r == 0 && p->kvm)
		r = make_node("dev/kvm", 0600, kvm.st_rdev, p->uid, p->gid, e);
	if (r == 0 && mount(NULL, "dev", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC, NULL) < 0)
		r = fail(e, "dev", "make read-only");
	return r;
}

/* Should: make the current folder the root, and the host's tree unreachable. */
static int pivot(struct err *e)
{
	struct mount_attr ro = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
					     MOUNT_ATTR_NOEXEC };

	/* The old root lands on top of the new one, "." being both, and is taken off again. */
	if (syscall(SYS_pivot_root, ".", ".") < 0)
		return fail(e, "/", "pivot_root");
	if (umount2(".", MNT_DETACH) < 0)
		return fail(e, "old root", "umount");
	if (chdir("/") < 0)
		return fail(e, "/", "chdir");
	if (mount_setattr(AT_FDCWD, "/", 0, &ro, sizeof(ro)) < 0)
		return fail(e, "/", "make read-only");
	return 0;
}

/* -- what each kind sees ------------------------------------------------------------------------- */

static int show_box(const struct root_plan *p, int store, struct err *e)
{
	char sandbox[16 + LAUNCH_UUID_LEN + 1];
	int r;

	snprintf(sandbox, sizeof(sandbox), "sandboxes/%s/box", p->uuid);
	r = show_store(store, sandbox, "box", 0, e);
	return r < 0 ? r : show_store(store, "run", "run", MOUNT_ATTR_RDONLY, e);
}

static int show_engine(const struct root_plan *p, int store, struct err *e)
{
	int r = show_store(store, "boot", "boot", MOUNT_ATTR_RDONLY, e);

	if (r == 0 && mkdir("run", 0755) < 0)
		r = fail(e, "run", "mkdir");
	if (r == 0) /* read-only does not keep anybody from connecting */
		r = show_store(store, LAUNCH_BLOCKS_DIR, "run/blocks", MOUNT_ATTR_RDONLY, e);
	if (r == 0 && p->preload)
		r = show(-1, p->preload, LAUNCH_PRELOAD_SO + 1,
			 MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, SHOW_FILE, e);
	if (r == 0 && p->preload)
		r = make_proc(e);
	return r < 0 ? r : make_dev(p, e);
}

static int show_pager(const struct root_plan *p, int store, struct err *e)
{
	int r = show_store(store, "snapstore", "snapstore", MOUNT_ATTR_RDONLY, e);

	(void)p;
	if (r == 0)
		r = show_store(store, "disks", "disks", 0, e);
	if (r == 0) {
		r = show_store(store, "profiles", "profiles", MOUNT_ATTR_RDONLY, e);
		if (r == -ENOENT) /* none was built yet; the next pager sees them */
			r = 0;
	}
	return r < 0 ? r : make_proc(e);
}

static int show_store_writer(const struct root_plan *p, int store, struct err *e)
{
	(void)p;
	return show_store(store, "snapstore", "snapstore", 0, e);
}

/* It has what it works with by descriptor. */
static int show_netd(const struct root_plan *p, int store, struct err *e)
{
	(void)p, (void)store, (void)e;
	return 0;
}

/* Should: mount the new root. Another daemon's launcher that ends takes the folder along when no slot is in use
 * (slots.c), and pager and store are started before any is. */
static int mount_place(void)
{
	int r = -1;

	for (int tries = 0; r < 0 && tries < 100; tries++) {
		mkdir(LAUNCH_RUN_DIR, 0755);
		r = mount("tmpfs", LAUNCH_RUN_DIR, "tmpfs", MS_NOSUID | MS_NODEV, "size=64k,nr_inodes=64,mode=755");
		if (r < 0 && errno != ENOENT)
			break;
	}
	return r;
}

int root_enter(const struct root_plan *p, struct err *e)
{
	static int (*const show_kind[])(const struct root_plan *p, int store, struct err *e) = {
		[LAUNCH_BOX] = show_box,     [LAUNCH_ENGINE] = show_engine,
		[LAUNCH_PAGER] = show_pager, [LAUNCH_STORE] = show_store_writer,
		[LAUNCH_NETD] = show_netd,
	};
	_Static_assert(ARRAY_LEN(show_kind) == LAUNCH_KIND_COUNT, "a root for each kind");
	AUTO_FD store = -1;
	int r;

	umask(022);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return fail(e, "/", "make private");
	/* In this namespace, and before the tmpfs, which might hide it. */
	store = open(p->store, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (store < 0)
		return fail(e, p->store, "open");
	if (mount_place() < 0)
		return fail(e, LAUNCH_RUN_DIR, "mount tmpfs");
	if (chdir(LAUNCH_RUN_DIR) < 0)
		return fail(e, LAUNCH_RUN_DIR, "chdir");
	r = show_system(e);
	if (r == 0)
		r = show_kind[p->kind](p, store, e);
	return r < 0 ? r : pivot(e);
}
