/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * A box begins with its descriptors and nothing else; START from the daemon brings the configuration, and box_start()
 * makes the rest. With a generic engine the machine's side is there from the beginning (box_load.c). Three things can
 * tell of an end: the monitor, the pidfd and the agent's ports. When an engine dies all of them do, within microseconds
 * and in any order; the monitor knows the reason. So the others only start a short timer (settle), and the end comes
 * with the monitor's words, or without when it has none.
 *
 * Every end is the same: box_end() takes note of the words and defers finish(), because it is called from deep inside
 * of callbacks. finish() ends the commands, tells the daemon, lets go of everything, and waits only for the last
 * messages to get out.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "vmm/box/box_priv.h"

static uint64_t in_ms(uint32_t ms)
{
	return now_ns() + ms * 1000000ull;
}

void box_set_state(struct box *b, enum box_state s, const char *words)
{
	b->state = s;
	if (words != b->state_words)
		snprintf(b->state_words, sizeof(b->state_words), "%s", words);
	box_say_state(b);
}

/* -- the end ----------------------------------------------------------------------------------- */

static void over(struct box *b)
{
	if (b->over)
		return;
	b->over = true;
	loop_del(b->loop, &b->farewell_timer);
	b->on_over(b->arg, b->why);
}

static void on_farewell(void *arg)
{
	struct box *b = arg;

	b->farewell_timer = 0;
	/* A look every 10 ms, for once: the daemon reads slowly, or not at all. */
	if (session_idle(b->session) || b->t.farewell_ms < 10) {
		over(b);
		return;
	}
	b->t.farewell_ms -= 10;
	if (loop_timer(b->loop, in_ms(10), on_farewell, b, &b->farewell_timer) < 0)
		over(b);
}

/* What is written into the records of commands that were running. */
static void end_commands(struct box *b, bool asked)
{
	char words[640], waiting[640];

	if (asked) {
		queue_end_all(b->queue, "the sandbox was stopped", "the sandbox was stopped before it began", true);
		return;
	}
	snprintf(words, sizeof(words), "lost: %s", b->why);
	snprintf(waiting, sizeof(waiting), "never began: %s", b->why);
	queue_end_all(b->queue, words, waiting, false);
}

static void let_go_of_guest(struct box *b)
{
	b->queue = queue_free(b->queue);
	b->inherit = inherit_free(b->inherit);
	box_load_fini(b);
	b->guest = guest_free(b->guest);
}

/* What was lent to it is closed behind it. */
static void let_go_of_engine(struct box *b)
{
	b->engine = b->engine_ops->free(b->engine);
	box_freeze_fini(b);
	box_memory_fini(b);
}

static void finish(void *arg)
{
	struct box *b = arg;
	bool asked = !*b->why;

	b->end_call = 0;
	loop_del(b->loop, &b->boot_timer);
	loop_del(b->loop, &b->stop_timer);
	loop_del(b->loop, &b->settle_timer);
	loop_del(b->loop, &b->pidfd);
	box_drop_early(b);
	if (b->queue)
		end_commands(b, asked);
	let_go_of_guest(b);
	if (b->engine && !b->engine_gone)
		b->engine_ops->quit(b->engine); /* what is in the socket's buffer is read although we close */
	let_go_of_engine(b);
	console_drain(b->console);
	b->console = console_free(b->console);
	box_reply(b, b->pause_id, -ENOTCONN, b->why);
	box_reply(b, b->freeze.id, -ENOTCONN, b->why);
	box_reply(b, b->memory.id, -ENOTCONN, b->why);
	box_reply(b, b->load.id, -ENOTCONN, b->why);
	box_reclaim_fini(b);
	box_reply(b, b->stop_id, 0, "");
	b->pause_id = b->stop_id = b->freeze.id = b->memory.id = b->load.id = 0;
	box_set_state(b, BOX_GONE, b->why);
	on_farewell(b);
}

