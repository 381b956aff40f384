/* SPDX-License-Identifier: Apache-2.0 */
/* Slots: exec/NAME/, where commands run beside the queue, with live standard input. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "agent/proto.h"
#include "base/fd.h"
#include "cruciblefs/domain/view_priv.h"

struct slot *slot_find(struct sandbox *s, const char *name)
{
	for (struct slot *t = s->slots; t; t = t->next) {
		if (!strcmp(t->name, name))
			return t;
	}
	return NULL;
}

struct slot *slot_of_exec(struct sandbox *s, uint64_t n)
{
	for (struct slot *t = s->slots; t; t = t->next) {
		if (t->latest == n)
			return t;
	}
	return NULL;
}

static struct slot *slot_free(struct slot *t)
{
	buf_fini(&t->early);
	free(t);
	return NULL;
}

void slot_free_all(struct sandbox *s)
{
	while (s->slots) {
		struct slot *t = s->slots;

		s->slots = t->next;
		slot_free(t);
	}
	s->nslots = 0;
}

bool slot_exists(struct sandbox *s, const char *name)
{
	return slot_find(s, name) != NULL;
}

const char *slot_next(struct sandbox *s, const char *after)
{
	struct slot *t = after ? slot_find(s, after) : NULL;

	t = after ? (t ? t->next : NULL) : s->slots;
	return t ? t->name : NULL;
}

uint64_t slot_latest_exec(struct sandbox *s, const char *name)
{
	struct slot *t = slot_find(s, name);

	return t ? t->latest : 0;
}

static bool is_digits(const char *name)
{
	return name[strspn(name, "0123456789")] == '\0';
}

int slot_create(struct sandbox *s, const char *name, const struct cfs_who *who, struct err *e)
{
	struct slot *t;
	int r = sandbox_permits(s, who, POLICY_EXEC, "exec", e);

	if (r < 0) {
		sandbox_fail(s, who, e);
		return r;
	}
	r = cfs_name_check(name);
	if (r < 0 || is_digits(name) || !strcmp(name, "latest"))
		r = err_set(e, r ? r : -EINVAL, "sandbox %s: exec/%.64s: not a slot's name (letters, not digits only)",
			    s->name, name);
	else if (slot_find(s, name))
		r = err_set(e, -EEXIST, "sandbox %s: exec/%s exists", s->name, name);
	else if (s->nslots >= BOX_BESIDE_MAX)
		r = err_set(e, -EDQUOT, "sandbox %s: %u slots exist; rmdir some of exec/", s->name, s->nslots);
	if (r < 0) {
		sandbox_fail(s, who, e);
		return r;
	}
	t = calloc(1, sizeof(*t));
	if (!t)
		return err_set(e, -ENOMEM, "sandbox %s: no memory", s->name);
	snprintf(t->name, sizeof(t->name), "%s", name);
	t->credit = BOX_STDIN_WINDOW;
	buf_init(&t->early, BOX_STDIN_WINDOW);
	t->next = s->slots;
	s->slots = t;
	s->nslots++;
	sandbox_save(s, NULL);
	sandbox_changed(s);
	return 0;
}

static struct execution *open_exec(struct sandbox *s, struct slot *t)
{
	struct execution *x = t->latest ? sandbox_exec(s, t->latest) : NULL;

	return x && x->state != EXEC_DONE ? x : NULL;
}

int slot_remove(struct sandbox *s, const char *name, const struct cfs_who *who, struct err *e)
{
	struct slot **at = &s->slots, *t;
	struct execution *x;
	int r = sandbox_permits(s, who, POLICY_EXEC, "exec", e);

	if (r < 0)
		return r;
	while (*at && strcmp((*at)->name, name))
		at = &(*at)->next;
	t = *at;
	if (!t)
		return err_set(e, -ENOENT, "sandbox %s: no exec/%s", s->name, name);
	x = open_exec(s, t);
	if (x && s->link)
		boxlink_ctl(s->link, x->n, BOX_CANCEL, 0, 0, NULL, NULL);
	*at = t->next;
	s->nslots--;
	slot_free(t);
	sandbox_save(s, NULL);
	sandbox_changed(s);
	return 0;
}

/* -- live standard input ------------------------------------------------------------------------------------- */

