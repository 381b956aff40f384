/* SPDX-License-Identifier: Apache-2.0 */
/* File requests against a file server whose root is an empty directory of its own. The input is a list of requests: u8
 * operation, u16 length, payload. Nothing may be touched outside of the root, answers keep their form, and files stay
 * small (RLIMIT_FSIZE). */
#include <assert.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/files.h"
#include "base/wire.h"

#define REQUESTS_MAX   64
#define FILE_BYTES_MAX (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static char root[] = "/tmp/fuzz-agent-fs-XXXXXX";
static struct files *files;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type;
	return ftw->level == 0 ? 0 : remove(path);
}

static void empty_root(void)
{
	nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	chmod(root, 0700);
}

static void remove_root(void)
{
	files = files_free(files);
	empty_root();
	rmdir(root);
}

static void init(void)
{
	const struct rlimit small = { FILE_BYTES_MAX, FILE_BYTES_MAX };
	int root_fd, proc_fd;

	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &small);
	umask(0);
	if (!mkdtemp(root))
		abort();
	root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root_fd < 0 || proc_fd < 0 || files_new(root_fd, proc_fd, 1, &files) < 0)
		abort();
	atexit(remove_root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct wire_rd r;
	struct buf out;

	if (!files)
		init();
	buf_init(&out, AG_PAYLOAD_MAX);
	wire_rd_init(&r, data, len);
	for (int i = 0; i < REQUESTS_MAX && wire_left(&r) >= 3; i++) {
		uint8_t op = wire_u8(&r);
		size_t n = wire_u16(&r);
		int32_t code;

		if (n > wire_left(&r))
			n = wire_left(&r);
		files_handle(files, op, r.p, n, &out);
		r.p += n;
		assert(out.len >= 4 && out.len <= AG_PAYLOAD_MAX);
		code = (int32_t)((uint32_t)out.data[0] | (uint32_t)out.data[1] << 8 | (uint32_t)out.data[2] << 16 |
				 (uint32_t)out.data[3] << 24);
		assert(code <= 0 && code > -4096 && (code == 0 || out.len == 4));
	}
	buf_fini(&out);
	files_reset(files, 1);
	empty_root();
	return 0;
}
