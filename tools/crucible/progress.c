/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/progress.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/crucible/printable.h"
#include "tools/crucible/terminal.h"

#define BAR_WIDTH 24u
#define LINE_CAP  512u

bool progress_parse(const char *line, unsigned *ret_percent, const char **ret_words)
{
	static const char word[] = "progress ";
	const char *p = line + sizeof(word) - 1;
	unsigned percent = 0;

	if (strncmp(line, word, sizeof(word) - 1) != 0 || !isdigit((unsigned char)*p))
		return false;
	for (; isdigit((unsigned char)*p); p++)
		percent = percent > 100 ? 101 : percent * 10 + (unsigned)(*p - '0');
	if (*p != ' ' && *p != '\0')
		return false;
	*ret_percent = percent > 100 ? 100 : percent;
	*ret_words = *p ? p + 1 : p;
	return true;
}

void progress_bar(unsigned percent, const char *words, unsigned columns, char *out, size_t cap)
{
	char bar[BAR_WIDTH + 1];
	unsigned full = BAR_WIDTH * percent / 100;
	size_t len;

	memset(bar, ' ', BAR_WIDTH);
	memset(bar, '#', full);
	bar[BAR_WIDTH] = '\0';
	snprintf(out, cap, "[%s] %3u%% %s", bar, percent, words);
	/* One column stays free: a full line would wrap, and the next bar would stand below. */
	len = strlen(out);
	if (columns > 0 && len >= columns) {
		len = columns - 1;
		while (len > 0 && ((unsigned char)out[len] & 0xc0) == 0x80)
			len--;
		out[len] = '\0';
	}
}

void progress_begin(struct progress *p)
{
	*p = (struct progress){ .bar = isatty(STDERR_FILENO), .last = ~0u };
}

void progress_end(struct progress *p)
{
	if (p->drawn)
		fputc('\n', stderr);
	p->drawn = false;
}

void progress_line(struct progress *p, char *line)
{
	unsigned percent, rows, columns;
	const char *words;
	char text[LINE_CAP];

	printable_line(line);
	if (!progress_parse(line, &percent, &words)) {
		progress_end(p);
		fprintf(stderr, "%s\n", line);
		return;
	}
	if (!p->bar) {
		fprintf(stderr, "%3u%% %s\n", percent, words);
		return;
	}
	terminal_size(&rows, &columns);
	progress_bar(percent, words, columns, text, sizeof(text));
	fprintf(stderr, "\r\033[K%s", text);
	p->drawn = true;
	if (percent == 100 && p->last != 100)
		progress_end(p);
	p->last = percent;
}
