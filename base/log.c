/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"

#define LINE_MAX_BYTES 1024
#define REPEAT_NS      1000000000u

static const char *const level_name[] = { "err", "warn", "info", "debug" };
_Static_assert(ARRAY_LEN(level_name) == LOG_L_COUNT, "a name for each level");

static const char *prog_name = "crucible";
static atomic_int threshold = LOG_L_INFO;

/* What was printed lately, to count what repeats. A few entries: two lines that take turns are caught as well. */
struct recent {
	enum log_level level;
	uint64_t at_ns;	 /* when it was printed; 0: free */
	uint64_t hidden; /* times it came again since */
	char text[LINE_MAX_BYTES];
};
static struct recent recents[8]; /* under lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void log_init(const char *program, enum log_level level)
{
	prog_name = program;
	log_set_level(level);
}

void log_set_level(enum log_level level)
{
	atomic_store(&threshold, (int)level);
}

const char *log_level_name(enum log_level level)
{
	return level_name[level];
}

int log_level_parse(const char *word, enum log_level *ret)
{
	for (size_t i = 0; i < ARRAY_LEN(level_name); i++)
		if (!strcmp(word, level_name[i])) {
			*ret = (enum log_level)i;
			return 0;
		}
	return -EINVAL;
}

static void print(enum log_level level, const char *text, uint64_t repeated)
{
	char line[LINE_MAX_BYTES + 128], when[32], again[48] = "";
	time_t now = (time_t)(wall_ns() / 1000000000u);
	struct tm tm;
	int n;

	gmtime_r(&now, &tm);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
	if (repeated)
		snprintf(again, sizeof(again), " repeated=%llu", (unsigned long long)repeated);
	n = snprintf(line, sizeof(line), "time=%s level=%s prog=%s %s%s\n", when, level_name[level], prog_name, text,
		     again);
	if (n < 0)
		return;
	if ((size_t)n >= sizeof(line)) {
		n = sizeof(line) - 1;
		line[n - 1] = '\n';
	}
	/* One write, so that lines of several processes do not mix. Nobody to tell when it fails. */
	(void)!write(STDERR_FILENO, line, (size_t)n);
}

/* Whether @text is a repeat that is only counted. Prints the counts of those whose second is over. */
static int is_repeat(enum log_level level, const char *text)
{
	struct recent *oldest = &recents[0];
	uint64_t now = now_ns();
	int found = 0;

	for (size_t i = 0; i < ARRAY_LEN(recents); i++) {
		struct recent *r = &recents[i];

		if (r->at_ns && now - r->at_ns >= REPEAT_NS) {
			if (r->hidden)
				print(r->level, r->text, r->hidden);
			r->at_ns = r->hidden = 0;
		}
		if (r->at_ns && r->level == level && !strcmp(r->text, text)) {
			r->hidden++;
			found = 1;
		}
		if (r->at_ns < oldest->at_ns)
			oldest = r;
	}
	if (found)
		return 1;
	if (oldest->hidden)
		print(oldest->level, oldest->text, oldest->hidden);
	oldest->level = level;
	oldest->at_ns = now;
	oldest->hidden = 0;
	snprintf(oldest->text, sizeof(oldest->text), "%s", text);
	return 0;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	char text[LINE_MAX_BYTES];
	int saved = errno;
	va_list ap;

	if ((int)level > atomic_load(&threshold))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	pthread_mutex_lock(&lock);
	if (!is_repeat(level, text))
		print(level, text, 0);
	pthread_mutex_unlock(&lock);
	errno = saved;
}

const char *log_quote(const char *text, char *out, unsigned long cap)
{
	unsigned long n = 0;

	if (cap < 3) {
		if (cap)
			out[0] = '\0';
		return out;
	}
	out[n++] = '"';
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		unsigned long need = c == '"' || c == '\\' ? 2 : 1;

		if (n + need + 2 > cap) /* the closing quote and the NUL */
			break;
		if (need == 2)
			out[n++] = '\\';
		out[n++] = c < 0x20 || c == 0x7f ? '?' : (char)c;
	}
	out[n++] = '"';
	out[n] = '\0';
	return out;
}
