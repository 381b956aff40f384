/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define SIDE_MAX 1000u

static struct termios saved; /* what to go back to; valid while `entered` */
static bool entered;

void terminal_leave(void)
{
	if (entered)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
	entered = false;
}

static int set_raw(void)
{
	struct termios raw = saved;

	cfmakeraw(&raw);
	return tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) < 0 ? -errno : 0;
}

int terminal_enter(struct err *e)
{
	static bool registered;
	int r;

	if (tcgetattr(STDIN_FILENO, &saved) < 0)
		return err_set(e, -errno, "standard input is no terminal");
	if (!registered && atexit(terminal_leave) != 0)
		return err_set(e, -ENOMEM, "no memory");
	registered = true;
	entered = true;
	r = set_raw();
	if (r < 0) {
		entered = false;
		return err_set(e, r, "the terminal does not take raw mode: %s", strerror(-r));
	}
	return 0;
}

void terminal_again(void)
{
	if (entered)
		set_raw();
}

static unsigned clamp(unsigned v)
{
	return v < 1 ? 1 : v > SIDE_MAX ? SIDE_MAX : v;
}

void terminal_size(unsigned *ret_rows, unsigned *ret_cols)
{
	struct winsize w = { 0 };

	if ((ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0 && ioctl(STDIN_FILENO, TIOCGWINSZ, &w) < 0) || !w.ws_row ||
	    !w.ws_col)
		w = (struct winsize){ .ws_row = 24, .ws_col = 80 };
	*ret_rows = clamp(w.ws_row);
	*ret_cols = clamp(w.ws_col);
}

size_t escape_filter(struct escape *s, const char *typed, size_t len, char *out, bool *ret_leave)
{
	size_t n = 0;

	*ret_leave = false;
	for (size_t i = 0; i < len; i++) {
		char c = typed[i];

		if (s->state == ESCAPE_LINE && c == '~') {
			s->state = ESCAPE_TILDE;
			continue;
		}
		if (s->state == ESCAPE_TILDE) {
			if (c == '.') {
				*ret_leave = true;
				return n;
			}
			out[n++] = '~';
			if (c == '~') { /* "~~" is one tilde */
				s->state = ESCAPE_TEXT;
				continue;
			}
		}
		out[n++] = c;
		/* A line that was given up by Ctrl-C or Ctrl-U has begun anew. */
		s->state = c == '\r' || c == '\n' || c == 3 || c == 21 ? ESCAPE_LINE : ESCAPE_TEXT;
	}
	return n;
}
