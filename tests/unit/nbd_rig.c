/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/nbd_rig.h"

#include <endian.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/loop.h"

static struct {
	pthread_t thread;
	sem_t done;
	void (*fn)(struct nbd_rig *r, void *arg);
	void *arg;
} job;

/* -- the server -------------------------------------------------------------------------------------------------- */

static void on_wake(void *arg)
{
	if (!job.fn)
		return;
	job.fn(arg, job.arg);
	job.fn = NULL;
	sem_post(&job.done);
}

static void *serve(void *arg)
{
	struct nbd_rig *r = arg;

	loop_run(r->loop);
	return NULL;
}

static int listen_at(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 64), 0);
	assert_int_equal(chmod(path, 0666), 0);
	return fd;
}

void nbd_rig_start(struct nbd_rig *r, uint64_t base_bytes, struct snap *snap)
{
	struct err e = { 0 };

	memset(r, 0, sizeof(*r));
	disk_dir_make(&r->dir);
	chmod(r->dir.path, 0711);
	r->base = disk_dir_base(&r->dir, "img", base_bytes);
	r->snap = snap;
	snprintf(r->socket, sizeof(r->socket), "%s/nbd.sock", r->dir.path);
	assert_int_equal(disks_open(r->dir.fd, snap, &r->d, &e), 0);
	assert_int_equal(loop_new(&r->loop), 0);
	assert_int_equal(nbd_new(r->loop, listen_at(r->socket), r->d, &r->nbd, &e), 0);
	assert_int_equal(sem_init(&job.done, 0, 0), 0);
	assert_int_equal(loop_set_wake(r->loop, on_wake, r), 0);
	assert_int_equal(pthread_create(&job.thread, NULL, serve, r), 0);
}

void nbd_rig_call(struct nbd_rig *r, void (*fn)(struct nbd_rig *r, void *arg), void *arg)
{
	job.arg = arg;
	job.fn = fn;
	loop_wake(r->loop);
	while (sem_wait(&job.done) < 0)
		;
}

static void stop(struct nbd_rig *r, void *arg)
{
	(void)arg;
	loop_stop(r->loop);
}

void nbd_rig_end(struct nbd_rig *r)
{
	nbd_rig_call(r, stop, NULL);
	pthread_join(job.thread, NULL);
	assert_null(nbd_free(r->nbd));
	assert_null(nbd_free(NULL));
	disks_close(r->d);
	loop_free(r->loop);
	sem_destroy(&job.done);
	fd_close(&r->base);
	disk_dir_end(&r->dir);
}

struct disk_call {
	const char *name, *id;
	uint64_t bytes, limit;
	uid_t uid;
	int code;
	struct err e;
};

static void export_it(struct nbd_rig *r, void *arg)
{
	struct disk_call *c = arg;

	c->code = nbd_export(r->nbd, c->name, c->id, c->uid, &c->e);
}

static void make_it(struct nbd_rig *r, void *arg)
{
	struct disk_call *c = arg;
	struct disk_origin o = { .base_fd = r->base, .base = "img" };

	c->code = disk_create(r->d, c->id, c->bytes, c->limit, &o, &c->e);
	if (c->code == 0)
		export_it(r, arg);
}

void nbd_rig_disk(struct nbd_rig *r, const char *id, uint64_t bytes, uint64_t limit)
{
	struct disk_call c = { .name = id, .id = id, .bytes = bytes, .limit = limit, .uid = geteuid() };

	nbd_rig_call(r, make_it, &c);
	assert_int_equal(c.code, 0);
}

void nbd_rig_export(struct nbd_rig *r, const char *name, const char *id, uid_t uid)
{
	struct disk_call c = { .name = name, .id = id, .uid = uid };

	nbd_rig_call(r, export_it, &c);
	assert_int_equal(c.code, 0);
}

/* -- the client -------------------------------------------------------------------------------------------------- */

static void must_write(int fd, const void *p, size_t n)
{
	assert_int_equal(fd_write_all(fd, p, n), 0);
}

