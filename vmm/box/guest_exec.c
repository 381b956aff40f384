/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * Output. Each stream may send AG_WINDOW bytes before we give some back; what on_output() has taken is given back in
 * pieces of a quarter window, so a command that prints little costs no frame at all. EXIT comes on another port than
 * the output and says how much of it there is: the command has ended when both are here. More than was told, or than
 * the credit, breaks the protocol.
 *
 * Input. A command has up to two inputs, its script and then its standard input. Each is a source (known to its end)
 * or, live, a buffer that the daemon fills; each sends as far as the agent's credit goes, one piece a turn, ending with
 * AG_EOF. What the daemon may write to a live input is the agent's credit itself, so the buffer never holds more than a
 * window.
 *
 * Frames for a stream that is no more (its command was freed) are dropped; for one that never was they break the
 * protocol.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/fd.h"
#include "vmm/box/box.h"
#include "vmm/box/guest_json.h"
#include "vmm/box/guest_priv.h"

#define PIECE	  (32u * 1024)
#define GIVE_BACK (AG_WINDOW / 2)

static_assert(BOX_STDIN_WINDOW == AG_WINDOW, "the daemon's credit is the agent's");

struct input {
	enum ag_which which;
	struct source src;
	bool open;	 /* not all of it, with the EOF, has been sent */
	bool live, ends; /* live: held is what the daemon wrote; ends: and no more will follow */
	struct buf held;
	uint32_t credit; /* the agent's */
	uint32_t room;	 /* the daemon's: credit less what is held */
};

struct output {
	uint64_t bytes;	   /* received */
	uint32_t window;   /* may still come */
	uint32_t consumed; /* not given back yet */
};

struct guest_exec {
	struct guest_exec *next, **prev;
	struct guest *guest;
	uint32_t stream;
	struct guest_exec_ops ops;
	void *arg;
	struct input script, in;
	struct output out, err;
	bool exited;
	uint64_t out_total, err_total; /* once exited */
	bool ended;
	bool input_failed;
};

/* -- input ------------------------------------------------------------------------------------- */

/* Could it send something now? */
static bool input_ready(const struct input *in)
{
	if (!in->open)
		return false;
	if (in->live ? in->held.len == 0 : in->src.at == in->src.len)
		return !in->live || in->ends; /* the end of file needs no credit */
	return in->credit > 0;
}

/* Send one piece. 0 or -errno. */
static int input_send(struct guest_exec *x, struct input *in)
{
	uint8_t piece[PIECE];
	const uint8_t *data = piece;
	size_t cap = in->credit < PIECE ? in->credit : PIECE;
	bool end;
	long n;
	int r;

	if (in->live) {
		n = (long)(in->held.len < cap ? in->held.len : cap);
		data = in->held.data;
		end = in->ends && (size_t)n == in->held.len;
	} else {
		n = source_read(&in->src, piece, cap);
		if (n < 0) { /* a disk that fails ends the input: the command sees an early end, its record says so */
			n = 0;
			in->src.at = in->src.len;
			x->input_failed = true;
		}
		end = in->src.at == in->src.len;
	}
	if (n == 0 && !end)
		return 0;
	r = guest_send(x->guest, CHANNEL_BULK, AG_DATA, (uint8_t)(in->which | (end ? AG_EOF : 0)), x->stream, data,
		       (size_t)n);
	if (r < 0) {
		if (!in->live)
			in->src.at -= (uint64_t)n;
		return r;
	}
	in->credit -= (uint32_t)n;
	if (in->live)
		buf_drop(&in->held, (size_t)n);
	if (end) {
		in->open = false;
		source_fini(&in->src);
		buf_fini(&in->held);
	}
	return 0;
}

/* The next input of @x that has something to send. */
static struct input *exec_input(struct guest_exec *x)
{
	if (x->exited)
		return NULL;
	if (input_ready(&x->script))
		return &x->script;
	return input_ready(&x->in) ? &x->in : NULL;
}

void guest_exec_pump(struct guest *g)
{
	size_t idle = 0, n = 0;

	if (g->state != GUEST_READY)
		return;
	for (struct guest_exec *x = g->execs; x; x = x->next)
		n++;
	/* Until the port is full, or a whole turn found nothing to send. */
	while (idle < n && channel_has_room(g->channel)) {
		struct guest_exec *x = g->senders ? g->senders : g->execs;
		struct input *in = exec_input(x);

		g->senders = x->next;
		if (!in)
			idle++;
		else if (input_send(x, in) < 0)
			return;
		else
			idle = 0;
	}
}

