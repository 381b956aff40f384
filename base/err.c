/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdio.h>
#include <string.h>

#include "base/fd.h"

#define MSG_CAP sizeof(((struct err *)NULL)->msg)

/* One line for people: no control characters, and a cut never leaves half of a UTF-8 sequence. */
static void make_line(char *text, size_t cap, int full_len)
{
	size_t len = strlen(text);

	if (full_len >= 0 && (size_t)full_len >= cap) {
		while (len > 0 && ((unsigned char)text[len - 1] & 0xc0) == 0x80)
			len--;
		if (len > 0 && ((unsigned char)text[len - 1] & 0xc0) == 0xc0)
			len--;
		text[len] = '\0';
	}
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c < 0x20 || c == 0x7f)
			text[i] = '?';
	}
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
	/* Not straight into e->msg: the arguments may point there. */
	char line[MSG_CAP] = "";
	int saved = errno, n;
	va_list ap;

	if (!e)
		return code;
	va_start(ap, fmt);
	n = vsnprintf(line, MSG_CAP, fmt, ap);
	va_end(ap);
	make_line(line, MSG_CAP, n);
	memcpy(e->msg, line, MSG_CAP);
	e->code = code;
	errno = saved;
	return code;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
	char line[MSG_CAP] = "";
	int saved = errno, n, m;
	va_list ap;

	if (!e)
		return -EIO;
	va_start(ap, fmt);
	n = vsnprintf(line, MSG_CAP, fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < MSG_CAP) {
		m = snprintf(line + n, MSG_CAP - (size_t)n, ": %s", e->msg);
		n = m < 0 ? m : n + m;
	}
	make_line(line, MSG_CAP, n);
	memcpy(e->msg, line, MSG_CAP);
	errno = saved;
	return e->code ? e->code : -EIO;
}

/* Where the tree means something else, or more, than the C library's words say (docs/man, "Errors"). */
static const struct {
	int code;
	const char *words;
} tree_words[] = {
	{ 0, "ok" },
	{ EDQUOT, "a limit or the policy says no more" },
	{ EPERM, "the policy forbids it" },
	{ EBUSY, "not in this state" },
	{ ENOTCONN, "the guest is gone" },
	{ ETIMEDOUT, "no answer in time" },
	{ EINVAL, "not understood" },
	{ ENOSPC, "the host's disk is full" },
	{ ENOMEM, "the host's memory is full" },
	{ EBADMSG, "the data is damaged" },
	{ ENOENT, "no such name" },
	{ EEXIST, "the name is taken" },
	{ ENAMETOOLONG, "the name is too long" },
	{ ESTALE, "the mount's time is over" },
	{ EFBIG, "too long" },
	{ EAGAIN, "not ready yet" },
};

const char *err_name(int code)
{
	const char *words;

	for (size_t i = 0; i < ARRAY_LEN(tree_words); i++)
		if (tree_words[i].code == -code)
			return tree_words[i].words;
	words = strerrordesc_np(-code);
	return words ? words : "unknown error";
}
