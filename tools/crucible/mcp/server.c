/* SPDX-License-Identifier: Apache-2.0 */
/* How this works.
 *
 * One loop reads lines, answers at once what needs no file (initialize, ping, lists of tools), and hands all else to a
 * pool of threads as a struct call. A worker runs the call and leaves its result as text; only the loop makes the line
 * of it and writes, so lines never mix. Invariants:
 *  1. A call is in `calls`, oldest first, from its request until its answer was made; its id is unique there.
 *  2. Who does not read is not served. While OUT_FULL bytes wait to be taken, no line is read, no answer is made and no
 * call is begun: what is held is bounded by what has begun (THREADS results) and what was read (QUEUE_MAX requests of
 * REQUESTS_MAX together). server_full() is the one place that decides it, on_room() the one where it goes on.
 *  3. Cancelling is a flag and a signal: SIGUSR1 to the thread interrupts a blocked write or poll(2), and is what
 * attach_run() takes for Ctrl-C. It may come between two system calls, so it is sent again until the call has ended.
 * Under the call's lock, and what is left of it is taken away at the end: it never meets the thread's next call. All
 * other signals are the loop's; attach_run() may be the first to read one, and call_ended() passes it on.
 *  4. A cancelled call is not answered.
 *  5. The end (end of input, broken output, a signal) cancels everything and takes END_MS at most: who has not ended by
 * then does with the process, and the kernel lets go of the leases. */

#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/mcp/server_priv.h"

#define END_MS	  700
#define DRAIN_MS  20
#define IDLE_MS	  200		    /* after the last call memory is given back */
#define LINGER_MS 200		    /* who closes our input before it has read our answers has so long */
#define OUT_FULL  (1024u * 1024)    /* above it nobody is served */
#define OUT_MAX	  (4 * ANSWERS_MAX) /* never reached */
#define PIECE	  65536
#define LARGE	  (128 * 1024) /* memory of so many bytes goes back when it is freed */
#define ARENAS	  1	       /* of malloc: one a thread would take more than all the rest, and give nothing back */

static void on_room(void *arg);

/* -- output -------------------------------------------------------------------------------------------------------- */

bool server_full(const struct server *s)
{
	return out_left(&s->out) >= OUT_FULL;
}

void server_go_on(struct server *s)
{
	if (!s->room)
		loop_defer(s->loop, on_room, s, &s->room);
}

static void flush(struct server *s)
{
	out_flush(&s->out);
	if (s->out.broken)
		server_end(s, 0);
	if (s->out_id)
		loop_mod(s->loop, s->out_id, out_left(&s->out) ? EPOLLOUT : 0);
	if (!server_full(s) && (s->paused || s->in_state[CALL_DONE] || s->in_state[CALL_QUEUED]))
		server_go_on(s);
}

static void on_out(void *arg, uint32_t events)
{
	struct server *s = arg;

	/* A reader that is gone is told although nothing waits to be written. */
	if (events & (EPOLLERR | EPOLLHUP))
		s->out.broken = true;
	flush(s);
}

struct buf *server_answers(struct server *s)
{
	return s->batch ? &s->batch->text : &s->out.text;
}

void server_sent(struct server *s, int r)
{
	if (r < 0)
		s->out.broken = true;
	if (!s->batch || r < 0)
		flush(s);
}

/* -- input --------------------------------------------------------------------------------------------------------- */

/* What was read and not looked at yet; as much as there is room for. */
static void take_lines(struct server *s)
{
	const char *line;
	size_t len;
	int r;

	while (!s->ending && !server_full(s) && (r = rpc_reader_line(&s->in, &line, &len)) != 0) {
		if (r < 0)
			server_sent(s, rpc_error(server_answers(s), NULL, RPC_PARSE, "a message is longer than 16 MiB",
						 NULL));
		else
			server_line(s, line, len);
	}
}

static void read_input(struct server *s)
{
	char piece[PIECE];
	ssize_t n = read(s->config.in, piece, sizeof(piece));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0) {
		server_end(s, 0);
		return;
	}
	if (rpc_reader_add(&s->in, piece, (size_t)n) < 0) {
		s->out.broken = true; /* no memory: there is nothing sensible to say */
		server_end(s, 0);
		return;
	}
	take_lines(s);
}

/* Read on, or do not, by whether there is room. */
static void set_reading(struct server *s)
{
	s->paused = server_full(s);
	if (s->in_id)
		loop_mod(s->loop, s->in_id, s->paused ? 0 : EPOLLIN);
	else if (s->always_ready && !s->paused)
		server_go_on(s);
}

