/* SPDX-License-Identifier: Apache-2.0 */
/* A hostile agent: frames to a host that has a command and file requests under way.
 *
 * First byte, bit 1: the guest is being frozen, and thawed behind the input; bit 2: it was restored and has not
 * answered yet, so that the input may tell what it inherited. Bit 0 clear: {u8 port, u8 type, u8 flags, u8 stream, u16
 * length, payload} after each other, sent as frames with the right seq, so that what lies behind the order is reached.
 * Set: raw bytes, first half to control, second half to bulk. */
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "vmm/box/inherit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

struct fix {
	struct loop *loop;
	struct guest *guest;
	struct guest_exec *exec;
	int far[2];
	uint32_t seq[2];
	bool ready, gone, clone, freezing;
	struct inherit *inherit;
	int answered, wanted;
	uint64_t bytes;
};

static bool clean(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			return false;
	return true;
}

static void on_stage(void *arg, const char *words)
{
	(void)arg;
	assert(clean(words));
}

static void on_heir_ended(void *arg, const struct inherit_end *end)
{
	(void)arg;
	assert(end->n > 0 && clean(end->signal) && end->dropped == end->bytes && end->exit_code <= 255);
}

static void on_frozen(void *arg, int code, const void *data, size_t len)
{
	struct fix *f = arg;

	assert(f->freezing && code <= 0 && !data && len == 0);
	f->freezing = false;
}

static void on_ready(void *arg, const struct guest_info *info)
{
	struct fix *f = arg;
	char json[2048];

	f->ready = true;
	assert(f->clone || info->ninherited == 0);
	/* Files can not be made below no folder: output is dropped, and counted. */
	if (info->ninherited > 0 && inherit_new(f->guest, info, -1, 65536, on_heir_ended, f, &f->inherit) < 0)
		abort();
	if (f->inherit && inherit_json(f->inherit, info->json, json, sizeof(json)) == 0)
		assert(clean(json));
	assert(clean(info->json) && clean(info->unenforced) && strlen(info->json) < 2048);
}

static void on_gone(void *arg, int reason, const char *words)
{
	struct fix *f = arg;

	assert(!f->gone && reason < 0 && clean(words));
	f->gone = true;
}

static void on_answer(void *arg, int code, const void *data, size_t len)
{
	assert(code <= 0 && code > -4096 && (data || len == 0));
	((struct fix *)arg)->answered++;
}

static void on_started(void *arg, const char *script)
{
	(void)arg;
	assert(clean(script));
}

static void on_output(void *arg, enum ag_which which, const uint8_t *data, size_t len)
{
	assert(which == AG_STDOUT || which == AG_STDERR);
	for (size_t i = 0; i < len; i++)
		((struct fix *)arg)->bytes += data[i];
}

static void on_exit_told(void *arg, const struct guest_exit *x)
{
	(void)arg;
	assert(x->exit_code >= -1 && x->exit_code <= 255 && clean(x->signal) && clean(x->error));
	assert(x->exit_code == -1 || (!*x->signal && !*x->error));
}

static void on_end(void *arg)
{
	struct fix *f = arg;

	f->exec = guest_exec_free(f->exec);
}

static void on_credit(void *arg, uint32_t bytes)
{
	(void)arg;
	assert(bytes <= AG_WINDOW);
}

static void put(struct fix *f, int port, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len > 0) {
		ssize_t n = send(f->far[port], p, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno != EAGAIN)
			return;
		if (n > 0) {
			p += n;
			len -= (size_t)n;
		}
		loop_once(f->loop, 0);
	}
}

static void frame(struct fix *f, int port, uint8_t type, uint8_t flags, uint32_t stream, const void *data, size_t len)
{
	uint8_t head[AG_HEADER_LEN];

	ag_frame_header(head, type, flags, stream, f->seq[port]++, (uint32_t)len);
	put(f, port, head, sizeof(head));
	put(f, port, data, len);
}