static void must_read(int fd, void *p, size_t n)
{
	assert_int_equal(fd_read_all(fd, p, n), 0);
}

int nbd_dial(const struct nbd_rig *r)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct timeval patience = { .tv_sec = 30 };
	uint8_t greeting[NBD_GREETING_BYTES];
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", r->socket);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	must_read(fd, greeting, sizeof(greeting));
	assert_memory_equal(greeting, "NBDMAGICIHAVEOPT\0\3", sizeof(greeting));
	must_write(fd, "\0\0\0\3", 4);
	return fd;
}

uint32_t nbd_go(int fd, uint32_t option, const char *name, uint64_t *ret_bytes, uint16_t *ret_flags)
{
	uint8_t out[512], head[NBD_ANSWER_BYTES], data[64];
	uint32_t len = (uint32_t)strlen(name), v, type;

	memcpy(out, "IHAVEOPT", 8);
	v = htobe32(option);
	memcpy(out + 8, &v, 4);
	v = htobe32(len + 6);
	memcpy(out + 12, &v, 4);
	v = htobe32(len);
	memcpy(out + 16, &v, 4);
	memcpy(out + 20, name, len);
	memset(out + 20 + len, 0, 2);
	must_write(fd, out, 22 + len);
	do {
		must_read(fd, head, sizeof(head));
		memcpy(&v, head + 8, 4);
		assert_int_equal(be32toh(v), option);
		memcpy(&type, head + 12, 4);
		type = be32toh(type);
		memcpy(&v, head + 16, 4);
		assert_in_range(be32toh(v), 0, sizeof(data));
		must_read(fd, data, be32toh(v));
		if (type == NBD_REP_INFO && data[1] == NBD_INFO_EXPORT) {
			if (ret_bytes) {
				memcpy(ret_bytes, data + 2, 8);
				*ret_bytes = be64toh(*ret_bytes);
			}
			if (ret_flags) {
				memcpy(ret_flags, data + 10, 2);
				*ret_flags = be16toh(*ret_flags);
			}
		}
	} while (type == NBD_REP_INFO);
	return type;
}

int nbd_join(const struct nbd_rig *r, const char *name)
{
	int fd = nbd_dial(r);

	assert_int_equal(nbd_go(fd, NBD_OPT_GO, name, NULL, NULL), NBD_REP_ACK);
	return fd;
}

void nbd_ask(int fd, uint16_t command, uint16_t flags, uint64_t cookie, uint64_t off, uint32_t len)
{
	uint8_t q[NBD_REQUEST_BYTES] = { 0x25, 0x60, 0x95, 0x13 };

	flags = htobe16(flags);
	command = htobe16(command);
	off = htobe64(off);
	len = htobe32(len);
	memcpy(q + 4, &flags, 2);
	memcpy(q + 6, &command, 2);
	memcpy(q + 8, &cookie, 8);
	memcpy(q + 16, &off, 8);
	memcpy(q + 24, &len, 4);
	must_write(fd, q, sizeof(q));
}

enum nbd_error nbd_reply(int fd, uint64_t cookie)
{
	uint8_t head[NBD_REPLY_BYTES];
	uint32_t error;

	must_read(fd, head, sizeof(head));
	assert_memory_equal(head, "\x67\x44\x66\x98", 4);
	assert_memory_equal(head + 8, &cookie, 8);
	memcpy(&error, head + 4, 4);
	return (enum nbd_error)be32toh(error);
}

enum nbd_error nbd_do(int fd, uint16_t command, uint16_t flags, uint64_t off, uint32_t len, void *data)
{
	static uint64_t cookie;
	enum nbd_error error;

	nbd_ask(fd, command, flags, ++cookie, off, len);
	if (command == NBD_CMD_WRITE)
		must_write(fd, data, len);
	error = nbd_reply(fd, cookie);
	if (command == NBD_CMD_READ && error == NBD_OK)
		must_read(fd, data, len);
	return error;
}

bool nbd_ended(int fd)
{
	char c;
	ssize_t n = recv(fd, &c, 1, 0);

	return n == 0 || (n < 0 && errno == ECONNRESET);
}