static void on_linger(void *arg)
{
	struct server *s = arg;

	s->deadline = 0;
	server_end(s, 0);
}

static void on_in(void *arg, uint32_t events)
{
	struct server *s = arg;

	if (!s->paused) {
		read_input(s);
		if (!s->ending)
			set_reading(s);
	}
	if (!s->paused || s->ending || !(events & (EPOLLHUP | EPOLLERR)))
		return;
	/* Nobody writes any more. What was written is read when there is room, if that is soon. */
	loop_del(s->loop, &s->in_id);
	s->always_ready = true;
	loop_timer(s->loop, now_ns() + LINGER_MS * 1000000ull, on_linger, s, &s->deadline);
}

static void give_back(void *arg)
{
	struct server *s = arg;

	s->idle = 0;
	malloc_trim(0);
}

/* There is room, or a call has changed. */
static void on_room(void *arg)
{
	struct server *s = arg;

	s->room = 0;
	server_serve_calls(s);
	if (s->ending) {
		if (!s->calls)
			loop_stop(s->loop);
		return;
	}
	if (!s->calls && !s->idle)
		loop_timer(s->loop, now_ns() + IDLE_MS * 1000000ull, give_back, s, &s->idle);
	if (s->paused)
		take_lines(s);
	if (s->always_ready && !s->ending && !server_full(s))
		read_input(s);
	if (!s->ending && (s->paused || s->always_ready))
		set_reading(s);
}

/* -- beginning and end --------------------------------------------------------------------------------------------- */

static void on_deadline(void *arg)
{
	struct server *s = arg;

	_exit(s->code); /* threads that do not come back; the kernel closes their leases */
}

void server_end(struct server *s, int code)
{
	if (s->ending)
		return;
	s->ending = true;
	s->code = code;
	s->gone_ns = now_ns() + END_MS * 1000000ull;
	loop_del(s->loop, &s->in_id);
	loop_del(s->loop, &s->deadline);
	loop_timer(s->loop, s->gone_ns, on_deadline, s, &s->deadline);
	for (struct call *c = s->calls; c; c = c->next)
		server_cancel(s, c);
	server_go_on(s);
}

static void on_signal(void *arg, const struct signalfd_siginfo *si)
{
	server_end(arg, 128 + (int)si->ssi_signo);
}

static void ignore(int signo)
{
	(void)signo; /* it is sent to interrupt a system call */
}

static int begin(struct server *s, struct err *e)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction interrupt = { .sa_handler = ignore };
	int r = loop_new(&s->loop);

	sigemptyset(&interrupt.sa_mask);
	sigaction(SIGUSR1, &interrupt, NULL); /* without SA_RESTART */
	for (size_t i = 0; i < ARRAY_LEN(signals) && r == 0; i++)
		r = loop_signal(s->loop, signals[i], on_signal, s);
	if (r == 0)
		r = pool_new(s->loop, THREADS, THREADS, &s->pool);
	if (r == 0)
		r = loop_add(s->loop, s->config.in, EPOLLIN, on_in, s, &s->in_id);
	s->always_ready = r == -EPERM;
	if (s->always_ready)
		r = loop_defer(s->loop, on_room, s, &s->room);
	if (r == 0)
		r = loop_add(s->loop, s->config.out, 0, on_out, s, &s->out_id);
	if (r == -EPERM || r == -EEXIST) { /* a file; or the socket that is our input, too */
		s->out.is_file = r == -EPERM;
		r = 0;
	}
	return r < 0 ? err_set(e, r, "mcp serve: %s", strerror(-r)) : 0;
}

/* What is still to be said, to a client that still listens. */
static void drain(struct server *s)
{
	while (out_left(&s->out) && !s->out.broken && now_ns() < s->gone_ns) {
		struct pollfd p = { .fd = s->config.out, .events = POLLOUT };

		poll(&p, 1, DRAIN_MS);
		flush(s);
	}
}

int server_run(const struct server_config *config, struct err *e)
{
	struct server s = { .config = *config, .told = guard_changes(config->guard) };
	int r;

	mallopt(M_ARENA_MAX, ARENAS);
	mallopt(M_MMAP_THRESHOLD, LARGE);
	rpc_reader_init(&s.in);
	out_init(&s.out, config->out, OUT_MAX);
	r = begin(&s, e);
	if (r == 0)
		r = loop_run(s.loop);
	drain(&s);
	pool_free(s.pool);
	loop_free(s.loop);
	rpc_reader_fini(&s.in);
	out_fini(&s.out);
	return r < 0 ? err_set(e, r, "mcp serve: %s", strerror(-r)) : s.code;
}