void box_end(struct box *b, const char *words)
{
	if (b->ending)
		return;
	b->ending = true;
	/* While it stops because it was told to, an end is what was asked for. */
	if (b->state != BOX_STOPPING)
		snprintf(b->why, sizeof(b->why), "%s", words);
	if (loop_defer(b->loop, finish, b, &b->end_call) < 0)
		over(b); /* no memory even for that: the process ends, the daemon sees it */
}

/* -- the engine -------------------------------------------------------------------------------- */

static void end_by_engine(struct box *b, const char *detail)
{
	char words[256];

	snprintf(words, sizeof(words), "the engine ended (%s)", *b->engine_words ? b->engine_words : detail);
	if (b->state == BOX_BOOTING) {
		char tail[256];

		console_drain(b->console);
		console_tail(b->console, tail, sizeof(tail));
		snprintf(b->state_words, sizeof(b->state_words), "%.200s before the guest was ready%s%s", words,
			 *tail ? "; console: " : "", tail);
		box_end(b, b->state_words);
		return;
	}
	box_end(b, words);
}

static void on_settled(void *arg)
{
	struct box *b = arg;
	char words[400];

	b->settle_timer = 0;
	if (b->engine_gone || !b->guest_gone) {
		end_by_engine(b, "killed, or crashed");
		return;
	}
	snprintf(words, sizeof(words), "the guest was lost: %s", b->guest_words);
	box_end(b, words);
}

/* Something has ended; why, the monitor will tell at once if it can. */
static void settle(struct box *b)
{
	if (!b->settle_timer && !b->ending &&
	    loop_timer(b->loop, in_ms(b->t.settle_ms), on_settled, b, &b->settle_timer) < 0)
		on_settled(b);
}

static void on_pidfd(void *arg, uint32_t events)
{
	struct box *b = arg;

	(void)events;
	loop_del(b->loop, &b->pidfd);
	b->engine_gone = true;
	settle(b);
}

static void on_paused(struct box *b)
{
	if (box_freeze_takes_pause(b) || box_load_takes_pause(b))
		return;
	if (b->state == BOX_BOOTING && *b->io_words) {
		box_end(b, b->io_words);
		return;
	}
	if (b->state != BOX_READY)
		return;
	queue_pause(b->queue);
	box_set_state(b, BOX_PAUSED, b->io_words);
}

static void on_resumed(struct box *b)
{
	b->io_words[0] = '\0';
	if (b->state != BOX_PAUSED)
		return;
	guest_thaw(b->guest); /* of a snapshot that went wrong */
	box_set_state(b, BOX_READY, "");
	queue_resume(b->queue);
}

static void on_engine(void *arg, enum engine_event ev, const char *detail)
{
	struct box *b = arg;

	switch (ev) {
	case ENGINE_EV_UP:
		b->engine_up = true;
		box_replay_early(b);
		break;
	case ENGINE_EV_PAUSED:
		on_paused(b);
		break;
	case ENGINE_EV_RESUMED:
		on_resumed(b);
		break;
	case ENGINE_EV_SHUTDOWN:
	case ENGINE_EV_PANICKED:
		if (!*b->engine_words)
			snprintf(b->engine_words, sizeof(b->engine_words), "%s", detail);
		break;
	case ENGINE_EV_IO_ERROR: /* comes many times for one full disk, before the pause */
		if (!*b->io_words)
			box_say_event(b, "{\"event\":\"disk_error\"}");
		snprintf(b->io_words, sizeof(b->io_words), "%s", detail);
		break;
	case ENGINE_EV_STUCK:
		box_say_event(b, "{\"event\":\"monitor_stuck\"}");
		break;
	case ENGINE_EV_GONE:
		b->engine_gone = true;
		end_by_engine(b, detail);
		break;
	}
}

static void on_quit_timer(void *arg)
{
	struct box *b = arg;

	b->stop_timer = 0;
	box_end(b, "");
}

void box_quit_engine(struct box *b)
{
	loop_del(b->loop, &b->stop_timer);
	if (b->engine)
		b->engine_ops->quit(b->engine);
	if (loop_timer(b->loop, in_ms(b->t.quit_ms), on_quit_timer, b, &b->stop_timer) < 0)
		box_end(b, "");
}