int guest_exec_stdin(struct guest_exec *x, const void *data, size_t len, bool eof)
{
	struct input *in = &x->in;
	int r;

	if (!in->live || in->ends || !in->open || x->exited)
		return -EPIPE;
	if (len > in->room)
		return -ENOBUFS;
	r = buf_add(&in->held, data, len);
	if (r < 0)
		return -ENOMEM;
	in->room -= (uint32_t)len;
	in->ends = eof;
	guest_exec_pump(x->guest);
	return 0;
}

bool guest_exec_input_failed(const struct guest_exec *x)
{
	return x->input_failed;
}

uint32_t guest_exec_stdin_room(const struct guest_exec *x)
{
	return x->in.live && x->in.open && !x->in.ends && !x->exited ? x->in.room : 0;
}

static int take_credit(struct guest_exec *x, const struct ag_frame *f)
{
	const uint8_t *p = f->payload;
	uint32_t n = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
	struct input *in = f->flags == AG_STDIN ? &x->in : f->flags == AG_SCRIPT ? &x->script : NULL;

	if (!in || n > AG_WINDOW - in->credit)
		return -EBADMSG;
	in->credit += n;
	if (in->live && in->open && !in->ends) {
		in->room += n;
		x->ops.on_stdin_credit(x->arg, n);
	}
	return 0;
}

/* -- output ------------------------------------------------------------------------------------ */

/* Calls on_end() once when all is here. The exec may be gone afterwards. */
static int check_end(struct guest_exec *x)
{
	if (!x->exited)
		return 0;
	if (x->out.bytes > x->out_total || x->err.bytes > x->err_total)
		return -EBADMSG;
	if (!x->ended && x->out.bytes == x->out_total && x->err.bytes == x->err_total) {
		x->ended = true;
		x->ops.on_end(x->arg);
	}
	return 0;
}

static void give_back(struct guest_exec *x, struct output *o, enum ag_which which)
{
	uint8_t payload[4];

	if (o->consumed < GIVE_BACK)
		return;
	for (int i = 0; i < 4; i++)
		payload[i] = (uint8_t)(o->consumed >> (8 * i));
	/* If it can not be sent now it is with the next piece; a guest that does not read its port stops by itself. */
	if (guest_send(x->guest, CHANNEL_BULK, AG_CREDIT, (uint8_t)which, x->stream, payload, sizeof(payload)) < 0)
		return;
	o->window += o->consumed;
	o->consumed = 0;
}

static int take_output(struct guest_exec *x, const struct ag_frame *f)
{
	enum ag_which which = (enum ag_which)(f->flags & AG_WHICH_MASK);
	struct output *o = which == AG_STDOUT ? &x->out : which == AG_STDERR ? &x->err : NULL;

	if (!o || f->len > o->window || x->ended)
		return -EBADMSG;
	o->window -= f->len;
	o->consumed += f->len;
	o->bytes += f->len;
	if (f->len > 0) {
		x->ops.on_output(x->arg, which, f->payload, f->len);
		give_back(x, o, which);
	}
	return 0;
}

static int take_exit(struct guest_exec *x, const struct ag_frame *f)
{
	struct guest_exit exit;

	if (x->exited || guest_exit_parse(f->payload, f->len, &exit) < 0)
		return -EBADMSG;
	x->exited = true;
	x->out_total = exit.stdout_bytes;
	x->err_total = exit.stderr_bytes;
	x->ops.on_exit(x->arg, &exit);
	return 0;
}

static struct guest_exec *find(struct guest *g, uint32_t stream)
{
	struct guest_exec *x = g->execs;

	while (x && x->stream != stream)
		x = x->next;
	return x;
}

int guest_exec_frame(struct guest *g, const struct ag_frame *f)
{
	struct guest_exec *x = find(g, f->stream);
	char script[256];
	int r = 0;

	if (!x) /* ended already: what was under way. Numbers wrap only after 4 billion, which no guest lives for. */
		return f->stream != 0 && f->stream <= g->last_stream ? 0 : -EBADMSG;
	switch (f->type) {
	case AG_EXEC_STARTED:
		r = guest_started_parse(f->payload, f->len, script, sizeof(script));
		if (r == 0 && !x->exited)
			x->ops.on_started(x->arg, script);
		break;
	case AG_EXIT:
		r = take_exit(x, f);
		break;
	case AG_DATA:
		r = take_output(x, f);
		break;
	default: /* AG_CREDIT */
		r = take_credit(x, f);
		if (r == 0)
			guest_exec_pump(g);
		return r;
	}
	return r == 0 ? check_end(x) : r;
}

/* -- life -------------------------------------------------------------------------------------- */