static int send_stdin(struct sandbox *s, uint64_t n, bool eof, const void *data, size_t len)
{
	struct buf b;
	int r;

	buf_init(&b, MSG_MAX);
	if ((r = wire_put_u64(&b, n)) == 0 && (r = wire_put_u8(&b, eof)) == 0 &&
	    (!len || (r = buf_add(&b, data, len)) == 0))
		r = boxlink_call(s->link, BOX_STDIN, b.data, b.len, NULL, NULL);
	buf_fini(&b);
	return r;
}

/* The command runs: what was written before goes along, as much as the box takes. */
static void send_early(struct sandbox *s, struct slot *t)
{
	int r = 0;

	while (!r && t->early.len && t->credit) {
		size_t n = t->early.len < t->credit ? t->early.len : t->credit;

		n = n < 65536 ? n : 65536;
		r = send_stdin(s, t->latest, false, t->early.data, n);
		if (!r) {
			buf_drop(&t->early, n);
			t->credit -= (uint32_t)n;
		}
	}
	if (t->early.len && !r)
		return; /* the rest when there is credit again: after a restart of the daemon the box has to say how
			   much */
	buf_fini(&t->early);
	if (!r && t->eof)
		send_stdin(s, t->latest, true, NULL, 0);
	t->eof = false;
}

void slot_began(struct sandbox *s, struct slot *t)
{
	t->credit = BOX_STDIN_WINDOW;
	send_early(s, t);
}

void slot_credit(struct sandbox *s, uint64_t n, uint32_t bytes)
{
	struct slot *t = slot_of_exec(s, n);
	struct execution *x = t ? sandbox_exec(s, n) : NULL;

	if (!x || x->state != EXEC_RUNNING || bytes > BOX_STDIN_WINDOW - t->credit)
		return; /* removed or ended meanwhile, or a box that gives more than it took */
	t->credit += bytes;
	send_early(s, t);
	waitq_wake(&s->waitq);
}

/* The command does not run in the guest yet, or what was written before that is not gone yet: what is written is kept
 * here. */
static bool is_early(const struct sandbox *s, const struct slot *t, const struct execution *x)
{
	return !x || x->state == EXEC_QUEUED || !s->link || t->early.len;
}

size_t slot_stdin_room(struct sandbox *s, const char *name)
{
	struct slot *t = slot_find(s, name);
	struct execution *x = t && t->latest ? sandbox_exec(s, t->latest) : NULL;

	if (!t || (x && x->state == EXEC_DONE))
		return SIZE_MAX; /* slot_stdin() says why */
	return is_early(s, t, x) ? BOX_STDIN_WINDOW - t->early.len : t->credit;
}

int slot_stdin(struct sandbox *s, const char *name, const void *data, size_t len, size_t *ret_taken, struct err *e)
{
	struct slot *t = slot_find(s, name);
	struct execution *x;
	size_t n;
	int r;

	if (!t)
		return err_set(e, -ENOENT, "sandbox %s: no exec/%s", s->name, name);
	x = t->latest ? sandbox_exec(s, t->latest) : NULL;
	if (x && x->state == EXEC_DONE)
		return err_set(e, -EPIPE, "sandbox %s: exec/%s: its command has ended", s->name, name);
	if (is_early(s, t, x)) {
		n = BOX_STDIN_WINDOW - t->early.len;
		n = len < n ? len : n;
		if (!n)
			return -EAGAIN;
		r = buf_add(&t->early, data, n);
		if (r < 0)
			return err_set(e, r, "sandbox %s: exec/%s: no memory", s->name, name);
		*ret_taken = n;
		return 0;
	}
	n = len < t->credit ? len : t->credit;
	if (n > 65536)
		n = 65536;
	if (!n)
		return len ? -EAGAIN : 0;
	r = send_stdin(s, x->n, false, data, n);
	if (r < 0)
		return err_set(e, r == -ENOBUFS ? -EAGAIN : r, "sandbox %s: exec/%s: %s", s->name, name, strerror(-r));
	t->credit -= (uint32_t)n;
	*ret_taken = n;
	return 0;
}

