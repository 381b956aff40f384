/* SPDX-License-Identifier: Apache-2.0 */
/* The programs' part of `doctor`. */
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/doctor.h"
#include "tools/crucible/libexec.h"
#include "tools/crucible/printable.h"

#define SYSTEM_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* A user's PATH may lack the sbin directories, where the daemon will look. */
static bool find_tool(const char *name, char out[PATH_MAX])
{
	const char *lists[] = { getenv("PATH"), SYSTEM_PATH };

	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		for (const char *p = lists[i]; p && *p;) {
			size_t len = strcspn(p, ":");

			if (len && snprintf(out, PATH_MAX, "%.*s/%s", (int)len, p, name) < PATH_MAX &&
			    access(out, X_OK) == 0)
				return true;
			p += len + (p[len] == ':');
		}
	}
	return false;
}

/* The first line that `PATH FLAG` prints, "" when it does not. Returns its wait status, or -1. */
static int first_line(const char *path, const char *flag, char *out, size_t cap)
{
	char locale[] = "LC_ALL=C";
	char *const argv[] = { (char *)path, (char *)flag, NULL }, *const env[] = { locale, NULL };
	posix_spawn_file_actions_t actions;
	int fds[2], status = -1;
	size_t n = 0;
	pid_t pid;

	*out = '\0';
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -1;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
	if (posix_spawn(&pid, path, &actions, NULL, argv, env) != 0)
		pid = -1;
	posix_spawn_file_actions_destroy(&actions);
	close(fds[1]);
	while (pid > 0 && n < cap - 1) {
		ssize_t got = read(fds[0], out + n, cap - 1 - n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		n += (size_t)got;
	}
	out[n] = '\0';
	out[strcspn(out, "\n")] = '\0';
	printable_line(out);
	close(fds[0]); /* the rest: it may meet SIGPIPE */
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

static void check_tool(struct finding *f, const char *name, const char *package)
{
	char path[PATH_MAX], version[160];

	if (!find_tool(name, path)) {
		find(f, LEVEL_BAD, "%s was not found", name);
		mend(f, "apt-get install %s", package);
		return;
	}
	first_line(path, "--version", version, sizeof(version));
	if (*version)
		find(f, LEVEL_OK, "%s", version);
	else
		find(f, LEVEL_WARN, "%.200s does not say its version", path);
}

void check_qemu(struct doctor *d, struct finding *f)
{
	(void)d;
	check_tool(f, "qemu-system-x86_64", "qemu-system-x86");
}

/* What `profile build` runs. */
void check_builder(struct doctor *d, struct finding *f)
{
	static const struct {
		const char *tool, *package;
	} tools[] = { { "mmdebstrap", "mmdebstrap" },
		      { "mke2fs", "e2fsprogs" },
		      { "lz4", "lz4" },
		      { "cpio", "cpio" },
		      { "jq", "jq" } };
	char path[PATH_MAX], missing[96] = "", packages[96] = "";

	(void)d;
	for (size_t i = 0; i < ARRAY_LEN(tools); i++) {
		if (find_tool(tools[i].tool, path))
			continue;
		list_word(missing, sizeof(missing), tools[i].tool);
		list_word(packages, sizeof(packages), tools[i].package);
	}
	if (*missing) {
		find(f, LEVEL_WARN, "profiles cannot be built; not found: %s", missing);
		mend(f, "apt-get install %s", packages);
		return;
	}
	find(f, LEVEL_OK, "mmdebstrap, mke2fs, lz4, cpio, jq were found");
}

/* The launcher makes a sandbox's network in a namespace that nobody else sees, and says what was missing. */
void check_network(struct doctor *d, struct finding *f)
{
	char path[PATH_MAX], words[224];
	struct err e = { 0 };
	int status;

	(void)d;
	if (geteuid() != 0) {
		find(f, LEVEL_INFO, "whether sandboxes can have a network is only found out by root");
		mend(f, "sudo crucible doctor");
		return;
	}
	if (libexec_find("crucible-launch", path, sizeof(path), &e) < 0) {
		find(f, LEVEL_WARN, "%.200s", e.msg);
		return;
	}
	status = first_line(path, "--probe-network", words, sizeof(words));
	if (status == 0) {
		find(f, LEVEL_OK, "tap, nftables and TPROXY work");
		return;
	}
	find(f, LEVEL_WARN, "sandboxes have no network: %s", *words ? words : "crucible-launch could not try");
	mend(f, "modprobe -a tun nf_tables nft_tproxy nf_tproxy_ipv4 nf_tproxy_ipv6");
}

void check_programs(struct doctor *d, struct finding *f)
{
	static const char *const names[] = { "crucibled",      "crucible-launch",     "crucible-box",
					     "crucible-agent", "crucible-pager",      "crucible-store",
					     "crucible-netd",  "crucible-preload.so", "crucible-profile" };
	char path[PATH_MAX];
	struct err e = { 0 };

	(void)d;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (libexec_find(names[i], path, sizeof(path), &e) < 0) {
			find(f, LEVEL_BAD, "%.250s", e.msg);
			mend(f, "make && make install");
			return;
		}
	}
	*strrchr(path, '/') = '\0';
	find(f, LEVEL_OK, "all are in %.200s", path);
}
