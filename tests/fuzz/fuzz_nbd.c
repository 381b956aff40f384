/* SPDX-License-Identifier: Apache-2.0 */
/* An engine that was taken over: any bytes, to a block server with a disk. The first byte says where it begins: at the
 * handshake, or in transmission; the second in what pieces the rest comes. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "snapstore/disk/disk.h"
#include "snapstore/disk/nbd_proto.h"
#include "tests/unit/disk_dir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#define BYTES (1u << 20)

static struct {
	struct disk_dir dir;
	struct disks *d;
	struct loop *loop;
	struct nbd *nbd;
	struct sockaddr_un at;
} w;

static void end(void)
{
	nbd_free(w.nbd);
	disks_close(w.d);
	loop_free(w.loop);
	disk_dir_end(&w.dir);
}

static void start(void)
{
	struct disk_origin o = { .base = "img" };
	struct err e = { 0 };
	int fd;

	disk_dir_make(&w.dir);
	o.base_fd = disk_dir_base(&w.dir, "img", 100000);
	w.at.sun_family = AF_UNIX;
	snprintf(w.at.sun_path, sizeof(w.at.sun_path), "%s/nbd.sock", w.dir.path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(fd, (struct sockaddr *)&w.at, sizeof(w.at)) < 0 || listen(fd, 4) < 0 ||
	    disks_open(w.dir.fd, NULL, &w.d, &e) < 0 || disk_create(w.d, "m", BYTES, 0, &o, &e) < 0 ||
	    loop_new(&w.loop) < 0 || nbd_new(w.loop, fd, w.d, &w.nbd, &e) < 0 ||
	    nbd_export(w.nbd, "m", "m", geteuid(), &e) < 0)
		abort();
	fd_close(&o.base_fd);
	atexit(end);
}

/* What the server says is thrown away. */
static void turn(int fd)
{
	static uint8_t sink[1 << 20];

	for (int i = 0; i < 3; i++) {
		loop_once(w.loop, 0);
		while (recv(fd, sink, sizeof(sink), MSG_DONTWAIT) > 0)
			loop_once(w.loop, 0);
	}
}

static void converse(const uint8_t *data, size_t len, bool past, size_t piece)
{
	static const char hello[] = "\0\0\0\3IHAVEOPT\0\0\0\7\0\0\0\7\0\0\0\1m\0\0";
	AUTO_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (connect(fd, (struct sockaddr *)&w.at, sizeof(w.at)) < 0)
		abort();
	turn(fd);
	if (past && write(fd, hello, sizeof(hello) - 1) != sizeof(hello) - 1)
		abort();
	turn(fd);
	for (size_t at = 0; at < len;) {
		size_t n = len - at < piece ? len - at : piece;
		ssize_t done = send(fd, data + at, n, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (done < 0)
			break;
		at += (size_t)done;
		turn(fd);
	}
	fd_close(&fd);
	for (int i = 0; i < 5; i++)
		loop_once(w.loop, 0);
	assert(nbd_busy(w.nbd, "m") == 0);
}

static void parse(const uint8_t *data, size_t len)
{
	struct nbd_option_go go;
	struct nbd_option_head o;
	struct nbd_request q;

	if (nbd_option_go_parse(data, len, &go) == 0)
		assert(strlen(go.name) <= NBD_NAME_MAX);
	if (nbd_option_name_parse(data, len, &go) == 0)
		assert(strlen(go.name) == len);
	if (len >= NBD_OPTION_BYTES)
		nbd_option_head_parse(data, &o);
	if (len >= NBD_REQUEST_BYTES && nbd_request_parse(data, &q) == 0 &&
	    nbd_request_check(&q, BYTES, false) == NBD_OK)
		assert(q.offset <= BYTES && q.bytes <= BYTES - q.offset);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	if (len < 2 || len > 65536)
		return 0;
	if (!w.nbd)
		start();
	parse(data + 2, len - 2);
	converse(data + 2, len - 2, data[0] & 1, data[1] % 8 == 0 ? len : data[1]);
	return 0;
}