/* EXEC, in as many frames as its JSON needs. */
static int send_exec(struct guest *g, uint32_t stream, const struct guest_exec_req *req, struct err *e)
{
	struct buf json;
	size_t at = 0;
	int r;

	buf_init(&json, AG_EXEC_JSON_MAX);
	r = guest_exec_format(req, &json);
	while (r == 0 && at < json.len) {
		size_t n = json.len - at < AG_PAYLOAD_MAX ? json.len - at : AG_PAYLOAD_MAX;
		bool more = at + n < json.len;

		r = guest_send(g, CHANNEL_CONTROL, AG_EXEC, more ? AG_MORE : 0, stream, json.data + at, n);
		at += n;
	}
	buf_fini(&json);
	if (r == -E2BIG)
		return err_set(e, r, "arguments and environment are longer than %u KiB", AG_EXEC_JSON_MAX / 1024);
	if (r < 0 && at > AG_PAYLOAD_MAX) { /* half of a request can not be taken back */
		g->busy++;
		guest_fail(g, r, "a request could not be sent whole");
		g->busy--;
		guest_release(g);
	}
	return r < 0 ? err_set(e, r, "the guest takes no command: %s", err_name(r)) : 0;
}

static void input_init(struct input *in, enum ag_which which, const struct source *src, bool open, bool live)
{
	*in = (struct input){
		.which = which, .src = *src, .open = open, .live = live, .credit = AG_WINDOW, .room = AG_WINDOW
	};
	buf_init(&in->held, AG_WINDOW);
}

static void exec_link(struct guest_exec *x)
{
	struct guest *g = x->guest;

	x->next = g->execs;
	x->prev = &g->execs;
	if (x->next)
		x->next->prev = &x->next;
	g->execs = x;
}

int guest_exec_new(struct guest *g, struct guest_exec_req *req, const struct guest_exec_ops *ops, void *arg,
		   struct guest_exec **ret, struct err *e)
{
	struct guest_exec *x = calloc(1, sizeof(*x));
	uint32_t stream = guest_next_stream(g);
	int r;

	if (x && guest_ready(g))
		r = send_exec(g, stream, req, e);
	else
		r = err_set(e, x ? -ENOTCONN : -ENOMEM, "the guest takes no command: %s",
			    x ? "it is gone" : "no memory");
	if (r < 0 || !x) {
		free(x);
		source_fini(&req->script);
		source_fini(&req->in);
		return r;
	}
	*x = (struct guest_exec){ .guest = g, .stream = stream, .ops = *ops, .arg = arg };
	x->out.window = x->err.window = AG_WINDOW;
	input_init(&x->script, AG_SCRIPT, &req->script, !req->argv, false);
	input_init(&x->in, AG_STDIN, &req->in, req->has_stdin || req->live_stdin, req->live_stdin);
	req->script = req->in = (struct source){ 0 };
	exec_link(x);
	guest_exec_pump(g);
	*ret = x;
	return 0;
}

int guest_exec_adopt(struct guest *g, uint32_t stream, const struct guest_exec_ops *ops, void *arg,
		     struct guest_exec **ret)
{
	struct guest_exec *x = calloc(1, sizeof(*x));
	static const struct source none;

	if (!x)
		return -ENOMEM;
	*x = (struct guest_exec){ .guest = g, .stream = stream, .ops = *ops, .arg = arg };
	x->out.window = x->err.window = AG_WINDOW;
	input_init(&x->script, AG_SCRIPT, &none, false, false);
	input_init(&x->in, AG_STDIN, &none, false, false);
	exec_link(x);
	*ret = x;
	return 0;
}

struct guest_exec *guest_exec_free(struct guest_exec *x)
{
	if (!x)
		return NULL;
	*x->prev = x->next;
	if (x->next)
		x->next->prev = x->prev;
	if (x->guest->senders == x)
		x->guest->senders = x->next;
	guest_send(x->guest, CHANNEL_CONTROL, AG_CLOSE, 0, x->stream, NULL, 0);
	source_fini(&x->script.src);
	source_fini(&x->in.src);
	buf_fini(&x->script.held);
	buf_fini(&x->in.held);
	free(x);
	return NULL;
}

int guest_exec_kill(struct guest_exec *x)
{
	return guest_send(x->guest, CHANNEL_CONTROL, AG_KILL, 0, x->stream, NULL, 0);
}

int guest_exec_signal(struct guest_exec *x, uint32_t signo)
{
	const uint8_t payload[4] = { (uint8_t)signo, (uint8_t)(signo >> 8), (uint8_t)(signo >> 16),
				     (uint8_t)(signo >> 24) };

	return guest_send(x->guest, CHANNEL_CONTROL, AG_SIGNAL, 0, x->stream, payload, sizeof(payload));
}

int guest_exec_resize(struct guest_exec *x, uint16_t rows, uint16_t cols)
{
	const uint8_t payload[4] = { (uint8_t)rows, (uint8_t)(rows >> 8), (uint8_t)cols, (uint8_t)(cols >> 8) };

	return guest_send(x->guest, CHANNEL_CONTROL, AG_RESIZE, 0, x->stream, payload, sizeof(payload));
}