/* -- the guest --------------------------------------------------------------------------------- */

void box_identity(struct box *b, struct guest_identity *ret)
{
	const struct box_config *c = &b->config;

	*ret = (struct guest_identity){
		.hostname = c->name,
		.instance = c->uuid,
		.root_mib = c->root_mib,
		.cpu_percent = c->cpu_percent,
		.pids = c->pids,
		.memory_bytes = (uint64_t)c->memory_mib << 20,
		.net = c->net,
	};
}

static void on_stage(void *arg, const char *words)
{
	struct box *b = arg;
	struct guest_identity id;

	if (b->load.life != LIFE_COLD)
		return; /* whoever was restored has no boot to tell of */
	box_identity(b, &id);
	snprintf(b->stage, sizeof(b->stage), "%s", words);
	if (strcmp(words, AG_STAGE_HELLO) == 0)
		guest_hello(b->guest, &id); /* a failure is the boot timer's to tell */
}

static void on_heir_ended(void *arg, const struct inherit_end *end)
{
	struct box *b = arg;
	char json[256];

	box_tell_guest(b);
	snprintf(json, sizeof(json),
		 "{\"event\":\"inherited_ended\",\"n\":%" PRIu64
		 ",\"exit_code\":%d,\"signal\":\"%s\",\"bytes\":%" PRIu64 ",\"dropped\":%" PRIu64 "}",
		 end->n, end->exit_code, end->signal, end->bytes, end->dropped);
	box_say_event(b, json);
}

void box_tell_guest(struct box *b)
{
	if (b->inherit)
		inherit_json(b->inherit, b->guest_json, b->guest_json, sizeof(b->guest_json));
}

static void on_ready(void *arg, const struct guest_info *info)
{
	struct box *b = arg;

	if (box_load_ready(b) || b->state != BOX_BOOTING)
		return;
	loop_del(b->loop, &b->boot_timer);
	snprintf(b->guest_json, sizeof(b->guest_json), "%s", info->json);
	if (info->ninherited > 0 &&
	    inherit_new(b->guest, info, b->dirfd, INHERIT_OUTPUT_MAX, on_heir_ended, b, &b->inherit) < 0) {
		box_end(b, "no memory for what the guest inherited");
		return;
	}
	box_tell_guest(b);
	box_set_state(b, BOX_READY, "");
	queue_start(b->queue, b->guest, info->unenforced);
}

static void on_guest_gone(void *arg, int reason, const char *words)
{
	struct box *b = arg;
	char text[400];

	b->guest_gone = true;
	if (reason == -ECONNRESET) {
		snprintf(b->guest_words, sizeof(b->guest_words), "%s", words);
		settle(b); /* most likely the engine died */
		return;
	}
	snprintf(text, sizeof(text), "the guest was lost: %s", words);
	box_end(b, text);
}

static void on_boot_timer(void *arg)
{
	struct box *b = arg;
	char words[512], tail[256];

	b->boot_timer = 0;
	console_drain(b->console);
	console_tail(b->console, tail, sizeof(tail));
	snprintf(words, sizeof(words), "the guest was not ready after %u s (stage: %s)%s%s", b->config.boot_timeout_s,
		 *b->stage ? b->stage : "kernel", *tail ? "; console: " : "", tail);
	box_end(b, words);
}

/* -- the beginning ----------------------------------------------------------------------------- */

static int *fd_of(struct box *b, enum box_fd which)
{
	return &b->fds[which - BOX_FD_DAEMON];
}