/* -- ctl -------------------------------------------------------------------------------------------------------- */

static int slot_eof(struct sandbox *s, struct slot *t, struct err *e)
{
	struct execution *x = t->latest ? sandbox_exec(s, t->latest) : NULL;

	if (x && x->state == EXEC_DONE)
		return 0; /* it needs no input any more */
	if (is_early(s, t, x)) {
		t->eof = true;
		return 0;
	}
	return send_stdin(s, x->n, true, NULL, 0) < 0 ? err_set(e, -EIO, "sandbox %s: exec/%s: eof", s->name, t->name)
						      : 0;
}

/* A terminal's size: "ROWS COLS", each from 1 to 9999. */
static bool parse_size(const char *text, uint32_t *ret_rows, uint32_t *ret_cols)
{
	unsigned long size[2];
	char *end;

	for (int i = 0; i < 2; i++) {
		text += strspn(text, " \t");
		if (!isdigit((unsigned char)*text))
			return false;
		size[i] = strtoul(text, &end, 10);
		if (size[i] < 1 || size[i] > 9999)
			return false;
		text = end;
	}
	*ret_rows = (uint32_t)size[0];
	*ret_cols = (uint32_t)size[1];
	return !*text;
}

/* The verb's argument when @line begins with @word and a blank; else NULL. */
static const char *argument_of(const char *line, const char *word)
{
	size_t n = strlen(word);

	if (strncmp(line, word, n) || (line[n] != ' ' && line[n] != '\t'))
		return NULL;
	return line + n + strspn(line + n, " \t");
}

static int slot_verb(struct sandbox *s, struct slot *t, const char *line, struct err *e)
{
	struct execution *x = open_exec(s, t);
	enum box_verb verb;
	uint32_t a = 0, b = 0;
	const char *arg;

	if (!strcmp(line, "eof"))
		return slot_eof(s, t, e);
	if (!strcmp(line, "kill")) {
		verb = BOX_KILL;
	} else if ((arg = argument_of(line, "resize")) && parse_size(arg, &a, &b)) {
		verb = BOX_RESIZE;
	} else if ((arg = argument_of(line, "signal"))) {
		int signo = ag_signal_number(arg);

		if (signo < 0)
			return err_set(e, -EINVAL, "sandbox %s: exec/%s: \"%.20s\" is no signal's name", s->name,
				       t->name, arg);
		verb = BOX_SIGNAL;
		a = (uint32_t)signo;
	} else {
		return err_set(e, -EINVAL,
			       "sandbox %s: exec/%s: \"%.40s\" is none of: eof, kill, signal NAME, resize ROWS COLS",
			       s->name, t->name, line);
	}
	if (!x)
		return err_set(e, -ENOENT, "sandbox %s: exec/%s: no command runs", s->name, t->name);
	if (!s->link || s->unproven || s->net.holds)
		return err_set(e, -EBUSY, "sandbox %s: exec/%s: the machine is %s", s->name, t->name,
			       sandbox_status_name(s->status));
	return boxlink_ctl(s->link, x->n, verb, a, b, NULL, NULL);
}

int slot_ctl(struct sandbox *s, const char *name, const char *line, const struct cfs_who *who, struct err *e)
{
	struct slot *t = slot_find(s, name);
	int r = sandbox_permits(s, who, POLICY_EXEC, "exec", e);

	if (!r)
		r = t ? slot_verb(s, t, line, e) : err_set(e, -ENOENT, "sandbox %s: no exec/%s", s->name, name);
	if (r < 0)
		sandbox_fail(s, who, e);
	return r;
}
