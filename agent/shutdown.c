/* SPDX-License-Identifier: Apache-2.0 */
/* The end of the guest: commands get SIGTERM, two seconds, SIGKILL; then sync, read-only, power off. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/fd.h"
#include "base/json.h"

#define GRACE_NS      2000000000u
#define KILL_GRACE_NS 1000000000u /* a process in the kernel may take a moment to go */
#define LOOK_NS	      10000000u
#define LAST_WORDS_MS 2000

static void power_off(struct agent *a)
{
	conn_flush_blocking(a->conn, LAST_WORDS_MS);
	if (a->guest.test) {
		loop_stop(a->loop);
		return;
	}
	sync();
	/* Whatever still has files open has them on a file system that is on the disk now. */
	if (mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY, NULL) < 0)
		sync();
	reboot(RB_POWER_OFF);
	for (;;)
		pause(); /* a machine that cannot be switched off: the host ends it */
}

static void look(void *arg)
{
	struct agent *a = arg;
	uint64_t now = now_ns();

	a->stop_timer = 0;
	if (execs_alive(a->execs) == 0) {
		power_off(a);
		return;
	}
	if (now >= a->stop_deadline_ns) {
		if (a->stop_killed) {
			power_off(a);
			return;
		}
		a->stop_killed = true;
		a->stop_deadline_ns = now + KILL_GRACE_NS;
		execs_kill_all(a->execs);
	}
	if (loop_timer(a->loop, now + LOOK_NS, look, a, &a->stop_timer) < 0)
		power_off(a);
}

void shutdown_begin(struct agent *a)
{
	if (a->stopping)
		return;
	a->stopping = true;
	a->stop_deadline_ns = now_ns() + GRACE_NS;
	execs_signal_all(a->execs, SIGTERM);
	execs_signal_all(a->execs, SIGCONT); /* a stopped one cannot end */
	look(a);
}

static void print_console(struct agent *a, const char *words)
{
	char line[400];
	int n = snprintf(line, sizeof(line), "crucible-agent: %s\n", words);

	if (a->guest.console_fd >= 0 && n > 0 && write(a->guest.console_fd, line, strnlen(line, sizeof(line))) < 0)
		return;
}

void agent_stage(struct agent *a, const char *text)
{
	if (!a->conn) {
		print_console(a, text);
		return;
	}
	conn_send(a->conn, CONN_CONTROL, AG_STAGE, 0, 0, text, strlen(text));
	conn_flush_blocking(a->conn, 0); /* the loop does not run yet, and the next stage may take its time */
}

void shutdown_fatal(struct agent *a, const struct err *e)
{
	print_console(a, e->msg);
	if (a->conn) {
		AUTO_JSON *o = json_object_new_object();
		const char *line;

		json_object_object_add(o, "error", json_text(e->msg, strlen(e->msg)));
		line = json_line(o);
		if (line)
			conn_send(a->conn, CONN_CONTROL, AG_BYE, 0, 0, line, strlen(line));
		conn_flush_blocking(a->conn, LAST_WORDS_MS);
	}
	if (a->guest.test)
		return;
	sync();
	reboot(RB_POWER_OFF);
	for (;;)
		pause();
}