int box_start_machine(struct box *b, struct err *e)
{
	static const struct engine_events engine_events = { .on_event = on_engine };
	static const struct guest_ops guest_ops = { .on_stage = on_stage,
						    .on_ready = on_ready,
						    .on_gone = on_guest_gone };
	int r;

	r = console_new(b->loop, take_fd(fd_of(b, BOX_FD_CONSOLE)), b->dirfd, b->t.console_keep, &b->console, e);
	if (r == 0)
		r = b->engine_ops->connect(b->loop, take_fd(fd_of(b, BOX_FD_MONITOR)), b->generic, &engine_events, b,
					   &b->engine, e);
	if (r == 0) {
		b->memory.begun = true;
		r = box_memory_begin(b, take_fd(fd_of(b, BOX_FD_MEMORY)));
		if (r < 0)
			err_set(e, r, "the guest's memory: %s", err_name(r));
	}
	if (r == 0) {
		r = guest_new(b->loop, take_fd(fd_of(b, BOX_FD_CONTROL)), take_fd(fd_of(b, BOX_FD_BULK)), &guest_ops, b,
			      &b->guest);
		if (r < 0)
			err_set(e, r, "the agent's ports: %s", err_name(r));
	}
	if (r == 0) {
		r = loop_add(b->loop, *fd_of(b, BOX_FD_ENGINE), EPOLLIN, on_pidfd, b, &b->pidfd);
		if (r < 0)
			err_set(e, r, "the engine's pidfd: %s", err_name(r));
	}
	return r;
}

int box_start(struct box *b, struct err *e)
{
	int r;

	b->configured = true;
	if (b->config.restore != b->generic)
		return err_set(e, -EINVAL,
			       b->generic ? "a machine that waits for a snapshot was told to boot"
					  : "a machine that boots was told to restore");
	r = queue_new(b->loop, b->dirfd, &b->config, &b->t, &box_queue_ops, b, &b->queue, e);
	if (r == 0 && !b->generic)
		r = box_start_machine(b, e);
	if (r == 0 && b->config.boot_timeout_s > 0)
		r = loop_timer(b->loop, in_ms(b->config.boot_timeout_s * 1000), on_boot_timer, b, &b->boot_timer);
	return r;
}

int box_new(struct loop *l, struct box_params *p, void (*on_over)(void *arg, const char *words), void *arg,
	    struct box **ret, struct err *e)
{
	struct box *b = calloc(1, sizeof(*b));
	int r = b ? 0 : -ENOMEM;

	for (size_t i = 0; i < ARRAY_LEN(p->fds); i++)
		if (b)
			b->fds[i] = take_fd(&p->fds[i]);
		else
			fd_close(&p->fds[i]);
	if (b) {
		b->loop = l;
		b->t = p->tuning;
		b->engine_ops = p->engine;
		b->dirfd = p->dirfd;
		b->on_over = on_over;
		b->arg = arg;
		b->generic = p->generic;
		b->load.life = p->generic ? LIFE_EMPTY : LIFE_COLD;
		buf_init(&b->out, MSG_MAX);
		buf_init(&b->data, MSG_MAX);
		r = session_new(l, take_fd(fd_of(b, BOX_FD_DAEMON)), &b->t, &box_session_ops, b, &b->session);
	}
	if (r < 0) {
		box_free(b);
		return err_set(e, r, "box: %s", err_name(r));
	}
	if (p->generic) {
		r = box_start_machine(b, e);
		if (r < 0) {
			box_free(b);
			return err_wrap(e, "box");
		}
		box_say_hello(b);
	}
	*ret = b;
	return 0;
}

struct box *box_free(struct box *b)
{
	if (!b)
		return NULL;
	loop_del(b->loop, &b->boot_timer);
	loop_del(b->loop, &b->stop_timer);
	loop_del(b->loop, &b->settle_timer);
	loop_del(b->loop, &b->farewell_timer);
	loop_del(b->loop, &b->end_call);
	loop_del(b->loop, &b->removed_call);
	loop_del(b->loop, &b->pidfd);
	box_drop_early(b);
	let_go_of_guest(b);
	let_go_of_engine(b);
	console_free(b->console);
	session_free(b->session);
	for (size_t i = 0; i < ARRAY_LEN(b->fds); i++)
		fd_close(&b->fds[i]);
	box_config_fini(&b->config);
	buf_fini(&b->out);
	buf_fini(&b->data);
	free(b);
	return NULL;
}