static void drain(struct fix *f)
{
	uint8_t sink[65536];

	for (int port = 0; port < 2; port++)
		while (recv(f->far[port], sink, sizeof(sink), MSG_DONTWAIT) > 0)
			;
	loop_once(f->loop, 0);
}

static void begin(struct fix *f)
{
	static const struct guest_ops ops = { .on_stage = on_stage, .on_ready = on_ready, .on_gone = on_gone };
	static const struct guest_exec_ops exec_ops = { .on_started = on_started,
							.on_output = on_output,
							.on_exit = on_exit_told,
							.on_end = on_end,
							.on_stdin_credit = on_credit };
	struct guest_identity id = { .hostname = "a", .instance = "u" };
	static const char hello[] = "{\"version\":4,\"agent\":\"0\",\"unenforced\":[\"x\"]}";
	char *argv[] = { (char *)"a", NULL };
	struct guest_exec_req req = { .argv = argv, .name = "n", .live_stdin = true };
	struct err e = { 0 };
	int control[2], bulk[2];

	if (loop_new(&f->loop) < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, bulk) < 0)
		abort();
	f->far[0] = control[1];
	f->far[1] = bulk[1];
	if (guest_new(f->loop, control[0], bulk[0], &ops, f, &f->guest) < 0)
		abort();
	if (f->clone) {
		id.clone_parent = "p";
		id.machine_id = "0123456789abcdef0123456789abcdef";
		guest_hello(f->guest, &id);
		guest_fs(f->guest, AG_FS_GETATTR, "", 0, 1000, on_answer, f);
		f->wanted = 1;
		drain(f);
		return;
	}
	guest_hello(f->guest, &id);
	frame(f, 0, AG_HELLO, 0, 0, hello, strlen(hello));
	drain(f);
	assert(f->ready);
	/* Streams 1 and 2, 3, 4: a command, two file requests, a sync. */
	if (guest_exec_new(f->guest, &req, &exec_ops, f, &f->exec, &e) < 0)
		abort();
	guest_exec_stdin(f->exec, "input", 5, false);
	guest_fs(f->guest, AG_FS_GETATTR, "", 0, 1000, on_answer, f);
	guest_fs(f->guest, AG_FS_READ, "x", 1, 1000, on_answer, f);
	guest_sync(f->guest, 1000, on_answer, f);
	f->wanted = 3;
	drain(f);
}

static void freeze(struct fix *f)
{
	f->freezing = true;
	if (guest_freeze(f->guest, 1000, 1000, on_frozen, f) < 0)
		f->freezing = false;
	drain(f);
}

static void structured(struct fix *f, const uint8_t *p, size_t len)
{
	while (len >= 6 && !f->gone) {
		size_t n = (size_t)(p[4] | p[5] << 8);

		if (n > len - 6)
			n = len - 6;
		frame(f, p[0] & 1, p[1], p[2], p[3], p + 6, n);
		drain(f);
		p += 6 + n;
		len -= 6 + n;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct fix f = { 0 };

	if (len == 0 || len > 300000)
		return 0;
	f.clone = data[0] & 4;
	begin(&f);
	if (data[0] & 2)
		freeze(&f);
	if (data[0] & 1) {
		put(&f, 0, data + 1, (len - 1) / 2);
		put(&f, 1, data + 1 + (len - 1) / 2, len - 1 - (len - 1) / 2);
	} else {
		structured(&f, data + 1, len - 1);
	}
	if (f.freezing || (!f.gone && guest_frozen(f.guest))) {
		f.freezing = false;
		guest_thaw(f.guest);
		drain(&f);
	}
	close(f.far[0]);
	close(f.far[1]);
	for (int i = 0; i < 20 && !f.gone; i++)
		loop_once(f.loop, 0);
	assert(f.gone && f.answered == f.wanted && !f.freezing); /* every call ends, once */
	guest_exec_free(f.exec);
	inherit_free(f.inherit);
	guest_free(f.guest);
	loop_free(f.loop);
	return 0;
}
