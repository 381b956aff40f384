/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a program: one line of key=value on stderr. Libraries never call this: only program folders
 * (main files and the daemon's own parts). errno survives. Values that come from outside are quoted and stripped of
 * control characters by log_quote(). Lines that repeat within a second are counted, not printed. Thread: any. */
#ifndef CRUCIBLE_BASE_LOG_H
#define CRUCIBLE_BASE_LOG_H

enum log_level { LOG_L_ERR, LOG_L_WARN, LOG_L_INFO, LOG_L_DEBUG, LOG_L_COUNT };

void log_init(const char *program, enum log_level level); /* @program: static string */
void log_set_level(enum log_level level);
const char *log_level_name(enum log_level level);	    /* the word that log_level_parse() takes */
int log_level_parse(const char *word, enum log_level *ret); /* err warn info debug; -EINVAL */
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define log_err(...)   log_line(LOG_L_ERR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_L_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_L_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_L_DEBUG, __VA_ARGS__)
/* Quote @text for a value into @out (cap bytes); returns @out. */
const char *log_quote(const char *text, char *out, unsigned long cap);

#endif
